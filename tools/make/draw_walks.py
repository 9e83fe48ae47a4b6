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
from typing import Literal, TextIO

import click
from pydantic import BaseModel, ValidationError

Format = Literal["mermaid", "dot"]


class DrawnWalk(BaseModel):
    """A walk in a trace: a step is subject, relation, object, and whether it was walked back."""

    topic: str
    steps: tuple[tuple[str, str, str, bool], ...]


class DrawnTrace(BaseModel):
    """What is drawn of a trace."""

    walks: tuple[DrawnWalk, ...] = ()
    dead_ends: tuple[DrawnWalk, ...] = ()
    names: dict[str, str] = {}


class DrawnAnswer(BaseModel):
    """An answer: an entity's mid or a literal's text."""

    mid: str | None = None
    value: str | None = None
    origin: str = "graph"


class DrawnRecord(BaseModel):
    """What is drawn of an answer or a row."""

    id: str | None = None
    answers: tuple[DrawnAnswer, ...] = ()
    trace: DrawnTrace | None = None
    error: str | None = None


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


def drawing_of(record: DrawnRecord) -> Drawing:
    """Take what is drawn from an answer or a row.

    Raises:
        ValueError: It has no walks: its method does not walk, or the question failed.
    """
    if record.error is not None:
        raise ValueError(f"the question failed, so there are no walks: {record.error}")
    trace = record.trace or DrawnTrace()
    walks = [*trace.walks, *trace.dead_ends]
    if not walks:
        raise ValueError("the answer has no walks: its method does not walk, or found no way")
    found = [each.mid or each.value for each in record.answers if each.origin == "graph"]
    answers = frozenset(filter(None, found))
    edges: dict[tuple[str, str, str], bool] = {}
    nodes: dict[str, None] = {}
    for walk in walks:
        nodes[walk.topic] = None
        on_the_way = _steps_to_answer(walk, answers)
        for at, (subject, relation, value, _) in enumerate(walk.steps):
            nodes.update({subject: None, value: None})
            edge = (subject, relation, value)
            edges[edge] = edges.get(edge, False) or at < on_the_way
    labels = {node: trace.names.get(node, node) for node in nodes}
    return Drawing(labels, edges, frozenset(walk.topic for walk in walks), answers)


def _steps_to_answer(walk: DrawnWalk, answers: frozenset[str]) -> int:
    """Count the steps of a walk up to the first answer on it; 0 if it has none."""
    reached = [step[0] if step[3] else step[2] for step in walk.steps]
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


def read_records(text: str) -> list[DrawnRecord]:
    """Read one JSON record, or one a line.

    Raises:
        ValueError: A line is neither an answer nor a row.
    """
    try:
        values = [(1, json.loads(text))]
    except ValueError:
        lines = enumerate(text.split("\n"), 1)  # JSON may hold other line breaks as they are.
        values = [(number, _read_json(line, number)) for number, line in lines if line.strip()]
    return [_read_record(value, number) for number, value in values]


def _read_json(line: str, number: int) -> object:
    try:
        value: object = json.loads(line)
    except ValueError:
        raise _unreadable(number, "it is not JSON") from None
    return value


def _read_record(value: object, number: int) -> DrawnRecord:
    try:
        return DrawnRecord.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise _unreadable(number, f"{field}: {first['msg']}" if field else first["msg"]) from None


def _unreadable(number: int, problem: str) -> ValueError:
    return ValueError(
        f"line {number} cannot be drawn: {problem}. "
        "Give what `kbqa ask --json` printed, or rows of `kbqa eval`."
    )


def _chosen(records: Sequence[DrawnRecord], wanted: str | None) -> DrawnRecord:
    found: Iterable[DrawnRecord] = records
    if wanted is not None:
        found = [record for record in records if record.id == wanted]
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
