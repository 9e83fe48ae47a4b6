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

The prompts are in our words: one example, triples or paths, the question, and answers on lines that
begin with ``ans:``. Only nodes of the triples that it was shown can be answers.

Source: SubgraphRAG (Li et al. 2025), its prompt and released code, for the reply's form and the
second call; Path Pooling, algorithm 2, §4.1 and appendix A.4.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from kbqa.engine.answer import Answer, AnswerEntity, EvidenceTriple, WhyNot
from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.reading import clip_unread, is_no_answer, plain_lines
from kbqa.engine.deciding.session import (
    CALLS_SPENT,
    PROVEN_ANSWERS,
    SEED,
    Session,
    Step,
    WalkingMethod,
)
from kbqa.engine.methods import MethodMaker, Resources, changed_settings, check_counts
from kbqa.engine.retrieval.retrieval import (
    PoolingSettings,
    Retrieved,
    RetrievedTriple,
    ScoredTriples,
    Shown,
    describe_scorer,
    find_kernels,
    make_scorer,
    retrieve,
)
from kbqa.engine.retrieval.retriever import Caps, ScorerName
from kbqa.engine.running.evidence import no_answer, prove_answer
from kbqa.engine.running.run import Runner
from kbqa.engine.running.tried import Execution, path_record, with_names
from kbqa.engine.writing.checkpoint import require_embedding_packages
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.names import normalise
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, compare_with
from kbqa.sparql.english import describe_crp
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import render_crp
from kbqa.sparql.terms import Term, term_text

ReaderName = Literal["llm", "kernels"]
PromptForm = Literal["triples", "paths"]
PromptOrder = Literal["ascending", "descending", "edges"]

_Prompt = Annotated[
    PromptForm,
    "How the general model is shown triples: each on its own, or as paths where one begins with "
    "the end of the one before it.",
]
_Order = Annotated[
    PromptOrder,
    "Where a prompt has the best triples: last, next to the question; first; or at both ends.",
]
_FollowUp = Annotated[
    bool, "Whether the general model is asked once more if its reply has no answer."
]


@dataclass(frozen=True)
class SubgraphSettings:
    """The settings of `subgraph`. Source of the defaults: SubgraphRAG's code; `shown` is ours."""

    triples: Annotated[int, "Triples that are retrieved, at most."] = 100
    scorer: Annotated[
        ScorerName,
        "What scores triples: a scorer that was trained, or the similarity of the question and the "
        "relation alone.",
    ] = "trained"
    scorer_file: Annotated[
        Path | None,
        "The retriever.json that `kbqa train-retriever` wrote; by default the one that ships with "
        "kbqa.",
    ] = None
    shown: Annotated[
        Shown,
        "Whether a fact that a relation and its reverse state is retrieved once, or twice as in "
        "the papers.",
    ] = "once"
    reader: Annotated[
        ReaderName | None,
        "Who reads the triples: the general model; or, with kernels, nobody: the paths of the best "
        "triples are run as queries. By default the general model if there is one.",
    ] = None
    prompt: _Prompt = "triples"
    order: _Order = "descending"
    follow_up: _FollowUp = True
    max_tokens: Annotated[int, "The most tokens of a reply."] = 4000
    candidates: Annotated[int, "Paths that are run as queries if nobody reads, at most."] = 5

    def __post_init__(self) -> None:
        check_counts(self, "triples", "max_tokens", "candidates")


@dataclass(frozen=True)
class PathPoolingSettings(PoolingSettings, SubgraphSettings):
    """The settings of `path-pooling`. Source of the defaults: Path Pooling, A.4."""

    prompt: _Prompt = "paths"
    order: _Order = "ascending"
    follow_up: _FollowUp = False

    def __post_init__(self) -> None:
        SubgraphSettings.__post_init__(self)
        PoolingSettings.__post_init__(self)
        self.check_count(self.triples)


NO_POOLING = PoolingSettings(mechanism="none")

_OF_OTHER_READER: Mapping[ReaderName, Sequence[str]] = {
    "kernels": ("prompt", "order", "follow_up", "max_tokens"),
    "llm": ("candidates",),
}
"""The settings that a reader ignores."""

_NOT_READ = WhyNot(
    "unnamed", "the language model named no node of the triples; see the steps of the trace"
)
_NO_PATH = WhyNot("empty", "no path of the best triples leads to an answer")
_DRAWN = 8


def make_retrieving(
    resources: Resources, method: str, settings: SubgraphSettings, pooling: PoolingSettings
) -> WalkingMethod:
    """Make a method that retrieves ready to answer."""
    require_embedding_packages("retrieving triples")
    if resources.chooser == "random":
        raise InputError(f"--chooser random: {method} has no decision that chance could take")
    if settings.reader == "llm":
        resources.require_language_model("reader=llm")
    reader = settings.reader or ("llm" if resources.chooser == "llm" else "kernels")
    if ignored := changed_settings(settings, _OF_OTHER_READER[reader]):
        if reader == "kernels":
            resources.require_language_model(ignored)
        raise InputError(f"reader={reader} does not use {ignored}: leave it out")
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
        return _read_by_kernels(session, retrieved, settings)

    return WalkingMethod(method, walkers, decided, answer_in)


