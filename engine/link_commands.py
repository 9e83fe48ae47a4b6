"""The command `kbqa link`: what a question names, and which entities it may be about."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from kbqa.engine.embedder import Embedder
from kbqa.engine.linker import LinkedEntity, Linker
from kbqa.engine.question_mentions import Mentions
from kbqa.engine.questions import read_questions
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

    An entity's score is the linker's probability that the question is about it. With --questions
    there is a record for each question, one a line with --json.
    """
    if (question is None) == (file is None):
        raise InputError('give a QUESTION, as in kbqa link "where is Kenya?", or --questions FILE')
    with closing(graph.open()) as opened, closing(open_names(opened, graph.timeout_s)) as names:
        linker = Linker(opened, names, embedder=Embedder.load() if embeds else None)
        if question is not None:
            # Bytes that were no text in the user's locale come as lone surrogates.
            text = question.encode("utf-8", "replace").decode("utf-8")
            mentions = linker.mentions(text)
            linked = linker.rank(mentions, limit)
            click.echo(_record(mentions, linked) if as_json else _table(mentions, linked))
            return
        assert file is not None
        for number, row in enumerate(read_questions(file)):
            record: dict[str, object] = {"id": row.id, "candidates": []}
            try:
                mentions = linker.mentions(row.text)
                linked = linker.rank(mentions, limit)
                shown = _table(mentions, linked)
                record["candidates"] = [entity.to_dict() for entity in linked]
            except GraphError as error:
                shown = f"failed: {error}"
                record["error"] = str(error)
            if as_json:
                click.echo(json.dumps(record, ensure_ascii=False))
            else:
                click.echo("\n" * (number > 0) + f"# {row.text}\n{shown}")


def _record(mentions: Mentions, linked: Sequence[LinkedEntity]) -> str:
    """Write what one question names as JSON."""
    record = {
        "question": mentions.question,
        "mentions": sorted({mentions.text(span.start, span.end) for span in mentions.spans}),
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
        f"{entity.score:.3f}  {entity.mid:<{width}}  {entity.name:<{length}}  “{entity.mention}”"
        for entity in linked
    ] or ["No name in the question is known to the graph."]
    lines += [
        f"{value.kind:>5}  “{mentions.text(value.start, value.end)}”" for value in mentions.values
    ]
    return "\n".join(lines)
