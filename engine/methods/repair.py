"""Find a path for a question whose written paths will not do: blueprint, then beam search.

The graph proposes and the chooser decides, so every path that is considered exists. The broken path
is never offered again. The depth bounds the search; shorter paths stay in the choice, because the
small model's depth is often wrong when its path is. There is at most one call for the blueprint and
one for each step of the search, and one more for each step if the model itself judges how far to
go.

Source: RouterKGQA §3.3.

What the general model is asked in a repair, and how its replies are read.

Three prompts: for the blueprint, for the best of some paths and, if the model itself decides how
far to search, whether a path already ends at the answers. Readers return nothing for a reply that
cannot be used; the caller decides what happens then.

Source: RouterKGQA §3.3 and appendix A.2 for what is asked; the words are ours.

Who chooses among paths: a general model, the embedder alone, or chance.

Source: RouterKGQA §3.3, "Path selection". Choosing by the embedder alone is ours: free, offline,
and the baseline that a general model must beat. Chance is the baseline of both.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from kbqa.engine.asked import BoundedGraph, Budget, Clock
from kbqa.engine.chat.model import ChatModel, Message
from kbqa.engine.deciding.choosing import draw
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import Frontiers, RelationPath
from kbqa.engine.linking.linker import stems
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.running.pool import carry_constraints
from kbqa.engine.running.search import (
    HOP_COST,
    Guide,
    PathSearch,
    ScoredPath,
    SearchWidths,
)
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema
from kbqa.kb.small_files import prompt_line
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.english import describe_dropped

MAX_STEPS = 5
"""Steps of a blueprint that count; a path has four hops at most."""

_STEP = re.compile(r"^\s*(?:[-*•#]\s*)?(?:step\s*)?(?:\d+\s*[.):]\s*)?(.+?)\s*$", re.IGNORECASE)
_NUMBER = re.compile(r"(?<!\d)\d{1,3}(?!\d)")
_MAX_STEP_LETTERS = 200

_BLUEPRINT = """\
Break the question into the steps by which its answer is found in a knowledge graph, starting from \
the entity that it names. Each step is one short phrase for one relation to follow, such as \
"spouse of the person" or "team that the player plays for". Conditions such as dates, places or \
"largest" are no steps. Most questions need one or two steps, and none more than four. Reply with \
the steps alone, numbered, one a line.

Question: who is the mother of the author of Frankenstein?
1. author of the book
2. mother of the person

Question: what language do they speak in Jamaica?
1. languages spoken in the country

Question: {question}
"""

_CHOICE = """\
A question is to be answered by following relations of the Freebase knowledge graph. Below are \
paths that exist in the graph. `->` follows a relation forwards, `<-` backwards; the path's last \
node would be the answer. Conditions such as dates or "largest" are checked later. Choose \
{how_many}. Reply with the number{plural} alone{order}.

Question: {question}
{blueprint}
{paths}
"""

_JUDGE = """\
A question is to be answered by following relations of the Freebase knowledge graph. `->` follows \
a relation forwards, `<-` backwards. Does the node at the end of any of these paths answer the \
question, apart from conditions such as dates or "largest", which are checked later? Reply with \
yes, or with no if a path must be followed further.

Question: {question}

