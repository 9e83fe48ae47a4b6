"""Relations that are suggested with training examples."""

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kbqa.engine.files import read_rows
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import read_crp
from kbqa.training.data.training_set import (
    ASKED,
    DEMO_SOURCE,
    RELATED,
    Example,
    Fold,
    Split,
    draw_mixture,
    leave_out_fold,
    load_examples,
    read_scored_sets,
    split_examples,
    suggest_relations,
)

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


@pytest.mark.parametrize("line", ["{", "[]", '"text"', "what?"])
def test_a_line_that_is_no_record_is_counted_and_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    good = json.dumps(row(crp_routerkgqa=CAPITAL))
    path.write_text(f"{line}\n{good}\n", encoding="utf-8")
    gathered = load_examples([path])
    assert len(gathered.examples) == 1
    assert gathered.skipped_rows == {"not a record of a question set": ["set record 1"]}


def test_the_first_ten_rows_left_out_are_named(tmp_path: Path) -> None:
    rows = [row(id=f"q{number}", question="") for number in range(12)]
    gathered = load_examples([write(tmp_path / "set.jsonl", *rows)])
    assert gathered.skipped == {"no question": 12}
    assert gathered.skipped_rows == {"no question": [f"set q{number}" for number in range(10)]}


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    for paths, scored in ([tmp_path / "nowhere.jsonl"], []), ([], [tmp_path / "nowhere.jsonl"]):
        with pytest.raises(InputError, match="there is no file"):
            load_examples(paths, scored=scored)


def _parse(sparql: str, parse: str = "Complete") -> dict[str, object]:
    return {
        "AnnotatorComment": {"QuestionQuality": "Good", "ParseQuality": parse},
        "Sparql": sparql,
        "TopicEntityMid": "m.019rg5",
        "TopicEntityName": "Kenya",
        "Constraints": [
            {"ArgumentType": "Entity", "Argument": "m.01m9", "EntityName": "City/Town/Village"}
        ],
        "Answers": [],
    }


def test_the_official_file_of_webqsp(tmp_path: Path) -> None:
    typed = SPARQL.replace("}", "?x ns:common.topic.notable_types ns:m.01m9 .\n}")
    question = "what is kenya's capital?"
    records = [
        {
            "QuestionId": "q1",
            "RawQuestion": question,
            "Parses": [_parse("no", "Partial"), _parse(typed)],
        },
        {"QuestionId": "q2", "ProcessedQuestion": question, "Parses": [_parse(SPARQL)]},
        {"QuestionId": "q3", "RawQuestion": question, "Parses": [_parse(SPARQL, "Partial")]},
        {"QuestionId": "q4"},
    ]
    path = tmp_path / "WebQSP.train.json"
    path.write_text(json.dumps({"Questions": records}))
    gathered = load_examples([path])
    restriction = "Entity Restrictions:\n ?x -[common , topic , notable types]-> City/Town/Village"
    assert gathered.examples == [
        Example("q1", question, f"{CAPITAL}\n{restriction}", "WebQSP.train"),
        Example("q2", question, CAPITAL, "WebQSP.train"),
    ]
    assert gathered.skipped_rows == {
        "no complete parse of a good question": ["WebQSP.train q3"],
        "not a record of a question set": ["WebQSP.train record 4"],
    }


def test_the_official_file_of_complexwebquestions(tmp_path: Path) -> None:
    record = {
        "ID": "WebQTrn-1_a",
        "webqsp_ID": "WebQTrn-1",
        "question": "what is kenya's capital?",
        "sparql": SPARQL,
        "compositionality_type": "composition",
    }
    path = tmp_path / "ComplexWebQuestions_train.json"
    path.write_text(json.dumps([record]))
    with pytest.raises(InputError, match=r"1 of 1 queries .* --store or --endpoint"):
        load_examples([path])

    asked: list[list[str]] = []

    def names(mids: Iterable[str]) -> dict[str, str]:
        asked.append(list(mids))
        return {"m.019rg5": "Kenya"}

    [example] = load_examples([path], names=names).examples
    assert example.target == CAPITAL
    assert asked == [["m.019rg5"]]


