"""Retrieve triples, and have them read: the methods `subgraph` and `path-pooling`.

A general model reads the triples, if there is one, and its answers are nodes of them. The evidence
of an answer is the shortest path to it in the triples, or else the best triple with it. The methods
differ in whether scores are pooled along paths, and in how triples are shown.

Without a general model, kernels are run as queries: the shortest paths between a topic and the
nodes of the triples, in either direction. Kernels by the same relations are one path, with the
score of the best, which is the mean of its triples. If a kernel from another topic ends at a node
of a path, it becomes a constraint: that node has a way back to the other topic.

This second reader is ours. On 232 held-out training questions (180 of webqsp.train, 52 of cwq.dev,
gold entities) the F1 of the first path is 0.76 and 0.29, without constraints 0.76 and 0.20, and of
the best of five paths 0.90 and 0.68. Ranked by the lowest score of a path's triples it is 0.76 and
0.12, without constraints.

Source: SubgraphRAG (Li et al. 2025); Path Pooling, algorithm 2.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from kbqa.engine.answer import Answer, AnswerEntity, EvidenceTriple, WhyNot, term_text
from kbqa.engine.deciding.session import (
    CALLS_SPENT,
    PROVEN_ANSWERS,
    SEED,
    Session,
    Step,
    Walkers,
    WalkingMethod,
)
from kbqa.engine.methods import MethodMaker, Resources
from kbqa.engine.methods.retrieval_prompts import (
    PathPoolingSettings,
    ReadAnswers,
    ReaderName,
    SubgraphSettings,
    read_triples,
)
from kbqa.engine.retrieval.retrieval import (
    PoolingSettings,
    Retrieved,
    RetrievedTriple,
    ScoredTriples,
    describe_scorer,
    find_kernels,
    make_scorer,
    retrieve,
)
from kbqa.engine.retrieval.retriever import Caps
from kbqa.engine.running.evidence import no_answer, prove_answer
from kbqa.engine.running.run import Runner
from kbqa.engine.running.tried import Execution, path_record, with_names
from kbqa.engine.writing.checkpoint import require_embedding_packages
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, compare_with
from kbqa.sparql.english import describe_crp
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import render_crp
from kbqa.sparql.terms import Term

NO_POOLING = PoolingSettings(mechanism="none")

_NOT_READ = WhyNot(
    "unnamed", "the language model named no node of the triples; see the steps of the trace"
)
_NO_PATH = WhyNot("empty", "no path of the best triples leads to an answer")
_DRAWN = 8


def make_retrieving(
    resources: Resources, name: str, settings: SubgraphSettings, pooling: PoolingSettings
) -> WalkingMethod:
    """Make a method that retrieves ready to answer.

    Raises:
        InputError: Settings do not fit each other, or there is no general model to read.
    """
    require_embedding_packages("retrieving triples")
    if resources.chooser == "random":
        raise InputError(f"--chooser random: {name} has no decision that chance could take")
    if settings.reader == "llm":
        resources.require_language_model("reader=llm")
    reader = settings.reader or ("llm" if resources.chooser == "llm" else "kernels")
    walkers = resources.walkers(SEED)
    embedder = walkers.load_embedder()
    score = make_scorer(settings.scorer, embedder, settings.scorer_file, resources.graph.labels)
    decided: dict[str, object] = {
        **asdict(settings),
        **asdict(pooling),
        "reader": reader,
        **describe_scorer(settings.scorer, embedder, settings.scorer_file),
        "caps": asdict(Caps()),
    }
    del decided["scorer_file"]  # what it holds decides, not where it is

    def answer_in(session: Session) -> Answer:
        retrieved = retrieve(
            session.graph,
            walkers.schema,
            score,
            session.question,
            [topic.mid for topic in session.topics if topic.mid],
            settings.triples,
            pooling,
            shown=settings.shown,
            clock=session.asked.clock,
        )
        if reader == "llm":
            return _read_by_model(session, retrieved, settings)
        return _read_by_kernels(session, walkers, retrieved, settings)

    return WalkingMethod(name, walkers, decided, answer_in)


def _read_by_model(session: Session, retrieved: Retrieved, settings: SubgraphSettings) -> Answer:
    """Have the language model read the triples."""
    asked, triples = session.asked, list(retrieved.triples())
    read = read_triples(session, triples, settings) if triples else ReadAnswers(())
    answers, unmatched = read or ReadAnswers(())
    with asked.clock.stage("prove"):
        evidence = _ways(session, retrieved, answers[:PROVEN_ANSWERS])
    trace = _trace(session, retrieved, "llm", unmatched=unmatched)
    if not answers:
        why_not = CALLS_SPENT if read is None else _NOT_READ
        return no_answer(asked, trace, _nothing_retrieved(session, retrieved) or why_not)
    name = session.neighbourhood.whole_name
    return Answer(
        question=asked.question,
        answers=tuple(AnswerEntity(each, name(each)) for each in answers),
        trace=trace,
        linked=asked.linked,
        evidence=evidence,
        stage="retrieved",
        usage=asked.usage,
        seconds=asked.clock.seconds,
    )


def _read_by_kernels(
    session: Session, walkers: Walkers, retrieved: Retrieved, settings: SubgraphSettings
) -> Answer:
    """Run the paths of the best triples, the best first."""
    asked, graph = session.asked, session.graph
    with asked.clock.stage("read"):
        kernels = read_kernels(retrieved)
        most = settings.candidates
        candidates = _write_candidates(kernels, session.topics, walkers.schema, most)
        asked.budget.take_last()
        session.steps.append(Step("answer", chosen=tuple(each.text for each in candidates[:1])))
    runner = Runner(asked, walkers.graph, walkers.names, walkers.timeout_s)
    execution = runner.run_first(candidates, "beam-first")
    if (found := execution.answering) is None:
        why_not = _nothing_retrieved(session, retrieved) or _NO_PATH
        return no_answer(asked, _trace(session, retrieved, "kernels", execution), why_not)
    trace = _trace(session, retrieved, "kernels", with_names(graph, execution))
    return prove_answer(asked, graph, found, trace, "retrieved", walkers.timeout_s)


def _nothing_retrieved(session: Session, retrieved: Retrieved) -> WhyNot | None:
    """Say why there is nothing to read; None if there is something."""
    if not session.topics:
        return session.without_topic()
    if not retrieved.seen:
        around = " and ".join(map(str, session.topics))
        return WhyNot("unreachable", f"the graph has nothing around {around}")
    return None


def _ways(
    session: Session, retrieved: Retrieved, answers: Sequence[Term]
) -> tuple[EvidenceTriple, ...]:
    """Return the triples on the shortest path to each answer, or else the best with it."""
    ways = {kernel.nodes[-1]: kernel.triples for kernel in reversed(read_kernels(retrieved))}
    found: dict[tuple[Term, str, Term], None] = {}
    for answer in answers:
        found.update(dict.fromkeys(ways.get(answer) or [_best_with(answer, retrieved)]))
    names = session.neighbourhood.whole_names(n for s, _, o in found for n in (s, o))
    return tuple(EvidenceTriple(s, r, o, names[s], names[o]) for s, r, o in found)


def _best_with(node: Term, retrieved: Retrieved) -> tuple[Term, str, Term]:
    """Return the best triple that a node is an end of."""
    triples = (each[:3] for each in retrieved.triples())
    return next(triple for triple in triples if node in (triple[0], triple[2]))


class Kernel(NamedTuple):
    """A path from a topic to a node of retrieved triples."""

    nodes: tuple[Term, ...]  # the topic first
    hops: tuple[Hop, ...]
    score: float  # the mean of its triples' scores

    @property
    def triples(self) -> list[tuple[Term, str, Term]]:
        """Its triples in the order of the path."""
        steps = zip(self.nodes, self.hops, self.nodes[1:], strict=False)
        return [
            (end, hop.relation, start) if hop.inverse else (start, hop.relation, end)
            for start, hop, end in steps
        ]

    @property
    def way_back(self) -> tuple[Hop, ...]:
        """The hops from its end to the topic."""
        return tuple(hop.back for hop in reversed(self.hops))


def read_kernels(retrieved: Retrieved) -> list[Kernel]:
    """Find a shortest path from each topic to each node of the selected triples."""
    import numpy as np

    graph, selected = retrieved.subgraph, retrieved.selected.triples
    # A triple is followed either way, but nothing goes on from a literal.
    turned = [at for at in selected.tolist() if isinstance(graph.nodes[graph.tails[at]], str)]
    ahead = len(selected)
    arcs = np.concatenate([selected, np.array(turned, dtype=selected.dtype)])
    heads, tails = graph.heads[arcs], graph.tails[arcs]
    heads[ahead:], tails[ahead:] = tails[ahead:].copy(), heads[ahead:].copy()
    scores = retrieved.scores[arcs]
    kernels: dict[Kernel, None] = {}
    triples = ScoredTriples(heads, tails, scores, range(graph.topics))
    found = find_kernels(triples, PoolingSettings())
    for path in (path for same in found for path in same.tolist()):
        if heads[path[0]] < graph.topics:  # others lead to one: they are there the other way, too
            nodes = [graph.nodes[heads[path[0]]], *(graph.nodes[tails[arc]] for arc in path)]
            hops = [Hop(graph.relations[graph.links[arcs[arc]]], arc >= ahead) for arc in path]
            kernels[Kernel(tuple(nodes), tuple(hops), float(scores[path].mean()))] = None
    return list(kernels)


def _write_candidates(
    kernels: Sequence[Kernel], topics: Sequence[Entity], schema: GraphSchema, most: int
) -> list[Candidate]:
    """Write the best paths as candidates, best first."""
    paths: dict[tuple[Term, tuple[Hop, ...]], list[Kernel]] = {}
    for kernel in kernels:
        if not schema.leads_to_mediator(kernel.hops[-1]):
            paths.setdefault((kernel.nodes[0], schema.canonical(kernel.hops)), []).append(kernel)
    for alike in paths.values():
        alike.sort(key=lambda kernel: -kernel.score)
    ranked = sorted(paths.values(), key=lambda alike: -alike[0].score)[:most]
    entities: dict[Term, Entity] = {topic.mid: topic for topic in topics if topic.mid}
    return [_written(alike, kernels, entities) for alike in ranked]


def _written(
    alike: Sequence[Kernel], kernels: Sequence[Kernel], topics: dict[Term, Entity]
) -> Candidate:
    """Write the path of kernels by the same relations, the best first."""
    best = alike[0]
    topic = topics[best.nodes[0]]
    crp = Crp(topic, best.hops, tuple(_constraints(alike, kernels, topics)))
    assert topic.mid is not None
    return Candidate(render_crp(crp), math.log(best.score), tokens=1, topics=(topic.mid,))


def _constraints(
    alike: Sequence[Kernel], kernels: Sequence[Kernel], topics: dict[Term, Entity]
) -> Iterator[Constraint]:
    """Yield a constraint for each other topic that has a kernel to a node of a path."""
    start = alike[0].nodes[0]
    for mid, other in topics.items():
        if mid == start:
            continue
        ways = [each for each in kernels if each.nodes[0] == mid and start not in each.nodes]
        meeting = [
            (way.score, -len(way.hops), position, way)
            for position in range(1, len(alike[0].nodes))
            for way in ways
            if way.nodes[-1] in {kernel.nodes[position] for kernel in alike}
        ]
        if meeting:
            *_, position, way = max(meeting, key=lambda each: each[:3])
            yield Constraint(position, way.way_back, compare_with("=", other))


@dataclass(frozen=True, slots=True)
class RetrievalTrace:
    """The trace of a method that retrieves."""

    steps: tuple[Step, ...]
    retrieved: Retrieved
    triples: tuple[RetrievedTriple, ...]  # that were read, best first
    names: Mapping[Term, str]  # of their nodes
    reader: ReaderName
    execution: Execution | None = None  # of the paths, by the reader ``kernels``
    unmatched: tuple[str, ...] = ()  # answers of a language model that name no node

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record."""
        tried = () if self.execution is None else self.execution.tried
        return {
            "steps": [step.to_dict() for step in self.steps],
            "reader": self.reader,
            "triples": [each.to_dict() for each in self.triples],
            "names": {
                term_text(node): name
                for node, name in sorted(self.names.items(), key=lambda each: str(each[0]))
                if isinstance(node, str) and name != node
            },
            "seen": self.retrieved.seen,
            "nodes": len(self.retrieved.subgraph.nodes),
            "truncated": self.retrieved.truncated,
            "cut": asdict(self.retrieved.subgraph.cut),
            "unmatched": list(self.unmatched),
            "decisions": len(self.steps),
            "unread": sum(1 for step in self.steps if step.unread),
            **({} if self.execution is None else path_record(self.execution.answering)),
            "beam": None if self.execution is None else self.execution.best,
            "beams": [each.to_dict("walk") for each in tried],
        }

    def describe(self) -> list[str]:
        """Return the best triples, and how they were read, in English."""
        return [*self._path(), *self._best(), *self._reading()]

    def _path(self) -> Iterator[str]:
        found = None if self.execution is None else self.execution.answering
        if found is not None and found.crp is not None:
            yield "Path:"
            yield from (f"  {sentence}" for sentence in describe_crp(found.crp))

    def _best(self) -> Iterator[str]:
        if self.triples:
            yield "Best triples:"
        for each in self.triples[:_DRAWN]:
            score = each.score if each.pooled is None else each.pooled
            subject, object_ = self.names[each.subject], self.names[each.object]
            yield f"  ({subject}, {each.relation}, {object_}) {score:.2g}"
        if len(self.triples) > _DRAWN:
            yield f"  … and {len(self.triples) - _DRAWN} more"

    def _reading(self) -> Iterator[str]:
        by = "the language model read them" if self.reader == "llm" else "their paths were run"
        yield f"Retrieved {len(self.triples)} of {self.retrieved.seen:,} triples; {by}."
        if self.unmatched:
            yield f"No node of them is called: {'; '.join(self.unmatched)[:300]}"


def _trace(
    session: Session,
    retrieved: Retrieved,
    reader: ReaderName,
    execution: Execution | None = None,
    unmatched: tuple[str, ...] = (),
) -> RetrievalTrace:
    steps, triples = tuple(session.steps), tuple(retrieved.triples())
    names = session.neighbourhood.names(n for each in triples for n in (each[0], each[2]))
    return RetrievalTrace(steps, retrieved, triples, names, reader, execution, unmatched)


SUBGRAPH = MethodMaker(
    SubgraphSettings,
    lambda resources, settings: make_retrieving(resources, "subgraph", settings, NO_POOLING),
)
PATH_POOLING = MethodMaker(
    PathPoolingSettings,
    lambda resources, settings: make_retrieving(resources, "path-pooling", settings, settings),
)
