"""The rules of what a load leaves out: predicates, and texts in other languages.

A profile is a ready set of rules. Users with other needs write a TOML file of rules.
"""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from kbqa.kb.loading.cleaning import PREFIXES
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import FREEBASE_NS, has_scheme

PROFILES = ("qa", "full")  # the first is the default

_PRIMARY_TAG = re.compile(r"[a-z]{1,8}")
_NOT_IN_PATTERN = re.compile(r'[\x00-\x20<>"{}|^`\\]|\*.')


@dataclass(frozen=True, slots=True)
class Drop:
    """A predicate, or a family of them, to leave out."""

    predicate: str  # an id or a full IRI; a `*` at the end matches any rest
    reason: str  # in a few words: dropped triples are counted by it

    def __post_init__(self) -> None:
        if not self.predicate or _NOT_IN_PATTERN.search(self.predicate):
            raise ValueError(
                f"{self.predicate!r} is not a predicate: give an id such as type.object.key or "
                "a full IRI; * is allowed only at the end"
            )
        if not self.reason.strip():
            raise ValueError(f"the drop of {self.predicate} has no reason")

    @property
    def iri(self) -> str:
        """The full predicate, including its ``*``."""
        return self.predicate if has_scheme(self.predicate) else FREEBASE_NS + self.predicate

    def matches(self, predicate_iri: str) -> bool:
        """Return whether a predicate matches."""
        if self.predicate.endswith("*"):
            return predicate_iri.startswith(self.iri[:-1])
        return predicate_iri == self.iri


@dataclass(frozen=True, slots=True)
class FilterRules:
    """The rules of a load."""

    name: str  # of the profile, or the user's own name for the rules
    languages: tuple[str, ...] = ()  # of texts to keep, as primary tags; empty for all
    drops: tuple[Drop, ...] = ()  # what is left out; if several match, the first counts

    def __post_init__(self) -> None:
        for tag in self.languages:
            if not _PRIMARY_TAG.fullmatch(tag):
                raise ValueError(f"{tag!r} is not a primary language tag such as en or zh")

    def reason_to_drop(self, predicate_iri: str) -> str | None:
        """Return why a predicate, a full IRI without brackets, is left out; None if it is kept."""
        return next((drop.reason for drop in self.drops if drop.matches(predicate_iri)), None)

    def keeps_language(self, tag: str) -> bool:
        """Return whether texts with a language tag, such as ``en-GB``, are kept."""
        return not self.languages or not tag or tag.lower().partition("-")[0] in self.languages

    def to_toml(self) -> str:
        """Write the rules as a file for `read_rules`, with comments for the user."""
        languages = ", ".join(_quoted(tag) for tag in self.languages)
        lines = [
            "# What a load leaves out. Use it with: kbqa load-freebase DUMP --rules FILE",
            f"name = {_quoted(self.name)}",
            "",
            '# Languages of the texts to keep: "en" keeps en-GB too, [] keeps every language.',
            "# Texts without a language tag, numbers and dates are always kept.",
            f"languages = [{languages}]",
            "",
            "# Each [[drop]] drops the triples of a predicate: an id or a full IRI. A * at its",
            "# end matches any rest. Dropped triples are counted by reason.",
        ]
        for drop in self.drops:
            lines += [
                "",
                "[[drop]]",
                f"predicate = {_quoted(drop.predicate)}",
                f"reason = {_quoted(drop.reason)}",
            ]
        return "\n".join(lines) + "\n"


def profile(name: str) -> FilterRules:
    """Return a ready set of rules, or raise `InputError`.

    ``qa`` keeps what question answering needs, in English; ``full`` keeps everything.
    """
    if name == "full":
        return FilterRules("full")
    if name == "qa":
        return FilterRules("qa", languages=("en",), drops=_QA_DROPS)
    raise InputError(f"there is no profile {name!r}. Choose one of: {', '.join(PROFILES)}.")


def read_rules(path: Path) -> FilterRules:
    """Read a file of rules, or raise `InputError`."""
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the rules in {path} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"{path} is not valid TOML: {error}. Compare it with `kbqa load-freebase --show`."
        ) from error
    try:
        return _rules(fields)
    except ValueError as error:
        raise InputError(
            f"the rules in {path} cannot be used: {error}. "
            "Compare them with `kbqa load-freebase --show`."
        ) from error


def _rules(fields: dict[str, object]) -> FilterRules:
    _check_keys(fields, ("name", "languages", "drop"), "at the top")
    languages = fields.get("languages", [])
    if not isinstance(languages, list) or not all(isinstance(tag, str) for tag in languages):
        raise ValueError('languages must be a list of tags, such as languages = ["en"]')
    drops = fields.get("drop", [])
    if not isinstance(drops, list) or not all(isinstance(drop, dict) for drop in drops):
        raise ValueError("each drop must be a table under its own line [[drop]]")
    return FilterRules(
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
        raise ValueError(
            f"{unknown[0]!r} {where} is unknown; the known keys are {', '.join(known)}"
        )


def _text(fields: dict[str, object], key: str, where: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        problem = "is missing" if value is None else f"is not a text: {value!r}"
        raise ValueError(f"{key!r} {where} {problem}")
    return value


def _quoted(text: str) -> str:
    # TOML has JSON's escapes, and one more character must be escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_QA_REASONS = {
    "rdf:type repeats type.object.type": (PREFIXES["rdf"] + "type",),
    "type.type.instance repeats type.object.type": ("type.type.instance",),
    "rdfs:label repeats type.object.name": (PREFIXES["rdfs"] + "label",),
    "RDF schema repeats type.property": (
        PREFIXES["rdfs"] + "domain",
        PREFIXES["rdfs"] + "range",
        PREFIXES["owl"] + "inverseOf",
    ),
    "keys of other databases and Wikipedia": (
        PREFIXES["key"] + "*",
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
# No question set's SPARQL uses any of these, and the schema does not need them; tests check both.
# Kept because questions ask for them: images, licences, permissions, prominent types. Also kept:
# official websites, and `dataworld.gardening_hint.replaced_by`, the links of merged topics.
_QA_DROPS = tuple(
    Drop(predicate, reason)
    for reason, predicates in _QA_REASONS.items()
    for predicate in predicates
)
