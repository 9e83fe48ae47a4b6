"""What every front end needs, made once: graph, names, linker, models, and the method over them.

The terminal, evaluation, Python and servers all ask through an `Engine`.
"""

import importlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

from kbqa.engine.answer import UNSURE_BELOW, Answer
from kbqa.engine.chat.counted_chat import CountedChat
from kbqa.engine.chat.model import ChatModel
from kbqa.engine.linking.ground import name_topics
from kbqa.engine.linking.linker import LinkedEntity, Linker
from kbqa.engine.method import Asked, Budget, ChooserName, Clock, Method, Watcher
from kbqa.engine.methods import DEFAULT_METHOD, METHODS
from kbqa.engine.methods.settings import read_settings
from kbqa.engine.running.given import read_given, run_given
from kbqa.engine.writing.generate import DEFAULT_BEAMS, Candidate, Generator, NoPaths, Progress
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.names.search import open_names
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    from kbqa.engine.deciding.session import Walkers

logger = logging.getLogger(__name__)


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
    ) -> None:
        if call_budget is not None and call_budget < 1:
            raise InputError(f"the call budget is {call_budget}: use 1 or more")
        self.graph, self.n, self.timeout_s = graph, n, timeout_s
        self.chosen_chooser, self.call_budget = chooser, call_budget
        self.unsure_below = unsure_below
        self._load_generator, self._open_chat = load_generator, open_chat
        self.names = open_names(graph, timeout_s)
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


class MethodModule(Protocol):
    """What the module of a method offers."""

    SETTINGS: type[Any]

    def make(self, resources: Resources, settings: Any) -> Method:
        """Make the method ready to answer.

        Raises:
            InputError: The settings contradict each other or what there is to work with.
            ModelError: A model that the method needs is missing or broken.
            GraphError: The graph does not answer.
        """


def find_method(name: str) -> MethodModule:
    """Import the module of a method.

    Raises:
        InputError: There is no such method.
    """
    if name not in METHODS:
        known = ", ".join(METHODS)
        raise InputError(f"there is no method {name!r}. The methods are: {known}.")
    return cast(MethodModule, importlib.import_module(METHODS[name].module))


def make_method(resources: Resources, name: str, settings: Mapping[str, object]) -> Method:
    """Make a method ready to answer.

    Args:
        resources: What it works with.
        name: In the table of methods.
        settings: By name, typed or as text.

    Raises:
        InputError: There is no such method or setting, a value does not fit, or a general model is
            to decide and there is none.
        ModelError: A model that the method needs is missing or broken.
        GraphError: The graph does not answer.
    """
    module = find_method(name)
    _check_owner(module, name, settings)
    if resources.chosen_chooser == "llm" and resources.chat is None:
        raise InputError("--chooser llm needs a general model: add --llm URL or --llm-model NAME")
    return module.make(resources, read_settings(module.SETTINGS, settings, name))


def _check_owner(module: MethodModule, name: str, settings: Mapping[str, object]) -> None:
    """Check that no setting belongs to other methods only."""
    own = {each.name for each in fields(module.SETTINGS)}
    for setting in settings:
        if setting not in own:
            owners = [
                other
                for other in METHODS
                if setting in {each.name for each in fields(find_method(other).SETTINGS)}
            ]
            if owners:
                raise InputError(
                    f"{setting} is a setting of {_listed(owners)}, not of {name}. "
                    f"See `kbqa methods {name}`."
                )


