"""Bounded Path Context: beam search in which each decision sees only the last K hops of its path.

In each hop every open walk asks once which relations to follow from where it stands. All prompts of
a hop are sent together. Nothing scores walks: the first ones stay if there are too many. At the end
one prompt asks for the answers, from the first walks, and does not depend on K.

Without a language model, the embedder takes the relations most similar to the question, chance any;
neither ever stops before the deepest hop, and neither checks whether walks suffice.

The paper leaves open the order of nodes and relations, here by id and name, without bookkeeping
relations, and the form of answers, here one a line.

Source: Bounded Path Context, §3, algorithm 1, and appendices A and G; the words of the prompts are
ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated, Literal, NamedTuple

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.choosing import numbered, written_prompt
from kbqa.engine.deciding.reading import read_choice, read_yes
from kbqa.engine.deciding.session import SEED, Session, Stop
from kbqa.engine.graph_walk import Directions, Walk, drawn_hop, drawn_step
from kbqa.engine.methods import changed_settings, check_counts, walking_method
from kbqa.engine.methods.direct import answer_directly
from kbqa.engine.methods.walking import Followed, Offer, choose_relations
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import Term

RELATIONS = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. Choose \
at most {width} of the relations below that lead from the current entity towards the answer. Reply \
with their names alone, one a line, the best first. If the current entity answers the question, or \
no relation leads on, reply with STOP.

Question: {question}
History: {history}
Current entity: {entity}
Relations:
{relations}
"""

ENTITIES = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. The \
relation below leads to several entities. Choose at most {width} of them that lead towards the \
answer. Reply with their names alone, one a line, the best first, or with NONE if none does.

Question: {question}
History: {history}
Current entity: {entity}
Relation: {relation}
Entities:
{entities}
"""

CHECK = """\
Below are paths of the Freebase knowledge graph. `->` follows a relation forwards, `<-` backwards. \
Can the question be answered from them? Reply with YES or NO alone.

Question: {question}
Paths:
{paths}
"""

ANSWER = """\
Answer the question from these paths of the Freebase knowledge graph. `->` follows a relation \
forwards, `<-` backwards. Reply with the names of all answers alone, one a line, written as in the \
paths, or with NONE if they hold no answer.

Question: {question}
Paths:
{paths}
"""


Marker = Literal["neutral", "start"]
TailsBy = Literal["first", "choose"]
Control = Literal["none", "random", "tog", "cot"]

_OF_HISTORY = ("history", "marker", "hop_numbers")
_OF_MODEL = (*_OF_HISTORY, "answer_paths", "check")
"""Settings that only a language model heeds."""

_OF_WALKS = ("depth", "width", "relation_cap", "beams", "directions", "keep", "tails")
_IGNORED: Mapping[Control, Sequence[str]] = {
    "none": (),
    "random": (*_OF_HISTORY, "tails"),
    "tog": ("history",),
    "cot": (*_OF_MODEL, *_OF_WALKS),
}
"""Settings that a control does not heed."""


@dataclass(frozen=True, slots=True)
class BpcSettings:
    """How Bounded Path Context answers; each setting says its meaning."""

    history: Annotated[
        Literal["full"] | int,
        "Hops of a walk's past that the model sees when it chooses the next relations.",
    ] = 1
    depth: Annotated[int, "Hops of a walk, at most."] = 5
    width: Annotated[int, "Relations chosen for a walk, and nodes taken of each, at most."] = 3
    relation_cap: Annotated[int, "Relations of a node that are offered, at most."] = 50
    beams: Annotated[int, "Walks kept after each hop."] = 16
    answer_paths: Annotated[int, "Walks that the model sees when it answers."] = 8
    directions: Annotated[
        Directions, "Follow relations forwards only, as the paper does, or also backwards."
    ] = "out"
    marker: Annotated[
        Marker,
        "What stands where no history is shown: a neutral note, or the released code's claim that "
        "reasoning starts here, which is wrong after the first hop.",
    ] = "neutral"
    hop_numbers: Annotated[
        bool, "Number the hops of the history, as the released code does; this tells the depth."
    ] = False
    keep: Annotated[
        Literal["open", "finished"],
        "Walks that stay when there are too many: open ones, as in the paper, or finished.",
    ] = "open"
    control: Annotated[
        Control,
        "Run a control of the paper instead: random walks, its variant of Think-on-Graph "
        "(full history, chosen nodes, a check after each hop), or cot, an answer without the "
        "graph, which the released code, unlike --method cot, asks for without reasoning.",
    ] = "none"
    tails: Annotated[
        TailsBy | None,
        "Take the first nodes of a relation, or let the model choose. By default choose with "
        "control=tog, else first.",
    ] = None
    check: Annotated[
        bool | None,
        "Ask after each hop whether the walks suffice. By default yes with control=tog, else no.",
    ] = None
    seed: Annotated[int, "Seed of everything drawn by chance."] = SEED

    def __post_init__(self) -> None:
        check_counts(self, "depth", "width", "relation_cap", "beams", "answer_paths")
        if self.history != "full" and self.history < 0:
            raise InputError(f"history is {self.history}: use 0 or more, or full")
        if ignored := changed_settings(self, _IGNORED[self.control]):
            raise InputError(f"control={self.control} does not use {ignored}: leave it out")

    @property
    def shown_hops(self) -> int:
        """How many hops of history are shown."""
        if self.control == "tog" or self.history == "full":
            return self.depth
        return self.history

    @property
    def tails_by(self) -> TailsBy:
        """Who takes the nodes of a relation."""
        return self.tails or ("choose" if self.control == "tog" else "first")

    @property
    def is_checked(self) -> bool:
        """Whether it is asked after each hop whether the walks suffice."""
        return self.control == "tog" if self.check is None else self.check


SELECTION_TOKENS = 64
ANSWER_TOKENS = 512
"""Most tokens of a reply: a choice, and the answers, of which there may be many."""

CHECKED_PATHS = 8
SHOWN_ENTITIES = 30
"""Walks and entities that the paper's variant of Think-on-Graph shows at once."""

