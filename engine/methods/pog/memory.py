"""What Plan-on-Graph keeps in mind for one question: the plan, the memory, and where it has been.

Only a language model plans, remembers, judges and turns back; for others these steps cost nothing.

Source: Plan-on-Graph (Chen et al. 2024), §3.1, §3.3 and §3.4.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.answering import Said
from kbqa.engine.deciding.choice import Choice
from kbqa.engine.deciding.reading import read_choice
from kbqa.engine.deciding.session import Session
from kbqa.engine.deciding.verdicts import read_verdict
from kbqa.engine.exploring.walks import Walk, drawn_triple, triples_of
from kbqa.engine.methods.pog.prompts import (
    check_prompt,
    earlier_prompt,
    is_id,
    plan_prompt,
    read_add,
    read_memory,
    read_plan,
    reflect_prompt,
    remember_prompt,
)
from kbqa.engine.methods.pog.settings import PogSettings
from kbqa.sparql.terms import LiteralTerm, Term

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
        self.said: Said | None = None

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
        self.said = Said(names)
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
