"""Command-line options: the method, how its candidates are executed, and how paths are repaired."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Literal as Choice

import click
from click.core import ParameterSource

from kbqa.engine.chat.options import ChatChoice, chat_options
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    from kbqa.engine.execute import Rules
    from kbqa.engine.repair.repair import Stop
    from kbqa.engine.router import Policy, Router
    from kbqa.kb.graph import Graph
    from kbqa.sparql.crp import Kind

Command = Callable[..., None]

Method = Choice["router", "specialised", "general"]
METHODS: tuple[Method, ...] = ("router", "specialised", "general")

Order = Choice["confidence", "full-first", "beam-first"]
ORDERS: tuple[Order, ...] = ("confidence", "full-first", "beam-first")

CALLS_A_REPAIR = 2.5
"""On average: a blueprint, and a choice for each of one or two steps."""


@dataclass(frozen=True, slots=True)
class MethodChoice:
    """The method that the user chose.

    Attributes:
        name: ``router``, the whole of RouterKGQA; ``specialised``, without repair (its stages 1 and
            3); ``general``, without the small model (stages 2 and 3).
        by_embedder: The embedder alone chooses among paths, and no general model is asked.
        chat: The general model.
        route: Which questions the router repairs.
        general_calls: Calls of the general model a question that the route ``confidence`` aims at.
        threshold: The confidence below which it repairs, instead of one that suits these calls.
        stop: What says how deep to search.
        width: Paths that each step of a search starts from.
        embedder: Model instead of the packaged one.
        order: Which of the candidates answers.
        without: Classes of constraints that are left out.
        confidence: File of a confidence model instead of the shipped one.
    """

    name: Method
    by_embedder: bool
    chat: ChatChoice
    route: "Policy"
    general_calls: float
    threshold: float | None
    stop: "Stop"
    width: int
    embedder: str | None
    order: Order
    without: "tuple[Kind, ...]"
    confidence: Path | None

    @property
    def writes_paths(self) -> bool:
        """Whether the small model is needed."""
        return self.name != "general"

    def rules(self) -> "Rules":
        """Say how candidates are executed.

        Raises:
            ModelError: The confidence model is missing or broken.
        """
        from kbqa.engine.confidence import SHIPPED_CONFIDENCE, ConfidenceModel
        from kbqa.engine.execute import Rules

        without = frozenset(self.without)
        if self.order == "confidence":
            model = ConfidenceModel.load(self.confidence or SHIPPED_CONFIDENCE)
            return Rules(model, without=without)
        return Rules(order=self.order, without=without)

    def router(self, graph: "Graph") -> "Router | None":
        """Make what repairs paths; None where nothing does.

        Raises:
            InputError: The general model's URL, key or limit cannot be used.
            ModelError: The embedder or the general model is missing or broken.
            GraphError: The graph's schema cannot be read.
        """
        if self.name == "specialised":
            return None
        from kbqa.engine.embedder import Embedder
        from kbqa.engine.linking_model import LinkingModel
        from kbqa.engine.repair.path_search import SearchWidths
        from kbqa.engine.repair.repair import Repairer, RepairSettings
        from kbqa.engine.router import Router

        settings = RepairSettings(SearchWidths(beam=self.width), self.stop)
        embedder, asking = Embedder.load(self.embedder), LinkingModel.load()
        repairer = Repairer(graph, embedder, settings, asking)
        chat = None if self.by_embedder else self.chat.open()
        return Router(repairer, chat, self.route, self._threshold())

    def _threshold(self) -> float:
        """Tell the confidence below which questions are repaired; 0 where none is looked at."""
        if self.route == "reachability":
            return 0.0
        model = self.rules().confidence
        if model is None:  # Then every answer would be unsure, and every question paid for.
            raise InputError("--route confidence needs --order confidence")
        if self.threshold is not None:
            return self.threshold
        return model.threshold(self.general_calls / CALLS_A_REPAIR)


def method_options(command: Command) -> Command:
    """Add what chooses the method; the command takes it as `method: MethodChoice`."""

    @chat_options
    @click.option(
        "--method",
        type=click.Choice(METHODS),
        help="The small model's paths, repaired where they will not do; without repair; or paths "
        "found without the small model.  [default: router with --llm, --llm-model or --repair, "
        "else specialised]",
    )
    @click.option(
        "--repair",
        type=click.Choice(["embedder", "llm"]),
        help="Who chooses among the graph's paths: the embedder alone, free and offline, or the "
        "general model.  [default: llm with --llm or --llm-model, else embedder]",
    )
    @click.option(
        "--route",
        type=click.Choice(["reachability", "confidence"]),
        default="reachability",
        show_default=True,
        help="Repair where no path that was written exists, or also where its answers are unsure.",
    )
    @click.option(
        "--general-calls",
        type=click.FloatRange(min=0),
        default=0.15,
        show_default=True,
        help="Calls of the general model a question, on average, that --route confidence aims at.",
    )
    @click.option(
        "--threshold",
        type=click.FloatRange(0, 1),
        metavar="P",
        help="Take answers of a lower confidence for unsure, instead of aiming at --general-calls.",
    )
    @click.option(
        "--stop",
        type=click.Choice(["model", "blueprint", "judge"]),
        default="model",
        show_default=True,
        help="How deep to search: as deep as the small model's path, as the blueprint has steps, "
        "or until the general model says so.",
    )
    @click.option(
        "--width",
        type=click.IntRange(1),
        default=3,
        show_default=True,
        help="Paths that each step of a search starts from.",
    )
    @click.option(
        "--embedder", metavar="MODEL", help="Embedder instead of the packaged all-MiniLM-L6-v2."
    )
    @click.option(
        "--order",
        type=click.Choice(ORDERS),
        default="confidence",
        show_default=True,
        help="Which written path answers: the one whose answers are likeliest to be right, the "
        "first that answers in full, or the first that answers at all.",
    )
    @click.option(
        "--confidence",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="Confidence model that tools/train_confidence.py fitted, instead of the shipped one.",
    )
    @click.option(
        "--without",
        type=click.Choice(["string", "numeric", "entity"]),
        multiple=True,
        help="Leave out a class of constraints, to see what it is worth; repeatable.",
    )
    @functools.wraps(command)
    def with_method(
        *args: object,
        chat: ChatChoice,
        method: Method | None,
        repair: Choice["embedder", "llm"] | None,
        route: "Policy",
        general_calls: float,
        threshold: float | None,
        stop: "Stop",
        width: int,
        embedder: str | None,
        order: Order,
        without: "tuple[Kind, ...]",
        confidence: Path | None,
        **rest: object,
    ) -> None:
        has_chat = chat.url is not None or chat.model is not None
        if repair == "llm" and not has_chat:
            raise click.UsageError("--repair llm needs a general model: --llm URL or --llm-model")
        if method == "specialised" and repair is not None:
            raise click.UsageError("--method specialised repairs nothing; leave --repair out")
        by_embedder = repair == "embedder" or not has_chat
        if stop == "judge" and by_embedder:
            raise click.UsageError("--stop judge needs a general model, not --repair embedder")
        name = method or ("router" if repair or has_chat else "specialised")
        if name == "specialised":
            _refuse_idle(click.get_current_context())
        chosen = MethodChoice(
            name=name,
            by_embedder=by_embedder,
            chat=chat,
            route=route,
            general_calls=general_calls,
            threshold=threshold,
            stop=stop,
            width=width,
            embedder=embedder,
            order=order,
            without=without,
            confidence=confidence,
        )
        command(*args, method=chosen, **rest)

    return with_method


def _refuse_idle(context: click.Context) -> None:
    """Refuse options about repair that were given where nothing is repaired."""
    for option in ("route", "general_calls", "threshold", "stop", "width", "embedder"):
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            name = option.replace("_", "-")
            raise click.UsageError(f"--{name} is about repair: add --repair embedder, or --llm URL")
