"""Options that several commands share, what they open, and the command `kbqa methods`.

The options choose the small model, the general model and what it may cost, the method with its
settings, the questions, and where a run's rows go.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from kbqa.engine.answer import UNSURE_BELOW
from kbqa.engine.asked import ChooserName
from kbqa.engine.chat.model import (
    DEFAULT_CONCURRENCY,
    DEFAULT_TIMEOUT_S,
    Price,
    parse_extra,
    parse_price,
)
from kbqa.engine.cli import check_key
from kbqa.engine.commands.screen import waiting
from kbqa.engine.methods import DEFAULT_METHOD, METHODS, describe_settings, split_settings
from kbqa.engine.writing.generate import ModelChoice, WeightsChoice
from kbqa.kb.commands.options import (
    SECONDS,
    json_option,
    option_names,
    options_of,
    print_json,
    print_note,
    print_result,
)
from kbqa.kb.option import Option
from kbqa.sparql.errors import GraphError, InputError, OutputError, SpendingLimitReached

if TYPE_CHECKING:
    from kbqa.engine.chat.model import ChatModel
    from kbqa.engine.engine import Engine
    from kbqa.engine.evaluation.evaluate import RunProgress
    from kbqa.engine.evaluation.rows import WrittenRow
    from kbqa.engine.methods import Resources
    from kbqa.engine.questions.question_sets import Question
    from kbqa.engine.writing.generate import Generator
    from kbqa.kb.commands.options import GraphChoice
    from kbqa.kb.graph import Graph


Command = Callable[..., None]


weights_options = options_of(WeightsChoice, "weights")


def _checked_model(model: ModelChoice) -> ModelChoice:
    if model.server is not None and model.backend is None:
        model = replace(model, backend="server")
    if (model.backend == "server") != (model.server is not None):
        raise click.UsageError("--backend server and --server URL go together")
    if model.server is not None and not _is_asked_via():
        check_key("server", model.server, "KBQA_SERVER_API_KEY")
    return model


model_options = options_of(ModelChoice, "model", _checked_model)


def _is_asked_via() -> bool:
    """Return whether a server is asked, which has models of its own."""
    return click.get_current_context().params.get("via") is not None


def refuse_typed(is_refused: Callable[[str], bool], why: str) -> None:
    """Refuse options, by click's names, if they were typed; other defaults just do not apply."""
    context = click.get_current_context()
    for each in context.command.params:
        name = str(each.name)
        if is_refused(name) and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{max(each.opts, key=len)} {why}")


def deadline_option(default_s: float | None = None) -> Callable[[Command], Command]:
    """Make `--deadline`; the command takes it as `deadline_s`."""
    return click.option(
        "--deadline",
        "deadline_s",
        type=SECONDS,
        default=default_s,
        metavar="SECONDS",
        help="Give up a question after this time in all.",
    )


def resources_over(
    graph: "GraphChoice",
    model: ModelChoice,
    chat: "ChatChoice",
    method: "MethodChoice",
    saved: "Generator | None" = None,
) -> "Callable[[Graph], Resources]":
    """Return what makes all that a question needs, as the user chose it, over an open graph.

    The small model is loaded only if the method writes paths. `saved` stands in for it if all paths
    have been written before.
    """
    from kbqa.engine.methods import Resources

    return lambda opened: Resources(
        opened,
        partial(model.load, opened) if saved is None else lambda: saved,
        chat.open,
        n=model.n,
        timeout_s=graph.timeout_s,
        chooser=method.chooser,
        call_budget=method.call_budget,
        unsure_below=method.unsure_below,
        threads=model.threads,
    )


