import gzip
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kbqa.engine.json_lines import read_rows
from kbqa.engine.question_mentions import mend_mojibake
from kbqa.sparql.errors import InputError
from kbqa.training.data import Example, load_examples, split_examples

PUBLISHED = "Main Path:\n Kenya  -[location ,country , capital]->  ?x"
CAPITAL = "Main Path:\n Kenya -[location , country , capital]-> ?x"
SPARQL = """PREFIX ns: <http://rdf.freebase.com/ns/>
SELECT DISTINCT ?x WHERE {
FILTER (?x != ns:m.019rg5)
ns:m.019rg5 ns:location.country.capital ?x .
}"""
KENYA = [{"mid": "m.019rg5", "name": "Kenya"}]


def row(**fields: object) -> dict[str, object]:
    return {"id": "q1", "question": "what is kenya's capital?", **fields}


def write(path: Path, *rows: Mapping[str, object]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "fields",
    [
        {"crp_routerkgqa": PUBLISHED},
        {"sparql": SPARQL, "topic_entities": KENYA},
        {"sparql": SPARQL, "entities_in_sparql": KENYA},
        {"crp_routerkgqa": PUBLISHED, "sparql": "no query"},
        {"crp_routerkgqa": None, "sparql": SPARQL, "topic_entities": KENYA, "test_parent": False},
    ],
    ids=["published", "topic", "entities", "published first", "empty fields"],
)
def test_a_row_becomes_an_example(fields: Mapping[str, object], tmp_path: Path) -> None:
    gathered = load_examples([write(tmp_path / "set.jsonl", row(**fields))])
    assert gathered.examples == [Example("q1", "what is kenya's capital?", CAPITAL, "set")]
    assert not gathered.skipped


@pytest.mark.parametrize(
    ("sparql", "target"),
    [
        (SPARQL.replace("FILTER (?x != ns:m.019rg5)", ""), CAPITAL),
        (
            SPARQL.replace("}", '?x ns:type.object.name "Nairobi"@en .\n}'),
            f"{CAPITAL}\nString Restrictions:\n ?x -[type , object , name]-> ?name\n"
            '  FILTER (str(?name) = "Nairobi")',
        ),
    ],
    ids=["topic and languages", "language of a name"],
)
def test_what_the_published_texts_leave_out_is_left_out(
    sparql: str, target: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "set.jsonl", row(sparql=sparql, topic_entities=KENYA))
    [example] = load_examples([path]).examples
    assert example.target == target


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"test_parent": True}, "a test question was made from it, or it from one"),
        ({"question": " "}, "no question"),
        ({"question": 7}, "no question"),
        ({"crp_routerkgqa": None}, "neither CRP nor SPARQL"),
        ({"crp_routerkgqa": ["?"], "sparql": 7}, "neither CRP nor SPARQL"),
        ({"crp_routerkgqa": "Kenya"}, "published CRP that cannot be read"),
        (
            {"crp_routerkgqa": f"{CAPITAL}\nEntity Restrictions:\n ?x is large"},
            "published CRP with problems",
        ),
        ({"crp_routerkgqa": None, "sparql": "what?"}, "SPARQL that does not parse"),
        (
            {"crp_routerkgqa": None, "sparql": SPARQL.replace("capital ?x", "capital ns:m.05d49")},
            "no topic entity",
        ),
        ({"crp_routerkgqa": None, "sparql": SPARQL}, "an entity without a name"),
        ({"topic_entities": ["Kenya"]}, "malformed entities"),
        (
            {
                "crp_routerkgqa": None,
                "sparql": SPARQL.replace(
                    "}", "?x ns:location.location.area ?a .\n} ORDER BY ?a LIMIT 1 OFFSET 1"
                ),
                "topic_entities": KENYA,
            },
            "RouterKGQA's text form cannot say it",
        ),
    ],
)
def test_a_row_of_no_use_is_counted_and_the_next_is_read(
    fields: Mapping[str, object], reason: str, tmp_path: Path
) -> None:
    bad, good = row(crp_routerkgqa=CAPITAL) | fields, row(id="q2", crp_routerkgqa=CAPITAL)
    gathered = load_examples([write(tmp_path / "set.jsonl", bad, good)])
    assert [example.id for example in gathered.examples] == ["q2"]
    assert gathered.skipped == {reason: 1}