def _listed(names: Sequence[str]) -> str:
    """Write names as a list in English: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


class Engine:
    """Answers questions over one graph by one method.

    Args:
        graph: The graph.
        generator: The small model; None if the method needs none.
        chat: The general model, if the method is to have one.
        method: Name of the method; `kbqa methods` lists them.
        settings: Of the method, by name; `kbqa methods NAME` lists them.
        n: Candidates a question.
        timeout_s: Seconds for each query.
        chooser: Who takes the method's decisions; by default the general model, or the embedder if
            there is none.
        call_budget: Decisions a question, at most; None for any number.
        unsure_below: The confidence below which an answer is a guess, in [0, 1].

    Raises:
        InputError: There is no such method or setting, or a value does not fit.
        StoreError: The store has no name index.
        ModelError: A model that the method needs is missing or broken.
    """

    def __init__(
        self,
        graph: Graph,
        generator: Generator | None = None,
        *,
        chat: ChatModel | None = None,
        method: str = DEFAULT_METHOD,
        settings: Mapping[str, object] | None = None,
        n: int = DEFAULT_BEAMS,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        chooser: ChooserName | None = None,
        call_budget: int | None = None,
        unsure_below: float = UNSURE_BELOW,
    ) -> None:
        written_by = generator or NoPaths()
        self.resources = Resources(
            graph,
            lambda: written_by,
            lambda: chat,
            n=n,
            timeout_s=timeout_s,
            chooser=chooser,
            call_budget=call_budget,
            unsure_below=unsure_below,
        )
        self._is_closed = False
        try:
            self.method = make_method(self.resources, method, settings or {})
        except BaseException:
            self.close()
            raise

    @classmethod
    def over(cls, resources: Resources, method: Method) -> "Engine":
        """Make an engine over resources and a method that are there already."""
        engine = cls.__new__(cls)
        engine.resources, engine.method, engine._is_closed = resources, method, False
        return engine

    def ask(
        self,
        question: str,
        topics: Sequence[Entity] = (),
        *,
        deadline_s: float | None = None,
        watch: Watcher | None = None,
    ) -> Answer:
        """Answer a question.

        Args:
            question: In natural language.
            topics: What it is about, if that is known.
            deadline_s: Seconds that it may take in all; None for any time.
            watch: Called with the name of each stage as it begins.

        Returns:
            The answer. If none was found it has no answers, and its `problem` says why.

        Raises:
            InputError: The question is empty.
            ModelError: A model failed.
            GraphError: The graph does not answer at all.
            DeadlineExceeded: The deadline has passed.
        """
        return self.answer(self.prepare(question, topics, deadline_s=deadline_s, watch=watch))

    def ask_many(self, questions: Sequence[str], *, batch_size: int = 8) -> list[Answer]:
        """Answer questions, with paths written for several of them at once.

        The model is faster so than question by question. What it writes for a question may differ
        slightly, as its figures depend on what it writes together. The first question that fails
        ends it; `kbqa eval` goes on, and can be resumed.

        Args:
            questions: In natural language.
            batch_size: Questions to write for at once.

        Returns:
            The answers, in the order of the questions.

        Raises:
            InputError: A question is empty, or `batch_size` is below 1.
            ModelError: A model failed.
            GraphError: The graph does not answer at all.
        """
        if batch_size < 1:
            raise InputError(f"the batch size is {batch_size}: use 1 or more")
        if isinstance(questions, str):
            raise InputError("ask_many takes a list of questions; ask takes one")
        answers: list[Answer] = []
        for at in range(0, len(questions), batch_size):
            asked = [self.prepare(question) for question in questions[at : at + batch_size]]
            answers += map(self.answer, self.write(asked))
        return answers

    def prepare(
        self,
        question: str,
        topics: Sequence[Entity] = (),
        *,
        deadline_s: float | None = None,
        watch: Watcher | None = None,
    ) -> Asked:
        """Link a question: the first of three steps; `write` and `answer` are the others.

        Raises:
            InputError: The question is empty.
            GraphError: The graph does not answer.
        """
        if not isinstance(question, str):
            raise InputError(f"the question is not text but {type(question).__name__}")
        if not question.strip():
            raise InputError("the question is empty; ask something in words")
        asked, resources = self._asked(question, topics, Clock(deadline_s, watch)), self.resources
        chat = resources.chat
        counted = None if chat is None else CountedChat(chat, asked.clock.ends_at)
        return replace(asked, chat=counted, budget=Budget(resources.call_budget))

    def write(self, asked: Sequence[Asked]) -> list[Asked]:
        """Have paths written for many questions at once.

        Returns:
            The questions with their candidates, in the same order.

        Raises:
            ModelError: The small model failed.
            GraphError: The graph, which constrains the writing, does not answer.
        """
        begun = time.perf_counter()
        written: list[list[Candidate]] = self.method.write(asked)
        share_s = (time.perf_counter() - begun) / max(len(asked), 1)
        paths = sum(map(len, written))
        logger.info("wrote %d paths for %d questions", paths, len(asked))
        for each, candidates in zip(asked, written, strict=True):
            if candidates:
                each.clock.add("write", share_s)
        return [replace(a, candidates=c) for a, c in zip(asked, written, strict=True)]

    def write_each(
        self,
        asked: Sequence[Asked],
        written: Callable[[int, Asked], object],
        is_wanted: Callable[[int], bool],
    ) -> None:
        """Have paths written for many questions at once, and pass each on as soon as it is done.

        A question that is no longer wanted, or whose deadline passes, is dropped: it is not passed
        on, and the others go on. Questions are known by their index.

        Args:
            asked: The questions.
            written: Called with each question and its candidates. It is called by this thread while
                others are still written for, so it must be quick.
            is_wanted: Asked between steps of the model whether a question is still wanted.

        Raises:
            ModelError: The small model failed, for all questions that were not passed on.
            GraphError: The graph, which constrains the writing, does not answer.
        """
        begun = time.perf_counter()
        passed_on: set[int] = set()

        def pass_on(at: int, candidates: list[Candidate]) -> None:
            passed_on.add(at)
            if candidates:
                asked[at].clock.add("write", time.perf_counter() - begun)
            written(at, replace(asked[at], candidates=candidates))

        def goes_on(at: int) -> bool:
            return is_wanted(at) and not asked[at].clock.is_over

        found = self.method.write(asked, Progress(pass_on, goes_on))
        for at, candidates in enumerate(found):
            if at not in passed_on and goes_on(at):  # from a back end that tells only at the end
                pass_on(at, candidates)

    def answer(self, asked: Asked) -> Answer:
        """Answer a question that is prepared, and written for or not; raises as `ask` does."""
        answer = self.method.answer(asked)
        return replace(answer, unsure_below=self.resources.unsure_below)

    def run_path(
        self,
        path: str | Crp,
        question: str = "",
        topics: Sequence[Entity] = (),
        *,
        relax: bool = True,
        deadline_s: float | None = None,
        watch: Watcher | None = None,
    ) -> Answer:
        """Run a path that a person wrote, without a model, whatever the engine's method is.

            engine.run_path("Kenya -> location.country.capital")

        Args:
            path: In either text form, or read already. Names without ids are looked up.
            question: What it is to answer. If several entities have a name of the path, the one
                that the question is about is meant.
            topics: Entities that the names of the path mean, before any others of these names.
            relax: Drop constraints if nothing satisfies all of them.
            deadline_s: Seconds that it may take in all; None for any time.
            watch: Called with the name of each stage as it begins.

        Returns:
            The answer. Its `problem` also says what of the path could not be read or was taken for
            something else.

        Raises:
            CrpSyntaxError: The text cannot be read as a path.
            InputError: The engine is closed.
            GraphError: The graph does not answer at all.
            DeadlineExceeded: The deadline has passed.
        """
        reading = read_given(path)
        asked, resources = self._asked(question, topics, Clock(deadline_s, watch)), self.resources
        graph, names = resources.graph, resources.names
        return run_given(asked, reading, graph, names, resources.timeout_s, relax=relax)

    def _asked(self, question: str, topics: Sequence[Entity], clock: Clock) -> Asked:
        """Link a question, which may be empty if a path is to be run."""
        if self._is_closed:
            raise InputError("the engine is closed; make another to ask more")
        resources, linked = self.resources, list[LinkedEntity]()
        given = tuple(name_topics(resources.graph, topics))
        if question.strip():
            with clock.stage("link"):
                linked = resources.linker.link(question)
            found = ", ".join(f"{each.name} ({each.mid}, {each.score:.2f})" for each in linked)
            logger.info("linked %r: %s", question, found or "nothing")
        return Asked(question, given, tuple(linked), clock)

    def close(self) -> None:
        """Close what the engine opened: the graph's names, but not the graph."""
        self._is_closed = True
        self.resources.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