{paths}
"""


def blueprint_prompt(question: str) -> list[Message]:
    """Ask for the steps by which a question is answered."""
    return [Message("user", _BLUEPRINT.format(question=_line(question)))]


def read_blueprint(reply: str) -> tuple[str, ...]:
    r"""Read the steps of a blueprint; none if the reply has none.

    >>> read_blueprint("1. author of the book\n2) mother of the person\n")
    ('author of the book', 'mother of the person')
    """
    lines = [line for line in reply.splitlines() if line.strip()]
    numbered = [line for line in lines if re.match(r"\s*(?:step\s*)?\d", line, re.IGNORECASE)]
    steps = []
    for line in numbered or lines:
        match = _STEP.match(line)
        if match and re.search(r"[^\W\d]", match[1]):
            steps.append(match[1][:_MAX_STEP_LETTERS])
    return tuple(steps[:MAX_STEPS])


def choice_prompt(
    question: str, steps: Sequence[str], paths: Sequence[RelationPath], wanted: int
) -> list[Message]:
    """Ask for the best paths.

    Args:
        question: The whole question.
        steps: The blueprint; may be empty.
        paths: To choose from; they are numbered from 1.
        wanted: How many to choose, at most.
    """
    blueprint = "".join(f"Step {number}: {step}\n" for number, step in enumerate(steps, 1))
    prompt = _CHOICE.format(
        how_many="the best path" if wanted == 1 else f"up to {wanted} of them",
        plural="" if wanted == 1 else "s",
        order="" if wanted == 1 else ", the best first, such as: 4, 1",
        question=_line(question),
        blueprint=blueprint,
        paths=_numbered(paths),
    )
    return [Message("user", prompt)]


def read_choice(reply: str, count: int, wanted: int) -> list[int]:
    """Read which of `count` paths were chosen: their indexes from 0, in the reply's order.

    If a reply explains itself, its last line with a number counts.

    >>> read_choice("Path 3, then 1 (not 12).", count=10, wanted=2), read_choice("none", 10, 1)
    ([2, 0], [])
    """
    explains = re.search(r"[^\W\d]", reply) is not None
    for line in reversed(reply.splitlines()) if explains else [reply]:
        numbers = dict.fromkeys(int(number) for number in _NUMBER.findall(line))
        chosen = [number - 1 for number in numbers if 1 <= number <= count]
        if chosen:
            return chosen[:wanted]
    return []


def judge_prompt(question: str, paths: Sequence[RelationPath]) -> list[Message]:
    """Ask whether the search has gone far enough."""
    return [Message("user", _JUDGE.format(question=_line(question), paths=_numbered(paths)))]


def read_judgement(reply: str) -> bool:
    """Return whether a reply begins with yes; anything else means no."""
    return bool(re.match(r"\W*yes\b", reply, re.IGNORECASE))


def _numbered(paths: Sequence[RelationPath]) -> str:
    return "\n".join(f"{number}. {written_path(path)}" for number, path in enumerate(paths, 1))


def written_path(path: RelationPath) -> str:
    """Write a path for people and general models.

    >>> from kbqa.sparql.crp import Entity, Hop
    >>> written_path(RelationPath(Entity("Kenya", "m.019rg5"), (Hop("a.b"), Hop("c.d", True))))
    'Kenya -> a.b -> ? <- c.d <- ?'
    """
    arrows = ("<-" if hop.inverse else "->" for hop in path.hops)
    hops = (
        f" {arrow} {hop.relation} {arrow} ?" for arrow, hop in zip(arrows, path.hops, strict=True)
    )
    return f"{prompt_line(str(path.topic))}{''.join(hops)}"


def _line(question: str) -> str:
    return " ".join(question.split())


class Chooser(Protocol):
    """Makes the decisions of one repair. Every method may raise a `ModelError`."""

    @property
    def plans(self) -> bool:
        """Whether it writes blueprints, which then are decisions."""

    def plan(self, question: str) -> tuple[str, ...]:
        """Write the blueprint: a phrase a step; none if it is not known."""

    def choose(
        self, question: str, steps: Sequence[str], paths: Sequence[ScoredPath], wanted: int
    ) -> list[RelationPath]:
        """Choose the best of more paths than `wanted`, best first: at least one."""

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Return whether a path already ends at the answers."""


class EmbedderChooser:
    """Takes the paths most similar to the question, without a language model."""

    plans = False

    def plan(self, question: str) -> tuple[str, ...]:
        """Return no steps."""
        return ()

    def choose(
        self, question: str, steps: Sequence[str], paths: Sequence[ScoredPath], wanted: int
    ) -> list[RelationPath]:
        """Take the first."""
        return [each.path for each in paths[:wanted]]

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Return no, so the search goes on."""
        return False


class RandomChooser:
    """Draws paths by chance, which depends on the seed, the question and the paths alone."""

    plans = False

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def plan(self, question: str) -> tuple[str, ...]:
        """Return no steps."""
        return ()

    def choose(
        self, question: str, steps: Sequence[str], paths: Sequence[ScoredPath], wanted: int
    ) -> list[RelationPath]:
        """Draw them."""
        options = sorted((each.path for each in paths), key=written_path)
        content = [written_path(each) for each in options]
        return [options[at] for at in draw(len(options), wanted, self._seed, question, *content)]

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Return no, so the search goes on."""
        return False


