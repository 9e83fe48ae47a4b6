"""The tools of walking methods: `Walkers` for all questions, and a `Session` for each.

A session takes each decision through the chooser, counts it against the question's budget, and
records it as a `Step`. At the end it makes an answer: from the names that a general model gave, or
from the ends of the walks.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Unpack

from kbqa.engine.answer import Answer, AnswerEntity, EvidenceTriple, Trace, WhyNot
from kbqa.engine.asked import Asked, ChooserName
from kbqa.engine.chat.model import Message, ReplySampling, Usage
from kbqa.engine.deciding.choosing import (
    Choice,
    Decided,
    choose_by_chance,
    draw,
    make_chooser,
    most_similar_first,
    seeded,
)
from kbqa.engine.deciding.reading import Picked, read_names
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import (
    Neighbourhood,
    Walk,
    drawn_hop,
    drawn_triple,
    drawn_walk,
    triples_of,
)
from kbqa.engine.linking.linker import explain_unlinked, starting_topics
from kbqa.engine.writing.generate import Candidate, Progress
from kbqa.kb.graph import Graph
from kbqa.kb.names import Names, normalise
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Hop
from kbqa.sparql.english import relation_words
from kbqa.sparql.terms import LiteralTerm, Term, term_text

SEED = 42

PROVEN_ANSWERS = 10
"""The number of first answers for which evidence is kept, as in the router."""

HOP_COST = 0.1
"""Subtracted from a cosine for each hop that does not end at mediators: the embedder cannot tell
when to stop. On held-out training questions (60 of webqsp.train, 47 of cwq.dev, gold entities) the
F1 of `pog` is 0.50 and 0.33 (with 0.05: 0.40 and 0.30, with 0.15: 0.53 and 0.28), of `bpc` 0.39 and
0.24 (0.34 and 0.16, 0.41 and 0.21); of `trace` (70 and 70) 0.65 and 0.30, and without a cost 0.27
and 0.19."""

CALLS_SPENT = WhyNot(
    "calls", "the calls were spent before an answer was found. Raise --call-budget"
)
"""Why a question that took all its calls has no answer, by any method."""

UNNAMED = WhyNot("unnamed", "the language model named no answer; see the steps of the trace")

Stop = Literal["enough", "stopped", "depth", "nothing", "iterations", "budget", "direct"]
"""Why a method stopped walking; `_STOPS` says it in words."""

_STOPS: Mapping[Stop, str] = {
    "enough": "walking ended because what was found seemed enough",
    "stopped": "walking ended because every walk was ended",
    "depth": "walking ended because the deepest hop was reached",
    "nothing": "walking ended because the graph led no further",
    "iterations": "walking ended because as many paths were followed as may be",
    "budget": "walking ended because the calls were spent",
    "direct": "the language model was asked without the graph",
}

_DRAWN = 8  # walks in a description


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a method in a trace: its options, and the result."""

    kind: str  # what was done, such as ``relations`` or ``answer``
    hop: int = 0  # 0 before the first
    at: str = ""  # the node or walk that it is about
    offered: tuple[str, ...] = ()
    hidden: int = 0  # options that exist and were not offered
    chosen: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()  # of the chosen options
    said: str | None = None  # a language model's words that are used later: a plan, answers
    unread: tuple[str, ...] = ()  # parts of a reply that could not be understood
    clipped: int = 0  # walks dropped after it, as there were too many; or relations not followed
    is_truncated: bool = False
    is_decision: bool = True  # it counts as a call; false if there was nothing to decide
    usage: Usage | None = None  # None if another chooser decided

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record without the fields that are empty."""
        fields: dict[str, Any] = {
            "kind": self.kind,
            "hop": self.hop,
            "at": self.at,
            "offered": list(self.offered),
            "hidden": self.hidden,
            "chosen": list(self.chosen),
            "scores": [round(score, 4) for score in self.scores],
            "said": self.said,
            "unread": list(self.unread),
            "clipped": self.clipped,
            "is_truncated": self.is_truncated,
            "no_decision": not self.is_decision,
        }
        kept = {name: value for name, value in fields.items() if value or name == "hop"}
        if self.usage is not None:
            kept["input_tokens"] = self.usage.input_tokens
            kept["output_tokens"] = self.usage.output_tokens
        return kept


@dataclass(frozen=True, slots=True)
class WalkTrace:
    """How a walking method found its answers."""

    steps: tuple[Step, ...]
    walks: tuple[Walk, ...] = ()
    stop: Stop = "nothing"
    queries: int = 0  # lookups in the graph
    drawn: tuple[str, ...] = ()  # the walks, for people
    details: Mapping[str, Any] = field(default_factory=dict)  # what only one method records
    dead_ends: tuple[Walk, ...] = ()  # other walks, from which no answer was taken
    names: Mapping[str, str] = field(default_factory=dict)  # of the entities on all walks, by id

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record."""
        return {
            "steps": [step.to_dict() for step in self.steps],
            "walks": [walk.to_dict() for walk in self.walks],
            "dead_ends": [walk.to_dict() for walk in self.dead_ends],
            "names": dict(sorted(self.names.items())),
            "stop": self.stop,
            "queries": self.queries,
            "decisions": sum(1 for step in self.steps if step.is_decision),
            "unread": sum(1 for step in self.steps if step.unread),
            **self.details,
        }

    def describe(self) -> list[str]:
        """Return the walks in words, and why walking ended."""
        lines = ["Walks:", *(f"  {walk}" for walk in self.drawn[:_DRAWN])] if self.drawn else []
        if len(self.drawn) > _DRAWN:
            lines.append(f"  … and {len(self.drawn) - _DRAWN} more")
        steps = sum(1 for step in self.steps if step.is_decision)
        decisions = f"{steps} decision{'' if steps == 1 else 's'}"
        lines.append(f"{decisions}; {_STOPS[self.stop]}.")
        unread = [step for step in self.steps if step.unread]
        if unread:
            parts = "; ".join(dict.fromkeys(part for step in unread for part in step.unread))
            lines.append(f"Not understood in {len(unread)} replies: {parts[:300]}")
        return lines


