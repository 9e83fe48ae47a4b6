"""The command `kbqa link`: what a question names, and which entities it may be about."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import click

from kbqa.engine.commands import check_answers
from kbqa.engine.embedder import Embedder
from kbqa.engine.linker import LinkedEntity, Linker
from kbqa.engine.question_mentions import Mentions
from kbqa.engine.questions import asked_questions, read_questions
from kbqa.kb.entity_search import open_names
from kbqa.kb.options import GraphChoice, graph_options, json_option
from kbqa.sparql.errors import GraphError, InputError


@click.command()
@click.argument("question", required=False)
@click.option(
    "--questions",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Question set to link instead, JSON Lines, gzipped or not.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    help="Entities to show for a question at most.",
)
@click.option(
    "--embedder",
    "embeds",
    is_flag=True,
    help="Also compare relations with the question by all-MiniLM-L6-v2; slower.",
)
@graph_options
@json_option
def link(
    question: str | None,
    file: Path | None,
    limit: int,
    embeds: bool,
    graph: GraphChoice,
    as_json: bool,
) -> None:
    """Show what QUESTION names, and the entities that it may be about, the likeliest first.

    An entity's score is the linker's probability that the question is about it, given that it is
    about one of the foremost candidates. With --questions there is a record for each question, one
    a line with --json; with - as QUESTION, questions are read from standard input, one a line.
    """
    if (question is None) == (file is None):
        raise InputError('give a QUESTION, as in kbqa link "where is Kenya?", or --questions FILE')
    asked = _asked(question, file)
    with closing(graph.open()) as opened, closing(open_names(opened, graph.timeout_s)) as names:
        check_answers(opened, graph.timeout_s)
        linker = Linker(opened, names, embedder=Embedder.load() if embeds else None)
        if question is not None and question != "-":
            [(_, text)] = asked
            mentions = linker.mentions(text)
            linked = linker.rank(mentions, limit)
            click.echo(_record(mentions, linked) if as_json else _table(mentions, linked))
            return
        for number, (key, text) in enumerate(asked):
            record: dict[str, object] = {"id": key, "candidates": []}
            try:
                mentions = linker.mentions(text)
                linked = linker.rank(mentions, limit)
                shown = _table(mentions, linked)
                record["candidates"] = [entity.to_dict() for entity in linked]
            except GraphError as error:
                shown = f"failed: {error}"
                record["error"] = str(error)
            if as_json:
                click.echo(json.dumps(record, ensure_ascii=False))
            else:
                click.echo("\n" * (number > 0) + f"# {_plain(text)}\n{shown}")


def _asked(question: str | None, file: Path | None) -> Iterator[tuple[str, str]]:
    """Yield questions with their ids, which for those of standard input are numbers."""
    if file is not None:
        yield from ((row.id, row.text) for row in read_questions(file))
    elif question is not None:
        yield from ((str(n), text) for n, text in enumerate(asked_questions(question), 1))


def _record(mentions: Mentions, linked: Sequence[LinkedEntity]) -> str:
    """Write what one question names as JSON; mentions in reading order, longer ones first."""
    texts = (mentions.text(span.start, span.end) for span in mentions.spans)
    record = {
        "question": mentions.question,
        "mentions": list(dict.fromkeys(texts)),
        "values": [
            {"text": mentions.text(value.start, value.end), "kind": value.kind}
            for value in mentions.values
        ],
        "candidates": [entity.to_dict() for entity in linked],
    }
    return json.dumps(record, ensure_ascii=False, indent=2)


def _table(mentions: Mentions, linked: Sequence[LinkedEntity]) -> str:
    """Write the candidates as lines, and below them the values that the question says."""
    width = max((len(entity.mid) for entity in linked), default=0)
    length = max((len(entity.name) for entity in linked), default=0)
    lines = [
        f"{entity.score:.3f}  {entity.mid:<{width}}  {_plain(entity.name):<{length}}"
        f"  “{_plain(entity.mention)}”"
        for entity in linked
    ] or ["No name in the question is known to the graph."]
    lines += [
        f"{value.kind:>5}  “{_plain(mentions.text(value.start, value.end))}”"
        for value in mentions.values
    ]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Put a text on one line of a terminal, which control characters would change."""
    printable = (c if c.isprintable() else " " for c in text)
    return " ".join("".join(printable).split())
