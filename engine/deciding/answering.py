"""From names that a language model gave, or from walks alone, to answers with their origin."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kbqa.engine.answer import AnswerEntity, EvidenceTriple, term_text
from kbqa.engine.embedding.embedder import Embedder, relation_words
from kbqa.engine.exploring.neighbourhood import Neighbourhood
from kbqa.engine.exploring.walks import Walk, triples_of
from kbqa.kb.names.keys import normalise
from kbqa.kb.names.search import Names
from kbqa.sparql.terms import LiteralTerm, Term

PROVEN_ANSWERS = 10
"""The first answers, for which evidence is kept, as the router does."""


HOP_COST = 0.1
"""Of a cosine, for each hop that does not end at mediators: the embedder cannot tell when to stop.
On held-out training questions (60 of webqsp.train, 47 of cwq.dev, gold entities) the F1 of `pog` is
0.50 and 0.33, with 0.05 it is 0.40 and 0.30, with 0.15 0.53 and 0.28; of `bpc` 0.39 and 0.24, 0.34
and 0.16, 0.41 and 0.21. For `trace` (70 and 70) it is 0.65 and 0.30, and without a cost 0.27 and
0.19."""


class Said(NamedTuple):
    """Answers as a language model named them, each once."""

    names: tuple[str, ...]


def ground(
    said: Iterable[str], walks: Sequence[Walk], neighbourhood: Neighbourhood, names: Names
) -> tuple[AnswerEntity, ...]:
    """Find what names mean: first among the nodes of walks, then among all names of the graph.

    A name that several nodes of the walks have means all of them, but not the topic if a walk leads
    to another node of its name, as to a book about its author. A name that no node of them has
    means the best known entity of that name; its origin is ``named``, as nothing was found in the
    graph that leads there. What the graph has no name for stays a text.

    Args:
        said: The names; a node's id or a literal's text will do.
        walks: Those that the language model was shown.
        neighbourhood: Knows the names of their nodes.
        names: Of the whole graph.

    Raises:
        GraphError: The graph does not answer.
    """
    reached = _by_key((node for walk in walks for node in walk.nodes[1:]), neighbourhood)
    shown = _by_key((walk.nodes[0] for walk in walks), neighbourhood) | reached
    answers: dict[Term, AnswerEntity] = {}
    for name in said:
        nodes = shown.get(normalise(name), {}) if normalise(name) else {}
        for node in nodes:
            answers.setdefault(node, AnswerEntity(node, neighbourhood.whole_name(node)))
        if not nodes:
            answer = _named(name, names)
            answers.setdefault(answer.term, answer)
    return tuple(answers.values())


def _by_key(nodes: Iterable[Term], neighbourhood: Neighbourhood) -> dict[str, dict[Term, None]]:
    """Map the keys of names, ids and texts to the nodes that have them, in order."""
    found: dict[str, dict[Term, None]] = {}
    for node in nodes:
        names = neighbourhood.name(node), neighbourhood.whole_name(node), term_text(node)
        for key in set(map(normalise, names)):
            found.setdefault(key, {})[node] = None
    return found


def _named(name: str, names: Names) -> AnswerEntity:
    for match in names.lookup(name, limit=1):
        return AnswerEntity(match.mid, match.name, "named")
    return AnswerEntity(LiteralTerm(name), name, "text")


def ends_alike(
    question: str,
    walks: Sequence[Walk],
    neighbourhood: Neighbourhood,
    embedder: Embedder | None,
) -> tuple[Walk, tuple[AnswerEntity, ...]]:
    """Choose a walk, and answer with the ends of all walks from its topic by its relations.

    Walks that end at mediators, or back at their topic, answer nothing if there are others.

    Args:
        question: Its words.
        walks: At least one.
        neighbourhood: Knows the names of their nodes.
        embedder: Finds the walk whose relations are most similar to the question, among all walks
            and their beginnings, less `HOP_COST` a hop. None takes the first walk.
    """
    leads_to_mediator = neighbourhood.leads_to_mediator
    if embedder is not None:
        walks = list(dict.fromkeys(part for walk in walks for part in walk.beginnings))
    ended = [
        walk
        for walk in walks
        if walk.end != walk.topic.mid and not leads_to_mediator(walk.steps[-1].hop)
    ]
    walks = ended or walks
    best = walks[0]
    if embedder is not None:
        words = [[relation_words(hop.relation) for hop in walk.hops] for walk in walks]
        cosines = embedder.sum_similarity(question, words)
        hops = [sum(not leads_to_mediator(hop) for hop in walk.hops) for walk in walks]
        scores = [cosine - HOP_COST * n for cosine, n in zip(cosines, hops, strict=True)]
        best = walks[max(range(len(walks)), key=lambda at: (round(scores[at], 6), -at))]
    alike = [w for w in walks if w.topic.mid == best.topic.mid and w.hops == best.hops]
    ends = dict.fromkeys(walk.end for walk in alike)
    return best, tuple(AnswerEntity(end, neighbourhood.whole_name(end)) for end in ends)


def evidence_of(
    answers: Sequence[AnswerEntity], walks: Sequence[Walk], neighbourhood: Neighbourhood
) -> tuple[EvidenceTriple, ...]:
    """Return the triples of the walks that lead to the first answers found in the graph."""
    proven = [a.term for a in answers if a.origin == "graph"][:PROVEN_ANSWERS]
    ways = []
    for term in proven:
        way = next((walk for walk in walks if term in walk.nodes), None)
        if way is not None:
            ways.append(Walk(way.topic, way.steps[: way.nodes.index(term)]))
    name = neighbourhood.whole_name
    return tuple(
        EvidenceTriple(s.subject, s.relation, s.object, name(s.subject), name(s.object))
        for s in triples_of(ways)
    )
