"""Measure what Bounded Path Context pays for history: input tokens a call, for each length of it.

    python -m tools.methods.histories --questions FILE --store DIR --output FOLDER [--sample 100]

A chooser that is blind to history decides, over HTTP: of the relations that a prompt offers it
takes the two that are most similar to the question, and it answers with where the first path ends.
So every length of history must give the same walks and answers, question by question, and only the
prompts differ. Exits with 1 if anything else does. The server counts four letters as a token. The
F1 of these runs is that of no method.

Source: Bounded Path Context, table 5 (K) and table 8 (tokens).
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import click

from kbqa.engine.cli import main as kbqa
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files import read_rows
from kbqa.sparql.english import relation_words
from tools.methods.perfect.rendered import Prompt, read_path
from tools.methods.perfect_chooser import make_server

HISTORIES = ("0", "1", "2", "full")


class BlindChooser:
    """Decides by the question and the options of a prompt alone.

    Args:
        embedder: Compares them.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def reply(self, text: str) -> str:
        """Choose two relations, or name the end of the first path."""
        prompt = Prompt(text)
        if not prompt.says("\nRelations:\n"):
            return read_path(prompt.lines("Paths")[0]).nodes[-1]
        relations = prompt.lines("Relations")
        words = [relation_words(relation) for relation in relations]
        cosines = self._embedder.similarity(prompt.question, words)
        order = sorted(range(len(words)), key=lambda at: (-round(cosines[at], 6), at))
        return "\n".join(relations[at] for at in order[:2])


@click.command(help=__doc__)
@click.option(
    "--questions", type=click.Path(path_type=Path, exists=True), required=True, metavar="FILE"
)
@click.option("--store", type=click.Path(path_type=Path, exists=True), required=True, metavar="DIR")
@click.option("--output", type=click.Path(path_type=Path), required=True, metavar="FOLDER")
@click.option("--sample", default=100, show_default=True, type=click.IntRange(min=1))
def main(questions: Path, store: Path, output: Path, sample: int) -> None:
    """Run each length, and print a table."""
    output.mkdir(parents=True, exist_ok=True)
    server = make_server(BlindChooser(Embedder.load()).reply, 0, model="blind chooser")
    Thread(target=server.serve_forever, daemon=True).start()
    runs = {}
    for history in HISTORIES:
        rows = output / f"{history}.jsonl"
        command = ["eval", "--method", "bpc", "--set", f"history={history}", "--gold-entities"]
        command += ["--questions", str(questions), "--store", str(store), "--sample", str(sample)]
        command += ["--llm", f"http://127.0.0.1:{server.server_port}/v1", "--no-llm-cache"]
        kbqa([*command, "--output", str(rows), "--overwrite"], standalone_mode=False)
        runs[history] = [row for _, row in read_rows(rows)]
    server.shutdown()
    _tell(runs)


def _tell(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    click.echo(
        "\n| K | questions | the same as K = full | calls a question | input tokens a call |"
    )
    click.echo("|---|---|---|---|---|")
    full = list(map(_decided, runs["full"]))
    others = 0
    for history, rows in runs.items():
        same = sum(mine == theirs for mine, theirs in zip(map(_decided, rows), full, strict=True))
        others += len(rows) - same
        usage = [row["usage"]["general"] for row in rows]
        calls = sum(each["calls"] for each in usage)
        tokens = sum(each["input_tokens"] for each in usage)
        cells = (len(rows), same, f"{calls / len(rows):.1f}", f"{tokens / calls:.1f}")
        click.echo(f"| {history} | {' | '.join(map(str, cells))} |")
    sys.exit(1 if others else 0)


def _decided(row: Mapping[str, Any]) -> str:
    """Return everything that was decided for a question, without what it cost."""
    steps = [
        {name: value for name, value in step.items() if not name.endswith("_tokens")}
        for step in row["trace"]["steps"]
    ]
    told = (row["id"], row["answers"], row["trace"]["walks"], row["error"], steps)
    return json.dumps(told, sort_keys=True)


if __name__ == "__main__":
    main()
