"""Methods: from a question to an answer. One file each; here is their table, and how one is made.

The module of a method has a `MethodMaker` under the method's name, in capitals. The settings of a
method are the fields of a dataclass, ``Annotated[type, "help"]`` with a default. People write them
as ``name=value``.
"""

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, fields
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from kbqa.engine.answer import UNSURE_BELOW
from kbqa.engine.asked import ChooserName, Method
from kbqa.engine.chat.model import ChatModel
from kbqa.engine.writing.generate import DEFAULT_BEAMS, Generator, NoPaths
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    from kbqa.engine.answer import Answer
    from kbqa.engine.deciding.session import Session, Walkers, WalkingMethod
    from kbqa.engine.running.judge import Judge

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LazyMethod(NamedTuple):
    """The module of a method, imported when it is chosen, and what it does in a line."""

    module: str
    summary: str


METHODS = {
    "kbqa": LazyMethod(
        "kbqa.engine.methods.kbqa",
        "kbqa's own: as routerkgqa, and a search of the graph adds paths, and a judge chooses",
    ),
    "routerkgqa": LazyMethod(
        "kbqa.engine.methods.routerkgqa",
        "RouterKGQA: a small model writes paths, the graph runs them, repair finds what is missing",
    ),
    "bpc": LazyMethod(
        "kbqa.engine.methods.bpc",
        "Bounded Path Context: walks whose next hop is chosen by the last hops alone",
    ),
    "knowpath": LazyMethod(
        "kbqa.engine.methods.knowpath",
        "KnowPath: the model's own paths guide it through a subgraph of each topic",
    ),
    "trace": LazyMethod(
        "kbqa.engine.methods.trace",
        "TRACE: paths of relations are followed by narratives, and by what ended paths teach",
    ),
    "tog": LazyMethod(
        "kbqa.engine.methods.tog",
        "Think-on-Graph: relations and entities are scored, and the best triples of each hop kept",
    ),
    "pog": LazyMethod(
        "kbqa.engine.methods.pog",
        "Plan-on-Graph: sub-objectives, a memory and reversals steer walks of any width",
    ),
    "subgraph": LazyMethod(
        "kbqa.engine.methods.retrieval",
        "SubgraphRAG: the best triples around the topics are retrieved and read",
    ),
    "path-pooling": LazyMethod(
        "kbqa.engine.methods.retrieval",
        "Path Pooling: as subgraph, with scores pooled along paths before triples are chosen",
    ),
    "io": LazyMethod(
        "kbqa.engine.methods.direct", "A floor: a language model answers at once, without the graph"
    ),
    "cot": LazyMethod(
        "kbqa.engine.methods.direct",
        "A floor: a language model reasons and answers, without the graph",
    ),
}
DEFAULT_METHOD = "kbqa"


