"""Draw what a method explored for a question, as a Mermaid or DOT graph.

    kbqa ask "what is the capital of Kenya?" --method knowpath --json | \
        python -m tools.make.draw_walks > walks.mmd
    python -m tools.make.draw_walks --format dot --id WebQTest-1 rows.jsonl | dot -Tsvg > walks.svg

Reads an answer of `kbqa ask --json`, or a row of `kbqa eval`. Topics are dark, answers light; what
was explored and led to no answer is dashed. An arrow points from the subject of a triple to its
object, whichever way it was walked.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import click

Format = Literal["mermaid", "dot"]


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn of one question; nodes are ids, or the texts of literals.

    Attributes:
        labels: Of each node, in order.
        edges: Triples of the walks, each once; true for those on the walks of the answers.
        topics: Where walks begin.
        answers: Nodes that answer the question.
    """

    labels: Mapping[str, str]
    edges: Mapping[tuple[str, str, str], bool]
    topics: frozenset[str]
    answers: frozenset[str]


def drawing_of(record: Mapping[str, Any]) -> Drawing:
    """Take what is drawn from an answer or a row.

    Raises:
        ValueError: It has no walks: its method does not walk, or the question failed.
    """
    trace = record.get("trace") or {}
    walks, dead_ends = trace.get("walks", []), trace.get("dead_ends", [])
    if not (walks or dead_ends):
        raise ValueError("the answer has no walks: its method does not walk, or found no way")
    answers = frozenset(
        each.get("mid", each.get("value"))
        for each in record.get("answers", [])
        if each.get("origin", "graph") == "graph"
    )
    edges: dict[tuple[str, str, str], bool] = {}
    nodes: dict[str, None] = {}
    for walk in [*walks, *dead_ends]:
        nodes[walk["topic"]] = None
        on_the_way = _steps_to_answer(walk, answers)
        for at, (subject, relation, value, _) in enumerate(walk["steps"]):
            nodes.update({subject: None, value: None})
            edge = (subject, relation, value)
            edges[edge] = edges.get(edge, False) or at < on_the_way
    names = trace.get("names", {})
    topics = frozenset(walk["topic"] for walk in [*walks, *dead_ends])
    return Drawing({node: names.get(node, node) for node in nodes}, edges, topics, answers)


def _steps_to_answer(walk: Mapping[str, Any], answers: frozenset[str]) -> int:
    """Count the steps of a walk up to the first answer on it; 0 if it has none."""
    reached = [step[0] if step[3] else step[2] for step in walk["steps"]]
    return next((at for at, node in enumerate(reached, 1) if node in answers), 0)


def as_mermaid(drawing: Drawing) -> str:
    """Draw as a Mermaid flow chart."""
    ids = {node: f"n{number}" for number, node in enumerate(drawing.labels)}
    lines = ["flowchart LR"]
    lines += [f'    {ids[node]}["{_for_mermaid(label)}"]' for node, label in drawing.labels.items()]
    for (subject, relation, value), is_proof in drawing.edges.items():
        line = "-->" if is_proof else "-.->"
        lines.append(f'    {ids[subject]} {line}|"{_for_mermaid(relation)}"| {ids[value]}')
    lines += [
        "    classDef topic fill:#1f4e79,color:#fff",
        "    classDef answer fill:#d5e8d4,color:#000,stroke-width:2px",
    ]
    for node, id_ in ids.items():
        if style := _style(drawing, node):
            lines.append(f"    class {id_} {style}")
    return "\n".join(lines) + "\n"


def as_dot(drawing: Drawing) -> str:
    """Draw in the language of Graphviz."""
    ids = {node: f"n{number}" for number, node in enumerate(drawing.labels)}
    looks = {
        "topic": ', style="rounded,filled", fillcolor="#1f4e79", fontcolor=white',
        "answer": ', style="rounded,filled,bold", fillcolor="#d5e8d4"',
        "": "",
    }
    lines = ["digraph walks {", "    rankdir=LR;", "    node [shape=box, style=rounded];"]
    for node, label in drawing.labels.items():
        look = looks[_style(drawing, node)]
        lines.append(f"    {ids[node]} [label={_for_dot(label)}{look}];")
    for (subject, relation, value), is_proof in drawing.edges.items():
        look = "" if is_proof else ", style=dashed, color=gray50"
        ends = f"{ids[subject]} -> {ids[value]}"
        lines.append(f"    {ends} [label={_for_dot(relation)}{look}];")
    return "\n".join([*lines, "}"]) + "\n"


def _style(drawing: Drawing, node: str) -> str:
    if node in drawing.answers:
        return "answer"
    return "topic" if node in drawing.topics else ""


def _for_mermaid(text: str) -> str:
    """Write each letter that Mermaid might read as markup by its number."""
    return "".join(
        letter if letter.isalnum() or letter in " ._-,:" else f"#{ord(letter)};"
        for letter in " ".join(text.split())
    )


def _for_dot(text: str) -> str:
    quoted = " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def read_records(text: str) -> list[dict[str, Any]]:
    """Read one JSON record, or one a line.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def _chosen(records: Sequence[dict[str, Any]], wanted: str | None) -> dict[str, Any]:
    found: Iterable[dict[str, Any]] = records
    if wanted is not None:
        found = [record for record in records if record.get("id") == wanted]
    for record in found:
        return record
    raise ValueError("there is no answer" if wanted is None else f"no row has the id {wanted}")


@click.command()
@click.argument("source", type=click.File(encoding="utf-8"), default="-")
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot"]),
    default="mermaid",
    show_default=True,
    help="Language of the drawing.",
)
@click.option("--id", "wanted", help="Id of the row; by default the first answer is drawn.")
def main(source: TextIO, form: Format, wanted: str | None) -> None:
    """Draw the walks of an answer in SOURCE, a file of `kbqa ask --json` or rows of `kbqa eval`."""
    try:
        drawing = drawing_of(_chosen(read_records(source.read()), wanted))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    click.echo(as_mermaid(drawing) if form == "mermaid" else as_dot(drawing), nl=False)


if __name__ == "__main__":
    main()
