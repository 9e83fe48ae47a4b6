"""Follow a gold path through the graph, through the nodes that a method is shown."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kbqa.engine.evaluation.scores import normalise_answer
from kbqa.engine.questions.official import Unconverted, convert_queries
from kbqa.engine.questions.question_sets import Question
from kbqa.kb.graph import Direction, Graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp, Hop
from kbqa.sparql.terms import LiteralTerm, Term, is_well_formed

ALL = 10**7
"""More relations or nodes than anything has."""

MAX_TAILS = 1000
"""The most nodes of one relation that walking methods look at: the first, sorted."""

_BOOKKEEPING = (
    "common.document.",
    "common.image.",
    "common.licensed_object.",
    "common.topic.",
    "common.webpage.",
    "dataworld.",
    "freebase.",
    "owl#",
    "pipeline.",
    "rdf-schema#",
    "type.",
)
_TELLING = "common.topic.notable_types"


def node_text(term: Term) -> str:
    """Return a node's id, or a literal's text."""
    return term.text if isinstance(term, LiteralTerm) else term


def answer_text(term: Term) -> str:
    """Return a node as answers are compared."""
    return normalise_answer(node_text(term))


class GoldPath(NamedTuple):
    """The main path of a question's gold query, a chain of relations.

    Attributes:
        question: The question; its gold answers are alternative sets.
        topic: The mid that the path starts from.
        hops: As in the query.
        edges: The same with the one name that the schema chooses for each edge.
    """

    question: Question
    topic: str
    hops: tuple[Hop, ...]
    edges: tuple[Hop, ...]

    @property
    def wanted(self) -> frozenset[str]:
        """The gold answers of all alternatives."""
        golds = self.question.golds
        return frozenset(normalise_answer(answer) for gold in golds for answer in gold)


class State(NamedTuple):
    """Where a walk is, and the hop that led there."""

    node: Term
    last: Hop | None = None


def gold_paths(questions: Sequence[Question], schema: GraphSchema) -> list[GoldPath | str]:
    """Convert the gold queries of questions; where that fails, the path is the reason.

    A question without topics counts as if it had the topic of its path.
    """
    crps = convert_queries(question.sparql for question in questions if question.sparql)
    return [_gold_path(question, crps.get(question.sparql or ""), schema) for question in questions]


def _gold_path(
    question: Question, crp: Crp | Unconverted | None, schema: GraphSchema
) -> GoldPath | str:
    if crp is None:
        return "no gold query"
    if isinstance(crp, Unconverted):
        return f"the gold query has no path: {crp.reason}"
    hops = tuple(step for step in crp.path if isinstance(step, Hop))
    if len(hops) < len(crp.path):
        return "the gold path is not a chain"
    topics = {topic.mid for topic in question.topics}
    if crp.topic.mid is None or (topics and crp.topic.mid not in topics):
        return "the topic of the gold path is not given"
    return GoldPath(question, crp.topic.mid, hops, schema.canonical(hops))


class Surroundings:
    """Looks up what is around nodes: whole, then filtered and sorted, before anything is cut."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self.schema = graph, GraphSchema(graph)
        self._shown: dict[tuple[str, bool], dict[Hop, tuple[Hop, int]]] = {}

    def hop(self, node: Term, edge: Hop, both: bool = True, cap: int = ALL) -> Hop | None:
        """Return the name of an edge at a node, if it is among the first relations there."""
        if isinstance(node, LiteralTerm) or not is_well_formed(node):
            return None
        if (node, both) not in self._shown:
            self._shown[node, both] = self._places(node, both)
        hop, place = self._shown[node, both].get(edge, (None, 0))
        return hop if place < cap else None

    def tails(self, node: Term, hop: Hop, most: int = MAX_TAILS) -> list[Term]:
        """List what a relation leads to from a node: the first, sorted."""
        if isinstance(node, LiteralTerm) or not is_well_formed(node):
            return []
        found = self._graph.neighbours(node, hop.relation, "in" if hop.inverse else "out", ALL)
        return sorted(set(found), key=lambda term: (node_text(term), str(term)))[:most]

    def named(self, nodes: Iterable[Term]) -> list[Term]:
        """Keep the entities that have a name."""
        mids = [node for node in nodes if isinstance(node, str) and is_well_formed(node)]
        names = self._graph.labels(mids)
        return [mid for mid in mids if mid in names]

    def names(self, nodes: Sequence[Term]) -> list[str]:
        """List the names of nodes; one without a name has its id, a literal its text."""
        names = self._graph.labels(self.named(nodes))
        return [names.get(text, text) for text in map(node_text, nodes)]

    def _places(self, node: str, both: bool) -> dict[Hop, tuple[Hop, int]]:
        """Map the edges at a node to their shown names and places."""
        hops = self._relations(node, "out")
        if both:
            known = set(self.schema.canonical(hops))
            hops += [
                hop
                for hop in self._relations(node, "in")
                if not known.issuperset(self.schema.canonical([hop]))
            ]
        hops.sort(key=lambda hop: (hop.relation, hop.inverse))
        places: dict[Hop, tuple[Hop, int]] = {}
        for place, (hop, edge) in enumerate(zip(hops, self.schema.canonical(hops), strict=True)):
            places.setdefault(edge, (hop, place))
        return places

    def _relations(self, node: str, direction: Direction) -> list[Hop]:
        found = self._graph.relations(node, direction, ALL)
        return [
            Hop(each, direction == "in")
            for each in found
            if "." in each and (each == _TELLING or not each.startswith(_BOOKKEEPING))
        ]


