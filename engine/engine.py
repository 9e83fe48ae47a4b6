"""The engine that the terminal, evaluation, Python and servers all ask through."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from kbqa.engine.answer import UNSURE_BELOW, Answer
from kbqa.engine.asked import Asked, Budget, ChooserName, Clock, Method, Watcher
from kbqa.engine.chat.cache import CountedChat
from kbqa.engine.chat.model import ChatModel
from kbqa.engine.conversation import Completed, Completer, answering_path, split
from kbqa.engine.linking.ground import name_topics
from kbqa.engine.linking.linker import LinkedEntity
from kbqa.engine.methods import DEFAULT_METHOD, Resources, make_method
from kbqa.engine.questions.words import with_topic
from kbqa.engine.running.run import read_given, run_given
from kbqa.engine.writing.generate import DEFAULT_BEAMS, Candidate, Generator, NoPaths, Progress
from kbqa.kb.deadline import Deadline, keep_to
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import render_crp

logger = logging.getLogger(__name__)


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
        history: Sequence[str] = (),
        deadline_s: float | None = None,
        watch: Watcher | None = None,
    ) -> Answer:
        """Answer a question, or several in one.

        Args:
            question: In natural language.
            topics: What it is about, if that is known.
            history: The questions before it, oldest first, if it goes on from them. They are
                answered again: a `Conversation` keeps their answers.
            deadline_s: Seconds that it may take in all; None for any time.
            watch: Called with the name of each stage as it begins.

        Returns:
            The answer. If none was found it has no answers, and its `problem` says why. If several
            questions were asked in one, it has the answer to each as `parts`.

        Raises:
            InputError: The question is empty.
            ModelError: A model failed.
            GraphError: The graph does not answer at all.
            DeadlineExceeded: The deadline has passed.
        """
        conversation = Conversation(self)
        with keep_to(None if deadline_s is None else Deadline.after(deadline_s)):
            for earlier in history:
                conversation.ask(earlier, deadline_s=deadline_s, watch=watch)
            return conversation.ask(question, topics, deadline_s=deadline_s, watch=watch)

    def complete(
        self, question: str, turns: Sequence[Answer], *, at_once: bool = False
    ) -> Completed:
        """Write a question so that it stands for itself; see `Completer.complete`."""
        completer = Completer(self.resources.graph, self.resources.linker)
        return completer.complete(question, turns, at_once=at_once)

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
        question: str | Completed,
        topics: Sequence[Entity] = (),
        *,
        deadline_s: float | None = None,
        watch: Watcher | None = None,
    ) -> Asked:
        """Link a question: the first of three steps; `write` and `answer` are the others.

        Args:
            question: In natural language, or as `complete` returns it.
            topics: What it is about, if that is known.
            deadline_s: Seconds that it may take in all; None for any time.
            watch: Called with the name of each stage as it begins.

        Raises:
            InputError: The question is empty.
            GraphError: The graph does not answer.
        """
        completed = question if isinstance(question, Completed) else Completed(question)
        _check_text(completed.question)
        clock, resources = Clock(deadline_s, watch), self.resources
        asked = self._asked(completed.question, topics or completed.topics, clock)
        path, chat = completed.path, resources.chat
        return replace(
            asked,
            typed=completed.typed or asked.typed,
            carried=None if path is None else Candidate(render_crp(path), 0.0, 1, rank=0),
            chat=None if chat is None else CountedChat(chat),
            budget=Budget(resources.call_budget),
        )

    def write(self, asked: Sequence[Asked]) -> list[Asked]:
        """Have paths written for many questions at once, until the first deadline of one.

        Returns:
            The questions with their candidates, in the same order.

        Raises:
            ModelError: The small model failed.
            GraphError: The graph, which constrains the writing, does not answer.
        """
        begun = time.perf_counter()
        deadlines = [each.clock.deadline for each in asked if each.clock.deadline is not None]
        with keep_to(min(deadlines, key=attrgetter("ends_at"), default=None)):
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
        with keep_to(asked.clock.deadline):
            answer = self.method.answer(asked)
        typed = asked.typed or asked.question
        return replace(
            answer,
            question=typed,
            understood=None if typed == asked.question else asked.question,
            unsure_below=self.resources.unsure_below,
        )

    def leave_out(self, answer: Answer, entities: Sequence[Entity]) -> Answer:
        """Return an answer without some entities, which "other" in its question leaves out."""
        path, found = answering_path(answer), {each.term for each in answer.answers}
        named = [each for each in entities if each.mid in found]
        if path is None or not named:
            return answer
        left = self.run_path(path.without_answers(named), answer.question)
        return replace(
            answer,
            answers=left.answers,
            trace=left.trace,
            sparql=left.sparql,
            evidence=left.evidence,
            problem=left.problem,
            reason=left.reason,
        )

    def run_path(
        self,
        path: str | Crp,
        question: str = "",
        topics: Sequence[Entity] = (),
        *,
        relax: bool = True,
        graph: Graph | None = None,
        timeout_s: float | None = None,
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
            graph: The same graph opened once more, to run it there; None for the engine's own.
            timeout_s: Seconds for each query; None for the engine's own limit.
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
        timeout_s = timeout_s or resources.timeout_s
        graph = graph or resources.graph
        answer = run_given(asked, reading, graph, resources.names, timeout_s, relax=relax)
        return replace(answer, question=question)

    def _asked(self, question: str, topics: Sequence[Entity], clock: Clock) -> Asked:
        """Link a question, which may be empty if a path is to be run."""
        if self._is_closed:
            raise InputError("the engine is closed; make another to ask more")
        resources, linked = self.resources, list[LinkedEntity]()
        # JSON can hold half a surrogate pair, which no tokenizer, server or file takes.
        question = question.encode(errors="replace").decode()
        given = tuple(name_topics(resources.graph, topics))
        typed = question
        if question.strip():
            with clock.stage("link"):
                linked = resources.linker.link(question)
                question = _with_topics(question, given, linked)
                if question != typed:
                    linked = resources.linker.link(question)
            found = ", ".join(f"{each.name} ({each.mid}, {each.score:.2f})" for each in linked)
            logger.info("linked %r: %s", question, found or "nothing")
        return Asked(question, given, tuple(linked), clock, typed=typed)

    def close(self) -> None:
        """Close what the engine opened: the graph's names, but not the graph."""
        self._is_closed = True
        self.resources.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Conversation:
    """A dialogue: each question may go on from those before it.

    conversation = Conversation(engine)
    conversation.ask("what is the capital of Kenya?")
    conversation.ask("how many people live there?")
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.turns: list[Answer] = []
        """The answers so far, oldest first; each of several questions in one has its own."""

    def ask(
        self,
        question: str,
        topics: Sequence[Entity] = (),
        *,
        deadline_s: float | None = None,
        watch: Watcher | None = None,
    ) -> Answer:
        """Answer the next question; see `Engine.ask`."""
        _check_text(question)
        engine, parts = self._engine, list[Answer]()
        for text in split(question):
            turns = [] if topics else [*self.turns, *parts]
            completed = engine.complete(text, turns, at_once=bool(parts))
            asked = engine.prepare(completed, topics, deadline_s=deadline_s, watch=watch)
            parts.append(engine.leave_out(engine.answer(asked), completed.without))
        self.turns += parts
        return parts[0] if len(parts) == 1 else Answer.of_parts(question, parts)


def _check_text(question: str) -> None:
    """Refuse what is no question."""
    if not isinstance(question, str):
        raise InputError(f"the question is not text but {type(question).__name__}")
    if not question.strip():
        raise InputError("the question is empty; ask something in words")


def _with_topics(question: str, given: Sequence[Entity], linked: Sequence[LinkedEntity]) -> str:
    """Write the given topics into a question that names none of them and leaves them out."""
    names = [topic.name for topic in given if topic.name]
    mids = {topic.mid for topic in given}
    is_named = any(each.mid in mids for each in linked) or any(
        name.lower() in question.lower() for name in names
    )
    return question if is_named or not names else with_topic(question, " and ".join(names))