def test_names_come_from_the_row_then_the_graph_then_the_query_s_comments(
    tmp_path: Path, small_store: Path
) -> None:
    query = """SELECT ?x WHERE {
        ns:m.03_r3 ns:location.country.capital ?x . # Jamaica noted
        ?x ns:location.location.containedby ns:m.0unknown . # Surrey
        ?x ns:location.location.time_zones ns:m.04xc2m .
    }"""
    rows = row(sparql=query, topic_entities=[{"mid": "m.04xc2m", "name": "Row's own"}])
    with closing(open_graph(small_store)) as graph:
        path = write(tmp_path / "set.jsonl", rows)
        [example] = load_examples([path], form="compact", names=graph.labels).examples
    assert sorted(read_crp(example.target).crp.entities(), key=str) == [
        Entity("Jamaica"),
        Entity("Row's own"),
        Entity("Surrey"),
    ]


def test_routerkgqa_s_own_file(tmp_path: Path) -> None:
    record = {
        "instruction": "Generate a reasoning path …\n",
        "input": "Question: { what is kenya's capital? }",
        "output": PUBLISHED,
        "history": [],
    }
    path = tmp_path / "examples.json"
    path.write_text(json.dumps([record]))
    assert load_examples([path]).examples == [
        Example("1", "what is kenya's capital?", CAPITAL, "examples")
    ]


def test_our_own_form_says_more(tmp_path: Path) -> None:
    second = SPARQL.replace(
        "}", "?x ns:location.location.area ?a .\n} ORDER BY ?a LIMIT 1 OFFSET 1"
    )
    path = write(tmp_path / "set.jsonl", row(sparql=second, topic_entities=KENYA))
    assert load_examples([path]).skipped == {"RouterKGQA's text form cannot say it": 1}
    [example] = load_examples([path], form="compact").examples
    assert example.target == (
        "Kenya -> location.country.capital\nsmallest 1 after 1 ?x -> location.location.area"
    )


PARENT, CHILD = "WebQTest-7", f"WebQTest-7_{'0a' * 16}"


@pytest.mark.parametrize(
    ("trained", "tested", "reason"),
    [
        ({"id": "a"}, {"id": "a", "question": "else?"}, ASKED),
        ({"question": "Where's  GoiÃ¡s?"}, {"question": "where 's goiás"}, ASKED),
        ({"id": PARENT}, {"id": CHILD}, RELATED),
        ({"id": CHILD}, {"id": PARENT}, RELATED),
        ({"id": "c", "webqsp_id": PARENT}, {"id": PARENT}, RELATED),
        ({"id": CHILD}, {"id": "WebQTest-70"}, None),
        ({"id": "1"}, {"id": "1"}, None),
        ({}, {"question": None}, None),
    ],
    ids=["id", "words", "parent", "child", "child by its field", "another", "number", "no words"],
)
def test_what_a_test_set_asks_or_was_made_from_is_left_out(
    trained: dict[str, str], tested: dict[str, str], reason: str | None, tmp_path: Path
) -> None:
    train = write(
        tmp_path / "train.jsonl", {"id": "1", "question": "a?", "crp_routerkgqa": CAPITAL} | trained
    )
    test = write(tmp_path / "test.jsonl", {"id": "2", "question": "b?"} | tested)
    gathered = load_examples([train], scored=[test])
    assert gathered.skipped == ({reason: 1} if reason else {})
    assert len(gathered.examples) == (0 if reason else 1)
    assert [file.name for file in gathered.scored] == ["test.jsonl"]


def _pool() -> list[Example]:
    return [
        Example(f"{number}{style.__name__}", style(f"question {number}?"), f"target {style}", "set")
        for number in range(50)
        for style in (str.lower, str.upper)
    ]


def test_no_question_is_trained_on_and_held_out() -> None:
    split = split_examples(_pool(), valid_size=4)
    held_out = {example.question.casefold() for example in split.valid}
    assert len(held_out) == 4
    assert len(split.valid) == 8
    assert not held_out & {example.question.casefold() for example in split.train}
    assert sorted((*split.train, *split.valid), key=str) == sorted(_pool(), key=str)


