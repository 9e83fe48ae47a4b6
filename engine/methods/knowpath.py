"""KnowPath: the model's own inference paths guide its exploration of the graph.

First the model answers from memory and gives the path that it reasons along: a hint for what
follows. Then each round lengthens the walks of each topic's subgraph by a hop: relations are chosen
for each entity reached, then entities among those that the relations lead to. After each round the
model judges whether the walks that became longer, and what it knows, answer the question. If no
round does, the answer from memory stands; its stage is ``fallback``.

Without a language model nothing is answered from memory and nothing is judged. The embedder takes
the relations most similar to the question, and the first entities that the best of them lead to;
chance takes any; both do so in all rounds.

What the paper leaves open is read so: memory and judgement are asked at temperature 0, as only
exploration has another; a chosen entity lengthens every walk that leads to it; the question's own
topic entities are explored, not those that the model names.

Source: KnowPath, §2 and appendices A, B, F and G.

KnowPath's exploration: each round lengthens the walks of each topic's subgraph by a hop.

Source: KnowPath §2.3 and appendix A, algorithm 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal, NamedTuple

from kbqa.engine.answer import Answer
from kbqa.engine.deciding.choosing import Choice
from kbqa.engine.deciding.reading import read_choice
from kbqa.engine.deciding.session import SEED, Session, Stop, WalkingMethod
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import Walk
from kbqa.engine.methods.direct import answer_directly
from kbqa.engine.methods.knowpath_prompts import (
    MAX_HINT_LETTERS,
    MAX_HINTS,
    Thought,
    Verdict,
    check_prompt,
    entities_prompt,
    paths_prompt,
    read_thought,
    read_verdict,
    relations_prompt,
    written_hop,
    written_path,
)
from kbqa.engine.methods.options import check_counts, check_temperature
from kbqa.engine.resources import MethodMaker, Resources
from kbqa.sparql.crp import Entity, Hop
from kbqa.sparql.english import relation_words
from kbqa.sparql.terms import Term

EntityOrder = Literal["stable", "embedder"]
AskedFor = Literal["entity", "subgraph"]
Mediators = Literal["keep", "drop"]
Part = Literal["hint", "paths", "subgraph"]


@dataclass(frozen=True, slots=True)
class KnowpathSettings:
    """How KnowPath answers; each setting says its meaning."""

    depth: Annotated[int, "Rounds of exploration, at most; each goes one hop further."] = 3
    temperature: Annotated[
        float,
        "Of the replies that choose relations and entities. With temperature above 0 a model may "
        "reply differently in each run.",
    ] = 0.4
    triples: Annotated[int, "Triples that the model lists from memory before it answers."] = 15
    relations: Annotated[int, "Relations chosen in one decision, at most."] = 7
    entities: Annotated[int, "Entities of a subgraph that each round goes on from, at most."] = 7
    shown: Annotated[int, "Entities offered of those that one relation leads to, at most."] = 40
    order: Annotated[
        EntityOrder,
        "Which entities are offered if there are more: the first by id, or the most similar.",
    ] = "stable"
    calls: Annotated[
        AskedFor,
        "Choose relations for each entity, as the released code does, or for a whole subgraph, "
        "as the text of the paper says.",
    ] = "entity"
    mediators: Annotated[
        Mediators,
        "Nodes without a name: keep them, or drop them, and literals and ids other than m., as the "
        "released code does.",
    ] = "keep"
    ablate: Annotated[
        tuple[Part, ...],
        "Parts left out: the hint in prompts, the paths from memory altogether, or the graph.",
    ] = ()
    seed: Annotated[int, "Seed of everything drawn by chance."] = SEED

    def __post_init__(self) -> None:
        check_counts(self, "depth", "relations", "entities", "shown")
        check_counts(self, "triples", least=0)
        check_temperature(self.temperature)


MAX_WALKS = 64
"""Walks of a subgraph that a round keeps. There are more only if many ways lead to few entities."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A topic and the walks from there that the last round has lengthened."""

    topic: Entity
    walks: tuple[Walk, ...]

    @property
    def frontier(self) -> tuple[Term, ...]:
        """Where the walks end, each node once."""
        return tuple(dict.fromkeys(walk.end for walk in self.walks))


class _Group(NamedTuple):
    """Nodes of a subgraph for which relations are chosen together."""

    subgraph: int
    nodes: tuple[Term, ...]
    hops: tuple[Hop, ...]