Cut = Callable[[Term, Hop, list[Term]], list[Term]]
"""Takes a node, a hop from there and all nodes that it leads to; returns those that are shown."""


class Reach:
    """Computes where the gold path leads from any node on it, through the nodes that are shown.

    Args:
        around: The graph.
        gold: The path.
        cut: What is shown of the nodes of a relation.
        turns_back: Whether the last hop's relation is offered in the opposite direction.
    """

    def __init__(
        self,
        around: Surroundings,
        gold: GoldPath,
        cut: Cut = lambda node, hop, tails: tails,
        turns_back: bool = True,
    ) -> None:
        self._around, self._gold, self._cut = around, gold, cut
        self._turns_back = turns_back
        self._ends: dict[tuple[State, int], frozenset[str]] = {}
        self.hides_nodes = False
        """Whether nodes were cut so far."""

    def answers(self, state: State, depth: int) -> frozenset[str]:
        """Collect the gold answers that the rest of the path leads to."""
        if depth == len(self._gold.edges):
            return self._gold.wanted & {answer_text(state.node)}
        if (state, depth) not in self._ends:
            parts = (self.answers(each, depth + 1) for each in self.after(state, depth))
            self._ends[state, depth] = frozenset[str]().union(*parts)
        return self._ends[state, depth]

    def after(self, state: State, depth: int) -> list[State]:
        """Take the next hop of the path."""
        hop = self._around.hop(state.node, self._gold.edges[depth])
        is_back = state.last is not None and hop == Hop(state.last.relation, not state.last.inverse)
        if hop is None or (is_back and not self._turns_back):
            return []
        tails = self._around.tails(state.node, hop)
        shown = self._cut(state.node, hop, tails)
        self.hides_nodes |= len(shown) < len(tails)
        return [State(tail, hop) for tail in shown]

    def first_answers(self, kept: int) -> frozenset[str]:
        """Collect the answers if the first nodes that lead to any are kept after each hop."""
        states = [State(self._gold.topic)]
        for depth in range(len(self._gold.edges)):
            found = (after for state in states for after in self.after(state, depth))
            right = {each.node: each for each in found if self.answers(each, depth + 1)}
            states = list(right.values())[:kept]
        return frozenset(answer_text(state.node) for state in states)
