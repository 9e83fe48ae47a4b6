"""What methods work with, made once: graph, names, linker, models and limits."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kbqa.engine.answer import UNSURE_BELOW
from kbqa.engine.asked import ChooserName, Method
from kbqa.engine.chat.model import ChatModel
from kbqa.engine.linking.linker import Linker
from kbqa.engine.writing.generate import DEFAULT_BEAMS, Generator, NoPaths
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    from kbqa.engine.deciding.session import Walkers


class Resources:
    """What methods work with. Models are loaded when a method first asks for them.

    Args:
        graph: The graph.
        load_generator: Loads the small model.
        open_chat: Opens the general model; returns None if there is none.
        n: Candidates a question.
        timeout_s: Seconds for each query.
        chooser: Who takes decisions; by default the general model, or the embedder if there is
            none.
        call_budget: Decisions a question, at most; None for any number.
        unsure_below: The confidence below which an answer is a guess, in [0, 1].
        threads: Threads that small models compute with; None for one a core.

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
        if call_budget is not None and call_budget < 1:
            raise InputError(f"the call budget is {call_budget}: use 1 or more")
        self.graph, self.n, self.timeout_s = graph, n, timeout_s
        self.chosen_chooser, self.call_budget = chooser, call_budget
        self.unsure_below, self.threads = unsure_below, threads
        self._load_generator, self._open_chat = load_generator, open_chat
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

    def require_language_model(self, what: str) -> None:
        """Check that a general model takes decisions.

        Args:
            what: What needs it, for the message, such as a setting with its value.

        Raises:
            InputError: There is none, or another chooser decides.
        """
        if self.chooser == "llm":
            return
        advice = [] if self.chat is not None else ["add --llm URL or --llm-model NAME"]
        if self.chosen_chooser is not None:
            advice.append(f"leave out --chooser {self.chosen_chooser}")
        raise InputError(f"{what} needs a general model to decide: {', and '.join(advice)}")

    def walkers(self, seed: int) -> "Walkers":
        """Return what methods that walk the graph work with.

        Args:
            seed: For draws by chance.

        Raises:
            ModelError: The embedder is to decide, and is missing or broken.
            StoreError: The store's schema is missing or broken.
        """
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
