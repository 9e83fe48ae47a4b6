"""Options that several commands share, and the command `kbqa methods`.

They choose the small model, the general model and what it may cost, the method with its settings,
the questions, and how a row for each question is written.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, get_args

import click

from kbqa.engine.answer import UNSURE_BELOW
from kbqa.engine.asked import ChooserName
from kbqa.engine.chat.model import DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT_S, Price, parse_price
from kbqa.engine.cli import check_key
from kbqa.engine.commands.screen import waiting
from kbqa.engine.methods import DEFAULT_METHOD, METHODS
from kbqa.engine.methods.options import describe_settings, split_settings
from kbqa.engine.writing.generate import (
    DEFAULT_LEVEL,
    LEVELS,
    DecodingLevel,
)
from kbqa.engine.writing.model_choice import BEAM_BACKENDS, Backend, ModelChoice
from kbqa.kb.commands.options import SECONDS, json_option, print_json, print_note, print_result
from kbqa.sparql.errors import GraphError, InputError, OutputError, SpendingLimitReached

if TYPE_CHECKING:
    from kbqa.engine.chat.model import ChatModel
    from kbqa.engine.engine import Engine
    from kbqa.engine.questions.question_sets import Question
    from kbqa.engine.writing.generate import Generator
    from kbqa.kb.commands.options import GraphChoice
    from kbqa.kb.graph import Graph


Command = Callable[..., None]


def weights_options(command: Command) -> Command:
    """Add `--model` and `--adapter`; the command takes them as `base` and `adapter`."""
    base = click.option(
        "--model", "base", metavar="MODEL", help="Base model instead of the adapter's."
    )
    adapter = click.option(
        "--adapter",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Adapter of `kbqa train-crp` instead of the shipped one.",
    )
    return base(adapter(command))


class _Level(click.Choice[str]):
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        if value == "grammar":
            self.fail("grammar was removed: it improved nothing. Use schema.", param, ctx)
        return super().convert(value, param, ctx)


def model_options(command: Command) -> Command:
    """Add what chooses the small model; the command takes it as `model: ModelChoice`."""

    @weights_options
    @click.option(
        "--n",
        type=click.IntRange(1, 50),
        default=5,
        show_default=True,
        help="Reasoning paths to write for a question.",
    )
    @click.option(
        "--decoding",
        type=_Level(LEVELS),
        help="What constrains the writing: nothing, the graph's relations, or its ways from the "
        f"question's entities.  [default: {DEFAULT_LEVEL}; none under vllm and server]",
    )
    @click.option(
        "--backend",
        type=click.Choice(get_args(Backend)),
        help="What runs the small model.  [default: openvino if it is installed and there is no "
        "GPU, else transformers]",
    )
    @click.option(
        "--server",
        metavar="URL",
        help="OpenAI-compatible server of the small model.",
    )
    @click.option(
        "--served-model", metavar="NAME", help="Its name on --server, if that has several."
    )
    @click.option(
        "--threads",
        type=click.IntRange(1),
        metavar="N",
        help="Threads of the small model.  [default: one a core]",
    )
    @functools.wraps(command)
    def with_model(
        *args: object,
        base: str | None,
        adapter: Path | None,
        n: int,
        decoding: DecodingLevel | None,
        backend: Backend | None,
        server: str | None,
        served_model: str | None,
        threads: int | None,
        **rest: object,
    ) -> None:
        backend = backend or ("server" if server is not None else None)
        if (backend == "server") != (server is not None):
            raise click.UsageError("--backend server and --server URL go together")
        if server is not None and rest.get("via") is None:
            check_key("server", server, "KBQA_SERVER_API_KEY")
        searches = backend is None or backend in BEAM_BACKENDS
        level = decoding or (DEFAULT_LEVEL if searches else "none")
        model = ModelChoice(base, adapter, n, level, backend, server, served_model, threads)
        command(*args, model=model, **rest)

    return with_model


def deadline_option(command: Command) -> Command:
    """Add `--deadline`; the command takes it as `deadline_s: float | None`."""
    return click.option(
        "--deadline",
        "deadline_s",
        type=SECONDS,
        metavar="SECONDS",
        help="Give up a question after this time in all.",
    )(command)


@contextmanager
def open_engine(
    graph: "GraphChoice",
    model: ModelChoice,
    chat: "ChatChoice",
    method: "MethodChoice",
    saved: "Generator | None" = None,
    workers: int = 1,
) -> "Iterator[Engine]":
    """Open what a question needs, as the user chose it.

    Args:
        graph: The graph.
        model: The small model, loaded only if the method writes paths.
        chat: The general model.
        method: The method and its settings.
        saved: Stands in for the small model if all paths have been written before.
        workers: Queries that run at once.

    Raises:
        InputError: The choices contradict each other.
        ModelError: A model is missing or broken.
        GraphError: The graph does not answer, or holds nothing.
    """
    with waiting("Opening the graph"):
        from kbqa.engine.engine import Engine
        from kbqa.engine.methods.options import make_method
        from kbqa.engine.resources import Resources

        chat.check()
        opened = graph.open(workers)
    with closing(opened):
        check_answers(opened, graph.timeout_s)

        def load() -> "Generator":
            return model.load(opened) if saved is None else saved

        resources = Resources(
            opened,
            load,
            chat.open,
            n=model.n,
            timeout_s=graph.timeout_s,
            chooser=method.chooser,
            call_budget=method.call_budget,
            unsure_below=method.unsure_below,
            threads=model.threads,
        )
        with closing(resources):
            with waiting("Loading the model"):
                made = make_method(resources, method.name, method.settings)
            yield Engine.over(resources, made)


def check_answers(graph: "Graph", timeout_s: float) -> None:
    """Check that a graph answers and holds something, before work begins.

    Raises:
        GraphError: It does not.
    """
    if not graph.ask("ASK { ?s ?p ?o }", timeout_s=timeout_s):
        raise GraphError(f"{graph.description} holds no triples")


def questions_option(command: Command) -> Command:
    """Add `--questions`, a file that exists; the command takes it as `file: Path`."""
    return click.option(
        "--questions",
        "file",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        required=True,
        metavar="FILE",
        help="Question set: JSON Lines, gzipped or not, or an official file of WebQSP, CWQ, "
        "GrailQA, Free917 or SimpleQuestions.",
    )(command)


_KEY_VARIABLE = "KBQA_LLM_KEY"


@dataclass(frozen=True, slots=True)
class ChatChoice:
    """The general model that the user chose, not yet asked.

    Attributes:
        url: Where it is served; None for OpenAI's own server.
        model: Its name on the server; None if the server offers only one.
        price: The price of its tokens; None for the one in the table of prices.
        limit_usd: What its replies may cost; None for no limit.
        limit_calls: Requests that may be sent; None for no limit.
        concurrency: Requests under way at once.
        timeout_s: Seconds for one request.
        is_cached: Whether its replies are kept, and looked for before it is asked.
        is_stand_in: Nothing is sent to it: prompts are only counted, for an estimate.
    """

    url: str | None = None
    model: str | None = None
    price: Price | None = None
    limit_usd: float | None = None
    limit_calls: int | None = None
    concurrency: int = DEFAULT_CONCURRENCY
    timeout_s: float = DEFAULT_TIMEOUT_S
    is_cached: bool = True
    is_stand_in: bool = False

    def check(self) -> None:
        """Cheaply check that the model can be asked, without asking its server.

        Raises:
            InputError: The URL or the key is not valid.
            ModelError: The `llm` extra is missing.
        """
        if self.url is None and self.model is None:
            return
        from kbqa.engine.chat.server import OPENAI_URL, check_server

        check_server(self.url or OPENAI_URL)

    def open(self) -> "ChatModel | None":
        """Return the model, ready for requests; None if the user chose none.

        Its server is asked for nothing but the model's name, and only if none is given.

        Raises:
            InputError: The URL, the key or the limit is not valid.
            ModelError: The `llm` extra is missing, or the server does not say which model it has.
        """
        if self.url is None and self.model is None:
            return None
        if self.is_stand_in:
            from kbqa.engine.chat.cache import StandIn
            from kbqa.engine.chat.model import find_price

            price = self.price or (None if self.model is None else find_price(self.model))
            return StandIn(self.model or str(self.url), price)
        from kbqa.engine.chat.cache import CachedChat
        from kbqa.engine.chat.model import SpendingLimit
        from kbqa.engine.chat.openai import OpenAIChat
        from kbqa.engine.chat.server import OPENAI_URL

        model = OpenAIChat(
            self.url or OPENAI_URL,
            self.model,
            price=self.price,
            limit=SpendingLimit(self.limit_usd, self.limit_calls),
            concurrency=self.concurrency,
            timeout_s=self.timeout_s,
        )
        return CachedChat(model, model.identity, model.price) if self.is_cached else model


def chat_options(command: Command) -> Command:
    """Add the options that choose the general model, as the parameter `chat: ChatChoice`."""

    @click.option(
        "--llm",
        metavar="URL",
        help="OpenAI-compatible server of the general model, such as http://127.0.0.1:8000/v1; "
        "OpenAI's own if only --llm-model is given. Its key is read from KBQA_LLM_KEY.",
    )
    @click.option(
        "--llm-model",
        metavar="NAME",
        help="The general model's name on its server, such as gpt-4o-mini.",
    )
    @click.option("--no-llm-cache", is_flag=True, help="Do not use or write the reply cache.")
    @functools.wraps(command)
    def with_chat(
        *args: object, llm: str | None, llm_model: str | None, no_llm_cache: bool, **rest: object
    ) -> None:
        if rest.get("via") is None:  # a server that is asked has a general model of its own
            if llm is not None:
                check_key("llm", llm, _KEY_VARIABLE)
            elif llm_model is not None:
                check_key("llm_model", "OpenAI's own server", _KEY_VARIABLE)
        command(*args, chat=ChatChoice(llm, llm_model, is_cached=not no_llm_cache), **rest)

    return with_chat


def chat_limits(command: Command) -> Command:
    """Add the options that limit the use of the general model; goes below `chat_options`."""

    @click.option(
        "--llm-price",
        callback=_read_price,
        metavar="IN/OUT",
        help="USD for a million input and output tokens, such as 0.15/0.60.  [default: "
        "known for a few models]",
    )
    @click.option(
        "--llm-limit",
        type=click.FloatRange(min=0),
        metavar="USD",
        help="Stop once this run has spent this much. Cached replies cost nothing.",
    )
    @click.option(
        "--llm-calls",
        type=click.IntRange(min=0),
        metavar="N",
        help="Send it at most N requests; with 0, use only cached replies.",
    )
    @click.option(
        "--llm-concurrency",
        type=click.IntRange(min=1),
        default=DEFAULT_CONCURRENCY,
        show_default=True,
        metavar="N",
        help="Requests to send to it at once.",
    )
    @click.option(
        "--llm-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=DEFAULT_TIMEOUT_S,
        show_default=True,
        metavar="S",
        help="Time limit of a request to it, in seconds.",
    )
    @functools.wraps(command)
    def with_limits(
        *args: object,
        chat: ChatChoice,
        llm_price: Price | None,
        llm_limit: float | None,
        llm_calls: int | None,
        llm_concurrency: int,
        llm_timeout: float,
        **rest: object,
    ) -> None:
        chat = replace(
            chat,
            price=llm_price,
            limit_usd=llm_limit,
            limit_calls=llm_calls,
            concurrency=llm_concurrency,
            timeout_s=llm_timeout,
        )
        command(*args, chat=chat, **rest)

    return with_limits


def _read_price(_: click.Context, option: click.Parameter, text: str | None) -> Price | None:
    try:
        return None if text is None else parse_price(text)
    except InputError as error:
        raise click.BadParameter(str(error), param=option) from None


_R = TypeVar("_R", contravariant=True)


class Progress(Protocol[_R]):
    """How far a run is."""

    def add(self, row: _R) -> None:
        """Count a row."""

    @property
    def left(self) -> int:
        """Questions that a resumed run would ask: those to come, and those that failed."""

    def figures(self) -> Mapping[str, str]:
        """Return what is shown of the rows so far, by name."""


@dataclass(frozen=True, slots=True)
class RunChoice:
    """How the user wants the questions of a set taken, and where the rows go.

    Attributes:
        output: The file of rows, if the user named one.
        gold_entities: The gold topics are given; only a question without any is linked.
        resume: Continue the run in `output`.
        overwrite: Replace it.
        concurrency: Questions to work on at once.
        sample: How many questions to draw; None for all.
        seed: What they are drawn by.
        timings: Rows include what differs from run to run.
    """

    output: Path | None
    gold_entities: bool
    resume: bool
    overwrite: bool
    concurrency: int
    sample: int | None
    seed: int
    timings: bool

    def read(self, file: Path) -> "Sequence[Question]":
        """Read the questions of a file, or the sample of them.

        Raises:
            InputError: See `kbqa.engine.questions.question_sets.read_questions`.
        """
        from kbqa.engine.questions.question_sets import read_questions, sample_questions

        questions = read_questions(file)
        if self.sample is None:
            return questions
        return sample_questions(questions, self.sample, self.seed)

    def checked_output(self) -> Path:
        """Check that rows can be written, and that none are overwritten or resumed unasked.

        Raises:
            InputError: They cannot be written, or an input or a run is there.
        """
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
    """Check that the command that runs reads nothing from what it writes, by any path or link.

    Raises:
        InputError: An input is the output, its manifest, or a file in it.
    """
    from kbqa.engine.files import manifest_path

    context = click.get_current_context()
    for parameter in context.command.params:
        if isinstance(parameter.type, click.Path) and parameter.type.exists:
            value = context.params[str(parameter.name)]
            for path in value if isinstance(value, tuple) else (value,):
                written = (output, manifest_path(output))
                if path is not None and any(_is_within(path, each) for each in written):
                    name = parameter.opts[0]
                    raise InputError(
                        f"--output {output} would overwrite {path}, which is read ({name}). "
                        "Choose another --output."
                    )


def _is_within(path: Path, output: Path) -> bool:
    found, written = path.resolve(), output.resolve()
    is_same = found.exists() and written.exists() and found.samefile(written)
    return is_same or written in found.parents


def run_options(command: Command) -> Command:
    """Add what says how a question set is taken; the command takes it as `run: RunChoice`."""

    @click.option(
        "--output",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="RUN.jsonl",
        help="Where the rows go, one a question, with a manifest beside.",
    )
    @click.option(
        "--gold-entities",
        is_flag=True,
        help="Give the gold topic entities; link only without any.",
    )
    @click.option(
        "--resume", is_flag=True, help="Resume the run in --output, and ask again what failed."
    )
    @click.option("--overwrite", is_flag=True, help="Replace the run in --output.")
    @click.option(
        "--concurrency",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Questions to work on at once; trust times only with 1.",
    )
    @click.option(
        "--sample", type=click.IntRange(1), metavar="N", help="Take only N questions of the set."
    )
    @click.option("--seed", default=42, show_default=True, help="Seed of --sample.")
    @click.option(
        "--timings/--no-timings",
        default=True,
        show_default=True,
        help="Write in rows what differs from run to run, such as seconds.",
    )
    @functools.wraps(command)
    def with_run(
        *args: object,
        output: Path | None,
        gold_entities: bool,
        resume: bool,
        overwrite: bool,
        concurrency: int,
        sample: int | None,
        seed: int,
        timings: bool,
        **rest: object,
    ) -> None:
        run = RunChoice(
            output, gold_entities, resume, overwrite, concurrency, sample, seed, timings
        )
        command(*args, run=run, **rest)

    return with_run


@contextmanager
def watched(progress: Progress[_R], total: int) -> Iterator[Callable[[_R], None]]:
    """Show the progress of a run; if it is stopped, say how to resume.

    Args:
        progress: Counts the rows.
        total: The questions of the run.

    Yields:
        What is to be called with each row.
    """
    from tqdm import tqdm

    from kbqa.engine.cli import Stopped, stop_on_signals

    try:
        with stop_on_signals(), tqdm(total=total, unit="question", disable=None) as bar:

            def advance(row: _R) -> None:
                progress.add(row)
                bar.set_postfix(progress.figures(), refresh=False)
                bar.update()

            yield advance
    except (Stopped, SpendingLimitReached, OutputError) as stop:
        print_note(f"Error: {stop}")
        print_note(f"{progress.left} of {total} questions are left. Use --resume.")
        raise SystemExit(stop.exit_code if isinstance(stop, Stopped) else 1) from stop


_OLD_METHODS = {
    "specialised": "--method kbqa --set repair=off",
    "general": "--method kbqa --set write=no",
}
"""What `--method` was called before there were several methods."""

_OLD_OPTIONS = (
    "--repair",
    "--route",
    "--general-calls",
    "--stop",
    "--width",
    "--embedder",
    "--order",
    "--confidence",
    "--without",
)
"""Options that are settings of the router now."""


@dataclass(frozen=True, slots=True)
class MethodChoice:
    """The method that the user chose, not yet made.

    Attributes:
        name: In the table of methods.
        settings: As the user wrote them, by name.
        chooser: Who takes its decisions, if the user says so.
        call_budget: Decisions a question, at most; None for any number.
        unsure_below: The confidence below which an answer is a guess.
    """

    name: str
    settings: dict[str, object]
    chooser: ChooserName | None = None
    call_budget: int | None = None
    unsure_below: float = UNSURE_BELOW


def _complete_method(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in METHODS if name.startswith(incomplete)]


def method_options(command: Command) -> Command:
    """Add the options of methods; the command takes them as `method: MethodChoice`."""

    @click.option(
        "--method",
        "name",
        default=DEFAULT_METHOD,
        show_default=True,
        metavar="NAME",
        shell_complete=_complete_method,
        help="How to answer; `kbqa methods` lists the ways.",
    )
    @click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Setting of the method, see `kbqa methods NAME`; repeatable.",
    )
    @click.option(
        "--chooser",
        type=click.Choice(get_args(ChooserName)),
        metavar="NAME",
        help="Who decides: llm, embedder or random.  [default: llm with --llm, else embedder]",
    )
    @click.option(
        "--call-budget",
        type=click.IntRange(1),
        metavar="N",
        help="Decisions a question, at most.",
    )
    @click.option(
        "--unsure-below",
        type=click.FloatRange(0, 1),
        default=UNSURE_BELOW,
        show_default=True,
        metavar="P",
        help="Call an answer of less confidence a guess.",
    )
    @functools.wraps(command)
    def with_method(
        *args: object,
        name: str,
        settings: tuple[str, ...],
        chooser: ChooserName | None,
        call_budget: int | None,
        unsure_below: float,
        **rest: object,
    ) -> None:
        if name in _OLD_METHODS:
            raise click.UsageError(f"--method {name} is now {_OLD_METHODS[name]}")
        method = MethodChoice(name, split_settings(settings), chooser, call_budget, unsure_below)
        command(*args, method=method, **rest)

    wrapped: Command = with_method
    for option in _OLD_OPTIONS:
        setting = option.removeprefix("--").replace("-", "_")
        wrapped = removed_option(option, f"--set {setting}=VALUE")(wrapped)
    return removed_option("--threshold", "--unsure-below P")(wrapped)


def removed_option(option: str, replacement: str) -> Callable[[Command], Command]:
    """Add a hidden option that fails and names what replaces it."""

    def refuse(_: click.Context, parameter: click.Parameter, value: object) -> None:
        if value:
            raise click.UsageError(f"{option} was removed. Use {replacement}.")

    return click.option(option, multiple=True, hidden=True, expose_value=False, callback=refuse)


@click.command()
@click.argument("name", required=False, shell_complete=_complete_method)
@json_option
def methods(name: str | None, as_json: bool) -> None:
    """List the methods, or the settings of the method NAME, for --set."""
    from kbqa.engine.methods.options import find_method

    if name is None:
        rows = [{"name": each, "summary": method.summary} for each, method in METHODS.items()]
    else:
        rows = [each._asdict() for each in describe_settings(find_method(name).settings)]
    if as_json:
        print_json(rows, indent=2)
        return
    for row in rows:
        if name is None:
            print_result(f"{row['name']}  {row['summary']}")
        else:
            print_result(f"{row['name']} = {row['default']}  ({row['values']})\n    {row['text']}")
