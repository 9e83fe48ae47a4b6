"""Say what a load leaves out: whole predicates, and texts in languages that nobody asked for.

A profile is a ready set of rules; a file of rules, in TOML, takes its place where a user's needs
are other. Applying the rules is not done here: `kbqa.kb.filter_block` reads them.
"""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import FREEBASE_NS

PROFILES = ("qa", "full")
"""The names that `profile` knows; the first is the default."""

_KEY_NS = "http://rdf.freebase.com/key/"
_RDF_NS = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_RDFS_NS = "http://www.w3.org/2000/01/rdf-schema#"
_OWL_NS = "http://www.w3.org/2002/07/owl#"

_PRIMARY_TAG = re.compile(r"[a-z]{1,8}")
_NOT_IN_PATTERN = re.compile(r'[\x00-\x20<>"{}|^`\\]|\*.')


@dataclass(frozen=True, slots=True)
class Drop:
    """A predicate, or a family of them, to leave out.

    Attributes:
        predicate: An id (``type.type.instance``) or a full IRI; a ``*`` at the end stands for
            anything.
        reason: Why, in a few words. Triples are counted by it.
    """

    predicate: str
    reason: str

    def __post_init__(self) -> None:
        if not self.predicate or _NOT_IN_PATTERN.search(self.predicate):
            raise ValueError(
                f"{self.predicate!r} is no predicate: give an id such as type.object.key or a "
                "full IRI, with * at its end alone"
            )
        if not self.reason.strip():
            raise ValueError(f"the drop of {self.predicate} has no reason")

    @property
    def iri(self) -> str:
        """The predicate in full, its ``*`` included."""
        return self.predicate if "://" in self.predicate else FREEBASE_NS + self.predicate

    def matches(self, predicate_iri: str) -> bool:
        """Tell whether a predicate is meant."""
        if self.predicate.endswith("*"):
            return predicate_iri.startswith(self.iri[:-1])
        return predicate_iri == self.iri


@dataclass(frozen=True, slots=True)
class Rules:
    """What a load keeps and what not.

    Attributes:
        name: What the rules are called: a profile's name, or the user's own.
        languages: The languages of texts to keep, as primary tags (``en``); empty for all.
        drops: What is left out; where several match, the first counts.
    """

    name: str
    languages: tuple[str, ...] = ()
    drops: tuple[Drop, ...] = ()

    def __post_init__(self) -> None:
        for tag in self.languages:
            if not _PRIMARY_TAG.fullmatch(tag):
                raise ValueError(f"{tag!r} is no primary language tag, such as en or zh")

    def reason_to_drop(self, predicate_iri: str) -> str | None:
        """Say why a predicate is left out; None where it is kept.

        Args:
            predicate_iri: The predicate in full, without brackets.
        """
        return next((drop.reason for drop in self.drops if drop.matches(predicate_iri)), None)

    def keeps_language(self, tag: str) -> bool:
        """Tell whether texts with a language tag are kept; those without one always are.

        >>> Rules("mine", languages=("en",)).keeps_language("en-GB")
        True
        """
        return not self.languages or not tag or tag.lower().partition("-")[0] in self.languages

    def to_toml(self) -> str:
        """Write the rules as a file that `read_rules` reads, with comments for who edits it."""
        languages = ", ".join(_quoted(tag) for tag in self.languages)
        lines = [
            "# What a load leaves out. Use it with: kbqa load-freebase DUMP --rules FILE",
            f"name = {_quoted(self.name)}",
            "",
            '# Languages of the texts to keep: "en" keeps en-GB too, [] keeps every language.',
            "# Texts that name no language, numbers and dates are always kept.",
            f"languages = [{languages}]",
            "",
            "# Each [[drop]] leaves out the triples of a predicate: an id or a full IRI, with * at",
            "# its end for whatever begins so. The reason is what dropped triples are counted by.",
        ]
        for drop in self.drops:
            lines += [
                "",
                "[[drop]]",
                f"predicate = {_quoted(drop.predicate)}",
                f"reason = {_quoted(drop.reason)}",
            ]
        return "\n".join(lines) + "\n"


def profile(name: str) -> Rules:
    """Return a ready set of rules.

    ``qa`` keeps what question answering needs, in English; ``full`` keeps everything.

    Raises:
        InputError: There is no such profile.
    """
    if name == "full":
        return Rules("full")
    if name == "qa":
        return Rules("qa", languages=("en",), drops=_QA_DROPS)
    raise InputError(f"there is no profile {name!r}. Choose one of: {', '.join(PROFILES)}.")


