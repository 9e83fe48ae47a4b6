"""Each command of docs/papers.md runs on a small set, with a scripted model as the general one."""

import json
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.engine.cli import main
from kbqa.engine.questions.question_sets import read_questions
from kbqa.engine.writing.generate import DEFAULT_ADAPTER
from kbqa.kb.open import open_graph
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.crp import Crp, Entity, Hop
from tools.methods.perfect_chooser import PerfectChooser, make_server

PAGE = Path(__file__).parents[1] / "docs/papers.md"
SERVER = "http://127.0.0.1:8000/v1"
ASKED = (
    ("what is the capital of Kenya?", "Kenya", "location.country.capital"),
    ("which currency is used in Peru?", "Peru", "location.country.currency_used"),
    ("what languages are spoken in Chad?", "Chad", "location.country.languages_spoken"),
)


def _commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(demo_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands read: questions, a store, an adapter, written paths."""
    folder = tmp_path_factory.mktemp("papers")
    (folder / "freebase").symlink_to(demo_store)
    (folder / "adapter").symlink_to(DEFAULT_ADAPTER)
    rows, beams = [], []
    with open_graph(demo_store) as graph:
        names = graph.names()
        for text, name, relation in ASKED:
            [topic, *_] = names.lookup(name)
            crp = Crp(Entity(name, topic.mid), (Hop(relation),))
            found = graph.select(compile_crp(crp)).rows
            row = {"id": str(len(rows)), "question": text, "sparql": compile_crp(crp)}
            topics = [{"mid": topic.mid, "name": name}]
            answers = [{"arg": str(answer[0])} for answer in found]
            rows.append({**row, "topic_entities": topics, "answers": answers})
            wrong = relation if len(rows) == 1 else "no.such.relation"  # for a repair to mend
            written = {"crp": f"{name} -> {wrong}", "logprob": -1.0, "tokens": 9}
            beams.append({"id": row["id"], "crps": [written]})
        names.close()
    _write(folder / "webqsp.jsonl", rows)
    _write(folder / "cwq.jsonl", rows)
    _write(folder / "beams.jsonl", beams)
    return folder


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")


@pytest.fixture(scope="module")
def url(folder: Path, demo_store: Path) -> Iterator[str]:
    """A server of the general model, which knows the gold paths."""
    with open_graph(demo_store) as graph:
        server = make_server(
            PerfectChooser(read_questions(folder / "webqsp.jsonl"), graph).reply, 0
        )
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("command", _commands())
def test_each_command_runs(
    command: str, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    program, name, *arguments = shlex.split(command.replace(SERVER, url))
    assert program == "kbqa"
    if name == "train-crp":
        pytest.skip("trained in tests/training/test_train_crp.py, on a tiny base")
    if name == "crp":
        arguments[arguments.index("--output") + 1] = "written.jsonl"
    if "embedder=nomic-ai/nomic-embed-text-v1" in arguments:  # it cannot be had here
        del arguments[(at := arguments.index("embedder=nomic-ai/nomic-embed-text-v1")) - 1 : at + 1]
    result = CliRunner().invoke(main, [name, *arguments])
    assert result.exit_code == 0, result.stderr
    if name == "eval":
        rows = [json.loads(line) for line in Path(arguments[-1]).read_text("utf-8").splitlines()]
        assert [row["error"] for row in rows] == [None] * len(ASKED)
        assert all(row["usage"]["general"]["calls"] for row in rows) or "--beams" in arguments
