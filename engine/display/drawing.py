"""Draw the evidence of an answer's record as SVG: lay out boxes and arrows, and write them.

Nodes stand in columns by their hops from the topic. What the constraints demand hangs to the right
of its node, below the path.

The SVG stands in an HTML page. It has no script, no style attribute and no id, so a strict content
security policy allows it, and several can stand on one page. Presentation attributes make it
readable without a style sheet, in the colour of the text around it. A page may style its classes:

- ``node`` with ``topic``, ``answer``, ``entity``, ``mediator``, ``value`` or ``more``;
- ``edge`` and ``label``, with ``constraint`` if they prove a constraint.

``data-part`` on edges and labels is the index of the sentence that they prove. ``data-node`` counts
the nodes; an edge's ``data-subject`` and ``data-object`` point to them.
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

from kbqa.kb.graph import html_line, html_tooltip_name
from kbqa.sparql.terms import is_mid

_BOX_HEIGHT = 30.0
_DOT_SIZE = 14.0
_ROW_GAP = 18.0
_MARGIN = 12.0
_NARROWEST_GAP = 56.0
_LABEL_HEIGHT = 16.0
_NAME_UNIT = 7.3
_BOLD_UNIT = 8.2
_RELATION_UNIT = 6.3
"""Pixels of a usual letter of a name, a bold one, and a relation: generous, as fonts differ."""
_LONGEST = 28
_PARALLEL = 8.0
_BULGE = 46.0
_SAG = 40.0
_ARROW = 7.0
_DRAWN_ANSWERS = 10
_DRAWN_TRIPLES = 60
_SWEEPS = 4
_KINDS = {
    "topic": "topic",
    "answer": "answer",
    "entity": "entity",
    "mediator": "entity without a name",
    "value": "value",
}
# A label's halo has the colour of its background, or none where that is not known.
_GROUND = "var(--kbqa-ground, var(--jp-layout-color0, transparent))"


NodeKind = Literal["topic", "answer", "entity", "mediator", "value", "more"]
"""A mediator is an entity without a name, a value is a literal, and ``more`` stands for answers
that are not drawn."""

Key: TypeAlias = tuple[str, ...]
"""A node: the id of an entity, or a subject with its literal, which keeps equal literals apart."""

_MORE: Key = ("", "", "more")
"""The node that stands for answers that are not drawn."""


class Arrow(NamedTuple):
    """A triple; `part` is the index of the path's sentence that it proves, if that is known."""

    subject: Key
    relation: str
    object: Key
    part: int | None

    @property
    def ends(self) -> tuple[Key, Key]:
        """Both nodes."""
        return self.subject, self.object

    @property
    def is_constraint(self) -> bool:
        """Whether it proves a constraint: the first sentence is the path to the answers."""
        return bool(self.part)


@dataclass(frozen=True, slots=True)
class EvidenceGraph:
    """The part of the evidence that is drawn."""

    columns: tuple[tuple[Key, ...], ...]  # by hops from the topics, each from top to bottom
    arrows: tuple[Arrow, ...]
    names: Mapping[Key, str]
    kinds: Mapping[Key, NodeKind]

    @property
    def column(self) -> dict[Key, int]:
        """The column of each node."""
        return {key: column for column, keys in enumerate(self.columns) for key in keys}


class Point(NamedTuple):
    """A place in the drawing, in pixels."""

    x: float
    y: float


Curve: TypeAlias = tuple[Point, Point, Point, Point]
"""The four points of a cubic Bézier curve."""


@dataclass(frozen=True, slots=True)
class Node:
    """A box, or the dot of a mediator."""

    term: str  # the id of an entity, or the text of a literal
    name: str
    label: str  # as written into the box; a long name is cut
    kind: NodeKind
    left: float
    middle: float  # the height at which arrows meet it
    width: float
    height: float

    @property
    def right(self) -> float:
        """The right border."""
        return self.left + self.width

    @property
    def high(self) -> float:
        """The upper border."""
        return self.middle - self.height / 2

    @property
    def low(self) -> float:
        """The lower border."""
        return self.middle + self.height / 2


