"""Find a path for a question whose written paths will not do: blueprint, then beam search.

The graph proposes and the chooser decides, so every path that is considered exists. There is at
most one call for the blueprint and one for each step of the search; if the model itself judges how
far to go, one more for each step and one for the last choice. `Repairer` is the paper's,
`GuidedRepairer` is ours.

A general model chooses among paths, or chance, or the order by similarity stays. That order is
free and offline: the baseline that a general model must beat. If a reply names no path, the order
stays as well.

Source: RouterKGQA §3.3 and appendix A.2; the words of the prompts are ours.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from kbqa.engine.asked import Asked, ChooserName
from kbqa.engine.chat.model import ChatModel, Message
from kbqa.engine.deciding.choosing import Choice, Chooser, make_chooser
from kbqa.engine.deciding.reading import Picked, is_no_answer
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import Frontiers, RelationPath, relation_path
from kbqa.engine.linking.linker import MAX_STARTS, stems
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.running.search import (
    HOP_COST,
    Guide,
    GuidedSearch,
    PathSearch,
    ScoredPath,
    SearchWidths,
    carry_constraints,
    search_topics,
    without_mentions,
)
from kbqa.engine.running.tried import Execution
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Graph, name_terms, prompt_line
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp, Entity, Kind
from kbqa.sparql.english import describe_dropped
from kbqa.sparql.errors import (
    CrpSyntaxError,
    DeadlineExceeded,
    EndpointDown,
    GraphError,
    InputError,
)
from kbqa.sparql.forms import read_crp, render_crp

logger = logging.getLogger(__name__)

Stop = Literal["model", "blueprint", "judge"]
RepairedBy = Literal["off", "embedder", "llm"]

MAX_DEPTH = 4
"""Hops that are searched at most, and one more if the last leads through a mediator.

Only a handful of the benchmarks' gold paths have more."""

_UNKNOWN_DEPTH = 2

_SHOWN_ENDS, _LOOKED_AT = 3, 10
"""Names behind a path that a general model is shown, and nodes whose names are looked up."""