def test_a_question_with_the_same_path_is_taken_once(tmp_path: Path) -> None:
    first = write(
        tmp_path / "a.jsonl",
        row(crp_routerkgqa=CAPITAL),
        row(id="q2", crp_routerkgqa=CAPITAL.replace("capital", "largest city")),
    )
    second = write(
        tmp_path / "b.jsonl",
        row(id="q3", question="What is Kenya's capital?", sparql=SPARQL, topic_entities=KENYA),
    )
    gathered = load_examples([first, second])
    assert [example.id for example in gathered.examples] == ["q1", "q2"]
    assert gathered.skipped == {"repeated": 1}


def test_questions_and_names_are_mended(tmp_path: Path) -> None:
    names = [{"mid": "m.019rg5", "name": "GoiÃ¡s"}]
    rows = row(question=" Where is GoiÃ¡s? ", sparql=SPARQL, topic_entities=names)
    [example] = load_examples([write(tmp_path / "set.jsonl", rows)]).examples
    assert example.question == "Where is Goiás?"
    assert example.target == CAPITAL.replace("Kenya", "Goiás")


def test_files_are_named_with_their_hashes(tmp_path: Path) -> None:
    packed = tmp_path / "webqsp.train.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(row(crp_routerkgqa=CAPITAL)).encode()))
    gathered = load_examples([packed])
    assert gathered.examples[0].source == "webqsp.train"
    [file] = gathered.files
    assert file == ("webqsp.train.jsonl.gz", hashlib.sha256(packed.read_bytes()).hexdigest())


@pytest.mark.parametrize("line", ["{", "[]", '"text"'])
def test_a_line_that_is_no_record_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps(row(crp_routerkgqa=CAPITAL)) + f"\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"set\.jsonl, line 2: not"):
        load_examples([path])


def _pool() -> list[Example]:
    return [
        Example(f"{number}{style.__name__}", style(f"question {number}?"), f"target {style}", "set")
        for number in range(50)
        for style in (str.lower, str.upper)
    ]


def test_no_question_is_trained_on_and_held_out() -> None:
    split = split_examples(_pool(), valid_size=4, seed=1)
    held_out = {example.question.casefold() for example in split.valid}
    assert len(held_out) == 4
    assert len(split.valid) == 8
    assert not held_out & {example.question.casefold() for example in split.train}
    assert sorted((*split.train, *split.valid), key=str) == sorted(_pool(), key=str)


def test_the_split_hangs_on_the_seed_and_not_on_the_order() -> None:
    split = split_examples(_pool(), valid_size=4, seed=1)
    assert split_examples(reversed(_pool()), valid_size=4, seed=1) == split
    assert split_examples(_pool(), valid_size=4, seed=2) != split


@pytest.mark.parametrize(("valid_size", "held_out"), [(0, 0), (5, 5), (200, 5)])
def test_a_tenth_is_held_out_at_most(valid_size: int, held_out: int) -> None:
    split = split_examples(_pool(), valid_size, seed=1)
    assert len({example.question.casefold() for example in split.valid}) == held_out


def _folded(question: str) -> str:
    return " ".join(mend_mojibake(question).casefold().split()).rstrip("?. ")


def test_nothing_of_the_test_sets_is_trained_on(shared: Path, tmp_path: Path) -> None:
    sets = shared / "data" / "qa"
    tests = {
        name: [one for _, one in read_rows(sets / f"{name}.test-half.jsonl.gz")]
        for name in ("webqsp", "cwq")
    }
    asked = {_folded(one["question"]) for rows in tests.values() for one in rows}
    kept = {
        name: [one for _, one in read_rows(sets / f"{name}.jsonl.gz") if not one.get("test_parent")]
        for name in ("webqsp.train", "cwq.dev")
    }
    for rows in kept.values():
        assert not {_folded(one["question"]) for one in rows} & asked
    # A CWQ question's id begins with that of the WebQSP question that it was made from.
    assert not {one["id"] for one in kept["webqsp.train"]} & {
        one["id"].split("_")[0] for one in tests["cwq"]
    }
    assert not [one["id"] for one in kept["cwq.dev"] if one["id"].startswith("WebQTest")]

    # Conversion takes its time: of the sets that are converted, a sample.
    sample = [one for name in kept for _, one in read_rows(sets / f"{name}.jsonl.gz")][::40]
    gathered = load_examples([write(tmp_path / "sample.jsonl", *sample)])
    marked = {one["id"] for one in sample if one.get("test_parent")}
    assert gathered.skipped["a test question was made from it, or it from one"] == len(marked) > 20
    assert not {example.id for example in gathered.examples} & marked
    assert len(gathered.examples) > 0.9 * (len(sample) - len(marked))
    assert not {_folded(example.question) for example in gathered.examples} & asked
