"""The command `kbqa train-retriever`, from end to end on questions about the demo graph."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.engine.cli import main
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.retrieval.retriever import Caps, Retriever, extract
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema

pytest.importorskip("sentence_transformers", reason="needs the lm extra")
pytestmark = pytest.mark.usefixtures("one_thread")

COUNTRIES = ("Kenya", "Uganda", "Norway", "Sweden", "Poland", "Chile", "Peru", "Bolivia", "Japan")
EPOCHS = ("--epochs", "3")
RELATIONS = {
    "what is the capital of {}?": "location.country.capital",
    "what currency is used in {}?": "location.country.currency_used",
}
SPARQL = """PREFIX ns: <http://rdf.freebase.com/ns/>
SELECT DISTINCT ?x WHERE {{ FILTER (?x != ns:{mid}) ns:{mid} ns:{relation} ?x . }}"""


@pytest.fixture(scope="module")
def files(demo_store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A question set of eighteen questions and one that is no question, and a test set of one."""
    rows: list[dict[str, object]] = []
    with closing(open_graph(demo_store)) as graph, closing(graph.names()) as names:
        for name in COUNTRIES:
            mid = names.lookup(name)[0].mid
            for text, relation in RELATIONS.items():
                rows.append(
                    {
                        "id": f"q{len(rows)}",
                        "question": text.format(name),
                        "sparql": SPARQL.format(mid=mid, relation=relation),
                        "topic_entities": [{"mid": mid, "name": name}],
                    }
                )
    nothing = {"sparql": SPARQL.format(mid="m.0nothing", relation="location.country.capital")}
    folder = tmp_path_factory.mktemp("questions")
    data, scored = folder / "countries.jsonl", folder / "test.jsonl"
    lines = [json.dumps(row) + "\n" for row in [*rows, {**rows[2], **nothing, "id": "x"}]]
    data.write_text("".join(lines[1:]), encoding="utf-8")
    scored.write_text(lines[0] + lines[1], encoding="utf-8")
    return data, scored


def _train(files: tuple[Path, Path], store: Path, output: Path, *more: str) -> str:
    options = ["--data", str(files[0]), "--exclude", str(files[1]), "--store", str(store)]
    arguments = ["train-retriever", *options, "--output", str(output), *EPOCHS, *more]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stderr


@pytest.fixture(scope="module")
def run(
    files: tuple[Path, Path], demo_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("runs") / "retriever"
    errors = _train(files, demo_store, folder)
    assert "left out 1: asked in a test set (countries q1)" in errors
    assert "left out 1: its query finds nothing in the graph (countries x)" in errors
    assert "epoch 3  loss " in errors
    return folder


@pytest.fixture
def demo(demo_store: Path) -> Graph:
    return open_graph(demo_store)


def test_a_trained_scorer_scores_the_triples_around_a_topic(run: Path, demo: Graph) -> None:
    retriever = Retriever.load(Embedder.load(), run / "retriever.json")
    with demo:
        [kenya, *_] = demo.names().lookup("Kenya")
        subgraph = extract(demo, GraphSchema(demo), [kenya.mid], Caps())
    capital, money = (
        retriever.score(question, subgraph)
        for question in ("what is the capital of Kenya?", "what currency is used in Kenya?")
    )
    assert capital.shape == subgraph.heads.shape
    assert ((capital > 0) & (capital < 1)).all()
    assert (capital != money).any()


def test_the_manifest_and_the_card_tell_the_same(run: Path) -> None:
    manifest = json.loads((run / "training_manifest.json").read_text())
    card = (run / "README.md").read_text()
    scorer = json.loads((run / "retriever.json").read_text())
    assert manifest["data"]["sets"] == [{"name": "countries", "trained_on": 15, "held_out": 1}]
    assert scorer["trained_on"] == {"countries": 15}
    assert scorer["held_out"]["questions"] == 1
    assert scorer["embedder"] == manifest["embedder"]
    at = manifest["result"]["cutoffs"].index(50)
    recall = manifest["result"]["held_out"]["scorer"]["triples"][at]
    assert scorer["held_out"]["triple_recall_50"] == pytest.approx(recall, abs=1e-4)
    assert "| countries | 15 | 1 |" in card
    [held_out] = (run / "held_out.countries.jsonl").read_text().splitlines()
    assert json.loads(held_out)["id"] in {f"q{number}" for number in range(2, 18)}
    assert f"{manifest['result']['weights']:,} weights" in card


def test_the_same_command_again_changes_nothing(
    run: Path, files: tuple[Path, Path], demo_store: Path
) -> None:
    before = (run / "retriever.safetensors").read_bytes()
    assert "epoch " not in _train(files, demo_store, run)
    assert (run / "retriever.safetensors").read_bytes() == before


def test_another_run_can_use_the_subgraphs_again_but_not_the_folder(
    run: Path, files: tuple[Path, Path], demo_store: Path, tmp_path: Path
) -> None:
    other = ["--labels", "shortest", "--rounds", "0", "--subgraphs", str(run / "subgraphs")]
    _train(files, demo_store, tmp_path / "other", *other)
    assert not (tmp_path / "other" / "subgraphs").exists()
    assert json.loads((tmp_path / "other" / "retriever.json").read_text())["labels"] == "shortest"
    arguments = ["train-retriever", "--data", str(files[0]), "--store", str(demo_store)]
    result = CliRunner().invoke(main, [*arguments, "--output", str(run), "--seed", "7"])
    assert result.exit_code == 1
    assert "holds a run with other settings" in result.stderr


def test_a_scorer_that_sees_names_can_be_trained_from_subgraphs_without_names(
    run: Path, files: tuple[Path, Path], demo_store: Path, demo: Graph, tmp_path: Path
) -> None:
    subgraphs = shutil.copytree(run / "subgraphs", tmp_path / "subgraphs")
    output, data = tmp_path / "named", tmp_path / "uganda.jsonl"
    rows = files[0].read_text(encoding="utf-8").splitlines(keepends=True)
    data.write_text("".join(row for row in rows if "Uganda" in row), encoding="utf-8")
    options = ["--entity-text", "name", "--subgraphs", str(subgraphs)]
    assert " names embedded" in _train((data, files[1]), demo_store, output, *options)
    assert json.loads((output / "retriever.json").read_text())["entity_text"] == "name"
    manifest = json.loads((output / "training_manifest.json").read_text())
    assert manifest["settings"]["entity_text"] == "name"
    assert "of entities: name" in (output / "README.md").read_text()
    with demo:
        retriever = Retriever.load(Embedder.load(), output / "retriever.json", demo.labels)
        [uganda, *_] = demo.names().lookup("Uganda")
        subgraph = extract(demo, GraphSchema(demo), [uganda.mid], Caps(triples=200))
        scores = retriever.score("what is the capital of Uganda?", subgraph)
    assert scores.shape == subgraph.heads.shape
    assert ((scores > 0) & (scores < 1)).all()