class Walkers:
    """What all questions of a walking method share. Any number of threads may use one."""

    def __init__(
        self, graph: Graph, names: Names, chooser: ChooserName, timeout_s: float, seed: int = SEED
    ) -> None:
        self.graph, self.names, self.chooser = graph, names, chooser
        self.timeout_s, self.seed = timeout_s, seed
        self.schema = GraphSchema(graph)
        self.embedder = Embedder.load() if chooser == "embedder" else None
        self._lock = threading.Lock()
        self._loaded = self.embedder

    def settings(self) -> Mapping[str, object]:
        """Return the chooser and its settings, for manifests."""
        by_embedder = {} if self.embedder is None else {"hop_cost": HOP_COST}
        embedder = None if self.embedder is None else self.embedder.name
        return {"chooser": self.chooser, "embedder": embedder, "seed": self.seed, **by_embedder}

    def load_embedder(self) -> Embedder:
        """Return the embedder, which is loaded when first needed if it does not decide."""
        with self._lock:
            if self._loaded is None:
                self._loaded = Embedder.load()
            return self._loaded


class Session:
    """One question as a walking method answers it, in one thread.

    It starts from `topics`, each with its mid and name. `steps` holds the decisions so far.
    """

    def __init__(self, walkers: Walkers, asked: Asked) -> None:
        self.walkers, self.asked = walkers, asked
        self.topics = starting_topics(asked.given, asked.linked)
        self.steps: list[Step] = []
        self.graph = walkers.graph
        self.neighbourhood = Neighbourhood(
            self.graph, walkers.schema, lambda: asked.clock.stage("explore")
        )
        self._chooser = make_chooser(
            walkers.chooser, self.question, walkers.seed, chat=asked.chat, embedder=walkers.embedder
        )

    @property
    def question(self) -> str:
        """The question's words, with single blanks."""
        return " ".join(self.asked.question.split())

    @property
    def has_language_model(self) -> bool:
        """Whether a language model decides; others neither plan, remember nor judge."""
        return self.walkers.chooser == "llm"

    @property
    def is_random(self) -> bool:
        """Whether chance decides."""
        return self.walkers.chooser == "random"

    def choose(self, choice: Choice) -> Picked | None:
        """Decide; None if no call is left."""
        decided = self.choose_all([choice])
        return decided[0] if decided else None

    def choose_all(self, choices: Sequence[Choice], *, is_random: bool = False) -> list[Picked]:
        """Decide choices that do not depend on each other; fewer of them if the calls are spent.

        Choices without options are no decisions: they cost nothing. If `is_random`, chance decides
        instead of the chooser, as controls need it.
        """
        real = [choice for choice in choices if choice.options]
        taken = real[: self.asked.budget.take(len(real))]
        decided: list[Decided] = []
        if taken:
            by_chance = partial(choose_by_chance, question=self.question, seed=self.walkers.seed)
            with self.asked.clock.stage(taken[0].kind):
                decided = (by_chance if is_random else self._chooser)(taken)
        for choice, (picked, usage, is_truncated) in zip(taken, decided, strict=True):
            step = Step(
                choice.kind,
                choice.hop,
                choice.at,
                choice.options,
                choice.hidden,
                tuple(choice.options[at] for at in picked.chosen),
                picked.scores,
                unread=picked.unread,
                is_truncated=is_truncated,
                usage=usage,
            )
            self.steps.append(step)
        outcomes = iter(decided)
        chosen: list[Picked] = []
        for choice in choices:
            if not choice.options:
                chosen.append(Picked(()))
            elif (outcome := next(outcomes, None)) is not None:
                chosen.append(outcome.picked)
            else:
                break
        return chosen

    def ask(
        self,
        kind: str,
        prompt: Sequence[Message],
        *,
        hop: int = 0,
        at: str = "",
        is_last: bool = False,
        **sampling: Unpack[ReplySampling],
    ) -> str | None:
        """Ask the language model for words; None if none decides here, or no call is left.

        `kind`, `hop` and `at` are for the step. If `is_last`, the reply is the question's answer,
        for which the last call is kept.
        """
        chat, budget = self.asked.chat, self.asked.budget
        if not self.has_language_model or chat is None:
            return None
        if not (budget.take_last() if is_last else budget.take(1)):
            return None
        with self.asked.clock.stage(kind):
            reply = chat.complete(prompt, **seeded(sampling, self.walkers.seed))
        cut, usage = reply.is_truncated, reply.usage
        self.steps.append(Step(kind, hop, at, said=reply.text, is_truncated=cut, usage=usage))
        return reply.text

    def ask_names(
        self, prompt: Sequence[Message], known: Sequence[str], **sampling: Unpack[ReplySampling]
    ) -> tuple[str, ...] | None:
        """Ask for the answers, as `ask` does; `known` are the names that the prompt shows."""
        reply = self.ask("answer", prompt, is_last=True, **sampling)
        if reply is None:
            return None
        names, unread = read_names(reply, known)
        self.not_understood(unread)
        return tuple(names)

    def draw(self, options: Sequence[Term], most: int, *about: str) -> list[Term]:
        """Draw some nodes by chance; the seed and `about` decide it."""
        drawn = draw(len(options), most, self.walkers.seed, self.question, *about)
        return [options[at] for at in drawn]

    def similar_first(self, texts: Sequence[str]) -> list[int]:
        """Sort the indexes of texts by their similarity to the question."""
        return most_similar_first(self.walkers.load_embedder().similarity(self.question, texts))

    def most_similar(self, texts: Sequence[str], most: int) -> list[int]:
        """Find the texts that are most similar to the question; their indexes keep their order."""
        if len(texts) <= most:
            return list(range(len(texts)))
        return sorted(self.similar_first(texts)[:most])

    def not_understood(self, unread: Sequence[str]) -> None:
        """Note parts of the last reply that could not be understood."""
        if unread:
            self.steps[-1] = replace(self.steps[-1], unread=tuple(unread))

    def clipped(self, count: int) -> None:
        """Note how many walks were dropped after the last step."""
        if count and self.steps:
            last = self.steps[-1]
            self.steps[-1] = replace(last, clipped=last.clipped + count)

    def has_name(self, text: str) -> bool:
        """Return whether some entity of the graph has this name."""
        return bool(self.walkers.names.lookup(text, limit=1))

    def drawn(self, walk: Walk, hop: Hop | None = None) -> str:
        """Draw a walk with the names of its nodes, and a relation that is followed from its end."""
        drawn = drawn_walk(walk, self.neighbourhood.name)
        return drawn if hop is None else f"{drawn} {drawn_hop(hop)}"

    def drawn_triples(self, walks: Iterable[Walk]) -> list[str]:
        """Draw the triples of walks, each once."""
        return [drawn_triple(step, self.neighbourhood.name) for step in triples_of(walks)]

    def names_on(self, walks: Iterable[Walk]) -> list[str]:
        """List the names of the nodes of walks, as prompts show them."""
        return [self.neighbourhood.name(node) for walk in walks for node in walk.nodes]

    def finish(
        self,
        walks: Sequence[Walk],
        stop: Stop,
        said: Sequence[str] | None = None,
        *,
        stage: str = "explored",
        details: Mapping[str, Any] | None = None,
        dead_ends: Sequence[Walk] = (),
    ) -> Answer:
        """Make the answer: ground the names that were said, or take ends of walks (`ends_alike`).

        The walks prove the answers. `said` is None if no language model was asked. Answers of the
        stages ``fallback`` and ``direct`` were said without the graph, unlike ``explored``, so none
        has the origin ``graph``. `details` are facts that only this method records.
        """
        names = self.neighbourhood.whole_names(
            node for walk in [*walks, *dead_ends] for node in walk.nodes
        )
        with self.asked.clock.stage("ground"):
            if said is not None:
                # What was said without the graph was not found in it, even where a walk has it.
                shown = walks if stage == "explored" else []
                answers = ground(said, shown, self.neighbourhood, self.walkers.names)
            elif self.has_language_model:
                answers = ()
            else:
                answers = self._ends(walks)
            evidence = evidence_of(answers, walks, self.neighbourhood)
        trace = WalkTrace(
            tuple(self.steps),
            tuple(walks),
            stop,
            self.neighbourhood.queries,
            tuple(map(self.drawn, walks)),
            details or {},
            tuple(dead_ends),
            {node: name for node, name in names.items() if isinstance(node, str) and name != node},
        )
        why_not = None if answers else self._why_not(stop, said, stage)
        return self.answered(trace, answers, evidence, stage, why_not)

    def answered(
        self,
        trace: Trace,
        answers: tuple[AnswerEntity, ...],
        evidence: tuple[EvidenceTriple, ...],
        stage: str,
        why_not: WhyNot | None,
    ) -> Answer:
        """Put the answer together, or say why there is none."""
        return Answer(
            question=self.asked.question,
            answers=answers,
            trace=trace,
            linked=self.asked.linked,
            evidence=evidence,
            stage=stage if answers else None,
            problem=why_not and why_not.problem,
            reason=why_not and why_not.reason,
            usage=self.asked.usage,
            seconds=self.asked.clock.seconds,
        )

    def _ends(self, walks: Sequence[Walk]) -> tuple[AnswerEntity, ...]:
        """Answer without a language model; that is a decision, too."""
        if not walks:
            return ()
        self.asked.budget.take_last()
        best, answers = ends_alike(self.question, walks, self.neighbourhood, self.walkers.embedder)
        self.steps.append(Step("answer", chosen=(self.drawn(best),)))
        return answers

    def _why_not(self, stop: Stop, said: Sequence[str] | None, stage: str) -> WhyNot:
        if said is not None:
            return UNNAMED
        if not self.topics and stage != "direct":
            return self.without_topic()
        if stop == "budget":
            return CALLS_SPENT
        topics = " and ".join(map(str, self.topics))
        return WhyNot("unreachable", f"no walk from {topics} leads to an answer")

    def without_topic(self) -> WhyNot:
        """Say why a question without topics has no answer."""
        return WhyNot("unlinked", explain_unlinked(self.walkers.names))


