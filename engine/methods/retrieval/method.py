"""Retrieve triples, and have them read: what `subgraph` and `path-pooling` share.

With a general model, it reads the triples, and its answers are nodes of them; the way to an answer
is the shortest path that the triples hold, or else the best of them. Without one, the paths of the
best triples are run as queries, as those of the other methods.

Source: SubgraphRAG; Path Pooling, algorithm 2.
"""

from collections.abc import Sequence
from dataclasses import asdict

from kbqa.engine.answer import Answer, AnswerEntity, EvidenceTriple, WhyNot
from kbqa.engine.deciding.answering import PROVEN_ANSWERS
from kbqa.engine.deciding.choice import Step
from kbqa.engine.deciding.method import WalkingMethod
from kbqa.engine.deciding.session import CALLS_SPENT, SEED, Session, Walkers
from kbqa.engine.linking.ground import Grounder
from kbqa.engine.methods.retrieval.candidates import read_kernels, write_candidates
from kbqa.engine.methods.retrieval.reading import Read, read_triples
from kbqa.engine.methods.retrieval.settings import ReaderName, SubgraphSettings
from kbqa.engine.methods.retrieval.trace import RetrievalTrace
from kbqa.engine.resources import Resources
from kbqa.engine.retrieval.extraction import Caps
from kbqa.engine.retrieval.pooling_settings import PoolingSettings
from kbqa.engine.retrieval.retrieval import (
    Retrieved,
    TripleScorer,
    describe_scorer,
    make_scorer,
    retrieve,
)
from kbqa.engine.running.evidence import Proof, prove
from kbqa.engine.running.execute import Executor, Policy
from kbqa.engine.running.tried import Execution, with_names
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import Term

NO_POOLING = PoolingSettings(mechanism="none")

_NOT_READ = WhyNot(
    "unnamed", "the language model named no node of the triples; see the steps of the trace"
)
_NO_PATH = WhyNot("empty", "no path of the best triples leads to an answer")


def make_retrieving(
    resources: Resources, name: str, settings: SubgraphSettings, pooling: PoolingSettings
) -> WalkingMethod:
    """Make a method that retrieves ready to answer.

    Args:
        resources: What it works with.
        name: In the table of methods.
        settings: How triples are retrieved and read.
        pooling: How they are pooled.

    Raises:
        InputError: A general model is to read and there is none, chance is to decide, or there is
            a file for a scorer that is not trained.
        ModelError: The embedder or the scorer is missing or broken.
        StoreError: The store's schema is missing or broken.
    """
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
        return _Question(session, walkers, settings, pooling, score).answer(
            by_language_model=reader == "llm"
        )

    return WalkingMethod(name, walkers, decided, answer_in)


