"""The ceilings of methods, on a graph in which every limit hides something."""

import gzip
import json
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from tools.methods.ceilings import main

NS = "http://rdf.freebase.com/ns/"
HUB, CHILDREN = "m.0hub", [f"m.0c{at:02}" for at in range(30)]
MEDIATORS = [f"m.0m{at:02}" for at in range(12)]
FRIENDS = {"m.0f1": "Concrete mixer", "m.0f2": "Which child?"}
CHAIN = ["m.0a", "m.0b", "m.0c", "m.0d", "m.0e"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hub with children, of which only the first and last have names; and a long chain."""
    triples = [(HUB, "family.head.child", child) for child in CHILDREN]
    triples += [(HUB, f"family.head.a{at:02}", "m.0other") for at in range(49)]
    triples += [("m.0big", "family.head.visit", mediator) for mediator in MEDIATORS]
    triples += [("m.0big", "family.head.friend", friend) for friend in FRIENDS]
    triples += [
        (left, f"way.step.n{at}", right) for at, (left, right) in enumerate(pairwise(CHAIN))
    ]
    triples += [("m.0x", "way.step.entered", "m.0a"), ("m.0a", "type.object.type", "m.0b")]
    lines = [f"<{NS}{s}>\t<{NS}{p}>\t<{NS}{o}>\t." for s, p, o in triples]
    for mid in (HUB, *CHAIN, CHILDREN[0], CHILDREN[-1]):
        lines.append(f'<{NS}{mid}>\t<{NS}type.object.name>\t"Name {mid}"@en\t.')
    for mid, name in FRIENDS.items():
        lines.append(f'<{NS}{mid}>\t<{NS}type.object.name>\t"{name}"@en\t.')
    folder = tmp_path_factory.mktemp("ceilings")
    with gzip.open(folder / "dump.nt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(sorted(lines)) + "\n")
    load_freebase([folder / "dump.nt.gz"], folder / "store", rules=profile("full"))
    return folder / "store"


def _ceilings(
    store: Path, folder: Path, path: str, answers: list[str], *options: str
) -> dict[str, tuple[float, str | None]]:
    """Compute the ceilings of a question whose gold path is written as a pattern."""
    topic = path.split()[0] if path.startswith("ns:") else path.split()[-1]
    row = {
        "id": "1",
        "question": "which  child?",
        "sparql": f"SELECT ?x {{ {path} }}",
        "topic_entities": [{"mid": topic.removeprefix("ns:")}],
        "answers": [{"arg": answer} for answer in answers],
        "evidence": "independent",
    }
    questions = folder / "questions.jsonl"
    questions.write_text(json.dumps(row) + "\n" + json.dumps(row | {"id": "2", "evidence": "none"}))
    output = folder / "rows.jsonl"
    command = ["--questions", str(questions), "--store", str(store), "--output", str(output)]
    result = CliRunner().invoke(main, [*command, *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    [written] = map(json.loads, output.read_text(encoding="utf-8").splitlines())
    return {name: (each["f1"], each["reason"]) for name, each in written["ceilings"].items()}


def test_each_method_shows_and_keeps_what_its_limits_let_it(store: Path, tmp_path: Path) -> None:
    found = _ceilings(store, tmp_path, f"ns:{HUB} ns:family.head.child ?x", CHILDREN)
    f1 = {"bpc": 2 * 3 / 33, "knowpath": 2 * 7 / 37, "tog": 2 * 3 / 33, "pog": 1, "trace": 1}
    assert {name: each[0] for name, each in found.items()} == pytest.approx(f1)
    assert found["bpc"][1] == "nodes are hidden"
    assert found["knowpath"][1] == "7 nodes are kept"
    assert found["pog"] == (1, None)


def test_the_sample_of_tog_is_drawn_by_the_stated_formula(store: Path, tmp_path: Path) -> None:
    start = f"42|which child?|{HUB}|family.head.child|out|"
    drawn = sorted(CHILDREN, key=lambda mid: sha256((start + mid).encode()).hexdigest())
    scored = ["--set", "nameless=scored"]
    for at in (4, 5):
        path = f"ns:{HUB} ns:family.head.child ?x"
        found = _ceilings(store, tmp_path, path, [drawn[at]], "--method", "tog", *scored)
        assert found["tog"][0] == (1 if at < 5 else 0)


def test_of_nodes_without_a_name_plan_on_graph_draws_by_the_same_formula(
    store: Path, tmp_path: Path
) -> None:
    start = "42|which child?|m.0big|family.head.visit|out|"
    drawn = sorted(MEDIATORS, key=lambda mid: sha256((start + mid).encode()).hexdigest())
    for at in (9, 10):
        path = "ns:m.0big ns:family.head.visit ?x"
        found = _ceilings(store, tmp_path, path, [drawn[at]], "--method", "pog")
        assert found["pog"] == ((1, None) if at < 10 else (0, "nodes are hidden"))
    found = _ceilings(
        store, tmp_path, path, [drawn[10]], "--method", "pog", "--set", "nameless=1000"
    )
    assert found["pog"] == (1, None)


def test_plan_on_graph_shows_the_nodes_most_similar_to_the_question(
    store: Path, tmp_path: Path
) -> None:
    path, few = "ns:m.0big ns:family.head.friend ?x", ["--method", "pog", "--set", "shown=1"]
    for friend, f1 in (("m.0f1", 0), ("m.0f2", 1)):
        assert _ceilings(store, tmp_path, path, [friend], *few)["pog"][0] == f1


def test_relations_are_sorted_before_they_are_capped(store: Path, tmp_path: Path) -> None:
    # The 50th in order; with a cap of 49 nothing is left of it.
    path, first = f"ns:{HUB} ns:family.head.child ?x", CHILDREN[:1]
    whole = _ceilings(store, tmp_path, path, first, "--method", "bpc")
    capped = _ceilings(store, tmp_path, path, first, "--method", "bpc", "--set", "relation_cap=49")
    assert whole["bpc"] == (1, None)
    assert capped["bpc"] == (0, "a relation of the path is not shown")


def test_nodes_without_a_name_can_be_dropped(store: Path, tmp_path: Path) -> None:
    path, drop = f"ns:{HUB} ns:family.head.child ?x", ["--set", "mediators=drop"]
    for child, f1 in ((CHILDREN[-1], 1), (CHILDREN[1], 0)):
        found = _ceilings(store, tmp_path, path, [child], "--method", "knowpath", *drop)
        assert found["knowpath"][0] == f1


def test_paths_can_be_too_long_or_lead_backwards(store: Path, tmp_path: Path) -> None:
    variables = [f"ns:{CHAIN[0]}", "?a", "?b", "?c", "?x"]
    steps = [f"{variables[at]} ns:way.step.n{at} {variables[at + 1]}" for at in range(4)]
    found = _ceilings(store, tmp_path, " . ".join(steps), [CHAIN[-1]])
    assert {name: each[0] for name, each in found.items()} == {
        "bpc": 1,
        "knowpath": 0,
        "tog": 0,
        "pog": 1,
        "trace": 1,
    }
    assert found["tog"][1] == "more than 3 hops"
    found = _ceilings(store, tmp_path, "?x ns:way.step.entered ns:m.0a", ["m.0x"])
    assert found["bpc"][1] == "a relation of the path is not shown"
    assert found["tog"] == found["trace"] == (1, None)


def test_a_limit_that_does_not_exist_is_refused(store: Path, tmp_path: Path) -> None:
    for change in ("wide=3", "width=many"):
        with pytest.raises(Exception, match=change.partition("=")[0]):
            path = f"ns:{HUB} ns:family.head.child ?x"
            _ceilings(store, tmp_path, path, CHILDREN, "--method", "tog", "--set", change)
