"""Plan-on-Graph: a language model plans, walks with any width, remembers, and turns back.

First the question is broken into sub-objectives. In each hop every entity of the frontier asks once
which relations to follow, as few as possible, and every relation that leads to several entities
asks which of them are needed. Then the memory of what is known about each sub-objective is
rewritten, and it is asked whether memory and triples suffice. If not, entities that were met
earlier may be taken up again (`kbqa.engine.methods.pog`). If the graph leads no further, the
answer is given from the triples; after the deepest hop, without them (CoT).

Without a language model there is no plan, memory, judgement or reversal. The embedder takes the
three most similar relations and entities of each decision and goes on from the nine best walks
of a hop; chance draws as many.

Where the released program fails or cannot be repeated, this one differs:

- Entities taken up again may be any that were offered or reached; there only those of relations
  with over 70 entities could be, by an error of indentation. It is not asked after the last hop.
- Literals are known by their type, and not by the words time, number or date in a relation.
- Memory is kept with the question, and not in a file; replies are never evaluated as programs.
- A question that fails is a failed row, and does not leave the average.
- An entity that several triples lead to is explored once a hop. Many entities without a name are
  drawn by content, with a seed (`drawn_by_content`). Prompts hold no examples.

Source: Plan-on-Graph (Chen et al. 2024), §3, and its released code.

What Plan-on-Graph keeps in mind for one question: the plan, the memory, and where it has been.

Only a language model plans, remembers, judges and turns back; for others these steps cost nothing.

Source: Plan-on-Graph (Chen et al. 2024), §3.1, §3.3 and §3.4.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.choosing import Choice
from kbqa.engine.deciding.reading import read_choice, read_names, read_verdict
from kbqa.engine.deciding.session import SEED, Session, Step, Stop
from kbqa.engine.embedding.bert import MINILM
from kbqa.engine.graph_walk import (
    Walk,
    arrow,
    drawn_by_content,
    drawn_triple,
    first_to_each,
    hops_onward,
    triples_of,
)
from kbqa.engine.methods.direct import answer_directly
from kbqa.engine.methods.options import check_counts, check_temperature, walking_method
from kbqa.engine.methods.pog_prompts import (
    MAX_MEMORY_LETTERS,
    MAX_OBJECTIVE_LETTERS,
    MAX_OBJECTIVES,
    answer_prompt,
    check_prompt,
    earlier_prompt,
    entities_prompt,
    is_id,
    plan_prompt,
    read_add,
    read_memory,
    read_plan,
    reflect_prompt,
    relations_prompt,
    remember_prompt,
)
from kbqa.sparql.crp import Hop
from kbqa.sparql.english import relation_words
from kbqa.sparql.terms import LiteralTerm, Term, term_order

Part = Literal["plan", "memory", "reflection"]


@dataclass(frozen=True, slots=True)
class PogSettings:
    """How Plan-on-Graph answers; each setting says its meaning."""

    depth: Annotated[int, "Hops, at most."] = 4
    temperature: Annotated[float, "Of all replies."] = 0.3
    shown: Annotated[
        int, "Entities offered at once; of more, those most similar to the question are."
    ] = 70
    nameless: Annotated[
        int, "Entities drawn of a relation that leads to more of them, none with a name."
    ] = 10
    reversals: Annotated[int, "Times that earlier entities may be taken up again."] = 5
    ablate: Annotated[
        tuple[Part, ...],
        "Parts that are left out: the sub-objectives, the memory, or the reversals.",
    ] = ()
    seed: Annotated[int, "Seed of everything drawn by chance."] = SEED

    def __post_init__(self) -> None:
        check_counts(self, "depth", "shown", "nameless")
        check_counts(self, "reversals", least=0)
        check_temperature(self.temperature)


REPLY_TOKENS = 1024
"""Most tokens of a reply."""


class Mind:
    """The plan, the memory and the entities met of one question; used by one thread.

    Attributes:
        objectives: The sub-objectives; none if there is no plan.
        memory: What is known about each of them, or about the question if there are none.
        said: The answers, once what is known suffices.
    """

    def __init__(self, session: Session, settings: PogSettings) -> None:
        self._session, self._settings = session, settings
        self._around = session.neighbourhood
        self._met: dict[Term, Walk] = {}
        self._reversals = 0
        self.objectives: tuple[str, ...] = ()
        self.memory: tuple[str, ...] = ("",)
        self.said: tuple[str, ...] | None = None

    def plan(self) -> None:
        """Break the question into sub-objectives."""
        if "plan" in self._settings.ablate:
            return
        reply = self._ask("plan", plan_prompt(self._session.question))
        if reply is None:
            return
        self.objectives = read_plan(reply)
        self.memory = ("",) * max(len(self.objectives), 1)
        if not self.objectives:
            self._session.not_understood(["(empty)"])

    def meet(self, walks: Iterable[Walk]) -> None:
        """Note entities that may be taken up again, each with the first walk to it."""
        for walk in walks:
            if not isinstance(walk.end, LiteralTerm):
                self._met.setdefault(walk.end, walk)

    def remember(self, walks: Sequence[Walk], hop: int) -> None:
        """Rewrite the memory by the triples of a hop."""
        if "memory" in self._settings.ablate:
            return
        objectives = self.objectives or (self._session.question,)
        triples = [drawn_triple(walk.steps[-1], self._around.name) for walk in walks]
        prompt = remember_prompt(
            self._session.question, objectives, self.memory, list(dict.fromkeys(triples))
        )
        reply = self._ask("remember", prompt, hop)
        if reply is not None:
            self.memory, unread = read_memory(reply, objectives, self.memory)
            self._session.not_understood(unread)

    def is_enough(self, walks: Sequence[Walk], hop: int) -> bool:
        """Ask whether memory and triples suffice; an answer that is none or an id does not."""
        prompt = check_prompt(self._session.question, self.memory, self.triples(walks))
        reply = self._ask("check", prompt, hop)
        if reply is None:
            return False
        verdict = read_verdict(reply, self.known(walks))
        self._session.not_understood(verdict.unread)
        names = tuple(name for name in verdict.names if not is_id(name))
        if not (verdict.is_enough and names):
            return False
        self.said = names
        return True

    def turn_back(self, frontier: Sequence[Walk], hop: int) -> list[Walk]:
        """Ask whether to take up earlier entities again, and then which.

        Returns:
            The walks to those that are not in the frontier yet.
        """
        settings, question = self._settings, self._session.question
        if "reflection" in settings.ablate or self._reversals >= settings.reversals:
            return []
        ends = {walk.end for walk in frontier}
        earlier = [walk for node, walk in self._met.items() if node not in ends]
        if not earlier:
            return []
        names = [self._around.name(walk.end) for walk in frontier]
        reply = self._ask("reflect", reflect_prompt(question, self.memory, names), hop)
        if reply is None:
            return []
        adds, unread = read_add(reply)
        self._session.not_understood(unread)
        if not adds:
            return []
        self._reversals += 1
        self._around.names(walk.end for walk in earlier)
        everything = [self._around.name(walk.end) for walk in earlier]
        kept = self._session.most_similar(everything, settings.shown)
        options = tuple(everything[at] for at in kept)
        picked = self._session.choose(
            Choice(
                kind="reflect",
                hop=hop,
                at="",
                options=options,
                meanings=options,
                most=len(options),
                prompt=earlier_prompt(question, self.memory, options),
                read=lambda reply: read_choice(reply, options, len(options)),
                hidden=len(everything) - len(options),
                max_tokens=REPLY_TOKENS,
                temperature=settings.temperature,
            )
        )
        return [earlier[kept[at]] for at in picked.chosen] if picked is not None else []

    def triples(self, walks: Sequence[Walk]) -> list[str]:
        """Draw the triples of walks."""
        return [drawn_triple(step, self._around.name) for step in triples_of(walks)]

    def known(self, walks: Sequence[Walk]) -> list[str]:
        """Return the names of the nodes of walks."""
        return [self._around.name(node) for walk in walks for node in walk.nodes]

    def details(self) -> Mapping[str, Any]:
        """Return what only this method records."""
        return {
            "objectives": list(self.objectives),
            "memory": [text for text in self.memory if text],
            "reversals": self._reversals,
        }

    def _ask(self, kind: str, prompt: tuple[Message, ...], hop: int = 0) -> str | None:
        return self._session.ask(
            kind,
            prompt,
            hop=hop,
            max_tokens=REPLY_TOKENS,
            temperature=self._settings.temperature,
        )


CHOSEN_RELATIONS = 3
CHOSEN_ENTITIES = 3
KEPT_WALKS = 9
"""What the embedder and chance take of each decision, and walks that they go on from."""

LIMITS: Mapping[str, object] = {
    "objectives": MAX_OBJECTIVES,
    "objective_letters": MAX_OBJECTIVE_LETTERS,
    "memory_letters": MAX_MEMORY_LETTERS,
    "reply_tokens": REPLY_TOKENS,
    "similarity_by": MINILM,
    "chosen_relations": CHOSEN_RELATIONS,
    "chosen_entities": CHOSEN_ENTITIES,
    "kept_walks": KEPT_WALKS,
}
"""What decides the answers besides the settings, by name."""


class Offer(NamedTuple):
    """A relation that is followed from the end of a walk, its score, and where it leads."""

    walk: Walk
    hop: Hop
    score: float
    nodes: tuple[Term, ...]
    hidden: int
    is_decided: bool


def answer_question(session: Session, settings: PogSettings) -> Answer:
    """Answer the question of a session as Plan-on-Graph does; raises as `Method.answer` does."""
    return _Question(session, settings).answer()


class _Question:
    """The walks of one question."""

    def __init__(self, session: Session, settings: PogSettings) -> None:
        self._session, self._settings = session, settings
        self._around = session.neighbourhood
        self._mind = Mind(session, settings)
        self._walks: dict[Walk, None] = {}

    def answer(self) -> Answer:
        """Plan, walk until what is known suffices, then answer from it."""
        stop = self._walk()
        said, stage = self._mind.said, "explored"
        if said is None and self._walks and stop != "depth":
            said = self._said_from_triples()
        elif said is None:
            temperature = self._settings.temperature
            said = answer_directly(
                self._session, reason=True, max_tokens=REPLY_TOKENS, temperature=temperature
            )
            stage = "fallback" if self._session.has_language_model else stage
        details = self._mind.details()
        return self._session.finish(list(self._walks), stop, said, stage=stage, details=details)

    def _walk(self) -> Stop:
        """Walk, and return why walking ended."""
        budget = self._session.asked.budget
        frontier = first_to_each(map(Walk, self._session.topics))
        self._mind.meet(frontier)
        if frontier:
            self._mind.plan()
        for hop in range(1, self._settings.depth + 1):
            longer = [walk for walk in self._longer(frontier, hop) if walk not in self._walks]
            self._walks.update(dict.fromkeys(longer))
            if budget.is_exhausted:
                return "budget"
            if not longer:
                return "nothing"
            self._mind.remember(longer, hop)
            if self._mind.is_enough(list(self._walks), hop):
                return "enough"
            frontier = first_to_each(longer)
            if hop < self._settings.depth:
                frontier = first_to_each([*frontier, *self._mind.turn_back(frontier, hop)])
            if budget.is_exhausted:
                return "budget"
        return "depth"

    def _longer(self, walks: Sequence[Walk], hop: int) -> list[Walk]:
        """Continue walks by a hop: relations are chosen, then the entities that they lead to."""
        offers = self._offers(walks, hop)
        undecided = [each for each in offers if each.is_decided]
        for each in offers:
            if not each.is_decided:
                self._note(each, hop)
        decided = self._session.choose_all([self._entities(each, hop) for each in undecided])
        chosen = dict(zip(map(id, undecided), decided, strict=False))
        longer: list[tuple[float, Walk]] = []
        for each in offers:
            taken, scores = tuple(range(len(each.nodes))), (1.0,) * len(each.nodes)
            if each.is_decided:
                picked = chosen.get(id(each))
                taken, scores = (picked.chosen, picked.scores) if picked is not None else ((), ())
            scores = scores or (1.0,) * len(taken)
            for at, score in zip(taken, scores, strict=True):
                longer.append((each.score * score, each.walk.then(each.hop, each.nodes[at])))
            self._mind.meet(each.walk.then(each.hop, node) for node in each.nodes)
        if self._session.has_language_model:
            return [walk for _, walk in longer]
        best = sorted(longer, key=lambda each: -round(each[0], 6))
        self._session.clipped(max(len(best) - KEPT_WALKS, 0))
        return [walk for _, walk in best[:KEPT_WALKS]]

    def _offers(self, walks: Sequence[Walk], hop: int) -> list[Offer]:
        """Have relations chosen for each walk; those that lead nowhere are left out."""
        self._around.fetch_hops(walk.end for walk in walks)
        hops = [hops_onward(self._around, walk) for walk in walks]
        self._around.names(node for walk in walks for node in walk.nodes)
        choices = [self._relations(*each, hop) for each in zip(walks, hops, strict=True)]
        decided = self._session.choose_all(choices)
        chosen = [
            (walk, offered[option], score)
            for walk, offered, picked in zip(walks, hops, decided, strict=False)
            for option, score in zip(
                picked.chosen, picked.scores or (1.0,) * len(picked.chosen), strict=True
            )
        ]
        self._around.fetch_tails((walk.end, hop) for walk, hop, _ in chosen)
        offers = (self._offer(*each) for each in chosen)
        return [each for each in offers if each.nodes]

    def _offer(self, walk: Walk, hop: Hop, score: float) -> Offer:
        """Look up where a relation leads, and whether there is something to decide."""
        nodes, hidden = self._around.tails(walk.end, hop)
        names = self._around.names(nodes)
        is_decided = False
        shown = nodes
        if all(isinstance(node, LiteralTerm) for node in nodes) or len(nodes) == 1:
            pass
        elif all(map(self._around.is_nameless, nodes)):
            most, seed = self._settings.nameless, self._settings.seed
            if len(nodes) > most:
                question = self._session.question
                shown = drawn_by_content(nodes, most, seed, question, walk.end, hop)
        else:
            is_decided = True
            shown = tuple(sorted(nodes, key=lambda node: (names[node], term_order(node))))
            if not self._session.is_random:
                kept = self._session.most_similar([names[n] for n in shown], self._settings.shown)
                shown = tuple(shown[at] for at in kept)
        return Offer(walk, hop, score, shown, hidden + len(nodes) - len(shown), is_decided)

    def _note(self, offer: Offer, hop: int) -> None:
        """Record nodes that are all taken without a decision."""
        names = tuple(map(self._around.name, offer.nodes))
        at = self._drawn(offer)
        self._session.steps.append(
            Step("entities", hop, at, names, offer.hidden, names, is_decision=False)
        )

    def _relations(self, walk: Walk, hops: Sequence[Hop], hop: int) -> Choice:
        options = tuple(f"{arrow(each)} {each.relation}" for each in hops)
        entity = self._around.name(walk.end)
        return Choice(
            kind="relations",
            hop=hop,
            at=self._session.drawn(walk),
            options=options,
            meanings=tuple(relation_words(each.relation) for each in hops),
            most=CHOSEN_RELATIONS,
            prompt=relations_prompt(self._session.question, self._mind.objectives, entity, options),
            read=lambda reply: read_choice(reply, options, len(options), is_loose=True),
            max_tokens=REPLY_TOKENS,
            temperature=self._settings.temperature,
        )

    def _entities(self, offer: Offer, hop: int) -> Choice:
        options = tuple(map(self._around.name, offer.nodes))
        entity = self._around.name(offer.walk.end)
        relation = f"{arrow(offer.hop)} {offer.hop.relation}"
        return Choice(
            kind="entities",
            hop=hop,
            at=self._drawn(offer),
            options=options,
            meanings=options,
            most=CHOSEN_ENTITIES,
            prompt=entities_prompt(
                self._session.question, self._mind.objectives, entity, relation, options
            ),
            read=lambda reply: read_choice(reply, options, len(options)),
            hidden=offer.hidden,
            max_tokens=REPLY_TOKENS,
            temperature=self._settings.temperature,
        )

    def _drawn(self, offer: Offer) -> str:
        return f"{self._session.drawn(offer.walk)} {arrow(offer.hop)} {offer.hop.relation}"

    def _said_from_triples(self) -> tuple[str, ...] | None:
        walks = list(self._walks)
        triples = self._mind.triples(walks)
        prompt = answer_prompt(self._session.question, self._mind.memory, triples)
        temperature = self._settings.temperature
        reply = self._session.ask(
            "answer", prompt, max_tokens=REPLY_TOKENS, temperature=temperature, is_last=True
        )
        if reply is None:
            return None
        names, unread = read_names(reply, self._mind.known(walks))
        self._session.not_understood(unread)
        return tuple(names)


POG = walking_method(
    "pog",
    PogSettings,
    LIMITS,
    answer_question,
    lambda settings: f"ablate={','.join(settings.ablate)}" if settings.ablate else None,
)
