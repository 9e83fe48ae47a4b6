"""Plan-on-Graph: a language model plans, walks with any width, remembers, and turns back.

First the question is broken into sub-objectives. In each hop every entity of the frontier asks once
which relations to follow, as few as possible, and every relation that leads to several entities
asks which of them are needed. Then the memory of what is known about each sub-objective is
rewritten, and it is asked whether memory and triples suffice. If not, entities that were met
earlier may be taken up again. If the graph leads no further, the answer is given from the triples;
after the deepest hop, without them (CoT).

Without a language model there is no plan, memory, judgement or reversal. The embedder takes the
three most similar relations and entities of each decision and continues the nine best walks of a
hop; chance draws as many.

Where the released program fails or cannot be repeated, this one differs:

- Entities taken up again may be any that were offered or reached; there only those of relations
  with over 70 entities could be, by an error of indentation. It is not asked after the last hop.
- Literals are known by their type, and not by the words time, number or date in a relation.
- Memory is kept with the question, and not in a file; replies are never evaluated as programs.
- A question that fails is a failed row, and does not leave the average.
- An entity that several triples lead to is explored once a hop. Many entities without a name are
  drawn by content, with a seed (`drawn_by_content`). Prompts hold no examples.

Source: Plan-on-Graph (Chen et al. 2024), §3, its appendix of prompts, whose words are ours here,
and its released code.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Message, ReplySampling
from kbqa.engine.deciding.choosing import Choice, numbered, written_prompt
from kbqa.engine.deciding.reading import (
    Picked,
    all_unread,
    clip_unread,
    field_of,
    is_no_answer,
    plain_lines,
    read_choice,
    read_list,
    read_record,
    read_verdict,
    read_yes,
)
from kbqa.engine.deciding.session import SEED, Session, Stop
from kbqa.engine.embedding.embedder import MINILM
from kbqa.engine.graph_walk import Walk, drawn_by_content, drawn_triple, first_to_each
from kbqa.engine.methods import (
    changed_settings,
    check_counts,
    check_temperature,
    walking_method,
)
from kbqa.engine.methods.walking import Followed, Offer, answer_from, walk_on
from kbqa.sparql.terms import LiteralTerm, Term, is_mid, term_order

PLAN = """\
Break the question into the sub-objectives by which it is answered from a knowledge graph. Reply \
with a JSON list of short phrases alone.

Question: {question}
"""

RELATIONS = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. `->` \
follows a relation forwards, `<-` backwards. Choose as few of the relations below as possible that \
lead from the entity towards the answer. Reply with a JSON list of them, or with [] if none does.

Question: {question}
Sub-objectives:
{objectives}
Entity: {entity}
Relations:
{relations}
"""

ENTITIES = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. The \
relation below leads from an entity to those that are listed. Choose as few of them as possible \
that are the answer or lead to it. Reply with a JSON list of their numbers, or with [] if none is.

Question: {question}
Sub-objectives:
{objectives}
Entity: {entity}
Relation: {relation}
Entities:
{entities}
"""

REMEMBER = """\
Keep a memory of what is known about each sub-objective of a question. Below are the memory so far \
and new triples of the Freebase knowledge graph. Reply with a JSON record alone: for the number of \
each sub-objective, what is known about it now, in a short sentence.

Question: {question}
Sub-objectives:
{objectives}
Memory:
{memory}
New triples:
{triples}
"""

CHECK = """\
Can the question be answered from the memory and the triples of the Freebase knowledge graph below \
and what you know? Reply with a JSON record alone, such as
{{"A": {{"Sufficient": "Yes", "Answer": ["a name", "another name"]}}, "R": "the reason"}}
with the names of all answers as in the triples, or with "No" and null if it cannot.

Question: {question}
Memory:
{memory}
Triples:
{triples}
"""

REFLECT = """\
A question is answered by walking the Freebase knowledge graph. What was found does not suffice \
yet. The walk goes on from the entities below. Should entities that were met earlier be added to \
them, because the walk went the wrong way? Reply with a JSON record alone, such as \
{{"Add": "No", "Reason": "the reason"}}

