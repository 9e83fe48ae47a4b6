import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main
from kbqa.engine.engine import Engine
from kbqa.engine.files import claimed
from kbqa.kb.open import open_graph
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.errors import QueryTimeout

pytestmark = pytest.mark.usefixtures("embedder")

JAMAICA, KINGSTON, BIEBER = "m.03_r3", "m.03yl7", "m.06w2sn5"
MONEY, BORN = "what is the currency of Jamaica?", "when was  justin bieber born?"
QUESTIONS = [
    {"id": "money", "question": MONEY, "topic_entities": [{"mid": KINGSTON}]},
    {"id": "born", "question": BORN, "answers": [{"arg": "1994-03-01"}]},
    {"id": "why", "question": "why?"},
]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))


@pytest.fixture
def retrieve(small_store: Path):
    """Run `kbqa retrieve` over the questions and the small graph."""

    def retrieve(*options: str, output: str = "out.jsonl", graph: tuple[str, ...] = ()) -> Result:
        graph = graph or ("--store", str(small_store))
        command = ["retrieve", "--questions", "q.jsonl", "--output", output, *graph, *options]
        return CliRunner().invoke(main, command)

    return retrieve


def _rows(path: str = "out.jsonl") -> dict[str, dict[str, Any]]:
    rows = map(json.loads, Path(path).read_text("utf-8").splitlines())
    return {row["id"]: row for row in rows}


def test_each_question_gets_a_row_of_triples(retrieve) -> None:
    result = retrieve()
    assert (result.exit_code, result.output) == (0, "")
    rows = _rows()
    assert list(rows) == ["money", "born", "why"]
    money = rows["money"]
    assert (money["topics"], money["error"], money["truncated"]) == ([JAMAICA], None, False)
    assert money["cut"] == {"relations": 0, "hubs": 0, "entities": 0, "triples": 0}
    assert set(money["seconds"]) == {"link", "extract", "score", "pool"}
    assert len(money["triples"]) <= money["seen"]
    best = money["triples"][0]
    assert set(best) == {"subject", "relation", "object", "score", "pooled"}
    assert "currenc" in best["relation"] and 0 < best["score"] <= 1
    pooled = [triple["pooled"] for triple in money["triples"]]
    assert pooled == sorted(pooled, reverse=True)


def test_a_literal_is_its_text(retrieve) -> None:
    retrieve("--mechanism", "none")
    best = _rows()["born"]["triples"][0]
    assert 0 < best.pop("score") <= 1
    assert best == {
        "subject": BIEBER,
        "relation": "people.person.date_of_birth",
        "object": "1994-03-01",
        "pooled": None,
        "is_literal": True,
    }


def test_a_question_without_an_entity_has_no_triples(retrieve) -> None:
    retrieve("--no-timings")
    assert _rows()["why"] == {
        "schema_version": 1,
        "id": "why",
        "question": "why?",
        "topics": [],
        "triples": [],
        "seen": 0,
        "truncated": False,
        "cut": {"relations": 0, "hubs": 0, "entities": 0, "triples": 0},
        "error": None,
    }


def test_given_entities_and_names(retrieve) -> None:
    retrieve("--gold-entities", "--names")
    rows = _rows()
    assert (rows["money"]["topics"], rows["born"]["topics"]) == ([KINGSTON], [BIEBER])
    names = {}
    for triple in rows["money"]["triples"] + rows["born"]["triples"]:
        names |= {triple["subject"]: triple["subject_name"]}
        names |= {triple["object"]: triple["object_name"]}
    assert (names[KINGSTON], names["480"], names["m.0gxnnwp"]) == ("Kingston", "480", "m.0gxnnwp")


def test_no_more_than_k_triples(retrieve) -> None:
    retrieve("--triples", "2", "--mechanism", "rerank")
    retrieve("--mechanism", "rerank", output="all.jsonl")
    for id_, row in _rows().items():
        every = _rows("all.jsonl")[id_]
        assert len(row["triples"]) == min(2, len(every["triples"]))
        assert row["seen"] == every["seen"]


def test_a_fact_is_there_twice_if_wanted(retrieve) -> None:
    def ends(path: str) -> list[frozenset[str]]:
        return [frozenset((t["subject"], t["object"])) for t in _rows(path)["money"]["triples"]]

    retrieve("--shown", "once")
    retrieve("--shown", "twice", output="twice.jsonl")
    money = frozenset((JAMAICA, "m.04xc2m"))
    assert (ends("out.jsonl").count(money), ends("twice.jsonl").count(money)) == (1, 2)