@contextmanager
def open_engine(
    graph: "GraphChoice",
    model: ModelChoice,
    chat: "ChatChoice",
    method: "MethodChoice",
    saved: "Generator | None" = None,
    workers: int = 1,
) -> "Iterator[Engine]":
    """Open what a question needs; see `resources_over`. `workers` queries run at once."""
    with waiting("Opening the graph"):
        from kbqa.engine.engine import Engine
        from kbqa.engine.methods import make_method

        chat.check()
        opened = graph.open(workers)
    with closing(opened):
        check_answers(opened, graph.timeout_s)

        resources = resources_over(graph, model, chat, method, saved)(opened)
        with closing(resources):
            with waiting("Loading the model"):
                made = make_method(resources, method.name, method.settings)
            yield Engine.over(resources, made)


def check_answers(graph: "Graph", timeout_s: float) -> None:
    """Check that a graph answers and holds something, before work begins."""
    if not graph.ask("ASK { ?s ?p ?o }", timeout_s=timeout_s):
        raise GraphError(f"{graph.description} holds no triples")


INPUT_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
"""The type of an option that names a file to read."""


def questions_option_of(is_required: bool) -> Callable[[Command], Command]:
    """Make `--questions`, which the command takes as `file: Path`, or None if it is not given."""
    return click.option(
        "--questions",
        "file",
        type=INPUT_FILE,
        required=is_required,
        metavar="FILE",
        help="Question set: JSON Lines, gzipped or not, or a file of WebQSP, CWQ, GrailQA, "
        "Free917, SimpleQuestions, WebQuestions, FreebaseQA, RoG or ToG.",
    )


questions_option = questions_option_of(is_required=True)


class _Parsed(click.ParamType[Any]):
    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True, slots=True)
class ChatLimits:
    """What a run may ask of the general model."""

    price: Annotated[
        Price | None,
        Option(
            "USD for a million input and output tokens, such as 0.15/0.60.  [default: known for a "
            "few models]",
            "--llm-price",
            metavar="IN/OUT",
            type=_Parsed("price", parse_price),
        ),
    ] = None
    usd: Annotated[
        float | None,
        Option(
            "Stop once this run has spent this much. Cached replies cost nothing.",
            "--llm-limit",
            metavar="USD",
            at_least=0,
        ),
    ] = None
    calls: Annotated[
        int | None,
        Option(
            "Send it at most N requests; with 0, use only cached replies.",
            "--llm-calls",
            metavar="N",
            at_least=0,
        ),
    ] = None
    concurrency: Annotated[
        int, Option("Requests to send to it at once.", "--llm-concurrency", metavar="N", at_least=1)
    ] = DEFAULT_CONCURRENCY
    timeout_s: Annotated[
        float,
        Option("Time limit of a request to it, in seconds.", "--llm-timeout", metavar="S", above=0),
    ] = DEFAULT_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class ChatChoice:
    """The general model that the user chose, not yet asked; none without URL and name."""

    url: Annotated[
        str | None,
        Option(
            "OpenAI-compatible server of the general model, such as http://127.0.0.1:8000/v1; "
            "OpenAI's own if only --llm-model is given. Its key is read from KBQA_LLM_KEY.",
            "--llm",
            metavar="URL",
        ),
    ] = None
    model: Annotated[
        str | None,
        Option(
            "The general model's name on its server, such as gpt-4o-mini.",
            "--llm-model",
            metavar="NAME",
        ),
    ] = None
    extra: Annotated[
        Mapping[str, Any] | None,
        Option(
            "Parameters to add to each request to it; null leaves out one that kbqa sends. On many "
            """servers '{"chat_template_kwargs": {"enable_thinking": false}}' stops thinking.""",
            "--llm-extra",
            metavar="JSON",
            type=_Parsed("JSON", parse_extra),
        ),
    ] = None
    no_cache: Annotated[bool, Option("Do not use or write the reply cache.", "--no-llm-cache")] = (
        False
    )
    limits: ChatLimits = ChatLimits()
    is_stand_in: bool = False
    """Send it nothing: count the prompts only, for an estimate."""

    def check(self) -> None:
        """Check cheaply that the model can be asked, without asking its server."""
        if self.url is None and self.model is None:
            return
        from kbqa.engine.chat.server import OPENAI_URL, check_server

        check_server(self.url or OPENAI_URL)

    def open(self) -> "ChatModel | None":
        """Return the model, ready for requests; None if the user chose none.

        Its server is asked for nothing but the model's name, and only if none is given.
        """
        if self.url is None and self.model is None:
            return None
        limits = self.limits
        if self.is_stand_in:
            from kbqa.engine.chat.cache import StandIn
            from kbqa.engine.chat.model import find_price

            price = limits.price or (None if self.model is None else find_price(self.model))
            return StandIn(self.model or str(self.url), price)
        from kbqa.engine.chat.cache import CachedChat
        from kbqa.engine.chat.model import SpendingLimit
        from kbqa.engine.chat.openai import OpenAIChat
        from kbqa.engine.chat.server import OPENAI_URL

        model = OpenAIChat(
            self.url or OPENAI_URL,
            self.model,
            price=limits.price,
            limit=SpendingLimit(limits.usd, limits.calls),
            concurrency=limits.concurrency,
            timeout_s=limits.timeout_s,
            extra=self.extra,
        )
        return model if self.no_cache else CachedChat(model, model.identity, model.price)


