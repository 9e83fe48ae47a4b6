"""Which relations say something about the world."""

_LEFT_OUT = (
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
_KEPT = frozenset({"common.topic.notable_types"})


def is_telling(relation: str) -> bool:
    """Return whether a relation is more than bookkeeping, a text, or a key of another database.

    >>> is_telling("people.person.spouse_s"), is_telling("type.object.key")
    (True, False)
    """
    return "." in relation and (relation in _KEPT or not relation.startswith(_LEFT_OUT))