LIMITS: Mapping[str, object] = {
    "selection_tokens": SELECTION_TOKENS,
    "answer_tokens": ANSWER_TOKENS,
    "checked_paths": CHECKED_PATHS,
    "shown_entities": SHOWN_ENTITIES,
}


class Beams(NamedTuple):
    """The walks after a hop; finished ones are not continued."""

    open: tuple[Walk, ...]
    finished: tuple[Walk, ...] = ()


class _BoundedPathContext:
    """The walks of one question."""

    def __init__(self, session: Session, settings: BpcSettings) -> None:
        self._session, self._settings = session, settings
        self._around = session.neighbourhood
        self._tails_hidden = 0
        self._is_clipped = False
        width, history = settings.width, lambda walk: {"history": self._history(walk)}
        offer = partial(
            Offer,
            most=width,
            directions=settings.directions,
            more=history,
            sampling={"max_tokens": SELECTION_TOKENS},
        )
        loosely = partial(read_choice, most=width, is_loose=True)
        self._relations = offer(RELATIONS, loosely, shown=settings.relation_cap)
        self._entities = offer(ENTITIES, partial(read_choice, most=width))

    def answer(self) -> Answer:
        """Walk, then ask for the answers."""
        session, settings = self._session, self._settings
        if settings.control == "cot":
            said = answer_directly(session, "answer", reason=False)
            return session.finish((), "direct", said, stage="direct")
        beams, stop = self._walk()
        ended = [*beams.finished, *beams.open]
        if self._is_clipped and settings.keep == "open":
            ended = [*beams.open, *beams.finished]
        said, walks = None, [walk for walk in ended if walk.steps]
        if session.has_language_model:
            walks = walks[: settings.answer_paths]
            self._around.names(node for walk in walks for node in walk.nodes)
            prompt = self._prompt(ANSWER, walks)
            said = session.ask_names(prompt, session.names_on(walks), max_tokens=ANSWER_TOKENS)
        details = {"tails_hidden": self._tails_hidden, "walks_not_shown": len(ended) - len(walks)}
        return session.finish(walks, stop, said, details=details)

    def _walk(self) -> tuple[Beams, Stop]:
        """Return the walks at the end, and why they end there."""
        settings, session = self._settings, self._session
        beams = Beams(tuple(map(Walk, session.topics)))
        for hop in range(1, settings.depth + 1):
            beams = self._next(beams, hop)
            if session.asked.budget.is_exhausted:
                return beams, "budget"
            if not beams.open:
                return beams, "stopped" if any(w.steps for w in beams.finished) else "nothing"
            if settings.is_checked and hop < settings.depth and self._is_enough(beams, hop):
                return beams, "enough"
        return beams, "depth"

    def _next(self, beams: Beams, hop: int) -> Beams:
        """Continue each open walk by the relations chosen for it, and keep the first walks."""
        around, directions = self._around, self._settings.directions
        around.fetch_hops((walk.end for walk in beams.open), directions)
        offers = [around.hops(walk.end, directions) for walk in beams.open]
        is_random = self._settings.control == "random"
        chosen = choose_relations(
            self._session, beams.open, hop, offers, self._relations, is_random=is_random
        )
        stopped = [walk for walk, ways in zip(beams.open, chosen, strict=True) if not ways]
        followed = list(chain(*chosen))
        tails = self._tails(followed, hop)
        longer = [
            each.walk.then(each.hop, tail)
            for each, ends in zip(followed, tails, strict=False)
            for tail in ends
        ]
        not_followed = len(followed) - len(tails)
        return self._clipped(Beams(tuple(longer), (*beams.finished, *stopped)), not_followed)

    def _tails(self, followed: Sequence[Followed], hop: int) -> list[Sequence[Term]]:
        """Take the nodes that each relation leads to, at most `width` of them.

        Unless nodes are chosen, no relation is followed once there are as many walks as are kept.
        """
        around, settings = self._around, self._settings
        ways = [(each.walk.end, each.hop) for each in followed]
        taken: list[Sequence[Term]] = []
        if settings.control != "random" and settings.tails_by == "choose":
            around.fetch_tails(ways)
            taken += self._chosen_tails(followed, hop)
        else:
            needed = -(-settings.beams // settings.width)  # at least, as each gives `width` walks
            around.fetch_tails(ways[:needed])
            for each in followed:
                if sum(map(len, taken)) >= settings.beams:
                    break
                taken.append(self._some(each))
        for way, kept in zip(ways, taken, strict=False):
            tails = around.tails(*way)
            self._tails_hidden += len(tails.terms) + tails.hidden - len(kept)
        return taken

    def _some(self, followed: Followed) -> Sequence[Term]:
        """Take the first of the nodes that a relation leads to, or draw some by chance."""
        session, width = self._session, self._settings.width
        nodes = self._around.tails(followed.walk.end, followed.hop).terms
        if self._settings.control == "random":
            relation = drawn_hop(followed.hop, self._settings.directions)
            return session.draw(nodes, width, "tails", session.drawn(followed.walk), relation)
        return nodes[:width]

    def _chosen_tails(self, followed: Sequence[Followed], hop: int) -> list[Sequence[Term]]:
        """Ask for the nodes of each relation that leads to several; the first if none is read."""
        found = [self._around.tails(each.walk.end, each.hop).terms for each in followed]
        taken: list[Sequence[Term]] = [nodes[: self._settings.width] for nodes in found]
        asked = [at for at, nodes in enumerate(found) if len(nodes) > 1]
        choices = []
        for at in asked:
            shown, hidden = found[at][:SHOWN_ENTITIES], len(found[at][SHOWN_ENTITIES:])
            self._around.names(shown)
            offered = followed[at]._replace(nodes=tuple(shown), hidden=hidden)
            choices.append(self._entities.nodes(self._session, hop, offered))
        for at, picked in zip(asked, self._session.choose_all(choices), strict=False):
            if picked.chosen:
                taken[at] = [found[at][option] for option in picked.chosen]
        return taken

    def _clipped(self, beams: Beams, not_followed: int) -> Beams:
        """Keep the first walks: open ones before finished ones, or the other way round."""
        room = self._settings.beams
        if self._settings.keep == "open":
            kept = beams.open[:room]
            clipped = Beams(kept, beams.finished[: room - len(kept)])
        else:
            finished = beams.finished[:room]
            clipped = Beams(beams.open[: room - len(finished)], finished)
        count = sum(map(len, beams)) - sum(map(len, clipped)) + not_followed
        self._is_clipped = count > 0
        self._session.clipped(count)
        return clipped

    def _is_enough(self, beams: Beams, hop: int) -> bool:
        """Ask whether the walks suffice."""
        prompt = self._prompt(CHECK, [*beams.finished, *beams.open][:CHECKED_PATHS])
        reply = self._session.ask("check", prompt, hop=hop, max_tokens=SELECTION_TOKENS)
        return reply is not None and read_yes(reply)

    def _prompt(self, template: str, walks: Sequence[Walk]) -> tuple[Message, ...]:
        """Write a prompt that depends on the walks alone, and not on the history."""
        paths = numbered(list(map(self._session.drawn, walks)))
        return written_prompt(template, question=self._session.question, paths=paths)

    def _history(self, walk: Walk) -> str:
        settings, name = self._settings, self._around.name
        hops = [drawn_step(step, name) for step in walk.steps]
        return written_history(hops, settings.shown_hops, settings.marker, settings.hop_numbers)


_NO_HISTORY: dict[Marker, str] = {
    "neutral": "(no hops are shown)",
    "start": "(none: the reasoning starts here)",
}


def written_history(hops: Sequence[str], shown: int, marker: Marker, has_numbers: bool) -> str:
    r"""Write the last of the hops of a walk, perhaps numbered from its start.

    >>> written_history(["A -> r -> B", "B -> s -> C"], 1, "neutral", True)
    '\nHop 2: B -> s -> C'
    >>> written_history(["A -> r -> B"], 0, "neutral", False)
    '(no hops are shown)'
    """
    first = max(len(hops) - shown, 0)
    if first == len(hops):
        return _NO_HISTORY[marker]
    lines = (
        f"Hop {number}: {hop}" if has_numbers else hop
        for number, hop in enumerate(hops[first:], first + 1)
    )
    return "\n" + "\n".join(lines)


BPC = walking_method(
    "bpc",
    BpcSettings,
    LIMITS,
    lambda session, chosen: _BoundedPathContext(session, chosen).answer(),
    needs_model=lambda chosen: (
        "control=cot" if chosen.control == "cot" else changed_settings(chosen, _OF_MODEL)
    ),
)