@dataclass(frozen=True, slots=True)
class Edge:
    """The arrow of a triple, from one node to another by their indices."""

    subject: int
    relation: str
    object: int
    part: int | None  # index of the path's sentence that the triple proves, if that is known
    is_constraint: bool
    curve: Curve

    @property
    def middle(self) -> Point:
        """The point half way along the curve."""
        a, b, c, d = self.curve
        return Point((a.x + 3 * (b.x + c.x) + d.x) / 8, (a.y + 3 * (b.y + c.y) + d.y) / 8)


@dataclass(frozen=True, slots=True)
class Label:
    """The name of a relation, written once for arrows that share it and one end."""

    text: str  # the last part of the relation's id; if long, it is cut
    relation: str
    part: int | None
    at: Point  # the middle of the text


@dataclass(frozen=True, slots=True)
class Drawing:
    """The evidence of an answer, laid out, in pixels."""

    nodes: tuple[Node, ...]  # from left to right, each column from top to bottom
    edges: tuple[Edge, ...]
    labels: tuple[Label, ...]
    top: float  # the height of the upper border, which may be negative
    width: float
    height: float


def lay_out(record: Mapping[str, Any]) -> Drawing | None:
    """Lay out the evidence of an answer's record, of any method; None if there is none.

    At most ten answers are drawn, and the triples that lead to them. A node counts the others.
    """
    graph = _read_evidence(record)
    if graph is None:
        return None
    boxes = {key: _box(graph, key) for keys in graph.columns for key in keys}
    gaps = list(_gaps(graph))
    widths = [max(boxes[key].width for key in keys) for keys in graph.columns]
    steps = [width + gap for width, gap in zip(widths, gaps, strict=True)]
    lefts = list(accumulate(steps, initial=_MARGIN))
    heights = _heights(graph, boxes)
    nodes: dict[Key, Node] = {}
    for left, width, keys in zip(lefts, widths, graph.columns, strict=False):
        for key in keys:
            box = boxes[key]
            indent = (width - box.width) / 2
            nodes[key] = replace(box, left=left + indent, middle=heights[key])
    edges = _edges(graph, nodes)
    column = graph.column
    labels = _labels(edges, [column[key] for key in nodes])
    highs = [node.high for node in nodes.values()]
    highs += [label.at.y - _LABEL_HEIGHT for label in labels]
    lows = [*(node.low for node in nodes.values()), *(edge.middle.y for edge in edges)]
    lows += [label.at.y + _LABEL_HEIGHT / 2 for label in labels]
    top = min(highs) - _MARGIN
    return Drawing(
        tuple(nodes.values()),
        tuple(edges),
        tuple(labels),
        top,
        lefts[-1] + _MARGIN,
        max(lows) + _MARGIN - top,
    )


def _read_evidence(record: Mapping[str, Any]) -> EvidenceGraph | None:
    """Read the evidence of a record as columns, with ten answers at most; None if there is none."""
    names: dict[Key, str] = {}
    arrows = []
    for row in record["evidence"]:
        subject: Key = (row["subject"],)
        object_: Key = (row["object"],)
        if row["object_name"] == row["object"] and not is_mid(row["object"]):
            object_ = (row["subject"], row["object"])
        names[subject], names[object_] = row["subject_name"], row["object_name"]
        arrows.append(Arrow(subject, row["relation"], object_, row.get("part")))
    if not arrows:
        return None
    rank: dict[str, int] = {}
    for each in record["answers"]:
        rank.setdefault(each.get("mid") or each["value"], len(rank))
    topics = _topics(record, names, rank) or [arrows[0].subject]
    found = sorted(
        (key for key in names if key[-1] in rank and key not in topics),
        key=lambda key: rank[key[-1]],
    )
    answers = found[:_DRAWN_ANSWERS]
    drawn = _without(arrows, found[_DRAWN_ANSWERS:], {*answers, *topics})[:_DRAWN_TRIPLES]
    graph = _adjacency(drawn)
    kinds = {key: _kind(key, names[key], topics, answers) for key in graph}
    columns = _columns(drawn, [key for key in topics if key in graph] or list(graph)[:1])
    places = [place for place, keys in enumerate(columns) if set(keys) & set(answers)]
    hidden = (record.get("count") or len(rank)) - len({key[-1] for key in answers})
    if places and hidden > 0:
        names[_MORE] = f"+{hidden:,}" + (" or more" if record.get("truncated") else "")
        kinds[_MORE] = "more"
        columns[places[-1]].append(_MORE)
    _reduce_crossings(columns, drawn)
    return EvidenceGraph(tuple(map(tuple, columns)), tuple(drawn), names, kinds)