@pytest.mark.parametrize(
    ("method", "options"),
    [("path-pooling", ()), ("subgraph", ("--mechanism", "none"))],
)
def test_methods_read_the_same_triples(
    retrieve, small_store: Path, method: str, options: tuple[str, ...]
) -> None:
    retrieve(*options)
    with open_graph(small_store) as graph, Engine(graph, method=method) as engine:
        for text, id_ in ((MONEY, "money"), (BORN, "born")):
            trace = engine.ask(text).trace.to_dict()
            assert trace["triples"] == _rows()[id_]["triples"]


def test_stores_and_endpoints_give_the_same(retrieve, small_endpoint: str) -> None:
    retrieve("--no-timings", "--names")
    result = retrieve(
        "--no-timings", "--names", output="endpoint.jsonl", graph=("--endpoint", small_endpoint)
    )
    assert result.exit_code == 0
    assert _rows("endpoint.jsonl") == _rows()


def test_another_run_writes_the_same_bytes(retrieve) -> None:
    retrieve("--no-timings", "--set", "kernel=walk")
    retrieve("--no-timings", "--set", "kernel=walk", output="again.jsonl")
    assert Path("again.jsonl").read_bytes() == Path("out.jsonl").read_bytes()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The first lookup of edges fails."""
    edges, asked = OxigraphStore.edges, []

    def fail_once(self: OxigraphStore, *rest: Any) -> Any:
        asked.append(rest)
        if len(asked) == 1:
            raise QueryTimeout("", 1, "there", "no result in time")
        return edges(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(OxigraphStore, "edges", fail_once)
        yield


@pytest.mark.usefixtures("failing")
def test_a_question_that_fails_does_not_end_the_run(retrieve) -> None:
    result = retrieve("--no-timings")
    assert result.exit_code == 0
    assert "1 of 3 questions failed" in result.stderr
    failed, *others = _rows().values()
    assert failed == {
        "schema_version": 1,
        "id": "money",
        "question": MONEY,
        "topics": [JAMAICA],
        "triples": [],
        "seen": None,
        "truncated": None,
        "cut": None,
        "error": "QueryTimeout: no result in time",
    }
    assert [row["error"] for row in others] == [None, None]
    result = retrieve("--no-timings", "--resume")
    assert (result.exit_code, result.stderr) == (0, "")
    assert list(_rows()) == ["born", "why", "money"]
    retrieve("--no-timings", output="whole.jsonl")
    assert _rows() == _rows("whole.jsonl")


def test_a_run_that_was_killed_ends_the_same(retrieve) -> None:
    retrieve("--no-timings")
    whole = Path("out.jsonl").read_bytes()
    Path("out.jsonl").write_bytes(whole[: len(whole) // 2])
    assert retrieve("--no-timings", "--resume").exit_code == 0
    assert Path("out.jsonl").read_bytes() == whole


def test_threads_give_the_same_rows(retrieve) -> None:
    retrieve("--no-timings")
    retrieve("--no-timings", "--concurrency", "3", output="threads.jsonl")
    assert _rows("threads.jsonl") == _rows()


def test_a_run_is_neither_replaced_nor_continued_unasked(retrieve) -> None:
    retrieve()
    before = Path("out.jsonl").read_bytes()
    for options, message in (
        ([], "Add --resume to continue it"),
        (["--resume", "--overwrite"], "choose one"),
        (["--resume", "--triples", "3"], "other settings (retrieval)"),
        (["--resume", "--names"], "other settings (names)"),
    ):
        result = retrieve(*options)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr
    with claimed(Path("out.jsonl"), {}, {}):
        assert "another process is writing" in retrieve("--overwrite").stderr
    assert Path("out.jsonl").read_bytes() == before
    assert retrieve("--overwrite", "--triples", "3", "--sample", "1").exit_code == 0
    assert len(_rows()) == 1


def test_rows_of_another_kind_are_not_continued(retrieve) -> None:
    retrieve()
    Path("out.jsonl").write_text('{"id": "money", "answers": []}\n')
    result = retrieve("--resume")
    assert result.exit_code == 2
    assert "line 1 is not a row of `kbqa retrieve`: schema_version" in result.stderr


def test_the_manifest_says_what_made_the_rows(retrieve) -> None:
    retrieve("--scorer", "cosine", "--set", "smoothing=half", "--triples", "7")
    manifest = json.loads(Path("out.manifest.json").read_text())
    assert manifest["questions_sha256"] and manifest["store"]["dumps_sha256"]
    made = manifest["retrieval"]
    assert (made["triples"], made["scorer"], made["smoothing"]) == (7, "cosine", "half")
    assert (made["scorer_sha256"], made["caps"]["hops"]) == (None, 2)
    retrieve(output="trained.jsonl")
    made = json.loads(Path("trained.manifest.json").read_text())["retrieval"]
    assert len(made["scorer_sha256"]) == 2 and made["embedder"].startswith("all-MiniLM")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--triples", "0"], 2, "Invalid value for '--triples'"),
        (["--triples", "501"], 2, "set coarse to 501 or more"),
        (["--set", "kernel=best"], 2, "kernel is dijkstra or bfs or walk"),
        (["--set", "mechanism=none"], 2, "write it as --mechanism VALUE"),
        (["--set", "width=3"], 2, "has no setting 'width'"),
        (["--output", "none/out.jsonl"], 2, "there is no folder none"),
        (["--store", "none"], 1, "there is no store at none"),
    ],
)
def test_a_mistake_ends_in_one_line(retrieve, options: list[str], code: int, message: str) -> None:
    result = retrieve(*options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert not Path("out.jsonl").exists()


def test_triples_are_retrieved_without_torch(retrieve, monkeypatch: pytest.MonkeyPatch) -> None:
    others = ("torch", "transformers", "peft", "sentence_transformers")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name in others else find_spec(name, package),
    )
    result = retrieve()
    assert result.exit_code == 0, result.stderr
    assert Path("out.jsonl").exists()


def test_without_the_packages_it_is_told_how_to_install_them(
    retrieve, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "safetensors" else find_spec(name)
    )
    result = retrieve()
    assert (result.exit_code, result.stdout) == (1, "")
    assert "retrieving triples needs safetensors. Install: pip install 'kbqa[cpu]'" in result.stderr


SCORED = {
    "id": "money",
    "question": MONEY,
    "topics": ["Jamaica"],
    "triples": [
        ["Jamaica", "location.country.capital", "Kingston", -0.1],
        ["Kingston", "location.location.people", "Bob Marley", 0.2],
        ["Peru", "location.country.currency_used", "Sol", 0.3],
        ["Jamaica", "location.country.currency_used", "Jamaican dollar", 0.7],
    ],
}


def _pool(*options: str, output: str = "out.jsonl") -> Result:
    command = ["retrieve", "--scored", "scored.jsonl", "--output", output, "--no-timings"]
    return CliRunner().invoke(main, [*command, *options])


def test_triples_that_another_retriever_scored_are_pooled_without_a_graph() -> None:
    others = [{"topics": [], "triples": []}, {**SCORED, "id": 7}]
    Path("scored.jsonl").write_text("\n".join(map(json.dumps, [SCORED, *others])))
    result = _pool("--triples", "3", "--set", "smoothing=full")
    assert (result.exit_code, result.output) == (0, "")
    rows = _rows()
    assert list(rows) == ["money", "2", "7"]
    money = rows["money"]
    assert (money["topics"], money["seen"], money["cut"]) == (["Jamaica"], 4, None)
    best = money["triples"][0]
    assert (best["object"], best["score"], best["pooled"]) == ("Jamaican dollar", 0.7, 1.001)
    assert [each["object"] for each in money["triples"]][1:] == ["Sol", "Kingston"]
    assert (rows["2"]["triples"], rows["7"]["triples"]) == ([], money["triples"])
    manifest = json.loads(Path("out.manifest.json").read_text())
    assert manifest["retrieval"]["triples"] == 3 and manifest["questions"] == "scored.jsonl"
    assert _pool("--resume").exit_code == 2  # with other settings
    assert _pool("--sample", "1", "--mechanism", "none", "--overwrite").exit_code == 0
    [row] = _rows().values()
    assert row["triples"] == [] or row["triples"][0]["pooled"] is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "line 2: not JSON"),
        ('{"triples": []}', "line 2 is not a question with scored triples: topics: Field required"),
        ('{"topics": [], "triples": [["a", "r", "b"]]}', "triples.0.3: Field required"),
        ('{"topics": [], "triples": [["a", "r", "b", NaN]]}', "triples.0.3: Input should be a fin"),
        ('{"topics": [], "triples": [["a", "r", 7, 0.5]]}', "triples.0.2: Input should be a valid"),
        (json.dumps(SCORED), "line 2: an earlier question also has the id 'money'"),
    ],
)
def test_a_line_that_holds_no_scored_triples_is_told_by_its_number(line: str, problem: str) -> None:
    Path("scored.jsonl").write_text(f"{json.dumps(SCORED)}\n{line}\n")
    result = _pool()
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--questions", "q.jsonl"], "give --questions FILE or --scored FILE"),
        (["--scorer-file", "scored.jsonl"], "--scorer-file has no use with --scored"),
        (["--shown", "twice"], "--shown has no use with --scored"),
        (["--gold-entities"], "--gold-entities has no use with --scored"),
    ],
)
def test_what_is_for_triples_of_the_graph_is_refused_beside_scored_ones(
    options: list[str], problem: str
) -> None:
    Path("scored.jsonl").write_text(json.dumps(SCORED))
    result = _pool(*options)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_a_run_needs_questions_or_scored_triples() -> None:
    result = CliRunner().invoke(main, ["retrieve", "--output", "out.jsonl"])
    assert "give --questions FILE or --scored FILE" in result.stderr
