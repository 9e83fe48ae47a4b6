"""What a perfect chooser knows of a question: the gold main path, and every node on it by name."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kbqa.kb.graph import Graph
from kbqa.kb.names.search import name_terms
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import Term
from tools.methods.perfect.reach import GoldPath, Reach, State, Surroundings


def all_known(gold: GoldPath, graph: Graph, around: Surroundings) -> list["Known"]:
    """Return what is known of a question: once for each parse, as each has answers of its own.

    First comes the parse that the path answers best, with the fewest answers.
    """
    alternatives = sorted(_alternatives(gold) or [gold], key=lambda each: _misses(each, around))
    return [Known(each, graph, around) for each in alternatives]


class Known:
    """The gold main path of one question, and where it leads.

    Args:
        gold: The path, with one set of gold answers.
        graph: Whose nodes lie on it.
        around: The same graph.
    """

    def __init__(self, gold: GoldPath, graph: Graph, around: Surroundings) -> None:
        self._schema: GraphSchema = around.schema
        self.edges = gold.edges
        reach = Reach(around, gold)
        nodes: set[Term] = {gold.topic}
        self._worth: list[dict[str, frozenset[str]]] = []
        """For each depth, the gold answers that are behind the nodes of a name."""
        for depth in range(len(self.edges) + 1):
            worth: dict[str, frozenset[str]] = {}
            for node, name in name_terms(graph, nodes).items():
                behind = reach.answers(State(node), depth)
                worth[one_line(name)] = worth.get(one_line(name), frozenset()) | behind
            self._worth.append(worth)
            if depth == 0:
                names = (topic.name for topic in gold.question.topics if topic.mid == gold.topic)
                known = frozenset[str]().union(*worth.values())
                worth.update((one_line(name), known) for name in names if name)
            if depth < len(self.edges):
                nodes = {each.node for node in nodes for each in reach.after(State(node), depth)}

    @property
    def hops(self) -> int:
        """How many hops the path has."""
        return len(self.edges)

    def is_topic(self, name: str) -> bool:
        """Return whether the path starts at an entity of this name."""
        return self.is_at(name, 0)

    def is_at(self, name: str, depth: int) -> bool:
        """Return whether a node of this name is on the path, so many hops from the topic."""
        return depth <= self.hops and one_line(name) in self._worth[depth]

    def depths(self, name: str) -> list[int]:
        """List how many hops nodes of this name are from the topic."""
        return [depth for depth in range(self.hops + 1) if self.is_at(name, depth)]

    def worth(self, name: str, depth: int) -> frozenset[str]:
        """Return the gold answers behind the nodes of a name; at the end, they themselves."""
        return self._worth[depth].get(one_line(name), frozenset())

    def is_answer(self, name: str) -> bool:
        """Return whether a gold answer at the end of the path has this name."""
        return bool(self.worth(name, self.hops))

    def is_edge(self, hop: Hop, depth: int) -> bool:
        """Return whether a hop, by either of its names, is the path's at this depth."""
        return depth < self.hops and self._schema.canonical([hop]) == self.edges[depth : depth + 1]

    def begins_with(self, hops: Sequence[Hop]) -> bool:
        """Return whether the path begins with these hops."""
        return self._schema.canonical(hops) == self.edges[: len(hops)]

    def is_path(self, hops: Sequence[Hop]) -> bool:
        """Return whether these hops are the whole path."""
        return len(hops) == self.hops and self.begins_with(hops)


def _alternatives(gold: GoldPath) -> list[GoldPath]:
    """Return the path once for each set of gold answers."""
    return [
        gold._replace(question=replace(gold.question, golds=(each,)))
        for each in gold.question.golds
    ]


def _misses(gold: GoldPath, around: Surroundings) -> tuple[float, int]:
    """Return the share of answers that the path does not lead to, and how many there are."""
    found = Reach(around, gold).answers(State(gold.topic), 0)
    return 1 - len(found) / max(len(gold.wanted), 1), len(gold.wanted)


def best_of(worths: Iterable[frozenset[str]], most: int = 10**7) -> list[int]:
    """Choose those that lead to the most answers together, then others that lead to any.

    >>> best_of([frozenset("a"), frozenset("a"), frozenset(), frozenset("bc")], 3)
    [3, 0, 1]
    """
    left = {at: worth for at, worth in enumerate(worths) if worth}
    chosen: list[int] = []
    covered: frozenset[str] = frozenset()
    while left and len(chosen) < most:
        best = max(left, key=lambda at: (len(left[at] - covered), -at))
        covered |= left.pop(best)
        chosen.append(best)
    return chosen


def one_line(name: str) -> str:
    """Return a name with single blanks."""
    return " ".join(name.split())
