"""Write the drawing of an answer's evidence as SVG, to stand in an HTML page.

It has no script, no style attribute and no id, so a strict content security policy allows it and
several can stand on one page. Presentation attributes make it readable without a style sheet, in
the colour of the text around it. Classes are there for a page that has one:

- ``node`` with ``topic``, ``answer``, ``entity``, ``mediator``, ``value`` or ``more``;
- ``edge`` and ``label``, with ``constraint`` if they prove a constraint.

``data-part`` on edges and labels is the index of the sentence that they prove. ``data-node`` counts
the nodes; an edge's ``data-subject`` and ``data-object`` point to them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kbqa.engine.display.layout import Drawing, Edge, Label, Node, Point, lay_out
from kbqa.kb.escaping import html_line, html_tooltip_name
from kbqa.sparql.terms import is_mid

_ARROW = 7.0
_KINDS = {
    "topic": "topic",
    "answer": "answer",
    "entity": "entity",
    "mediator": "entity without a name",
    "value": "value",
}
# A label's halo is the colour of what it stands on, or nothing where that is not known.
_GROUND = "var(--kbqa-ground, var(--jp-layout-color0, transparent))"


def draw_evidence(
    record: Mapping[str, Any], entity_url: Callable[[str], str] | None = None
) -> str | None:
    """Draw the evidence of an answer's record as an ``<svg>`` element.

    Args:
        record: As `Answer.to_dict` returns it, of any method.
        entity_url: Returns the address of an entity's page by its mid; None for no links.

    Returns:
        The element; None if there is no evidence.
    """
    drawing = lay_out(record)
    return None if drawing is None else "\n".join(_lines(drawing, entity_url))


def _lines(drawing: Drawing, entity_url: Callable[[str], str] | None) -> Iterator[str]:
    width, height = round(drawing.width), round(drawing.height)
    drawn = [node for node in drawing.nodes if node.kind != "more"]
    count = f"{_count(len(drawn), 'node')} and {_count(len(drawing.edges), 'triple')}"
    yield (
        f'<svg class="evidence" xmlns="http://www.w3.org/2000/svg" role="group" '
        f'aria-label="Evidence as a graph: {count}" width="{width}" height="{height}" '
        f'viewBox="0 {_n(drawing.top)} {width} {height}" fill="none" stroke="currentColor" '
        f'font-family="system-ui, sans-serif" font-size="13">'
    )
    for edge in drawing.edges:
        yield _edge(edge, drawing)
    for label in drawing.labels:
        yield _label(label)
    for number, node in enumerate(drawing.nodes):
        yield _node(number, node, entity_url)
    yield "</svg>"


def _edge(edge: Edge, drawing: Drawing) -> str:
    subject, object_ = drawing.nodes[edge.subject], drawing.nodes[edge.object]
    start, first, second, tip = edge.curve
    # Every curve meets its end sideways or, below the columns, steeply; the head follows it.
    head, base = _arrow_head(second, tip)
    dashes = ' stroke-dasharray="5 4"' if edge.is_constraint else ""
    ends = [html_tooltip_name(subject.name), html_tooltip_name(object_.name)]
    title = f" {html_line(edge.relation)} ".join(ends)
    return (
        f'<g class="{_classes("edge", edge.is_constraint)}" aria-hidden="true"{_part(edge.part)} '
        f'data-subject="{edge.subject}" data-object="{edge.object}">'
        f"<title>{title}</title>"
        f'<path d="M{_p(start)}C{_p(first)} {_p(second)} {_p(base)}" stroke-width="1.4" '
        f'stroke-opacity="0.65"{dashes}/>'
        f'<path d="{head}" fill="currentColor" stroke="none"/></g>'
    )


def _arrow_head(before: Point, tip: Point) -> tuple[str, Point]:
    """Return a triangle that points to the tip, and the middle of its base."""
    x, y = tip.x - before.x, tip.y - before.y
    length = (x * x + y * y) ** 0.5 or 1.0
    x, y = x / length * _ARROW, y / length * _ARROW
    base = Point(tip.x - x, tip.y - y)
    left, right = Point(base.x - y / 2, base.y + x / 2), Point(base.x + y / 2, base.y - x / 2)
    return f"M{_p(tip)}L{_p(left)} {_p(right)}Z", base


def _label(label: Label) -> str:
    return (
        f'<text class="{_classes("label", bool(label.part))}" aria-hidden="true"'
        f'{_part(label.part)} x="{_n(label.at.x)}" y="{_n(label.at.y + 4)}" font-size="11.5" '
        f'text-anchor="middle" fill="currentColor" stroke="{_GROUND}" stroke-width="4" '
        f'stroke-linejoin="round" paint-order="stroke"><title>{html_line(label.relation)}</title>'
        f"{html_line(label.text)}</text>"
    )


def _node(number: int, node: Node, entity_url: Callable[[str], str] | None) -> str:
    says = html_tooltip_name(node.name)
    if node.kind == "more":
        says = f"{html_line(node.name)} answers that are not drawn"
    elif is_mid(node.term) and node.name != node.term:
        says += f" ({html_line(node.term)})"
    spoken = f"{says}, {_KINDS[node.kind]}" if node.kind in _KINDS else says
    inner = f"<title>{says}</title>{_shape(node)}"
    if node.label:
        x, y = node.left + node.width / 2, node.middle + 4.5
        weight = ' font-weight="600"' if node.kind in ("topic", "answer") else ""
        inner += (
            f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="middle" fill="currentColor" '
            f'stroke="none"{weight}>{html_line(node.label)}</text>'
        )
    attributes = f'class="node {node.kind}" data-node="{number}"'
    if entity_url is not None and is_mid(node.term):
        url = html_line(entity_url(node.term))
        return f'<a {attributes} href="{url}" aria-label="{spoken}">{inner}</a>'
    return f'<g {attributes} role="img" aria-label="{spoken}">{inner}</g>'


def _shape(node: Node) -> str:
    """Draw what tells the kind without colour: a pill, a heavy box, a box, a dot, a plain box."""
    top, line = node.middle - node.height / 2, 'stroke-width="1.2"'
    match node.kind:
        case "mediator":
            x, r = _n(node.left + node.width / 2), _n(node.width / 2 - 1)
            return f'<circle cx="{x}" cy="{_n(node.middle)}" r="{r}" fill="currentColor"/>'
        case "more":
            return ""
        case "topic":
            radius, line = node.height / 2, 'stroke-width="1.8"'
        case "answer":
            radius, line = 5.0, 'stroke-width="2.6"'
        case "value":
            radius, line = 0.0, 'stroke-width="1.2" stroke-dasharray="2 3"'
        case _:
            radius = 5.0
    return (
        f'<rect x="{_n(node.left)}" y="{_n(top)}" width="{_n(node.width)}" '
        f'height="{_n(node.height)}" rx="{_n(radius)}" fill="currentColor" fill-opacity="0.06" '
        f"{line}/>"
    )


def _part(part: int | None) -> str:
    return "" if part is None else f' data-part="{part}"'


def _classes(name: str, is_constraint: bool) -> str:
    return f"{name} constraint" if is_constraint else name


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _p(point: Point) -> str:
    return f"{_n(point.x)},{_n(point.y)}"


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