class _Way(NamedTuple):
    """A hop that was chosen, from a node of the frontier that has it."""

    node: Term
    hop: Hop


class Exploration:
    """Explores the graph for one question.

    Args:
        session: The question's.
        settings: How to explore.
        hint: Paths from memory that prompts show; may be empty.
        embedder: Orders entities; None for the order of their ids.
    """

    def __init__(
        self,
        session: Session,
        settings: KnowpathSettings,
        hint: Sequence[str],
        embedder: Embedder | None,
    ) -> None:
        self._session, self._settings, self._hint = session, settings, hint
        self._around = session.neighbourhood
        self._embedder = embedder
        self._was_offered = False
        self.subgraphs = tuple(Subgraph(topic, (Walk(topic),)) for topic in session.topics)
        """Of the topics, as the last round left them."""
        self.dead_ends: list[Walk] = []
        """Walks that a round did not lengthen, those of the last round first."""

    @property
    def walks(self) -> list[Walk]:
        """The walks that the last round has lengthened."""
        return [walk for subgraph in self.subgraphs for walk in subgraph.walks if walk.steps]

    def go_on(self, hop: int) -> bool:
        """Lengthen walks by a hop: choose relations, then among the entities that they lead to.

        Returns:
            Whether any walk became longer.

        Raises:
            ModelError: A model failed.
            GraphError: The graph does not answer.
            DeadlineExceeded: The question's deadline has passed.
        """
        ways = self._choose_ways(hop)
        longer = self._choose_ends(ways, hop)
        ended = []
        for before, after in zip(self.subgraphs, longer, strict=True):
            kept = {Walk(walk.topic, walk.steps[:-1]) for walk in after}
            ended += [walk for walk in before.walks if walk.steps and walk not in kept]
        self.dead_ends = [*ended, *self.dead_ends]
        self.subgraphs = tuple(
            Subgraph(before.topic, tuple(after))
            for before, after in zip(self.subgraphs, longer, strict=True)
        )
        self._session.clipped(self._clip())
        return bool(self.walks)

    @property
    def why_ended(self) -> Stop:
        """Why a round has lengthened no walk."""
        if self._session.asked.budget.is_exhausted:
            return "budget"
        return "stopped" if self._was_offered else "nothing"

    def _choose_ways(self, hop: int) -> list[list[_Way]]:
        """Choose relations; return what to follow in each subgraph, the best first."""
        self._around.fetch_hops(n for subgraph in self.subgraphs for n in subgraph.frontier)
        groups = list(self._groups())
        self._around.names(
            node for subgraph in self.subgraphs for walk in subgraph.walks for node in walk.nodes
        )
        choices = [self._relations(group, hop) for group in groups]
        self._was_offered = any(choice.options for choice in choices)
        ways: list[list[_Way]] = [[] for _ in self.subgraphs]
        picked = self._session.choose_all(choices)
        for group, each in zip(groups, picked, strict=False):  # Fewer if the calls are spent.
            ways[group.subgraph] += [
                _Way(node, group.hops[at])
                for at in each.chosen
                for node in group.nodes
                if group.hops[at] in self._around.hops(node)
            ]
        return ways

    def _groups(self) -> Iterator[_Group]:
        for number, subgraph in enumerate(self.subgraphs):
            frontier = subgraph.frontier
            groups = [(node,) for node in frontier]
            for nodes in [frontier] if self._settings.calls == "subgraph" else groups:
                hops = {hop for node in nodes for hop in self._around.hops(node)}
                ordered = sorted(hops, key=lambda hop: (hop.relation, hop.inverse))
                yield _Group(number, nodes, tuple(ordered))

    def _relations(self, group: _Group, hop: int) -> Choice:
        most = self._settings.relations
        options = tuple(map(written_hop, group.hops))
        return Choice(
            kind="relations",
            hop=hop,
            at="; ".join(map(self._identified, group.nodes)),
            options=options,
            meanings=tuple(relation_words(each.relation) for each in group.hops),
            most=most,
            prompt=relations_prompt(
                self._session.question,
                self._topic(group.subgraph),
                self._hint,
                list(map(self._around.name, group.nodes)),
                options,
                most,
            ),
            read=lambda reply: read_choice(reply, options, most, is_loose=True),
            temperature=self._settings.temperature,
        )

    def _choose_ends(self, ways: Sequence[Sequence[_Way]], hop: int) -> list[list[Walk]]:
        """Choose entities; return the walks of each subgraph that became longer."""
        self._around.fetch_tails((way.node, way.hop) for followed in ways for way in followed)
        offers, choices = [], []
        for number, followed in enumerate(ways):
            offered, hidden = self._offered(followed)
            offers.append(offered)
            choices.append(self._entities(number, followed, offered, hidden, hop))
        longer: list[list[Walk]] = [[] for _ in ways]
        picked = self._session.choose_all(choices)
        for number, each in enumerate(picked):
            nodes = list(offers[number])
            longer[number] = [
                walk.then(way.hop, nodes[at])
                for at in each.chosen
                for way in offers[number][nodes[at]]
                for walk in self.subgraphs[number].walks
                if walk.end == way.node
            ]
        return longer

    def _offered(self, ways: Sequence[_Way]) -> tuple[dict[Term, list[_Way]], int]:
        """Find the nodes that are offered, each with the ways to it, and how many are hidden."""
        offered: dict[Term, list[_Way]] = {}
        hidden = 0
        for way in ways:
            tails = self._around.tails(way.node, way.hop)
            nodes: Sequence[Term] = tails.terms
            if self._settings.mediators == "drop":
                self._around.names(nodes)
                nodes = [node for node in nodes if self._is_named_entity(node)]
            shown = self._ordered(nodes)[: self._settings.shown]
            hidden += len(tails.terms) + tails.hidden - len(shown)
            for node in shown:
                offered.setdefault(node, []).append(way)
        self._around.names(offered)
        return offered, hidden

    def _ordered(self, nodes: Sequence[Term]) -> Sequence[Term]:
        """Put the nodes that are most similar to the question first, if a setting says so."""
        if self._embedder is None or len(nodes) <= self._settings.shown:
            return nodes
        names = self._around.names(nodes)
        scores = self._embedder.similarity(self._session.question, [names[n] for n in nodes])
        return [nodes[at] for at in sorted(range(len(nodes)), key=lambda at: -round(scores[at], 6))]

    def _entities(
        self,
        number: int,
        ways: Sequence[_Way],
        offered: dict[Term, list[_Way]],
        hidden: int,
        hop: int,
    ) -> Choice:
        most = self._settings.entities
        options = tuple(map(self._around.name, offered))
        return Choice(
            kind="entities",
            hop=hop,
            at=self._identified(self.subgraphs[number].topic.mid or ""),
            options=options,
            # What the relation means, not the entity's name: vectors of names would have to be made
            # for each question, which took five times as long and found no more.
            meanings=tuple(relation_words(to[0].hop.relation) for to in offered.values()),
            most=most,
            prompt=entities_prompt(
                self._session.question,
                self._topic(number),
                self._hint,
                list(dict.fromkeys(written_hop(way.hop) for way in ways)),
                options,
                most,
            ),
            read=lambda reply: read_choice(reply, options, most),
            hidden=hidden,
            temperature=self._settings.temperature,
        )

    def _clip(self) -> int:
        """Keep `MAX_WALKS` walks a subgraph, the first to each end first; count the others."""
        kept = []
        for subgraph in self.subgraphs:
            rank: dict[Term, int] = {}
            ranked = []
            for walk in subgraph.walks:
                rank[walk.end] = rank.get(walk.end, 0) + 1
                ranked.append((rank[walk.end], walk))
            ranked.sort(key=lambda each: each[0])
            walks = {walk for _, walk in ranked[:MAX_WALKS]}
            kept.append(Subgraph(subgraph.topic, tuple(w for w in subgraph.walks if w in walks)))
        clipped = sum(len(subgraph.walks) for subgraph in self.subgraphs)
        self.subgraphs = tuple(kept)
        return clipped - sum(len(subgraph.walks) for subgraph in kept)

    def _is_named_entity(self, node: Term) -> bool:
        """Return whether the released code would keep a node."""
        is_mid = isinstance(node, str) and node.startswith("m.")
        return is_mid and not self._around.is_nameless(node)

    def _topic(self, number: int) -> str:
        return self._around.name(self.subgraphs[number].topic.mid or "")

    def _identified(self, node: Term) -> str:
        """Tell a node from others of its name."""
        name = self._around.name(node)
        return name if name == node or not isinstance(node, str) else f"{name} ({node})"