class WalkingMethod:
    """A method that opens a session for each question. It writes no paths with the small model."""

    general_calls: float | None = None

    def __init__(
        self,
        name: str,
        walkers: Walkers,
        settings: Mapping[str, object],
        answer_in: Callable[[Session], Answer],
    ) -> None:
        self.name = name
        self._walkers, self._settings, self._answer_in = walkers, settings, answer_in

    def settings(self) -> Mapping[str, object]:
        """Return all settings that decide the answers, for manifests."""
        return {**self._walkers.settings(), **self._settings}

    def write(
        self, asked: Sequence[Asked], progress: Progress | None = None
    ) -> list[list[Candidate]]:
        """Write nothing: the graph is walked."""
        return [[] for _ in asked]

    def answer(self, asked: Asked) -> Answer:
        """Answer a question; see `Method.answer`."""
        return self._answer_in(Session(self._walkers, asked))


def ground(
    said: Iterable[str], walks: Sequence[Walk], neighbourhood: Neighbourhood, names: Names
) -> tuple[AnswerEntity, ...]:
    """Find the meaning of names: first among the nodes of walks, then among all of the graph.

    A name that several nodes of the walks have means all of them, but not the topic if a walk leads
    to another node of its name, as to a book about its author. A node's id or a literal's text is a
    name, too. A name that no node has means the best known entity of that name; its origin is
    ``named``, as no walk leads there. A name that the graph does not have stays a text.
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
    question: str, walks: Sequence[Walk], neighbourhood: Neighbourhood, embedder: Embedder | None
) -> tuple[Walk, tuple[AnswerEntity, ...]]:
    """Choose one of the walks, and answer with the ends of all from its topic by its relations.

    Walks that end at mediators, or back at their topic, answer nothing if there are others. The
    embedder finds the walk whose relations are most similar to the question, less `HOP_COST` a hop,
    among all walks and their beginnings. Without it, the first of the walks is taken.
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
        best = walks[most_similar_first(scores)[0]]
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