def read_rules(path: Path) -> Rules:
    """Read a file of rules.

    Raises:
        InputError: It cannot be read, or says something that rules do not have.
    """
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the rules in {path} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"{path} is no TOML: {error}. Compare it with `kbqa load-freebase --show`."
        ) from error
    try:
        return _rules(fields)
    except ValueError as error:
        raise InputError(
            f"the rules in {path} cannot be used: {error}. "
            "Compare them with `kbqa load-freebase --show`."
        ) from error


def _rules(fields: dict[str, object]) -> Rules:
    _check_keys(fields, ("name", "languages", "drop"), "at the top")
    languages = fields.get("languages", [])
    if not isinstance(languages, list) or not all(isinstance(tag, str) for tag in languages):
        raise ValueError('languages is a list of tags, as in languages = ["en"]')
    drops = fields.get("drop", [])
    if not isinstance(drops, list) or not all(isinstance(drop, dict) for drop in drops):
        raise ValueError("each drop is a table of its own, under the line [[drop]]")
    return Rules(
        name=_text(fields, "name", "at the top"),
        languages=tuple(tag.lower() for tag in languages),
        drops=tuple(_drop(drop, number) for number, drop in enumerate(drops, 1)),
    )


def _drop(fields: dict[str, object], number: int) -> Drop:
    where = f"in [[drop]] number {number}"
    _check_keys(fields, ("predicate", "reason"), where)
    return Drop(_text(fields, "predicate", where), _text(fields, "reason", where))


def _check_keys(fields: dict[str, object], known: tuple[str, ...], where: str) -> None:
    if unknown := sorted(fields.keys() - set(known)):
        raise ValueError(f"{unknown[0]!r} {where} means nothing: known are {', '.join(known)}")


def _text(fields: dict[str, object], key: str, where: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        problem = "is missing" if value is None else f"is no text: {value!r}"
        raise ValueError(f"{key!r} {where} {problem}")
    return value


def _quoted(text: str) -> str:
    # TOML has JSON's escapes, and forbids one more character to stand raw.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_QA_REASONS = {
    "rdf:type repeats type.object.type": (_RDF_NS + "type",),
    "type.type.instance repeats type.object.type": ("type.type.instance",),
    "rdfs:label repeats type.object.name": (_RDFS_NS + "label",),
    "RDF schema repeats type.property": (
        _RDFS_NS + "domain",
        _RDFS_NS + "range",
        _OWL_NS + "inverseOf",
    ),
    "keys of other databases and Wikipedia": (
        _KEY_NS + "*",
        "type.object.key",
        "freebase.object_hints.best_hrid",
    ),
    "notes that a value is unknown, no facts": ("freebase.valuenotation.*",),
    "descriptions and articles": (
        "common.topic.description",
        "common.topic.article",
        "common.document.content",
        "common.document.source_uri",
        "common.document.text",
        "common.document.updated",
    ),
    "what an entity is notable for, as text": (
        "common.notable_for.display_name",
        "common.notable_for.predicate",
    ),
    "links to web pages": (
        "common.topic.topic_equivalent_webpage",
        "common.topic.topical_webpage",
        "common.topic.webpage",
        "common.webpage.*",
        "common.resource.*",
        "common.annotation_category.*",
    ),
    "files and sizes of images": (
        "common.image.creation_date",
        "common.image.size",
        "type.content.blob_id",
        "type.content.length",
        "type.content.source",
        "type.content.text_encoding",
    ),
    "bookkeeping of Freebase's editors": (
        "dataworld.gardening_hint.last_referenced_by",
        "dataworld.mass_data_operation.*",
        "dataworld.provenance.*",
        "community.*",
        "freebase.flag_judgment.*",
        "freebase.user_activity.*",
        "pipeline.*",
        "type.content_import.*",
        "type.permission.controls",
    ),
}
# No question set's SPARQL uses any of these, and the schema is built without them; tests hold it.
# Kept, since they are asked for: images, licences, permissions, prominent types. Kept too: official
# websites, and `dataworld.gardening_hint.replaced_by`, by which old ids of merged topics lead on.
_QA_DROPS = tuple(
    Drop(predicate, reason)
    for reason, predicates in _QA_REASONS.items()
    for predicate in predicates
)