def test_a_question_is_held_out_with_those_made_from_it() -> None:
    pool = [
        Example(
            f"{number}{kind}", f"{kind} {number}?", "target", "set", str(number) if kind else ""
        )
        for number in range(50)
        for kind in ("", "composed", "conjoined")
    ]
    split = split_examples(pool, valid_size=9)
    assert len(split.valid) == 9
    families = [{e.parent or e.id for e in part} for part in (split.train, split.valid)]
    assert not families[0] & families[1]


def test_the_order_of_the_examples_does_not_change_the_split() -> None:
    assert split_examples(reversed(_pool()), valid_size=4) == split_examples(_pool(), valid_size=4)


def test_what_is_held_out_stays_held_out_when_sets_are_added() -> None:
    others = [replace(one, id=f"x{one.id}", question=f"x {one.question}") for one in _pool()]
    others = [replace(one, source="other") for one in others]
    before = set(split_examples(_pool(), valid_size=4).valid)
    after = set(split_examples([*_pool(), *others], valid_size=4).valid)
    assert before < after
    assert {one.source for one in after - before} == {"other"}


def test_folds_divide_what_is_trained_on() -> None:
    split = split_examples(_pool()[::2], valid_size=4)
    folds = [leave_out_fold(split, Fold(at, 3)) for at in (1, 2, 3)]
    assert sorted((e for fold in folds for e in fold.in_fold), key=str) == sorted(
        split.train, key=str
    )
    for fold in folds:
        assert fold.valid == split.valid
        assert 0 < len(fold.in_fold) < 32


def test_a_question_of_a_fold_is_left_out_wherever_it_is_asked() -> None:
    fold = leave_out_fold(split_examples(_pool(), valid_size=4), Fold(1, 2))
    asked = {example.question.casefold() for example in fold.in_fold}
    assert not asked & {example.question.casefold() for example in fold.train}


@pytest.mark.parametrize(("valid_size", "held_out"), [(0, 0), (5, 5), (200, 5)])
def test_a_tenth_is_held_out_at_most(valid_size: int, held_out: int) -> None:
    split = split_examples(_pool(), valid_size)
    assert len({example.question.casefold() for example in split.valid}) == held_out


@pytest.mark.parametrize("mention", [None, "eve-olution"])
def test_a_fact_of_simplequestions_is_a_path(mention: str | None, tmp_path: Path) -> None:
    fact = {"subject": "m.036p007", "relation": "music.release.producers", "object": "m.0677ng"}
    file = write(tmp_path / "set.jsonl", row(**fact, **({"mention": mention} if mention else {})))
    gathered = load_examples([file], names=lambda mids: dict.fromkeys(mids, "Eve-Olution"))
    target = "Main Path:\n Eve-Olution -[music , release , producers]-> ?x"
    assert [one.target for one in gathered.examples] == [target]


def test_nothing_of_the_test_sets_is_trained_on(shared: Path, tmp_path: Path) -> None:
    sets = shared / "data" / "qa"
    tests = [sets / f"{name}.test-half.jsonl.gz" for name in ("webqsp", "cwq")]
    scored = read_scored_sets(tests)
    kept, marked = [], 0
    for name in ("webqsp.train", "cwq.dev"):
        rows = [one for _, one in read_rows(sets / f"{name}.jsonl.gz")]
        kept += [one for one in rows if not one.get("test_parent")]
        marked += len(rows)
    marked -= len(kept)
    assert (len(kept), marked) == (5510, 1107)
    assert [one["id"] for one in kept if scored.reason_against(one)] == []
    # The other halves of the test sets are kept aside; a question's id tells what it was made from.
    assert not {one["id"].split("_")[0] for one in kept if "_" in one["id"]} & {
        one["id"].split("_")[0] for path in tests for _, one in read_rows(path)
    }

    # Conversion takes its time: of the sets that are converted, a sample.
    sample = [
        one
        for name in ("webqsp.train", "cwq.dev")
        for _, one in read_rows(sets / f"{name}.jsonl.gz")
    ][::100]
    gathered = load_examples([write(tmp_path / "sample.jsonl", *sample)], scored=tests)
    left_out = {one["id"] for one in sample if one.get("test_parent")}
    assert gathered.skipped[RELATED] == len(left_out) > 5
    assert not {example.id for example in gathered.examples} & left_out
    assert len(gathered.examples) > 0.9 * (len(sample) - len(left_out))