class _Question:
    """One question: what is retrieved for it, and how it is read."""

    def __init__(
        self,
        session: Session,
        walkers: Walkers,
        settings: SubgraphSettings,
        pooling: PoolingSettings,
        score: TripleScorer,
    ) -> None:
        self._session, self._walkers = session, walkers
        self._settings, self._pooling, self._score = settings, pooling, score

    def answer(self, *, by_language_model: bool) -> Answer:
        """Retrieve triples and answer from them."""
        session = self._session
        asked = session.asked
        retrieved = retrieve(
            session.graph,
            self._walkers.schema,
            self._score,
            session.question,
            [topic.mid for topic in session.topics if topic.mid],
            self._settings.triples,
            self._pooling,
            shown=self._settings.shown,
            clock=asked.clock,
        )
        read = self._read_by_model if by_language_model else self._read_by_kernels
        return read(retrieved)

    def _read_by_model(self, retrieved: Retrieved) -> Answer:
        """Have the language model read the triples."""
        session, triples = self._session, list(retrieved.triples())
        read = read_triples(session, triples, self._settings) if triples else Read(())
        name = session.neighbourhood.whole_name
        answers = () if read is None else read.answers
        with session.asked.clock.stage("prove"):
            evidence = self._ways(retrieved, answers[:PROVEN_ANSWERS])
        proof = Proof(tuple(AnswerEntity(each, name(each)) for each in answers), evidence)
        if not answers:
            proof = Proof.missing(CALLS_SPENT if read is None else _NOT_READ)
        unmatched = () if read is None else read.unmatched
        return self._answer(retrieved, proof, "llm", unmatched=unmatched)

    def _read_by_kernels(self, retrieved: Retrieved) -> Answer:
        """Run the paths of the best triples, the best first."""
        session, walkers = self._session, self._walkers
        asked = session.asked
        with asked.clock.stage("read"):
            most = self._settings.candidates
            kernels = read_kernels(retrieved)
            candidates = write_candidates(kernels, session.topics, walkers.schema, most)
            asked.budget.take_last()
            session.steps.append(Step("answer", chosen=tuple(each.text for each in candidates[:1])))
        grounder = Grounder(session.graph, walkers.names, asked.linked, asked.given)
        policy = Policy(order="beam-first")
        executor = Executor(session.graph, grounder, asked.clock, walkers.timeout_s, policy)
        execution = executor.execute(candidates)
        found = execution.answering
        proof = Proof.missing(_NO_PATH)
        if found is not None and found.relaxation is not None:
            with asked.clock.stage("prove"):
                execution = with_names(session.graph, execution)
                crp, timeout_s = found.relaxation.crp, walkers.timeout_s
                proof = prove(session.graph, crp, found.terms, timeout_s, found.crp)
        return self._answer(retrieved, proof, "kernels", execution)

    def _ways(self, retrieved: Retrieved, answers: Sequence[Term]) -> tuple[EvidenceTriple, ...]:
        """Return the triples on the shortest way to each answer, or else the best that has it."""
        ways = {kernel.nodes[-1]: kernel.triples for kernel in reversed(read_kernels(retrieved))}
        found: dict[tuple[Term, str, Term], None] = {}
        for answer in answers:
            found.update(dict.fromkeys(ways.get(answer) or [_best_with(answer, retrieved)]))
        names = self._session.neighbourhood.whole_names(n for s, _, o in found for n in (s, o))
        return tuple(EvidenceTriple(s, r, o, names[s], names[o]) for s, r, o in found)

    def _answer(
        self,
        retrieved: Retrieved,
        proof: Proof,
        reader: ReaderName,
        execution: Execution | None = None,
        unmatched: tuple[str, ...] = (),
    ) -> Answer:
        """Put the answer together."""
        session = self._session
        asked = session.asked
        if (nothing := self._nothing_retrieved(retrieved)) is not None:
            proof = Proof.missing(nothing)
        found = None if execution is None else execution.answering
        triples = tuple(retrieved.triples())
        names = session.neighbourhood.names(n for each in triples for n in (each[0], each[2]))
        return Answer(
            question=asked.question,
            answers=proof.answers,
            trace=RetrievalTrace(
                tuple(session.steps), retrieved, triples, names, reader, execution, unmatched
            ),
            linked=asked.linked,
            sparql=None if found is None else found.sparql,
            evidence=proof.evidence,
            stage="retrieved" if proof.answers else None,
            problem=proof.problem,
            reason=proof.reason,
            truncated=found is not None and found.table is not None and found.table.truncated,
            usage=asked.usage,
            seconds=asked.clock.seconds,
        )

    def _nothing_retrieved(self, retrieved: Retrieved) -> WhyNot | None:
        """Say why there is nothing to read; None if there is something."""
        topics = self._session.topics
        if not topics:
            return self._session.without_topic()
        if not retrieved.seen:
            around = " and ".join(map(str, topics))
            return WhyNot("unreachable", f"the graph has nothing around {around}")
        return None


def _best_with(node: Term, retrieved: Retrieved) -> tuple[Term, str, Term]:
    """Return the best triple that a node is an end of."""
    return next(
        (subject, relation, object_)
        for subject, relation, object_, *_ in retrieved.triples()
        if node in (subject, object_)
    )