def _topics(
    record: Mapping[str, Any], names: Mapping[Key, str], answers: Mapping[str, int]
) -> list[Key]:
    """Return where the drawing begins: the topics of the path or walks, or else linked entities."""
    topic = record["trace"].get("topic")
    for mids in (
        [topic["mid"]] if topic else [],
        [walk["topic"] for walk in record["trace"].get("walks", ())],
        [each["mid"] for each in record["linked"]],
    ):
        drawn = [mid for mid in dict.fromkeys(mids) if (mid,) in names and mid not in answers]
        if drawn:
            return [(mid,) for mid in drawn]
    return []


def _kind(key: Key, name: str, topics: Sequence[Key], answers: Sequence[Key]) -> NodeKind:
    if key in topics:
        return "topic"
    if key in answers:
        return "answer"
    if len(key) > 1:
        return "value"
    return "mediator" if name == key[0] and is_mid(name) else "entity"


def _without(arrows: Sequence[Arrow], removed: Iterable[Key], needed: set[Key]) -> list[Arrow]:
    """Leave out nodes, and the nodes that led only to them."""
    gone, kept = set(removed), list(arrows)
    touched: set[Key] = set()
    while gone:
        touched |= {key for each in kept if gone & {*each.ends} for key in each.ends}
        kept = [each for each in kept if not gone & {*each.ends}]
        degrees = Counter(key for each in kept for key in each.ends)
        gone = {key for key in touched - needed if degrees[key] == 1}
    return kept


def _adjacency(arrows: Iterable[Arrow]) -> dict[Key, list[Key]]:
    found: dict[Key, list[Key]] = defaultdict(list)
    for each in arrows:
        found[each.subject].append(each.object)
        found[each.object].append(each.subject)
    return found


def _columns(arrows: Sequence[Arrow], topics: Sequence[Key]) -> list[list[Key]]:
    """Sort nodes into columns: by hops along the path, then along its constraints."""
    path = _adjacency(each for each in arrows if not each.is_constraint)
    every = _adjacency(arrows)
    column = dict.fromkeys(topics, 0)
    _walk(column, path)
    _walk(column, every)
    for key in every:  # What nothing joins to a topic begins in the first column as well.
        if key not in column:
            column[key] = 0
            _walk(column, every)
    columns: list[list[Key]] = [[] for _ in range(max(column.values()) + 1)]
    for key, place in column.items():
        columns[place].append(key)
    return columns


def _walk(column: dict[Key, int], neighbours: Mapping[Key, Sequence[Key]]) -> None:
    """Give every node that can be reached a column, in place: one more than where it is found."""
    frontier = sorted(column, key=column.__getitem__)
    for key in frontier:  # It grows as it is walked.
        for other in neighbours.get(key, ()):
            if other not in column:
                column[other] = column[key] + 1
                frontier.append(other)