def test_without_marks_the_test_sets_tell_the_same(shared: Path, tmp_path: Path) -> None:
    sets = shared / "data" / "qa"
    scored = read_scored_sets(sets / f"{name}.test-half.jsonl.gz" for name in ("webqsp", "cwq"))
    found = {
        name: Counter(
            (bool(one.get("test_parent")), scored.reason_against(one))
            for _, one in read_rows(sets / f"{name}.jsonl.gz")
        )
        for name in ("webqsp.train", "cwq.dev")
    }
    # Marked and not found are those of the halves that are kept aside.
    assert found["webqsp.train"] == {(False, None): 2879, (True, RELATED): 207, (True, None): 12}
    assert found["cwq.dev"] == {(False, None): 2631, (True, RELATED): 457, (True, None): 431}


def _example(question: str, source: str) -> Example:
    return Example(f"{source} {question}", question, "Jamaica -> location.country.capital", source)


def test_each_example_gets_those_of_its_own_graph(small_store: Path) -> None:
    jamaica, peru = "what is the capital of jamaica?", "what is the capital of peru?"
    split = Split(
        (_example(jamaica, "set"), _example(jamaica, DEMO_SOURCE), _example(peru, "set")),
        (_example(peru, DEMO_SOURCE),),
    )
    done: list[int] = []
    with open_graph(small_store) as graph:
        suggested = suggest_relations(split, graph, 3, done.append)
    (small, demo, unknown), [held_out] = suggested.train, suggested.valid
    assert sum(done) == 4
    assert small.relations[0] == demo.relations[0] == "location.country.capital"
    assert small.relations != demo.relations
    assert (len(demo.relations), unknown.relations) == (3, ())
    assert held_out.relations[0] == "location.country.capital"
    assert [each.target for each in suggested.train] == [each.target for each in split.train]


COMMON = [Example(f"c{n}", f"c{n}?", f"A{n} -> film.film.genre", "facts") for n in range(90)]
RARE = [Example(f"r{n}", f"r{n}?", f"A{n} -> film.film.r{n}", "facts") for n in range(10)]
OTHER = [Example("o", "o?", "A -> film.film.genre", "other")]
ALL = [*COMMON, *RARE, *OTHER]


def test_without_weights_every_example_is_taken_once() -> None:
    assert Counter(draw_mixture(ALL, {}, seed=1)) == Counter(ALL)


@pytest.mark.parametrize(("weight", "size"), [(0, 0), (0.15, 15), (1, 100), (2, 200), (2.5, 250)])
def test_a_set_is_taken_as_often_as_its_weight_says(weight: float, size: int) -> None:
    drawn = draw_mixture(ALL, {"facts": weight}, seed=1)
    assert Counter(one.source for one in drawn) == Counter({"facts": size, "other": 1})


def test_a_part_of_a_set_has_every_relation_that_it_can_have() -> None:
    drawn = set(draw_mixture(ALL, {"facts": 0.15}, seed=1))
    assert set(RARE) < drawn


def test_the_seed_decides_what_is_drawn() -> None:
    draws = [draw_mixture(ALL, {"facts": 0.15}, seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_question_sets_come_first_and_demo_questions_only_if_wanted(tmp_path: Path) -> None:
    crp = "Main Path:\n Kenya -[location , country , capital]-> ?x"
    path = tmp_path / "own.jsonl"
    rows = [{"id": "q1", "question": "kenya's capital?", "crp_routerkgqa": crp}, {"id": "q2"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    gathered = load_examples([path], demo_questions=0, seed=0)
    assert gathered.examples == [Example("q1", "kenya's capital?", crp, "own")]
    assert gathered.skipped == {"no question": 1}
    assert [file.name for file in gathered.files] == ["own.jsonl"]