def _checked_chat(chat: ChatChoice) -> ChatChoice:
    if _is_asked_via():
        return chat
    if chat.url is not None:
        check_key("llm", chat.url, "KBQA_LLM_KEY")
    elif chat.model is not None:
        check_key("llm_model", "OpenAI's own server", "KBQA_LLM_KEY")
    else:
        about_it = {*option_names(ChatChoice).values(), *option_names(ChatLimits).values()}
        why = "is about a general model: add --llm URL or --llm-model NAME"
        refuse_typed(about_it.__contains__, why)
    return chat


chat_options = options_of(ChatChoice, "chat", _checked_chat)
chat_limits = options_of(ChatLimits, "limits")


@dataclass(frozen=True, slots=True)
class RunChoice:
    """Which questions of a set the user wants asked, how, and where the rows go."""

    output: Annotated[
        Path | None,
        Option(
            "Where the rows go, one a question, with a manifest beside.",
            metavar="RUN.jsonl",
            path="file",
        ),
    ] = None
    gold_entities: Annotated[
        bool, Option("Give the gold topic entities; link only without any.")
    ] = False
    resume: Annotated[bool, Option("Resume the run in --output, and ask again what failed.")] = (
        False
    )
    overwrite: Annotated[bool, Option("Replace the run in --output.")] = False
    concurrency: Annotated[
        int, Option("Questions to work on at once; trust times only with 1.", at_least=1)
    ] = 1
    sample: Annotated[
        int | None, Option("Take only N questions of the set.", metavar="N", at_least=1)
    ] = None
    seed: Annotated[int, Option("Seed of --sample.")] = 42
    timings: Annotated[
        bool,
        Option(
            "Write in rows what differs from run to run, such as seconds.", "--timings/--no-timings"
        ),
    ] = True

    def read(self, file: Path) -> "Sequence[Question]":
        """Read the questions of a file, or the sample of them."""
        from kbqa.engine.questions.question_sets import read_questions

        return self.sampled(read_questions(file))

    def sampled(self, questions: "Sequence[Question]") -> "Sequence[Question]":
        """Return the questions, or the sample of them."""
        from kbqa.engine.questions.question_sets import sample_questions

        if self.sample is None:
            return questions
        return sample_questions(questions, self.sample, self.seed)

    def checked_output(self) -> Path:
        """Check that rows can be written, and that none are overwritten or resumed unasked."""
        output = self.output
        if output is None:
            raise click.UsageError("Missing option '--output'.")
        if self.resume and self.overwrite:
            raise InputError("choose one: --resume or --overwrite")
        if not output.parent.is_dir():
            raise InputError(f"there is no folder {output.parent} to write {output.name} to")
        check_output(output)
        if output.exists() and not (self.resume or self.overwrite):
            raise InputError(
                f"{output} exists. Add --resume to continue it, or --overwrite to replace it."
            )
        return output