def _read_by_model(session: Session, retrieved: Retrieved, settings: SubgraphSettings) -> Answer:
    """Have the language model read the triples."""
    asked, triples = session.asked, list(retrieved.triples())
    read = read_triples(session, triples, settings) if triples else ReadAnswers(())
    answers, unmatched = read or ReadAnswers(())
    with asked.clock.stage("prove"):
        evidence = _ways(session, retrieved, answers[:PROVEN_ANSWERS])
    trace = _trace(session, retrieved, "llm", unmatched=unmatched)
    why_not = None
    if not answers:
        unread = CALLS_SPENT if read is None else _NOT_READ
        why_not = _nothing_retrieved(session, retrieved) or unread
    name = session.neighbourhood.whole_name
    named = tuple(AnswerEntity(each, name(each)) for each in answers)
    return session.answered(trace, named, evidence, "retrieved", why_not)


def _read_by_kernels(session: Session, retrieved: Retrieved, settings: SubgraphSettings) -> Answer:
    """Run the paths of the best triples, the best first."""
    asked, graph, walkers = session.asked, session.graph, session.walkers
    with asked.clock.stage("read"):
        kernels = read_kernels(retrieved)
        most = settings.candidates
        candidates = _write_candidates(kernels, session.topics, walkers.schema, most)
        asked.budget.take_last()
        session.steps.append(Step("answer", chosen=tuple(each.text for each in candidates[:1])))
    runner = Runner(asked, graph, walkers.names, walkers.timeout_s)
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
    return Candidate(render_crp(crp), math.log(best.score), 1, (topic.mid,), "walk")


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


_SYSTEM = """\
Answer the question from the {form} below, which were retrieved from the Freebase knowledge graph. \
First reason in a few short sentences. Then write each answer on a line of its own that begins \
with "ans:", with the name exactly as it is written below. If they do not hold the answer, write \
"ans: none"."""

_FOLLOW_UP = """\
Write the answers alone: each on a line of its own that begins with "ans:", with the name exactly \
as it is written above. Give your best guess from the {form} above."""

_EXAMPLE: Sequence[tuple[str, str, str]] = (
    ("Kenya", "location.country.currency_used", "Kenyan shilling"),
    ("Nairobi", "location.location.containedby", "Kenya"),
    ("Lake Albert", "location.location.partially_containedby", "Uganda"),
    ("Lake Victoria", "location.location.partially_containedby", "Kenya"),
    ("Lake Victoria", "location.location.partially_containedby", "Uganda"),
    ("White Nile", "geography.river.origin", "Lake Victoria"),
)
_EXAMPLE_QUESTION = "Which countries share the lake that the White Nile flows out of?"
_EXAMPLE_REPLY = """\
The White Nile flows out of Lake Victoria. Lake Victoria lies partly in Kenya and partly in Uganda.
ans: Kenya
ans: Uganda"""


def reading_prompt(
    question: str, triples: Sequence[RetrievedTriple], name: Callable[[Term], str], form: PromptForm
) -> tuple[Message, ...]:
    """Ask for answers from triples, which are in the order in which they are shown."""
    shown = [(each.subject, each.relation, each.object) for each in triples]
    return (
        Message("system", _SYSTEM.format(form=form)),
        Message("user", _asked(_EXAMPLE_QUESTION, _EXAMPLE, str, form)),
        Message("assistant", _EXAMPLE_REPLY),
        Message("user", _asked(question, shown, name, form)),
    )


def follow_up(prompt: Sequence[Message], form: PromptForm) -> tuple[Message, ...]:
    """Ask once more for answers alone. As in SubgraphRAG, the first reply is not shown again."""
    return (*prompt, Message("user", _FOLLOW_UP.format(form=form)))


def in_order(best_first: Iterable[RetrievedTriple], order: PromptOrder) -> list[RetrievedTriple]:
    """Put triples in the order of a prompt. Source: Path Pooling §4.3.3.

    With ``edges`` the best is the first, the second best the last, the third best the second, and
    so on.
    """
    triples = list(best_first)
    if order == "edges":
        return triples[::2] + triples[1::2][::-1]
    return triples if order == "descending" else triples[::-1]


def _asked(
    question: str,
    triples: Iterable[tuple[Term, str, Term]],
    name: Callable[[Term], str],
    form: PromptForm,
) -> str:
    """Write triples and the question.

    >>> print(_asked("Who?", [("A", "r", "B"), ("B", "s", "C"), ("D", "r", "A")], str, "paths"))
    Paths:
    A -> r -> B -> s -> C
    D -> r -> A
    <BLANKLINE>
    Question: Who?
    """
    lines: list[str] = []
    last: Term | None = None
    for subject, relation, object_ in triples:
        begin, end = name(subject), name(object_)
        if form == "triples":
            lines.append(f"({begin}, {relation}, {end})")
        elif subject == last:
            lines[-1] += f" -> {relation} -> {end}"
        else:
            lines.append(f"{begin} -> {relation} -> {end}")
        last = object_
    return "\n".join([f"{form.capitalize()}:", *lines, "", f"Question: {question}"])