PATHS_TOKENS = 1024
"""Most tokens of the reply from memory, which lists triples."""

LIMITS: Mapping[str, object] = {
    "paths_tokens": PATHS_TOKENS,
    "max_walks": MAX_WALKS,
    "max_hints": MAX_HINTS,
    "max_hint_letters": MAX_HINT_LETTERS,
}
"""What decides the answers besides the settings, by name."""


def answer_question(
    session: Session, settings: KnowpathSettings, embedder: Embedder | None
) -> Answer:
    """Answer the question of a session as KnowPath does; raises as `Method.answer` does.

    Args:
        session: The question's.
        settings: How to explore.
        embedder: Orders entities; None for the order of their ids.
    """
    return _Question(session, settings).answer(embedder)


class _Question:
    """One question: what the model remembers of it, and how the exploration goes."""

    def __init__(self, session: Session, settings: KnowpathSettings) -> None:
        self._session, self._settings = session, settings
        self._thought = Thought()

    def answer(self, embedder: Embedder | None) -> Answer:
        """Ask for paths from memory, explore until the walks suffice, and answer."""
        session, ablated = self._session, self._settings.ablate
        if "paths" not in ablated:
            self._thought = self._remember()
        if "subgraph" in ablated:
            return self._fall_back("direct", stage="direct")
        hint = () if "hint" in ablated else self._thought.hint
        exploration = Exploration(session, self._settings, hint, embedder)
        stop: Stop = "depth"
        for hop in range(1, self._settings.depth + 1):
            if not exploration.go_on(hop):
                stop = exploration.why_ended
                break
            verdict = self._judge(exploration.walks, hop)
            if verdict.names:
                return session.finish(
                    exploration.walks,
                    "enough",
                    verdict.names,
                    details=self._details,
                    dead_ends=exploration.dead_ends,
                )
        walks = [*exploration.walks, *exploration.dead_ends]
        if session.has_language_model:
            return self._fall_back(stop, walks)
        return session.finish(walks, stop)

    def _remember(self) -> Thought:
        """Ask for an answer and its path from memory."""
        session = self._session
        prompt = paths_prompt(session.question, self._settings.triples)
        reply = session.ask("paths", prompt, max_tokens=PATHS_TOKENS)
        if reply is None:
            reply = session.ask("paths", prompt, max_tokens=PATHS_TOKENS, is_last=True)
        thought = Thought() if reply is None else read_thought(reply, session.question)
        session.not_understood(thought.unread)
        return thought

    def _judge(self, walks: Sequence[Walk], hop: int) -> Verdict:
        """Ask whether the walks answer the question, and how."""
        session, around = self._session, self._session.neighbourhood
        names = around.names(node for walk in walks for node in walk.nodes)
        paths = [written_path(walk, names.__getitem__) for walk in walks]
        prompt = check_prompt(session.question, paths)
        reply = session.ask("check", prompt, hop=hop)
        if reply is None and "paths" not in self._settings.ablate:
            # The last call is free for this, as falling back on what is remembered needs none.
            reply = session.ask("check", prompt, hop=hop, is_last=True)
        if reply is None:
            return Verdict()
        verdict = read_verdict(reply, session.question, list(dict.fromkeys(names.values())))
        session.not_understood(verdict.unread)
        return verdict

    def _fall_back(
        self, stop: Stop, walks: Sequence[Walk] = (), *, stage: str = "fallback"
    ) -> Answer:
        """Answer from memory: none of the walks proves it."""
        said: tuple[str, ...] | None = self._thought.names
        if "paths" in self._settings.ablate:
            said = answer_directly(self._session, reason=True)
        return self._session.finish(walks, stop, said, stage=stage, details=self._details)

    @property
    def _details(self) -> Mapping[str, object]:
        return {"hint": list(self._thought.hint), "remembered": list(self._thought.names)}


def _make(resources: Resources, settings: KnowpathSettings) -> WalkingMethod:
    """Make KnowPath ready to answer.

    Raises:
        InputError: Parts are left out that only a language model has.
        ModelError: A model is missing or broken.
        GraphError: The graph's schema cannot be read.
    """
    if settings.ablate:
        resources.require_language_model(f"ablate={','.join(settings.ablate)}")
    walkers = resources.walkers(settings.seed)
    embedder = walkers.load_embedder() if settings.order == "embedder" else None
    return WalkingMethod(
        "knowpath",
        walkers,
        {**asdict(settings), **LIMITS},
        lambda session: answer_question(session, settings, embedder),
    )


KNOWPATH = MethodMaker(KnowpathSettings, _make)
