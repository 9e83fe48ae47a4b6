"""Which relations say something about the world."""

LEFT_OUT = (
    "common.document.",
    "common.image.",
    "common.licensed_object.",
    "common.topic.",
    "common.webpage.",
    "dataworld.",
    "freebase.",
    "owl#",
    "pipeline.",
    "rdf-schema#",
    "type.",
)
"""What the ids of bookkeeping relations start with."""

KEPT = ("common.topic.notable_types",)
"""Relations that are no bookkeeping, though their ids start like it."""


def is_telling(relation: str) -> bool:
    """Return whether a relation is more than bookkeeping, a text, or a key of another database.

    >>> is_telling("people.person.spouse_s"), is_telling("type.object.key")
    (True, False)
    """
    return "." in relation and (relation in KEPT or not relation.startswith(LEFT_OUT))