@dataclass(frozen=True, slots=True)
class PathSettings:
    """What `routerkgqa` and `kbqa` let a user set alike."""

    write: Annotated[
        bool, "Whether the small model writes paths. If not, all are searched for in the graph."
    ] = True
    repair: Annotated[
        RepairedBy | None,
        "What chooses among the graph's paths in a repair: the embedder alone, free and offline, "
        "or the general model. By default what --chooser says, else llm with --llm or --llm-model, "
        "else off.",
    ] = None
    stop: Annotated[
        Stop,
        "How deep a repair searches: as deep as the small model's path, as the blueprint has "
        "steps, or until the general model judges that it is enough.",
    ] = "model"
    relations: Annotated[
        int, "Relations that each path of a repair is extended by, for each step of the blueprint."
    ] = 4
    candidates: Annotated[int, "Paths that each step of a repair offers for choice."] = 10
    width: Annotated[int, "Paths that each step of a repair starts from."] = 3
    embedder: Annotated[str | None, "Embedder instead of the packaged all-MiniLM-L6-v2."] = None
    seed: Annotated[int, "Seed of --chooser random."] = 42
    without: Annotated[
        tuple[Kind, ...], "Classes of constraints that are left out, to see what they are worth."
    ] = ()

    def __post_init__(self) -> None:
        for name in ("relations", "candidates", "width"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: use 1 or more")


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair."""

    reason: str
    """Why the written paths will not do, in a few words."""
    crp: Crp | None
    """The path that was found, with the constraints that it could carry; None if the graph has no
    path from the topics."""
    blueprint: tuple[str, ...]
    """The steps that the general model named."""
    depth: int
    """Hops that were searched at most."""
    candidates: tuple[ScoredPath, ...]
    """What the last choice was made from, most similar to the question first."""
    chosen: int | None
    """The candidate that was chosen, by its index; None if there is none."""
    lost: tuple[str, ...]
    """Constraints of the written CRP that the new path could not carry, in words."""
    queries: int
    """Searches of the graph."""
    by: ChooserName
    """Who chose."""
    is_known: bool = False
    """The chosen path is the one that answered before; `crp` is its own, unchanged."""
    is_cut_short: bool = False
    """The call budget was spent before the search was over."""

    @property
    def candidate(self) -> Candidate | None:
        """The path that was found, as a candidate; None if there is none, or it is no new one."""
        if self.crp is None or self.is_known:
            return None
        text = render_crp(self.crp)
        return Candidate(text, logprob=0.0, tokens=1, source="repair", rank=self.chosen or 0)

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
            "by": self.by,
            "is_known": self.is_known,
            **({"is_cut_short": True} if self.is_cut_short else {}),
        }


class Repairer:
    """Repairs paths as the paper does. Any number of threads and questions may use one.

    The search starts from one topic, that of the written path. After as many hops as it may take,
    one of the paths that it has reached is chosen.

    Args:
        graph: The graph.
        embedder: Compares paths with questions.
        by: Who chooses among paths: the general model of the question, the order by similarity to
            the question, or chance.
        model: The general model, for manifests.
        stop: What decides how deep to search: the small model's path, the number of the
            blueprint's steps, or the general model after each step.
        widths: How much each step keeps.
        seed: Of chance.

    Raises:
        StoreError: The store's schema is missing or broken.

    Source: RouterKGQA §3.3, "Path selection" and "Stopping criterion", and Table 3.
    """

    _starts = 1
    _keeps_shorter = False

    def __init__(
        self,
        graph: Graph,
        embedder: Embedder,
        by: ChooserName = "embedder",
        *,
        model: ChatModel | None = None,
        stop: Stop = "model",
        widths: SearchWidths | None = None,
        seed: int = 42,
    ) -> None:
        self._graph, self._embedder = graph, embedder
        self.by, self._model, self._stop, self._seed = by, model, stop, seed
        self._widths, self._schema = widths or SearchWidths(), GraphSchema(graph)

    def settings(self) -> Mapping[str, object]:
        """Return what decides its paths, for manifests."""
        return {
            **({"chance_seed": self._seed} if self.by == "random" else {}),
            "general_model": None if self._model is None else self._model.name,
            **asdict(self._widths),
            "stop": self._stop,
            "embedder": self._embedder.name,
        }

    def repair(self, asked: Asked, reason: str, execution: Execution) -> Repair | None:
        """Look for another path; a query that fails costs the repair and not the question.

        Each blueprint, choice and judgement is one call. Once the question's budget refuses one,
        the search ends, and the last call chooses among what it has found.

        Args:
            asked: The question. Without a written path, its given or linked entities are topics.
            reason: Why it needs repair.
            execution: Its written paths. The constraints of the one that answers, or else of the
                best, are carried over, and its depth decides how deep to search. One that answers
                is a candidate of the last choice.

        Returns:
            None if nothing is known to start from, or the graph does not answer.

        Raises:
            ModelError: The general model failed.
            EndpointDown: Nothing answers at the graph's endpoint.
            DeadlineExceeded: The question's deadline has passed.
        """
        try:
            return self._repair(asked, reason, execution)
        except (EndpointDown, DeadlineExceeded):
            raise
        except GraphError as error:
            logger.warning("nothing is repaired: %s", error)
            return None

    def _repair(self, asked: Asked, reason: str, execution: Execution) -> Repair | None:
        readings = [each.crp for each in execution.tried if each.crp is not None]
        known: list[RelationPath] = []
        if (answering := execution.answering) is not None and answering.crp is not None:
            # It may be the right one after all, and then its own constraints belong to it.
            readings.insert(0, answering.crp)
            known = [path for path in [relation_path(answering.crp)] if path is not None]
        topics = search_topics(asked, readings)
        if readings:
            topics = topics[: self._starts]
        if not topics:
            return None
        failed = readings[0] if readings else None
        frontiers = Frontiers(self._graph, self._schema)
        chooser = _Chooser(asked, self.by, self._seed, frontiers)
        blueprint = chooser.plan()
        hops = _written_hops(execution) if failed is None else len(failed.path)
        depth = _depth(self._stop, hops, blueprint)
        search = self._search(asked, topics, blueprint, frontiers)

        beam = [RelationPath(topic) for topic in topics]
        found: list[ScoredPath] = []
        for step in range(1, depth + 1):
            longer = search.extend(beam)
            if not longer:
                found = [each for each in found if self._keeps_shorter or each.path in beam]
                break
            found = [*found, *longer] if self._keeps_shorter else longer
            unfinished = search.best(each for each in longer if len(each.path.hops) < depth)
            if not unfinished:
                break
            beam = [each.path for each in unfinished]
            if len(beam) > self._widths.beam:
                if not asked.budget.take():
                    break
                beam = chooser.choose(step, beam, self._widths.beam)
            if self._stop == "judge":
                if not asked.budget.take():
                    break
                if chooser.is_enough(beam):
                    found = [each for each in found if each.path in beam]
                    break

        candidates = search.best(found, known)
        paths = [each.path for each in candidates]
        chosen, crp, lost = None, None, list[str]()
        if len(paths) == 1 or (len(paths) > 1 and asked.budget.take_last()):
            [best] = paths if len(paths) == 1 else chooser.choose(depth + 1, paths, 1)
            chosen, crp = paths.index(best), Crp(best.topic, best.hops)
            if failed is not None and best in known:
                crp = failed
            elif failed is not None:
                carried = carry_constraints(failed, best, frontiers)
                crp, lost = carried.crp, describe_dropped(carried.lost, failed)
        return Repair(
            reason=reason,
            crp=crp,
            blueprint=blueprint,
            depth=depth,
            candidates=tuple(candidates),
            chosen=chosen,
            lost=tuple(lost),
            queries=frontiers.queries,
            by=self.by,
            is_known=chosen is not None and paths[chosen] in known,
            is_cut_short=asked.budget.is_exhausted,
        )

    def _search(
        self, asked: Asked, topics: Sequence[Entity], blueprint: Sequence[str], at: Frontiers
    ) -> PathSearch:
        """Return the search for paths from some topics."""
        question, widths = asked.question, self._widths
        steps = blueprint or (question,)
        return PathSearch(at, self._schema, self._embedder, question, steps, widths)


class GuidedRepairer(Repairer):
    """Repairs paths with what else is known of questions.

    The search starts from up to two topics, and is a `GuidedSearch`, to whose blueprint the
    question itself belongs. Shorter paths stay in the choice: the depth of the written path is
    often wrong where the path is.
    """

    _starts = MAX_STARTS
    _keeps_shorter = True

    @cached_property
    def _asking(self) -> LinkingModel:
        return LinkingModel.load()

    def _search(
        self, asked: Asked, topics: Sequence[Entity], blueprint: Sequence[str], at: Frontiers
    ) -> PathSearch:
        words = without_mentions(asked, topics)
        relations = self._asking.asked_relations(stems(words))
        guide = Guide(words, (*blueprint, words), relations, HOP_COST)
        return GuidedSearch(at, self._schema, self._embedder, guide, self._widths)


def make_repairer(
    settings: PathSettings,
    graph: Graph,
    chat: ChatModel | None,
    chooser: ChooserName | None,
    kind: type[Repairer] = Repairer,
) -> Repairer | None:
    """Return what repairs by these settings; None if nothing does.

    Args:
        settings: Of the method.
        graph: The graph.
        chat: The general model, if there is one.
        chooser: What `--chooser` says, if it is given.
        kind: How it searches.

    Raises:
        InputError: Settings contradict each other, or would do nothing.
        ModelError: The embedder is missing or broken.
        StoreError: The store's schema is missing or broken.
    """
    by = _repaired_by(settings, chat, chooser)
    if by == "off":
        return None
    return kind(
        graph,
        Embedder.load(settings.embedder),
        by,
        model=chat if by == "llm" else None,
        stop=settings.stop,
        widths=SearchWidths(settings.relations, settings.candidates, settings.width),
        seed=settings.seed,
    )


def _repaired_by(
    settings: PathSettings, chat: ChatModel | None, chooser: ChooserName | None
) -> RepairedBy | ChooserName:
    """Return who repairs: as the setting says, or else `--chooser`, or else what there is."""
    repair = settings.repair
    if repair is not None and chooser not in (None, repair):
        raise InputError(
            f"repair={repair} and --chooser {chooser} contradict each other: give one of them"
        )
    by: RepairedBy | ChooserName = chooser or repair or ("off" if chat is None else "llm")
    if by == "off" and chooser is None and not settings.write:
        by = "embedder"
    if by == "llm" and chat is None:
        raise InputError("repair=llm needs a general model: add --llm URL or --llm-model NAME")
    if settings.stop == "judge" and by != "llm":
        raise InputError("stop=judge needs a general model: add --llm URL or --llm-model NAME")
    if settings.seed != PathSettings().seed and by != "random":
        raise InputError("seed is about chance, and nothing is left to it: add --chooser random")
    return by


OF_REPAIR = ("stop", "relations", "candidates", "width")
"""Settings that are about repair alone."""


def check_unused(settings: PathSettings, names: Iterable[str]) -> None:
    """Refuse settings of repair that were changed although nothing is repaired."""
    defaults = type(settings)()
    for name in names:
        if getattr(settings, name) != getattr(defaults, name):
            raise InputError(
                f"{name} is about repair, and nothing is repaired: "
                "add --set repair=embedder or --llm URL"
            )


def _written_hops(execution: Execution) -> int | None:
    """Return the hops of the first written path that can be read, though its topic is unknown."""
    for each in execution.tried:
        with suppress(CrpSyntaxError):
            return len(read_crp(each.candidate.text).crp.path)
    return None


def _depth(stop: Stop, hops: int | None, blueprint: Sequence[str]) -> int:
    """Return how many hops a path may have; `hops` are those of the written one."""
    if stop == "judge":
        return MAX_DEPTH
    if stop == "model" and hops is not None:
        return min(hops, MAX_DEPTH)
    return min(len(blueprint), MAX_DEPTH) or _UNKNOWN_DEPTH


class _Chooser:
    """Makes the decisions of one repair."""

    def __init__(self, asked: Asked, by: ChooserName, seed: int, frontiers: Frontiers) -> None:
        self._asked, self._question, self._frontiers = asked, asked.question, frontiers
        self._chat = asked.chat if by == "llm" else None
        self._choose: Chooser | None = None  # The order by similarity stays.
        if by == "random" or self._chat is not None:
            self._choose = make_chooser(by, asked.question, seed, chat=self._chat)

    def plan(self) -> tuple[str, ...]:
        """Have the blueprint written: a phrase a step; none without a general model."""
        if self._chat is None or not self._asked.budget.take():
            return ()
        return read_blueprint(self._chat.complete(blueprint_prompt(self._question)).text)

    def choose(self, step: int, paths: Sequence[RelationPath], wanted: int) -> list[RelationPath]:
        """Choose the best of more paths than `wanted`, best first: at least one."""
        if self._choose is None:
            return list(paths[:wanted])
        if self._chat is None:  # What chance draws must not depend on an order.
            paths = sorted(paths, key=written_path)
        prompt = (
            [] if self._chat is None else choice_prompt(self._question, self._drawn(paths), wanted)
        )
        choice = Choice(
            kind="paths",
            hop=step,
            at=" ".join(map(written_path, paths)),
            options=tuple(map(written_path, paths)),
            most=wanted,
            prompt=tuple(prompt),
            read=lambda reply, _: Picked(tuple(read_choice(reply, len(paths), wanted))),
        )
        [decided] = self._choose([choice])
        return [paths[at] for at in decided.picked.chosen] or list(paths[:wanted])

    def is_enough(self, paths: Sequence[RelationPath]) -> bool:
        """Return whether a path already ends at the answers, if a general model can say so."""
        if self._chat is None:
            return False
        return read_judgement(
            self._chat.complete(judge_prompt(self._question, self._drawn(paths))).text
        )

    def _drawn(self, paths: Sequence[RelationPath]) -> list[str]:
        """Write paths, each with names of what it leads to."""
        ends = [
            [end for end in self._frontiers.ends(path) if end != path.topic.mid][:_LOOKED_AT]
            for path in paths
        ]
        names = name_terms(self._frontiers.graph, {end for each in ends for end in each})
        named = [[names[end] for end in each if names[end] != end] for each in ends]  # no mediators
        return [written_path(path, each) for path, each in zip(paths, named, strict=True)]


MAX_STEPS = 5
"""Steps of a blueprint that count; a path has four hops at most."""

_STEP = re.compile(
    r"^\s*(?:a:\s*)?(?:#\d+\s|[-*•#]\s*)?(?:step\s*)?(?:\d+\s*[.):]\s*)?(.+?)\s*$", re.IGNORECASE
)
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

Question: what is the Statue of Liberty made of?
1. materials of the structure

Question: {question}
"""

_CHOICE = """\
A question is to be answered by following relations of the Freebase knowledge graph. Below are \
paths that exist in the graph. `->` follows a relation forwards, `<-` backwards; what the path \
leads to would be the answer. Conditions such as dates or "largest" are checked later. Choose \
{how_many}. Reply with the number{plural} alone{order}.

Question: {question}

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
        if match and re.search(r"[^\W\d]", match[1]) and not is_no_answer(match[1]):
            steps.append(match[1][:_MAX_STEP_LETTERS])
    return tuple(steps[:MAX_STEPS])


def choice_prompt(question: str, paths: Sequence[str], wanted: int) -> list[Message]:
    """Ask for the best of some written paths, at most `wanted`."""
    prompt = _CHOICE.format(
        how_many="the best path" if wanted == 1 else f"up to {wanted} of them",
        plural="" if wanted == 1 else "s",
        order="" if wanted == 1 else ", the best first, such as: 4, 1",
        question=_line(question),
        paths=_numbered(paths),
    )
    return [Message("user", prompt)]


def read_choice(reply: str, count: int, wanted: int) -> list[int]:
    """Read which of `count` paths were chosen: their indexes from 0, in the reply's order.

    If a reply explains itself, its last line with a number counts.

    >>> read_choice("Path 3, then 1 (not 12).", count=10, wanted=2), read_choice("none", 10, 1)
    ([2, 0], [])
    """
    lines = reply.splitlines()
    if not {*re.findall(r"[^\W\d]+", reply.lower())} - {"path", "paths", "and", "then"}:
        lines = [reply]  # one a line, or all in one
    for line in reversed(lines):
        numbers = dict.fromkeys(int(number) for number in _NUMBER.findall(line))
        chosen = [number - 1 for number in numbers if 1 <= number <= count]
        if chosen:
            return chosen[:wanted]
    return []


def judge_prompt(question: str, paths: Sequence[str]) -> list[Message]:
    """Ask whether the search has gone far enough."""
    return [Message("user", _JUDGE.format(question=_line(question), paths=_numbered(paths)))]


def read_judgement(reply: str) -> bool:
    """Return whether a reply begins with yes; anything else means no."""
    return bool(re.match(r"\W*yes\b", reply, re.IGNORECASE))


def _numbered(paths: Sequence[str]) -> str:
    return "\n".join(f"{number}. {path}" for number, path in enumerate(paths, 1))


def written_path(path: RelationPath, ends: Sequence[str] = ()) -> str:
    """Write a path for people and general models, with names of what it leads to.

    >>> from kbqa.sparql.crp import Entity, Hop
    >>> path = RelationPath(Entity("Kenya", "m.019rg5"), (Hop("a.b"), Hop("c.d", True)))
    >>> written_path(path)
    'Kenya -> a.b -> ? <- c.d <- ?'
    >>> written_path(path, ["Nairobi", "Mombasa", "Kisumu", "Nakuru"])
    'Kenya -> a.b -> ? <- c.d <- Nairobi; Mombasa; Kisumu; …'
    """
    shown = [*map(prompt_line, ends[:_SHOWN_ENDS]), *(["…"] if len(ends) > _SHOWN_ENDS else [])]
    nodes = [*["?"] * (len(path.hops) - 1), "; ".join(shown) or "?"]
    written = prompt_line(str(path.topic))
    for hop, node in zip(path.hops, nodes, strict=True):
        arrow = "<-" if hop.inverse else "->"
        written += f" {arrow} {hop.relation} {arrow} {node}"
    return written


def _line(question: str) -> str:
    return " ".join(question.split())