class ChatChooser:
    """Asks a general model. If its reply names no path, the order by similarity stays.

    Args:
        chat: The model.
    """

    plans = True

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat

    def plan(self, question: str) -> tuple[str, ...]:
        """Ask for the blueprint."""
        return read_blueprint(self._chat.complete(blueprint_prompt(question)).text)

    def choose(
        self, question: str, steps: Sequence[str], paths: Sequence[ScoredPath], wanted: int
    ) -> list[RelationPath]:
        """Ask for the best."""
        every = [each.path for each in paths]
        reply = self._chat.complete(choice_prompt(question, steps, every, wanted))
        chosen = read_choice(reply.text, len(every), wanted)
        return [every[at] for at in chosen] or every[:wanted]

    def is_enough(self, question: str, paths: Sequence[RelationPath]) -> bool:
        """Ask whether the search may end."""
        return read_judgement(self._chat.complete(judge_prompt(question, paths)).text)


Stop = Literal["model", "blueprint", "judge"]

MAX_DEPTH = 4
"""Hops that are searched at most, and one more if the last leads through a mediator.

Only a handful of the benchmarks' gold paths have more."""

_UNKNOWN_DEPTH = 2


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """How paths are searched.

    Attributes:
        widths: How much each step keeps.
        stop: What decides how deep to search: the small model's path, the number of the
            blueprint's steps, or the general model after each step.

    Source: RouterKGQA §3.3, "Stopping criterion", and Table 3.
    """

    widths: SearchWidths = field(default_factory=SearchWidths)
    stop: Stop = "model"


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a question whose written paths will not do.

    Attributes:
        reason: Why they will not do, in a few words.
        question: As asked.
        asked: The question without its mention of the topic; paths are compared with it.
        topics: Where to start from, each with its mid; at least one.
        crp: The small model's CRP that answers, or else its best, grounded: its constraints are
            carried over, and its depth decides how deep to search. None if it wrote none that could
            be read and grounded.
        known: Paths that were written and exist, but are not trusted: the last choice is also
            among these.
    """

    reason: str
    question: str
    asked: str
    topics: tuple[Entity, ...]
    crp: Crp | None
    known: tuple[RelationPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair.

    Attributes:
        reason: Why the written paths will not do, in a few words.
        crp: The path that was found, with the constraints that it could carry; None if the graph
            has no path from the topics.
        blueprint: The steps that the general model named.
        depth: Hops that were searched at most.
        candidates: What the last choice was made from, most similar to the question first.
        chosen: The candidate that was chosen, by its index; None if there is none.
        lost: Constraints of the failed CRP that the new path could not carry, in words.
        queries: Searches of the graph.
        is_known: The chosen path is the one that answered before; `crp` is its own, unchanged.
        is_cut_short: The call budget was spent before the search was over.
    """

    reason: str
    crp: Crp | None
    blueprint: tuple[str, ...]
    depth: int
    candidates: tuple[ScoredPath, ...]
    chosen: int | None
    lost: tuple[str, ...]
    queries: int
    is_known: bool = False
    is_cut_short: bool = False

    @property
    def is_new(self) -> bool:
        """Whether it found a path that did not answer before."""
        return self.crp is not None and not self.is_known

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record."""
        return {
            "reason": self.reason,
            "blueprint": list(self.blueprint),
            "depth": self.depth,
            "candidates": [
                {"path": written_path(each.path), "score": round(each.score, 4)}
                for each in self.candidates
            ],
            "chosen": self.chosen,
            "lost": list(self.lost),
            "queries": self.queries,
            "is_known": self.is_known,
            **({"is_cut_short": True} if self.is_cut_short else {}),
        }


class Repairer:
    """Repairs the paths of any number of questions. Any number of threads may use one.

    Args:
        graph: The graph.
        embedder: Compares paths with questions.
        settings: How paths are searched.
        asking: Knows which relations words ask for; None to use the embedder alone.

    Raises:
        StoreError: The store's schema is missing or broken.
    """

    def __init__(
        self,
        graph: Graph,
        embedder: Embedder,
        settings: RepairSettings | None = None,
        asking: LinkingModel | None = None,
    ) -> None:
        self._graph, self._embedder, self._asking = graph, embedder, asking
        self._settings = settings or RepairSettings()
        self._schema = GraphSchema(graph)

    def settings(self) -> Mapping[str, object]:
        """Return what decides its paths, for manifests."""
        settings = self._settings
        return {**asdict(settings.widths), "stop": settings.stop, "embedder": self._embedder.name}

    def repair(
        self,
        failure: Failure,
        chooser: Chooser,
        clock: Clock | None = None,
        budget: Budget | None = None,
    ) -> Repair:
        """Find a path for a question.

        Each blueprint, choice and judgement is one call. Once the budget refuses one, the search
        ends, and the last call chooses among what it has found.

        Args:
            failure: What is known of the question.
            chooser: Makes the decisions.
            clock: Of the question; None for any time.
            budget: The calls that are left for it; None for any number.

        Raises:
            ModelError: The general model failed.
            GraphError: The graph does not answer.
            DeadlineExceeded: The question's deadline has passed.
        """
        question, settings = failure.question, self._settings
        calls = _Calls(budget or Budget())
        blueprint = chooser.plan(question) if chooser.plans and calls.take() else ()
        depth = _depth(settings.stop, failure.crp, blueprint)
        graph = self._graph if clock is None else BoundedGraph(self._graph, clock.bound)
        frontiers = Frontiers(graph, self._schema)
        search = self._search(failure.asked, blueprint, frontiers)

        beam = [RelationPath(topic) for topic in failure.topics]
        found: list[ScoredPath] = []
        for _ in range(depth):
            longer = search.extend(beam)
            found += longer
            unfinished = search.best(each for each in longer if len(each.path.hops) < depth)
            if not unfinished:
                break
            beam = [each.path for each in unfinished]
            if len(beam) > settings.widths.beam:
                if not calls.take():
                    break
                beam = chooser.choose(question, blueprint, unfinished, settings.widths.beam)
            if settings.stop == "judge":
                if not calls.take():
                    break
                if chooser.is_enough(question, beam):
                    found = [each for each in found if each.path in beam]
                    break
        candidates = search.best(found, failure.known)
        if len(candidates) > 1 and calls.take_last():
            [best] = chooser.choose(question, blueprint, candidates, 1)
        elif len(candidates) == 1:
            best = candidates[0].path
        else:
            return Repair(
                reason=failure.reason,
                crp=None,
                blueprint=blueprint,
                depth=depth,
                candidates=tuple(candidates),
                chosen=None,
                lost=(),
                queries=frontiers.queries,
                is_cut_short=calls.are_spent,
            )

        crp, lost = Crp(best.topic, best.hops), list[str]()
        is_known = best in failure.known
        if is_known and failure.crp is not None:
            crp = failure.crp
        elif failure.crp is not None:
            carried = carry_constraints(failure.crp, best, frontiers)
            crp, lost = carried.crp, describe_dropped(carried.lost, failure.crp)
        return Repair(
            reason=failure.reason,
            crp=crp,
            blueprint=blueprint,
            depth=depth,
            candidates=tuple(candidates),
            chosen=[each.path for each in candidates].index(best),
            lost=tuple(lost),
            queries=frontiers.queries,
            is_known=is_known,
            is_cut_short=calls.are_spent,
        )

    def _search(self, asked: str, blueprint: Sequence[str], frontiers: Frontiers) -> PathSearch:
        relations = {} if self._asking is None else self._asking.asked_relations(stems(asked))
        guide = Guide(asked, (*blueprint, asked), relations, HOP_COST)
        return PathSearch(frontiers, self._schema, self._embedder, guide, self._settings.widths)


class _Calls:
    """The calls of one repair, which remembers whether one was refused."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.are_spent = False

    def take(self) -> bool:
        return self._noted(self._budget.take() == 1)

    def take_last(self) -> bool:
        return self._noted(self._budget.take_last())

    def _noted(self, is_taken: bool) -> bool:
        self.are_spent = self.are_spent or not is_taken
        return is_taken


def _depth(stop: Stop, failed: Crp | None, blueprint: Sequence[str]) -> int:
    """Return how many hops a path may have."""
    if stop == "judge":
        return MAX_DEPTH
    if stop == "model" and failed is not None:
        return min(len(failed.path), MAX_DEPTH)
    return min(len(blueprint), MAX_DEPTH) or _UNKNOWN_DEPTH