Question: {question}
Memory:
{memory}
Entities:
{entities}
"""

EARLIER = """\
A question is answered by walking the Freebase knowledge graph. What was found does not suffice \
yet. Choose as few as possible of the entities below, which were met earlier, to walk on from. \
Reply with a JSON list of their numbers, or with [] for none.

Question: {question}
Memory:
{memory}
Earlier entities:
{entities}
"""

ANSWER = """\
Answer the question from these triples of the Freebase knowledge graph and what you know. Reply \
with the names of all answers alone, one a line, as in the triples, or with NONE if there is none.

Question: {question}
Memory:
{memory}
Triples:
{triples}
"""


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
        tuple[Literal["plan", "memory", "reflection"], ...],
        "Parts that are left out: the sub-objectives, the memory, or the reversals.",
    ] = ()
    seed: Annotated[int, "Seed of everything drawn by chance."] = SEED

    def __post_init__(self) -> None:
        check_counts(self, "depth", "shown", "nameless")
        check_counts(self, "reversals", least=0)
        check_temperature(self.temperature)


MAX_OBJECTIVES = 8
MAX_OBJECTIVE_LETTERS = 200
MAX_MEMORY_LETTERS = 2000
"""Sub-objectives that count, the letters of each, and those of what is remembered about one."""

REPLY_TOKENS = 1024
"""Most tokens of a reply."""

CHOSEN_RELATIONS = 3
CHOSEN_ENTITIES = 3
KEPT_WALKS = 9
"""Limits of the embedder and chance: options of each decision, and walks that they continue."""

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


class _PlanOnGraph:
    """The plan, the walks and the memory of one question."""

    def __init__(self, session: Session, settings: PogSettings) -> None:
        self._session, self._settings = session, settings
        self._around = session.neighbourhood
        self._objectives: tuple[str, ...] = ()
        self._memory: tuple[str, ...] = ("",)  # of each objective, or of the question without any
        self._walks: dict[Walk, None] = {}
        self._met: dict[Term, Walk] = {}
        self._reversals = 0
        self._said: tuple[str, ...] = ()
        self._sampling: ReplySampling = {
            "max_tokens": REPLY_TOKENS,
            "temperature": settings.temperature,
        }

    def answer(self) -> Answer:
        """Plan, walk until memory and triples suffice, then answer from them."""
        stop, walks = self._walk(), list(self._walks)
        prompt = self._prompt(ANSWER, triples=listed(self._session.drawn_triples(walks)))
        details = {
            "objectives": list(self._objectives),
            "memory": [text for text in self._memory if text],
            "reversals": self._reversals,
        }
        said, sampling = self._said, self._sampling
        return answer_from(self._session, walks, stop, said, prompt, details, **sampling)

    def _walk(self) -> Stop:
        """Walk, and return why walking ended."""
        budget, depth = self._session.asked.budget, self._settings.depth
        frontier = first_to_each(map(Walk, self._session.topics))
        self._meet(frontier)
        if frontier:
            self._plan()
        for hop in range(1, depth + 1):
            longer = [walk for walk in self._longer(frontier, hop) if walk not in self._walks]
            self._walks.update(dict.fromkeys(longer))
            if budget.is_exhausted:
                return "budget"
            if not longer:
                return "nothing"
            self._remember(longer, hop)
            if self._is_enough(hop):
                return "enough"
            frontier = first_to_each(longer)
            if hop < depth:
                frontier = first_to_each([*frontier, *self._turn_back(frontier, hop)])
            if budget.is_exhausted:
                return "budget"
        return "depth"

    def _plan(self) -> None:
        """Break the question into sub-objectives (§3.1)."""
        if "plan" in self._settings.ablate:
            return
        reply = self._ask("plan", written_prompt(PLAN, question=self._session.question))
        if reply is None:
            return
        self._objectives = read_plan(reply)
        self._memory = ("",) * max(len(self._objectives), 1)
        if not self._objectives:
            self._session.not_understood(["(empty)"])

    def _longer(self, walks: Sequence[Walk], hop: int) -> list[Walk]:
        """Continue walks by a hop: relations are chosen, then the entities that they lead to."""
        session, more = self._session, {"objectives": listed(self._objectives)}
        read, loosely = read_choice, partial(read_choice, is_loose=True)
        offer = partial(Offer, more=lambda _: more, sampling=self._sampling)
        relations = offer(RELATIONS, loosely, CHOSEN_RELATIONS)
        entities = offer(ENTITIES, read, CHOSEN_ENTITIES)
        longer = walk_on(session, walks, hop, relations, self._leading_to, entities)
        if session.has_language_model:
            return [walk for walk, _ in longer]
        best = sorted(longer, key=lambda each: -round(each[1], 6))
        session.clipped(max(len(best) - KEPT_WALKS, 0))
        return [walk for walk, _ in best[:KEPT_WALKS]]

    def _leading_to(self, followed: Sequence[Followed]) -> list[Followed]:
        """Find where relations lead; what they lead to may be taken up again later."""
        found = [each for each in map(self._some, followed) if each.nodes]
        self._meet(each.walk.then(each.hop, node) for each in found for node in each.nodes)
        return found

    def _some(self, followed: Followed) -> Followed:
        """Look up what a relation leads to, and whether there is something to decide."""
        settings, (walk, hop) = self._settings, followed[:2]
        nodes, hidden = self._around.tails(walk.end, hop)
        names = self._around.names(nodes)
        shown, is_offered = nodes, False
        if all(isinstance(node, LiteralTerm) for node in nodes) or len(nodes) == 1:
            pass
        elif all(map(self._around.is_nameless, nodes)):
            if len(nodes) > settings.nameless:
                question, most = self._session.question, settings.nameless
                shown = drawn_by_content(nodes, most, settings.seed, question, walk.end, hop)
        else:
            is_offered = True
            shown = tuple(sorted(nodes, key=lambda node: (names[node], term_order(node))))
            if not self._session.is_random:
                kept = self._session.most_similar([names[n] for n in shown], settings.shown)
                shown = tuple(shown[at] for at in kept)
        taken = None if is_offered else Picked(tuple(range(len(shown))))
        hidden += len(nodes) - len(shown)
        return followed._replace(nodes=shown, hidden=hidden, taken=taken)

    def _meet(self, walks: Iterable[Walk]) -> None:
        """Note entities that may be taken up again, each with the first walk to it."""
        for walk in walks:
            if not isinstance(walk.end, LiteralTerm):
                self._met.setdefault(walk.end, walk)

    def _remember(self, walks: Sequence[Walk], hop: int) -> None:
        """Rewrite the memory by the triples of a hop (§3.3)."""
        if "memory" in self._settings.ablate:
            return
        objectives = self._objectives or (self._session.question,)
        triples = [drawn_triple(walk.steps[-1], self._around.name) for walk in walks]
        prompt = self._prompt(
            REMEMBER, objectives=numbered(objectives), triples=listed(list(dict.fromkeys(triples)))
        )
        reply = self._ask("remember", prompt, hop)
        if reply is not None:
            self._memory, unread = read_memory(reply, objectives, self._memory)
            self._session.not_understood(unread)

    def _is_enough(self, hop: int) -> bool:
        """Ask whether memory and triples suffice; an answer that is none or an id does not."""
        prompt = self._prompt(CHECK, triples=listed(self._session.drawn_triples(self._walks)))
        reply = self._ask("check", prompt, hop)
        if reply is None:
            return False
        verdict = read_verdict(reply, self._session.names_on(self._walks))
        self._session.not_understood(verdict.unread)
        names = tuple(name for name in verdict.names if not is_mid(name))
        if not (verdict.is_enough and names):
            return False
        self._said = names
        return True

    def _turn_back(self, frontier: Sequence[Walk], hop: int) -> list[Walk]:
        """Ask whether to take up earlier entities again, and then which (§3.4)."""
        session, settings, name = self._session, self._settings, self._around.name
        if "reflection" in settings.ablate or self._reversals >= settings.reversals:
            return []
        ends = {walk.end for walk in frontier}
        earlier = [walk for node, walk in self._met.items() if node not in ends]
        if not earlier:
            return []
        prompt = self._prompt(REFLECT, entities=listed([name(walk.end) for walk in frontier]))
        reply = self._ask("reflect", prompt, hop)
        if reply is None:
            return []
        adds, unread = read_add(reply)
        session.not_understood(unread)
        if not adds:
            return []
        self._reversals += 1
        self._around.names(walk.end for walk in earlier)
        everything = [name(walk.end) for walk in earlier]
        kept = session.most_similar(everything, settings.shown)
        options = tuple(everything[at] for at in kept)
        picked = session.choose(
            Choice(
                kind="reflect",
                hop=hop,
                at="",
                options=options,
                most=len(options),
                prompt=self._prompt(EARLIER, entities=numbered(options)),
                read=read_choice,
                hidden=len(everything) - len(options),
                sampling=self._sampling,
            )
        )
        return [earlier[kept[at]] for at in picked.chosen] if picked is not None else []

    def _prompt(self, template: str, **fields: str) -> tuple[Message, ...]:
        """Fill in a template; those about what is known show the memory."""
        question, memory = self._session.question, listed(self._memory)
        return written_prompt(template, question=question, memory=memory, **fields)

    def _ask(self, kind: str, prompt: tuple[Message, ...], hop: int = 0) -> str | None:
        return self._session.ask(kind, prompt, hop=hop, **self._sampling)


def listed(texts: Sequence[str]) -> str:
    """Write texts one a line; those that are empty are left out."""
    return "\n".join(f"- {text}" for text in texts if text) or "(none)"


def read_plan(reply: str) -> tuple[str, ...]:
    """Read sub-objectives: a list, or one a line."""
    found = read_list(reply)
    texts = plain_lines(reply) if found is None else found
    kept = dict.fromkeys(" ".join(text.split())[:MAX_OBJECTIVE_LETTERS] for text in texts)
    return tuple(text for text in kept if not is_no_answer(text))[:MAX_OBJECTIVES]


def read_memory(
    reply: str, objectives: Sequence[str], memory: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read what is now known about each sub-objective, and the unread parts.

    Memory that the reply leaves out stays.
    """
    record = read_record(reply)
    if record is None:
        return tuple(memory), all_unread(reply)
    known = list(memory)
    unread = []
    keys = {" ".join(each.lower().split()): at for at, each in enumerate(objectives)}
    keys |= {str(at): at - 1 for at in range(1, len(objectives) + 1)}
    for name, text in record.items():
        at = keys.get(" ".join(name.lower().split()).strip(".# "))
        if at is None:
            unread.append(f"{name}: {text}")
        elif text is not None:
            known[at] = " ".join(str(text).split())[:MAX_MEMORY_LETTERS]
    return tuple(known), clip_unread(unread)


def read_add(reply: str) -> tuple[bool, tuple[str, ...]]:
    """Read whether earlier entities should be added, and the unread parts."""
    said = field_of(read_record(reply), "add")
    text = reply if said is None else str(said)
    is_clear = read_yes(text) or re.match(r"\W*(?:no|false)\b", text, re.IGNORECASE) is not None
    return read_yes(text), () if is_clear else all_unread(reply)


POG = walking_method(
    "pog",
    PogSettings,
    LIMITS,
    lambda session, chosen: _PlanOnGraph(session, chosen).answer(),
    needs_model=lambda chosen: changed_settings(chosen, ["ablate"]),
)