def check_output(output: Path) -> None:
    """Check that no input of the command is its output, its manifest, or a file in it.

    Neither by another path nor by a link.
    """
    from kbqa.engine.files import manifest_path

    context = click.get_current_context()
    written = (output, manifest_path(output))
    for parameter in context.command.params:
        if not (isinstance(parameter.type, click.Path) and parameter.type.exists):
            continue
        value = context.params[str(parameter.name)]
        for path in value if isinstance(value, tuple) else (value,):
            if path is not None and any(_is_within(path, each) for each in written):
                raise InputError(
                    f"--output {output} would overwrite {path}, which is read "
                    f"({parameter.opts[0]}). Choose another --output."
                )


def _is_within(path: Path, output: Path) -> bool:
    found, written = path.resolve(), output.resolve()
    is_same = found.exists() and written.exists() and found.samefile(written)
    return is_same or written in found.parents


run_options = options_of(RunChoice, "run")


@contextmanager
def watched(progress: "RunProgress") -> "Iterator[Callable[[WrittenRow], None]]":
    """Show the progress of a run, and if it is stopped, say how to resume.

    The function that is yielded is called with each row.
    """
    from tqdm import tqdm

    from kbqa.engine.cli import Stopped, stop_on_signals

    try:
        with stop_on_signals(), tqdm(total=progress.total, unit="question", disable=None) as bar:

            def advance(row: "WrittenRow") -> None:
                progress.add(row)
                bar.set_postfix(progress.figures(), refresh=False)
                bar.update()

            yield advance
    except (Stopped, SpendingLimitReached, OutputError) as stop:
        print_note(f"Error: {stop}")
        print_note(f"{progress.left} of {progress.total} questions are left. Use --resume.")
        raise SystemExit(stop.exit_code if isinstance(stop, Stopped) else 1) from stop


class _MethodName(click.ParamType[str]):
    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in METHODS if name.startswith(incomplete)]


@dataclass(frozen=True, slots=True)
class MethodChoice:
    """The method that the user chose, not yet made."""

    name: Annotated[
        str,
        Option(
            "How to answer; `kbqa methods` lists the ways.",
            "--method",
            metavar="NAME",
            type=_MethodName(),
        ),
    ] = DEFAULT_METHOD
    texts: Annotated[
        tuple[str, ...],
        Option(
            "Setting of the method, see `kbqa methods NAME`; repeatable.",
            "--set",
            metavar="NAME=VALUE",
            repeatable=True,
        ),
    ] = ()
    chooser: Annotated[
        ChooserName | None,
        Option(
            "Who decides: llm, embedder or random.  [default: llm with --llm, else embedder]",
            metavar="NAME",
        ),
    ] = None
    call_budget: Annotated[
        int | None, Option("Decisions a question, at most.", metavar="N", at_least=1)
    ] = None
    unsure_below: Annotated[
        float,
        Option("Call an answer of less confidence a guess.", metavar="P", at_least=0, at_most=1),
    ] = UNSURE_BELOW

    def __post_init__(self) -> None:
        split_settings(self.texts)  # mistakes are reported before a graph or a model is opened

    @property
    def settings(self) -> dict[str, object]:
        """The settings as the user wrote them, by name."""
        return split_settings(self.texts)


method_options = options_of(MethodChoice, "method")


@click.command()
@click.argument("name", required=False, type=_MethodName())
@json_option
def methods(name: str | None, as_json: bool) -> None:
    """List the methods, or the settings of the method NAME, for --set."""
    from kbqa.engine.methods import find_method

    if name is None:
        rows = [{"name": each, "summary": method.summary} for each, method in METHODS.items()]
        shown = "{name}  {summary}"
    else:
        rows = [each._asdict() for each in describe_settings(find_method(name).settings)]
        shown = "{name} = {default}  ({values})\n    {text}"
    if as_json:
        print_json(rows, indent=2)
        return
    for row in rows:
        print_result(shown.format(**row))
