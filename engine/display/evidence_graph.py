"""Read the evidence of an answer's record as a graph in columns, by hops from the topic.

The record is that of `Answer.to_dict`, so the answers of all methods can be drawn, also by HTTP.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

from kbqa.sparql.terms import is_mid

NodeKind = Literal["topic", "answer", "entity", "mediator", "value", "more"]
"""A mediator is an entity without a name, a value is a literal, and ``more`` stands for answers
that are not drawn."""

DRAWN_ANSWERS = 10
_DRAWN_TRIPLES = 60
_SWEEPS = 4

Key: TypeAlias = tuple[str, ...]
"""A node: the id of an entity, or a subject with its literal, which keeps equal literals apart."""

MORE: Key = ("", "", "more")
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


def read_evidence(record: Mapping[str, Any]) -> EvidenceGraph | None:
    """Read the evidence of a record, with ten answers at most; None if there is none."""
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
    answers = found[:DRAWN_ANSWERS]
    drawn = _without(arrows, found[DRAWN_ANSWERS:], {*answers, *topics})[:_DRAWN_TRIPLES]
    graph = adjacency(drawn)
    kinds = {key: _kind(key, names[key], topics, answers) for key in graph}
    columns = _columns(drawn, [key for key in topics if key in graph] or list(graph)[:1])
    places = [place for place, keys in enumerate(columns) if set(keys) & set(answers)]
    hidden = (record.get("count") or len(rank)) - len({key[-1] for key in answers})
    if places and hidden > 0:
        names[MORE] = f"+{hidden:,}" + (" or more" if record.get("truncated") else "")
        kinds[MORE] = "more"
        columns[places[-1]].append(MORE)
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


def adjacency(arrows: Iterable[Arrow]) -> dict[Key, list[Key]]:
    """List the neighbours of each node."""
    found: dict[Key, list[Key]] = defaultdict(list)
    for each in arrows:
        found[each.subject].append(each.object)
        found[each.object].append(each.subject)
    return found


def _columns(arrows: Sequence[Arrow], topics: Sequence[Key]) -> list[list[Key]]:
    """Sort nodes into columns: by hops along the path, then along its constraints."""
    path = adjacency(each for each in arrows if not each.is_constraint)
    every = adjacency(arrows)
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
    neighbours = adjacency(arrows)
    path = adjacency(each for each in arrows if not each.is_constraint)
    for sweep in range(_SWEEPS):
        for fixed, moved in pairwise(columns if sweep % 2 == 0 else columns[::-1]):
            place = {key: number for number, key in enumerate(fixed)}
            own = {key: number for number, key in enumerate(moved)}
            middle = {
                key: mean([place[each] for each in neighbours.get(key, ()) if each in place])
                for key in moved
            }
            wanted = {key: own[key] if at is None else at for key, at in middle.items()}
            order = {key: (key == MORE, key not in path, wanted[key], own[key]) for key in moved}
            moved.sort(key=order.__getitem__)


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None if there are no values."""
    return sum(values) / len(values) if values else None