class Resources:
    """What methods work with. Models are loaded when a method first asks for them.

    Args:
        n: Candidates a question.
        timeout_s: For each query.
        chooser: By default the general model, or the embedder if there is none.
        call_budget: Decisions a question, at most; None for any number.
        unsure_below: The confidence below which an answer is a guess, in [0, 1].
        threads: That small models compute with; None for one a core.

    Raises:
        InputError: The call budget is below 1.
        StoreError: The store has no name index.
        ModelError: The linker's model cannot be read.
    """

    def __init__(
        self,
        graph: Graph,
        load_generator: Callable[[], Generator] = NoPaths,
        open_chat: Callable[[], ChatModel | None] = lambda: None,
        *,
        n: int = DEFAULT_BEAMS,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        chooser: ChooserName | None = None,
        call_budget: int | None = None,
        unsure_below: float = UNSURE_BELOW,
        threads: int | None = None,
    ) -> None:
        from kbqa.engine.linking.linker import Linker

        if call_budget is not None and call_budget < 1:
            raise InputError(f"the call budget is {call_budget}: use 1 or more")
        self.graph, self.n, self.timeout_s = graph, n, timeout_s
        self.chosen_chooser, self.call_budget = chooser, call_budget
        self.unsure_below, self.threads = unsure_below, threads
        self._load_generator, self._open_chat = load_generator, open_chat
        self.judges: dict[object, Judge] = {}  # that are loaded, by the method's settings
        self.names = graph.names(timeout_s)
        self.linker = Linker(graph, self.names)

    @cached_property
    def generator(self) -> Generator:
        """The small model, which writes paths."""
        return self._load_generator()

    @property
    def generator_name(self) -> str | None:
        """The name of the small model; None if no method has asked for it."""
        return self.generator.name if "generator" in self.__dict__ else None

    @cached_property
    def chat(self) -> ChatModel | None:
        """The general model, which all questions share; None if there is none."""
        return self._open_chat()

    @property
    def chooser(self) -> ChooserName:
        """Who takes decisions."""
        return self.chosen_chooser or ("embedder" if self.chat is None else "llm")

    def over(self, graph: Graph) -> "Resources":
        """Return the same for another graph: the models that are loaded by now are shared."""
        from kbqa.engine.linking.linker import Linker

        other = copy(self)
        other.graph, other.names = graph, graph.names(self.timeout_s)
        other.linker, other.chat = Linker(graph, other.names), self.chat
        if "generator" in self.__dict__:
            other.generator = self.generator.over(graph)
        return other

    def require_language_model(self, what: str) -> None:
        """Raise an `InputError` that names what needs a general model if none decides."""
        if self.chooser == "llm":
            return
        advice = [] if self.chat is not None else ["add --llm URL or --llm-model NAME"]
        if self.chosen_chooser is not None:
            advice.append(f"leave out --chooser {self.chosen_chooser}")
        raise InputError(f"{what} needs a general model to decide: {', and '.join(advice)}")

    def walkers(self, seed: int) -> "Walkers":
        """Return what methods that walk the graph work with; the seed is for draws by chance."""
        from kbqa.engine.deciding.session import Walkers

        return Walkers(self.graph, self.names, self.chooser, self.timeout_s, seed)

    def close(self) -> None:
        """Close the graph's names, but not the graph."""
        self.names.close()


class MethodMaker(NamedTuple):
    """How a method is made; it stands in the method's module under the method's name.

    Attributes:
        settings: A frozen dataclass, whose fields are the method's settings.
        make: Makes the method ready to answer, from what it works with and its settings. It raises
            `InputError` if the settings contradict each other or what there is to work with,
            `ModelError` if a model is missing or broken, and `GraphError` if the graph does not
            answer.
    """

    settings: type[Any]
    make: Callable[[Resources, Any], Method]


class SettingHelp(NamedTuple):
    """What `kbqa methods NAME` prints about a setting."""

    name: str
    values: str
    default: str
    text: str


def describe_settings(settings: type[Any]) -> list[SettingHelp]:
    """List the settings of a method, in order."""
    hints = get_type_hints(settings, include_extras=True)
    defaults = settings()
    described = []
    for field in fields(settings):
        kind, text = get_args(hints[field.name])
        default = _written(getattr(defaults, field.name))
        described.append(SettingHelp(field.name, _values(kind), default, text))
    return described


def read_settings(settings: type[T], given: Mapping[str, object], method: str) -> T:
    """Make the settings of a method from values by name: typed, or as text, with commas."""
    from pydantic import TypeAdapter, ValidationError

    known, hints = (
        {each.name: each for each in describe_settings(settings)},
        get_type_hints(settings),
    )
    values: dict[str, object] = {}
    for name, value in given.items():
        if name not in known:
            names = ", ".join(known) or "none"
            raise InputError(f"the method {method} has no setting {name!r}. It has: {names}.")
        if isinstance(value, str) and get_origin(hints[name]) is tuple:
            parts = [part.strip() for part in value.split(",") if part.strip()]
            value = [] if parts == ["none"] else parts
        values[name] = None if value == "none" and type(None) in get_args(hints[name]) else value
    try:
        return TypeAdapter(settings).validate_python(values)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise InputError(
            f"--set {name}={given[name]}: {name} is {known[name].values}. "
            f"See `kbqa methods {method}`."
        ) from None


def changed_settings(settings: Any, names: Iterable[str]) -> str:
    """Return those of some settings that are not as by default, as text; nothing if all are."""
    defaults = {field.name: field.default for field in fields(settings)}
    values = {name: getattr(settings, name) for name in names}
    changed = (f"{name}={_written(v)}" for name, v in values.items() if v != defaults[name])
    return ", ".join(changed)


