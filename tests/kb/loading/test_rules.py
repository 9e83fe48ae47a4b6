import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.kb.loading.cleaning import PREFIXES
from kbqa.kb.loading.rules import PROFILES, Drop, FilterRules, profile, read_rules
from kbqa.kb.schema import SchemaBuilder
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import FREEBASE_NS

QUESTION_SETS = (
    "qa/cwq.dev",
    "qa/cwq.test-half",
    "qa/simplequestions.valid",
    "qa/webqsp.test-half",
    "qa/webqsp.train",
    "fidelity/queries-half",
)
# More than predicates: types and entities too, which no drop means.
_PREFIXED = re.compile(rf"\b({'|'.join(PREFIXES)}):([A-Za-z][\w$-]*(?:\.+[\w$-]+)*)")
_IN_FULL = re.compile(r"<(http://(?:rdf\.freebase\.com|www\.w3\.org)/[^>\s]+)>")
_TAG = re.compile(
    r"(?i)lang\s*\([^)]*\)\s*(?:,|!?=)\s*['\"]([a-z-]*)['\"]|['\"]@([a-z]+(?:-[a-z0-9]+)*)"
)


@pytest.mark.parametrize(
    ("predicate", "iri", "is_meant"),
    [
        pytest.param("a.b.c", FREEBASE_NS + "a.b.c", True, id="id"),
        pytest.param("a.b.c", FREEBASE_NS + "a.b.cd", False, id="longer id"),
        pytest.param("a.b.c", FREEBASE_NS + "a.b.C", False, id="defect-14-case-of-an-id"),
        pytest.param("a.b.*", FREEBASE_NS + "a.b.cd", True, id="family"),
        pytest.param("a.b.*", FREEBASE_NS + "a.bc", False, id="other family"),
        pytest.param("http://x.org/p", "http://x.org/p", True, id="full IRI"),
        pytest.param("http://x.org/*", "http://x.org/p", True, id="family of full IRIs"),
        pytest.param("*", "http://x.org/p", False, id="* alone is Freebase's namespace"),
        pytest.param("*", FREEBASE_NS + "a.b.c", True, id="everything of Freebase"),
    ],
)
def test_a_drop_means_a_predicate_or_a_family(predicate: str, iri: str, is_meant: bool) -> None:
    assert Drop(predicate, "why").matches(iri) is is_meant
    assert FilterRules("mine", drops=(Drop(predicate, "why"),)).reason_to_drop(iri) == (
        "why" if is_meant else None
    )


def test_of_several_drops_the_first_counts() -> None:
    rules = FilterRules("mine", drops=(Drop("a.b.c", "one"), Drop("a.*", "two")))
    assert rules.reason_to_drop(FREEBASE_NS + "a.b.c") == "one"
    assert rules.reason_to_drop(FREEBASE_NS + "a.b.d") == "two"