_ANSWER = re.compile(r"(?:^|(?<=\s))\W{0,4}ans(?:wers?)?\s?:", re.IGNORECASE)


class ReadAnswers(NamedTuple):
    """The nodes of triples that a language model named, and names that are none of them."""

    answers: tuple[Term, ...]
    unmatched: tuple[str, ...] = ()


def read_triples(
    session: Session, triples: Sequence[RetrievedTriple], settings: SubgraphSettings
) -> ReadAnswers | None:
    """Have the language model read triples, given best first; None if no call is left."""
    nodes = [node for each in triples for node in (each.subject, each.object)]
    names = session.neighbourhood.names(nodes)
    shown = in_order(triples, settings.order)
    prompt = reading_prompt(session.question, shown, names.__getitem__, settings.prompt)
    limit = settings.max_tokens
    reply = session.ask("answer", prompt, max_tokens=limit, is_last=True)
    if reply is None:
        return None
    said = said_answers(reply, names.values())
    if settings.follow_up and not said:
        session.not_understood(clip_unread(plain_lines(reply)[-1:]))
        again = follow_up(prompt, settings.prompt)
        reply = session.ask("answer", again, max_tokens=limit, is_last=True) or ""
        said = said_answers(reply, names.values())
    topics = {topic.mid for topic in session.topics}
    read = match_answers(said, triples, names, topics)
    if not said:
        session.not_understood(clip_unread(plain_lines(reply)[-1:] or ["(empty)"]))
    else:
        session.not_understood(clip_unread(read.unmatched))
    return read


def said_answers(reply: str, known: Iterable[str] = ()) -> list[str]:
    r"""Read the answers of a reply, each after an ``ans:``, on one line or several.

    What says that there is none is an answer only if it is among the known names.

    >>> said_answers("It is in Kenya.\n**ans:** Nairobi\nans: Mombasa. ans: none")
    ['Nairobi', 'Mombasa']
    """
    said: dict[str, None] = {}
    keys = set(map(normalise, known))
    for line in reply.splitlines():
        for piece in _ANSWER.split(line)[1:]:
            text = "".join(plain_lines(piece)[:1]).strip(" *.;")
            if text and (normalise(text) in keys or not is_no_answer(text)):
                said[text] = None
    return list(said)


def match_answers(
    said: Sequence[str],
    triples: Sequence[RetrievedTriple],
    names: Mapping[Term, str],
    topics: set[str | None],
) -> ReadAnswers:
    """Find the nodes of triples, given best first, that answers name.

    An answer is the name or id of nodes or a literal's text. If no node has it, it means those of
    the only name that contains it or that it contains, word by word. Of several nodes of a name,
    those in the best triples count, and a topic only if it is the only one.
    """
    rank: dict[Term, int] = {}
    score: dict[Term, float] = {}
    for each in triples:
        for node in (each.subject, each.object):
            rank.setdefault(node, len(rank))
            score.setdefault(node, each.score if each.pooled is None else each.pooled)
    by_key: dict[str, list[Term]] = {}
    for node in sorted(rank, key=rank.__getitem__):
        for key in {normalise(names[node]), normalise(term_text(node))} - {""}:
            by_key.setdefault(key, []).append(node)
    answers: dict[Term, None] = {}
    unmatched = []
    for text in said:
        nodes = by_key.get(normalise(text)) or _contained(normalise(text), by_key)
        nodes = [node for node in nodes if node not in topics] or nodes
        best = max((score[node] for node in nodes), default=0.0)
        answers.update((node, None) for node in nodes if score[node] == best)
        if not nodes:
            unmatched.append(text)
    return ReadAnswers(tuple(answers), tuple(unmatched))


def _contained(text: str, by_key: Mapping[str, list[Term]]) -> list[Term]:
    """Return the nodes of the only name that contains a text or is contained in it."""
    found = [key for key in by_key if f" {key} " in f" {text} " or f" {text} " in f" {key} "]
    return by_key[found[0]] if text and len(found) == 1 else []


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
            "beams": [each.to_dict() for each in tried],
        }

    def describe(self) -> list[str]:
        """Return the best triples, and how they were read, in English."""
        lines = []
        found = None if self.execution is None else self.execution.answering
        if found is not None and found.crp is not None:
            lines += ["Path:", *(f"  {sentence}" for sentence in describe_crp(found.crp))]
        if self.triples:
            lines.append("Best triples:")
        for each in self.triples[:_DRAWN]:
            score = each.score if each.pooled is None else each.pooled
            subject, object_ = self.names[each.subject], self.names[each.object]
            lines.append(f"  ({subject}, {each.relation}, {object_}) {score:.2g}")
        if len(self.triples) > _DRAWN:
            lines.append(f"  … and {len(self.triples) - _DRAWN} more")
        by = "the language model read them" if self.reader == "llm" else "their paths were run"
        lines.append(f"Retrieved {len(self.triples)} of {self.retrieved.seen:,} triples; {by}.")
        if self.unmatched:
            lines.append(f"No node of them is called: {'; '.join(self.unmatched)[:300]}")
        return lines


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