def check_counts(settings: Any, *names: str, least: int = 1) -> None:
    """Raise an `InputError` if a whole number among the settings of a method is below `least`."""
    for name in names:
        value = getattr(settings, name)
        if value < least:
            raise InputError(f"{name} is {value}: use {least} or more")


def check_temperature(temperature: float) -> None:
    """Raise an `InputError` if a temperature is not one that servers of models take."""
    if not 0 <= temperature <= 2:
        raise InputError(f"temperature is {temperature}: use 0 to 2")


def split_settings(texts: Sequence[str]) -> dict[str, object]:
    """Split texts of the form ``name=value``; a value may have another equals sign."""
    values: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise InputError(f"--set {text}: write it as name=value, as in --set width=5")
        if name in values:
            raise InputError(f"--set {name} is given twice")
        values[name] = value
    return values


def _values(kind: Any) -> str:
    """Name the values that a setting may have."""
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"any of {', '.join(map(str, get_args(get_args(kind)[0])))}, with commas"
    if arguments := [each for each in get_args(kind) if each is not type(None)]:
        return " or ".join(map(_values, arguments))
    return {int: "a whole number", float: "a number", bool: "yes or no", str: "a text"}.get(
        kind, "the path of a file"
    )


def _written(default: object) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple):
        return ",".join(map(str, default)) or "none"
    return "none" if default is None else str(default)


def find_method(name: str) -> MethodMaker:
    """Return how a method is made, from its module; raise an `InputError` if there is none."""
    from kbqa.engine.files import FORMER_METHODS

    if name in FORMER_METHODS:
        logger.warning("the method %s is now called %s", name, FORMER_METHODS[name])
        name = FORMER_METHODS[name]
    if name not in METHODS:
        known = ", ".join(METHODS)
        raise InputError(f"there is no method {name!r}. The methods are: {known}.")
    module = importlib.import_module(METHODS[name].module)
    return cast(MethodMaker, getattr(module, name.upper().replace("-", "_")))


def make_method(resources: Resources, name: str, settings: Mapping[str, object]) -> Method:
    """Make a method ready to answer, from the values of its settings by name.

    Raises:
        InputError: There is no such method or setting, a value does not fit, or a general model is
            to decide and there is none.
        ModelError: A model that the method needs is missing or broken.
        GraphError: The graph does not answer.
    """
    maker = find_method(name)
    own = _setting_names(maker)
    for setting in (each for each in settings if each not in own):
        if owners := [each for each in METHODS if setting in _setting_names(find_method(each))]:
            listed = " and ".join(filter(None, (", ".join(owners[:-1]), owners[-1])))
            raise InputError(
                f"{setting} is a setting of {listed}, not of {name}. See `kbqa methods {name}`."
            )
    if resources.chosen_chooser == "llm" and resources.chat is None:
        raise InputError("--chooser llm needs a general model: add --llm URL or --llm-model NAME")
    return maker.make(resources, read_settings(maker.settings, settings, name))


def _setting_names(maker: MethodMaker) -> set[str]:
    return {each.name for each in fields(maker.settings)}


def walking_method(
    name: str,
    settings: type[Any],
    limits: Mapping[str, object],
    answer: "Callable[[Session, Any], Answer]",
    *,
    needs_model: Callable[[Any], str] = lambda _: "",
    needs_embedder: Callable[[Any], bool] = lambda _: False,
) -> MethodMaker:
    """Return how a method is made that answers each question in a session.

    `limits` are what decides its answers besides the settings, for manifests. `needs_model` names
    the settings that are for a language model alone, and `needs_embedder` whether the embedder
    is needed even if another chooser decides.
    """
    from kbqa.engine.deciding.session import SEED, WalkingMethod

    def make(resources: Resources, chosen: Any) -> "WalkingMethod":
        if needed := needs_model(chosen):
            resources.require_language_model(needed)
        values = asdict(chosen)
        walkers = resources.walkers(values.get("seed", SEED))
        if needs_embedder(chosen):
            walkers.load_embedder()
        decided = {**values, **limits}
        return WalkingMethod(name, walkers, decided, lambda session: answer(session, chosen))

    return MethodMaker(settings, make)
