"""The commands `kbqa crp …`: tools for reasoning paths, JSON Lines in and out."""

import json
from pathlib import Path

import click

from kbqa.engine.options import ModelChoice, model_options, questions_option
from kbqa.sparql.errors import InputError


@click.group()
def crp() -> None:
    """Write reasoning paths and look into them."""


@crp.command()
@questions_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="BEAMS.jsonl",
    help="Where the rows go; questions that it holds already are passed over.",
)
@model_options
@click.option("--batch-size", type=click.IntRange(1), default=16, show_default=True)
def generate(file: Path, output: Path, model: ModelChoice, batch_size: int) -> None:
    """Write reasoning paths for a question set, for `kbqa eval --beams`.

    A row is {"id", "crps": [{"routerkgqa", "logprob", "tokens"}]}, best path first. The same
    command goes on with a file that is not complete.
    """
    from tqdm import tqdm

    from kbqa.engine.evaluate import read_beams
    from kbqa.engine.questions import drop_unfinished_line, read_questions

    if not output.parent.is_dir():
        raise InputError(f"there is no folder {output.parent} to write {output.name} to")
    written = {}
    if output.is_file():
        drop_unfinished_line(output)
        written = read_beams(output)
    # Questions of like length are generated for together: padding is work without use.
    questions = sorted(
        (question for question in read_questions(file) if question.id not in written),
        key=lambda question: len(question.text),
    )
    generator = model.load()
    with (
        output.open("a", encoding="utf-8") as rows,
        tqdm(total=len(questions), unit="question", disable=None) as bar,
    ):
        for at in range(0, len(questions), batch_size):
            batch = questions[at : at + batch_size]
            found = generator.generate([question.text for question in batch], model.n)
            for question, candidates in zip(batch, found, strict=True):
                crps = [
                    {"routerkgqa": c.text, "logprob": round(c.logprob, 4), "tokens": c.tokens}
                    for c in candidates
                ]
                row = {"id": question.id, "crps": crps}
                rows.write(json.dumps(row, ensure_ascii=False) + "\n")
            rows.flush()
            bar.update(len(batch))
