"""The command `kbqa link`: the entities that a question may be about."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import click

from kbqa.engine.commands.options import INPUT_FILE, check_answers
from kbqa.engine.linking.linker import LinkedEntity, Linker, explain_unlinked
from kbqa.engine.linking.mentions import Mentions
from kbqa.engine.questions.question_sets import read_questions
from kbqa.kb.commands.options import (
    GraphChoice,
    asked_questions,
    graph_options,
    json_option,
    print_json,
    print_result,
)
from kbqa.kb.graph import one_line
from kbqa.kb.names import Names
from kbqa.sparql.errors import GraphError, InputError


@click.command()
@click.argument("question", required=False)
@click.option(
    "--questions",
    "file",
    type=INPUT_FILE,
    metavar="FILE",
    help="Link the questions of a JSON Lines file, gzipped or not, instead.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=10,
    help="Maximum number of entities for a question.",
)
@graph_options
@json_option
def link(
    question: str | None, file: Path | None, limit: int, graph: GraphChoice, as_json: bool
) -> None:
    """Show the entities that QUESTION may be about, most likely first, and its dates and numbers.

    The score is the linker's probability that the question is about the entity, given that it is
    about one of the best candidates. If QUESTION is -, questions are read from standard input, one
    a line. For many questions, --json prints one record a line.
    """
    if (question is None) == (file is None):
        raise InputError('give a QUESTION, as in kbqa link "where is Kenya?", or --questions FILE')
    asked = _asked(question, file)
    with closing(graph.open()) as opened, closing(opened.names(graph.timeout_s)) as names:
        check_answers(opened, graph.timeout_s)
        linker = Linker(opened, names)
        if question is not None and question != "-":
            [(_, text)] = asked
            mentions = linker.mentions(text)
            linked = linker.rank(mentions, limit)
            if as_json:
                print_json(_record(mentions, linked), indent=2)
            else:
                print_result(_table(mentions, linked, names))
            return
        for number, (key, text) in enumerate(asked):
            record: dict[str, object] = {"id": key, "candidates": []}
            try:
                mentions = linker.mentions(text)
                linked = linker.rank(mentions, limit)
                shown = _table(mentions, linked, names)
                record["candidates"] = [entity.to_dict() for entity in linked]
            except GraphError as error:
                shown = f"failed: {error}"
                record["error"] = str(error)
            if as_json:
                print_json(record)
            else:
                print_result("\n" * (number > 0) + f"# {one_line(text)}\n{shown}")


def _asked(question: str | None, file: Path | None) -> Iterator[tuple[str, str]]:
    """Yield questions with their ids; questions from standard input are numbered."""
    if file is not None:
        yield from ((row.id, row.text) for row in read_questions(file))
    elif question is not None:
        yield from ((str(n), text) for n, text in enumerate(asked_questions(question), 1))


def _record(mentions: Mentions, linked: Sequence[LinkedEntity]) -> dict[str, object]:
    """Return one question's links; mentions in reading order, longer ones first."""
    texts = (mentions.text(span.start, span.end) for span in mentions.spans)
    return {
        "question": mentions.question,
        "mentions": list(dict.fromkeys(texts)),
        "values": [
            {"text": mentions.text(value.start, value.end), "kind": value.kind}
            for value in mentions.values
        ],
        "candidates": [entity.to_dict() for entity in linked],
    }


def _table(mentions: Mentions, linked: Sequence[LinkedEntity], names: Names) -> str:
    """Return a line for each candidate, and below them one for each value."""
    width = max((len(entity.mid) for entity in linked), default=0)
    length = max((len(entity.name) for entity in linked), default=0)
    lines = [
        f"{entity.score:.3f}  {entity.mid:<{width}}  {one_line(entity.name):<{length}}"
        f"  “{one_line(entity.mention)}”"
        for entity in linked
    ] or [f"{explain_unlinked(names).capitalize()}."]
    lines += [
        f"{value.kind:>5}  “{one_line(mentions.text(value.start, value.end))}”"
        for value in mentions.values
    ]
    return "\n".join(lines)