def _reduce_crossings(columns: Sequence[list[Key]], arrows: Sequence[Arrow]) -> None:
    """Sort each column in place by where its neighbours stand, the path above its constraints.

    Source: Sugiyama, Tagawa and Toda, 1981, the barycentric method.
    """
    neighbours = _adjacency(arrows)
    path = _adjacency(each for each in arrows if not each.is_constraint)
    for sweep in range(_SWEEPS):
        for fixed, moved in pairwise(columns if sweep % 2 == 0 else columns[::-1]):
            place = {key: number for number, key in enumerate(fixed)}
            own = {key: number for number, key in enumerate(moved)}
            order = {}
            for key in moved:
                near = [place[each] for each in neighbours.get(key, ()) if each in place]
                order[key] = (key == _MORE, key not in path, _mean(near, own[key]), own[key])
            moved.sort(key=order.__getitem__)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def cut(text: str, longest: int) -> str:
    """Cut a text to so many usual letters; wide characters count twice.

    >>> cut("Nairobi", 7), cut("Nairobi County", 7)
    ('Nairobi', 'Nairob…')
    """
    text = " ".join(text[: 4 * longest].split()) if len(text) > longest else text
    if _units(text) <= longest:
        return text
    units = list(accumulate(map(_units, text)))
    kept = sum(unit < longest for unit in units)
    return text[:kept].rstrip() + "…"