@pytest.mark.parametrize(
    ("languages", "tag", "is_kept"),
    [
        pytest.param(("en",), "en", True, id="same"),
        pytest.param(("en",), "en-GB", True, id="region"),
        pytest.param(("en",), "EN-us", True, id="case"),
        pytest.param(("en",), "eng", False, id="longer tag"),
        pytest.param(("en", "zh"), "zh-Hant", True, id="script"),
        pytest.param(("en",), "de", False, id="other"),
        pytest.param(("en",), "", True, id="no tag"),
        pytest.param((), "de", True, id="all"),
    ],
)
def test_languages_are_kept_by_their_primary_tag(
    languages: tuple[str, ...], tag: str, is_kept: bool
) -> None:
    assert FilterRules("mine", languages).keeps_language(tag) is is_kept


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_written_as_a_file_reads_back_the_same(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(profile(name).to_toml(), encoding="utf-8")
    assert read_rules(path) == profile(name)


_TEXT = st.text(st.characters(exclude_categories=["Cs"])).filter(str.strip)


@given(
    name=_TEXT,
    languages=st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True)),
    drops=st.lists(st.builds(Drop, st.from_regex(r"[\w.:/$-]+\*?", fullmatch=True), _TEXT)),
)
def test_any_rules_read_back_the_same(
    name: str, languages: list[str], drops: list[Drop], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rules = FilterRules(name, tuple(languages), tuple(drops))
    path = tmp_path_factory.getbasetemp() / "any-rules.toml"
    path.write_text(rules.to_toml(), encoding="utf-8")
    assert read_rules(path) == rules


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param('name = "a\n', "at line 1", id="no TOML"),
        pytest.param("", "'name' at the top is missing", id="empty"),
        pytest.param("name = 1", "'name' at the top is not a text: 1", id="name of another type"),
        pytest.param(
            'name = "a"\nlanguage = ["en"]',
            "'language' at the top is unknown; the known keys are name, languages, drop",
            id="unknown key",
        ),
        pytest.param('name = "a"\nlanguages = "en"', 'languages = ["en"]', id="one language"),
        pytest.param(
            'name = "a"\nlanguages = ["en-GB"]',
            "'en-gb' is not a primary",
            id="region",
        ),
        pytest.param('name = "a"\ndrop = ["a.b"]', "under its own line [[drop]]", id="plain list"),
        pytest.param(
            'name = "a"\n[drop]\npredicate = "a.b"', "under its own line [[drop]]", id="one table"
        ),
        pytest.param(
            'name = "a"\n[[drop]]\npredicate = "a.b"\nreason = "r"\n[[drop]]\npredicate = "c.d"',
            "'reason' in [[drop]] number 2 is missing",
            id="no reason",
        ),
        pytest.param(
            'name = "a"\n[[drop]]\npredicate = "a.b"\nreason = " "',
            "the drop of a.b has no reason",
            id="empty reason",
        ),
        pytest.param(
            'name = "a"\n[[drop]]\npredicate = "a.*.b"\nreason = "r"',
            "is allowed only at the end",
            id="star in the middle",
        ),
        pytest.param(
            'name = "a"\n[[drop]]\npredicate = "<http://a/b>"\nreason = "r"',
            "is not a predicate",
            id="brackets",
        ),
        pytest.param(
            'name = "a"\n[[drop]]\npredicat = "a.b"\nreason = "r"',
            "'predicat' in [[drop]] number 1 is unknown; the known keys are predicate, reason",
            id="unknown key of a drop",
        ),
    ],
)
def test_what_is_wrong_with_a_file_of_rules_is_said(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_rules(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "--show" in str(caught.value)


def test_a_missing_file_and_an_unknown_profile_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_rules(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(InputError, match="cannot be read"):
        read_rules(tmp_path / "latin.toml")
    with pytest.raises(InputError, match="Choose one of: qa, full"):
        profile("small")


def test_full_keeps_everything() -> None:
    assert profile("full").reason_to_drop(FREEBASE_NS + "type.type.instance") is None
    assert profile("full").keeps_language("de")


@pytest.mark.parametrize(
    ("predicate", "is_kept"),
    [
        pytest.param(
            "http://www.w3.org/1999/02/22-rdf-syntax-ns#type", False, id="defect-16-rdf-type"
        ),
        pytest.param(
            "http://www.w3.org/2000/01/rdf-schema#label", False, id="defect-16-rdfs-label"
        ),
        pytest.param(
            "http://www.w3.org/2000/01/rdf-schema#range", False, id="defect-16-rdfs-range"
        ),
        pytest.param(
            "http://www.w3.org/2002/07/owl#inverseOf", False, id="defect-16-owl-inverse-of"
        ),
        pytest.param("http://rdf.freebase.com/key/wikipedia.en", False, id="defect-16-key"),
        pytest.param(
            "http://rdf.freebase.com/key/key.wikipedia.en", False, id="defect-03-key-of-2013"
        ),
        pytest.param("type.object.key", False, id="defect-16-key-as-text"),
        pytest.param("type.type.instance", False, id="defect-16-instances"),
        pytest.param("freebase.valuenotation.has_value", False, id="defect-18-pseudo-fact"),
        pytest.param("common.topic.description", False, id="description"),
        pytest.param("common.topic.topic_equivalent_webpage", False, id="web page"),
        pytest.param("type.object.type", True, id="type"),
        pytest.param("common.topic.official_website", True, id="website"),
        pytest.param("type.type.properties", True, id="reverse direction"),
        pytest.param("dataworld.gardening_hint.replaced_by", True, id="defect-15-merged-topic"),
        pytest.param(
            "award.award_winner.awards_won..award.award_honor.year",
            True,
            id="defect-03-joined-predicate",
        ),
        pytest.param("user.alecf.default_domain.x.y", True, id="defect-20-domain-of-a-user"),
    ],
)
def test_qa_drops_what_is_said_twice_and_what_nobody_asks(predicate: str, is_kept: bool) -> None:
    iri = predicate if "://" in predicate else FREEBASE_NS + predicate
    assert (profile("qa").reason_to_drop(iri) is None) is is_kept


def test_qa_keeps_what_the_indexes_are_built_from() -> None:
    needed = {*SchemaBuilder.PREDICATES, "type.object.name", "common.topic.alias"}
    rules = profile("qa")
    assert [name for name in sorted(needed) if rules.reason_to_drop(FREEBASE_NS + name)] == []


@pytest.mark.parametrize("question_set", QUESTION_SETS)
def test_qa_keeps_what_the_question_sets_use(question_set: str, shared: Path) -> None:
    predicates: set[str] = set()
    tags: set[str] = set()
    with gzip.open(shared / "data" / f"{question_set}.jsonl.gz", "rt", encoding="utf-8") as rows:
        for row in map(json.loads, rows):
            if "relation" in row:
                predicates.add(FREEBASE_NS + row["relation"])
            for query in _queries(row):
                predicates |= {PREFIXES[prefix] + name for prefix, name in _PREFIXED.findall(query)}
                predicates |= set(_IN_FULL.findall(query))
                tags |= {in_filter or of_text for in_filter, of_text in _TAG.findall(query)}
    assert len(predicates) > 100
    rules = profile("qa")
    # SimpleQuestions holds no SPARQL; `type.object.type` says the same from the other end.
    predicates -= {FREEBASE_NS + "type.type.instance"} if "simple" in question_set else set()
    assert [iri for iri in sorted(predicates) if rules.reason_to_drop(iri)] == []
    assert [tag for tag in sorted(tags) if not rules.keeps_language(tag)] == []


def _queries(row: object, field: str = "") -> Iterator[str]:
    """Every SPARQL text in a row, those of its parses included."""
    if isinstance(row, dict):
        for key, value in row.items():
            yield from _queries(value, key)
    elif isinstance(row, list):
        for value in row:
            yield from _queries(value, field)
    elif isinstance(row, str) and "sparql" in field.lower():
        yield row
