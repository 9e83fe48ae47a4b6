"""Where a main path can go in the graph, from the nodes that it has reached so far.

Nothing is enumerated beforehand. What a path reaches is looked up when a model has written it, and
kept until its question is done.

Source: none of the papers; RouterKGQA verifies a path after it is written (§3.2).
"""

from collections.abc import Iterable, Mapping, Sequence

from kbqa.engine.exploring.path_ends import PathEnds
from kbqa.engine.writing.constraints.crp_grammar import TextSet, arrow, is_sayable, topic_line
from kbqa.kb.graph import Graph
from kbqa.kb.names.keys import decode_name
from kbqa.sparql.crp import Entity, Hop
from kbqa.sparql.forms import relation_text
from kbqa.sparql.terms import LiteralTerm, Term

_DESCRIBES = "type."
"""The prefix of relations for names and types. They occur in 4 of the 6,617 main paths of
webqsp.train and cwq.dev, and nearly every node has them."""

_AT_ONCE = 20
"""Nodes of a path that are followed together; mostly the first of them leads to an answer."""

_MEMBERS = TextSet([arrow(Hop("type.object.type", inverse=True))])


class KnownRelations:
    """Paths may take any relation of a graph, and start from any name.

    Args:
        relations: Their ids; those that cannot be written in words are left out.
        is_extended: Paths are written in the extended form.
    """

    def __init__(self, relations: Iterable[str], *, is_extended: bool = False) -> None:
        self.is_extended = is_extended
        sayable = list(filter(is_sayable, relations))
        self._forward = TextSet([arrow(Hop(relation)) for relation in sayable])
        self._both = TextSet(
            [arrow(Hop(relation, inverse)) for relation in sayable for inverse in (False, True)]
        )
        domains = sorted({relation.rpartition(".")[0] for relation in sayable})
        self.classes = TextSet([topic_line(relation_text(one)) for one in domains if "." in one])
        """The classes that relations belong to, as topics."""

    def topics(self) -> Sequence[TextSet] | None:
        """Any name or class."""
        return None

    def others(self) -> TextSet | None:
        """Any name."""
        return None

    def hops(self, topic: str, path: tuple[Hop, ...]) -> TextSet:
        """Any relation of the graph, in both directions."""
        return self._both

    def may_end(self, topic: str, path: tuple[Hop, ...], pivot: int) -> bool:
        """Anywhere."""
        return True

    def may_go_on(self, topic: str, path: tuple[Hop, ...]) -> bool:
        """Anywhere."""
        return True

    def restrictions(self) -> TextSet:
        """Any relation of the graph."""
        return self._both if self.is_extended else self._forward


class PathWalk:
    """The main paths of one question may go where the graph leads from its topics.

    A path that is walked to its end exists: some node is at its end. A path through a hub may be
    missed if only few of its many nodes have the next relation. No path follows names or types, but
    in the extended form one may start from a class: it goes to the members, and is not walked.

    Args:
        graph: Asked for the neighbours of each node on a path that is walked.
        topics: Where paths may start, each with its mid and name.
        known: All relations of the graph, for constraints.
    """

    def __init__(self, graph: Graph, topics: Sequence[Entity], known: KnownRelations) -> None:
        self._ends, self._known = PathEnds(graph), known
        self._starts = _mids_by_name(topics)
        hops = self._ends.hops_of_each([mid for mids in self._starts.values() for mid in mids])
        self._hops: dict[tuple[str, tuple[Hop, ...]], TextSet] = {
            (name, ()): _arrows(hop for mid in mids for hop in hops[mid])
            for name, mids in self._starts.items()
        }
        self._topics = TextSet(
            [topic_line(name) for name in self._starts if self.hops(name, ()).texts]
        )

    @property
    def has_topics(self) -> bool:
        """Whether a path can start from any topic, and its name can be written."""
        return bool(self._topics.texts)

    @property
    def is_extended(self) -> bool:
        """Whether paths are written in the extended form."""
        return self._known.is_extended

    def topics(self) -> Sequence[TextSet] | None:
        """The names of the topics, and in the extended form all classes."""
        return (self._topics, self._known.classes) if self.is_extended else (self._topics,)

    def others(self) -> TextSet | None:
        """The names of the topics."""
        return self._topics

    def hops(self, topic: str, path: tuple[Hop, ...]) -> TextSet:
        """The relations of the nodes at a path's end."""
        if topic not in self._starts:
            return self._known.hops(topic, path) if path else _MEMBERS
        key = (topic, path)
        if key not in self._hops:
            self._hops[key] = _arrows(self._ends.hops(self._starts[topic], path))
        return self._hops[key]

    def may_end(self, topic: str, path: tuple[Hop, ...], pivot: int) -> bool:
        """Return whether the path leads to anything that may be an answer."""
        if topic not in self._starts:
            return True
        return self._leads_to_answer(self._entities(topic, path[:pivot]), path[pivot:])

    def may_go_on(self, topic: str, path: tuple[Hop, ...]) -> bool:
        """Return whether the path leads to an entity."""
        return topic not in self._starts or bool(self._entities(topic, path))

    def restrictions(self) -> TextSet:
        """Any relation of the graph."""
        return self._known.restrictions()

    def mids(self, topic: str, path: tuple[Hop, ...], pivot: int) -> tuple[str, ...]:
        """Return the topics of a name from which a path that may end leads to an answer."""
        starts = self._starts.get(topic, ())
        if len(starts) < 2:
            return tuple(starts)  # it was walked, so it leads there
        self._ends.fetch_each(starts, path[:pivot] or path)
        return tuple(
            mid
            for mid in starts
            if self._leads_to_answer(self._ends.nodes([mid], path[:pivot]), path[pivot:])
        )

    def _leads_to_answer(self, nodes: Sequence[str], path: tuple[Hop, ...]) -> bool:
        for at in range(0, len(nodes), _AT_ONCE):
            some = nodes[at : at + _AT_ONCE]
            self._ends.fetch_each(some, path)
            ends = ((node, end) for node in some for end in self._ends.terms([node], path))
            if any(end != node and _may_answer(end) for node, end in ends):
                return True
        return False

    def _entities(self, topic: str, path: tuple[Hop, ...]) -> list[str]:
        return self._ends.nodes(self._starts[topic], path)


def _may_answer(end: Term) -> bool:
    """Return whether queries keep a node: of texts in a language, they keep only English ones."""
    language = end.language if isinstance(end, LiteralTerm) else None
    return language is None or language.lower().split("-")[0] == "en"


def _leads_on(relation: str) -> bool:
    return is_sayable(relation) and not relation.startswith(_DESCRIBES)


def _arrows(hops: Iterable[Hop]) -> TextSet:
    return TextSet(sorted({arrow(hop) for hop in hops if _leads_on(hop.relation)}))


def _mids_by_name(topics: Sequence[Entity]) -> Mapping[str, list[str]]:
    starts: dict[str, list[str]] = {}
    for topic in topics:
        name = decode_name(topic.name or "")
        if topic.mid is not None and _is_writable(name):
            starts.setdefault(name, []).append(topic.mid)
    return starts


def _is_writable(name: str) -> bool:
    return name == name.strip() != "" and "\n" not in name and "-[" not in name and name[0] != "?"