def _units(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _relation_label(relation: str) -> str:
    return cut(relation.rpartition(".")[2] or relation, _LONGEST)


def _box(graph: EvidenceGraph, key: Key) -> Node:
    """Return a node with its size, before it has a place."""
    name, kind = graph.names[key], graph.kinds[key]
    if kind == "mediator":
        return Node(key[-1], name, "", kind, 0.0, 0.0, _DOT_SIZE, _DOT_SIZE)
    label = cut(name, _LONGEST)
    unit = _BOLD_UNIT if kind in ("topic", "answer") else _NAME_UNIT
    width = max(_units(label), 2) * unit + 18
    return Node(key[-1], name, label, kind, 0.0, 0.0, width, _BOX_HEIGHT)


def _gaps(graph: EvidenceGraph) -> Iterator[float]:
    """Return the room to the right of each column, for the arrows and their labels."""
    column = graph.column
    labels: dict[int, float] = defaultdict(float)
    for each in graph.arrows:
        gap = min(column[each.subject], column[each.object])
        width = _units(_relation_label(each.relation)) * _RELATION_UNIT + 36
        labels[gap] = max(labels[gap], width, _NARROWEST_GAP)
    for number in range(len(graph.columns)):
        is_last = number == len(graph.columns) - 1
        yield labels.get(number, 0.0 if is_last else _NARROWEST_GAP)


def _heights(graph: EvidenceGraph, boxes: Mapping[Key, Node]) -> dict[Key, float]:
    """Place the tallest column, and the nodes of all others near their neighbours there."""
    neighbours = _adjacency(graph.arrows)
    tallest = max(range(len(graph.columns)), key=lambda c: len(graph.columns[c]))
    heights: dict[Key, float] = {}
    for column in [*range(tallest, -1, -1), *range(tallest + 1, len(graph.columns))]:
        keys = graph.columns[column]
        wanted = [_mean([heights[n] for n in neighbours[key] if n in heights], 0.0) for key in keys]
        if _MORE in keys and column != tallest:  # It belongs right below the last answer.
            wanted[-1] = wanted[-2] if len(wanted) > 1 else 0.0
        sizes = [boxes[key].height + _ROW_GAP for key in keys]
        heights.update(zip(keys, _spread(wanted, sizes), strict=True))
    return heights


def _spread(wanted: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Place things in order, each as near to where it is wanted as the sizes allow.

    This is the isotonic regression of the wanted places: neighbours that collide are pooled.

    >>> _spread([0.0, 0.0, 50.0], [10.0, 10.0, 10.0])
    [-5.0, 5.0, 50.0]
    """
    room = list(accumulate(((a + b) / 2 for a, b in pairwise(sizes)), initial=0.0))
    blocks: list[tuple[float, int]] = []
    for place, taken in zip(wanted, room, strict=True):
        total, n = place - taken, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / n:
            before, m = blocks.pop()
            total, n = total + before, n + m
        blocks.append((total, n))
    means = [total / n for total, n in blocks for _ in range(n)]
    return [mean + taken for mean, taken in zip(means, room, strict=True)]


def _edges(graph: EvidenceGraph, nodes: Mapping[Key, Node]) -> list[Edge]:
    column, index = graph.column, {key: number for number, key in enumerate(nodes)}
    floor = max(node.low for node in nodes.values())
    pairs = Counter(frozenset(each.ends) for each in graph.arrows)
    drawn: Counter[frozenset[Key]] = Counter()
    edges = []
    for each in graph.arrows:
        pair = frozenset(each.ends)
        offset = (drawn[pair] - (pairs[pair] - 1) / 2) * min(_PARALLEL, 24 / pairs[pair])
        drawn[pair] += 1
        left, right = sorted(each.ends, key=column.__getitem__)
        curve = _curve(nodes[left], nodes[right], column[right] - column[left], offset, floor)
        if each.subject != left:
            curve = curve[::-1]
        ends = index[each.subject], each.relation, index[each.object]
        edges.append(Edge(*ends, each.part, each.is_constraint, curve))
    return edges


def _curve(left: Node, right: Node, columns: int, offset: float, floor: float) -> Curve:
    """Lead an arrow from a node to one that stands so many columns to the right of it."""
    start = Point(left.right, left.middle + offset)
    if columns == 0:  # Around the right side; a node's arrow to itself needs two ends.
        apart = 6.0 if left is right else 0.0
        start = Point(start.x, start.y - apart)
        end = Point(right.right, right.middle + offset + apart)
        bulge = max(start.x, end.x) + _BULGE + abs(offset)
        return start, Point(bulge, start.y), Point(bulge, end.y), end
    end = Point(right.left, right.middle + offset)
    if columns == 1:
        middle = (start.x + end.x) / 2
        return start, Point(middle, start.y), Point(middle, end.y), end
    low = floor + _SAG + offset  # Below the columns between.
    return start, Point(start.x + _BULGE, low), Point(end.x - _BULGE, low), end


def _labels(edges: Sequence[Edge], columns: Sequence[int]) -> list[Label]:
    """Write each relation once for arrows that share it and an end, near their middle."""
    gaps: dict[int, list[Edge]] = defaultdict(list)
    for edge in edges:
        gaps[min(columns[edge.subject], columns[edge.object])].append(edge)
    labels = []
    for _, drawn in sorted(gaps.items()):
        groups = sorted(_groups(drawn), key=lambda group: _middle(group).y)
        wanted = [_middle(group) for group in groups]
        ys = _spread([point.y for point in wanted], [_LABEL_HEIGHT] * len(groups))
        for group, point, y in zip(groups, wanted, ys, strict=True):
            relation, part = group[0].relation, group[0].part
            labels.append(Label(_relation_label(relation), relation, part, Point(point.x, y)))
    return labels


def _groups(edges: Sequence[Edge]) -> Iterator[list[Edge]]:
    """Group arrows that share a relation and an end: first the subject, then the object."""
    by_subject: dict[tuple[int, str, int | None], list[Edge]] = defaultdict(list)
    for edge in edges:
        by_subject[edge.subject, edge.relation, edge.part].append(edge)
    by_object: dict[tuple[int, str, int | None], list[Edge]] = defaultdict(list)
    for group in by_subject.values():
        if len(group) > 1:
            yield group
        else:
            [edge] = group
            by_object[edge.object, edge.relation, edge.part].append(edge)
    yield from by_object.values()


def _middle(edges: Sequence[Edge]) -> Point:
    xs, ys = zip(*(edge.middle for edge in edges), strict=True)
    return Point(sum(xs) / len(xs), sum(ys) / len(ys))


def draw_evidence(
    record: Mapping[str, Any], entity_url: Callable[[str], str] | None = None
) -> str | None:
    """Draw the evidence of an answer's record, of any method, as an ``<svg>`` element.

    `entity_url` returns the address of an entity's page by its mid; without it there are no links.
    The result is None if there is no evidence.
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
    """Draw the shape of a kind: a pill, a heavy box, a box, a dot or a dashed box."""
    line = 'stroke-width="1.2"'
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
        f'<rect x="{_n(node.left)}" y="{_n(node.high)}" width="{_n(node.width)}" '
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
