"""The command `kbqa`: a table of subcommands, each imported when it is called.

Errors, signals and settings of every subcommand are handled here. Exit codes: 0 done, 1 failed,
2 used wrongly, 130 interrupted, 143 stopped by SIGTERM. The first Ctrl-C or SIGTERM raises an
exception in the main thread, and a run's other threads finish their questions. The second ends the
process at once, since a question may wait minutes for a server.

Settings also come from `kbqa.toml` and from KBQA_ variables:

    store = "/data/freebase"     # every command that has --store

    [ask]                        # kbqa ask only
    set = ["search=no"]

    [crp.run]                    # kbqa crp run only
    timeout = 5

Keys are the options' long names without dashes in front. A flag wins over the environment, the
environment over the file. The file may come with a folder of somebody else, so it can neither have
a key of the environment sent anywhere nor open `kbqa serve` to other machines. A key that no
command has is refused, and a variable that none reads is reported, since a typing error would
otherwise ask the wrong graph without a word.
"""

import difflib
import errno
import io
import logging
import os
import pkgutil
import signal
import sys
import threading
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from kbqa.kb.commands.options import print_note
from kbqa.kb.graph import printable
from kbqa.sparql.errors import InputError, KbqaError

CONFIG_FILE = Path("kbqa.toml")
"""Looked for in the working folder."""

_VARIABLES = (
    "KBQA_CACHE",
    "KBQA_DEBUG",
    "KBQA_LLM_KEY",
    "KBQA_PRECISION",
    "KBQA_QUERY_MEMORY_GB",
    "KBQA_SERVER_API_KEY",
    "KBQA_STORE",
    "KBQA_ENDPOINT",
    "KBQA_TIMEOUT",
    "KBQA_VIA",
    "KBQA_VIA_KEY",
    "KBQA_VERBOSE",
)
"""Variables that are not named after a command."""


def read_config(path: Path = CONFIG_FILE) -> Mapping[str, object]:
    """Read a configuration file; an absent one is empty."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def check_config(config: Mapping[str, object], find: Callable[[str], click.Command | None]) -> None:
    """Check that every table of a configuration names a command, and every key above an option.

    `find` imports a command by its name; it is called only if there is something to check.
    """
    for name, value in config.items():
        if isinstance(value, Mapping):
            command = find(name)
            if command is None:
                raise InputError(f"{CONFIG_FILE}: [{name}] is not a command of kbqa")
            command_defaults(config, command, name)
            continue
        leaves = [
            leaf for command in filter(None, map(find, COMMANDS)) for leaf in _leaves(command)
        ]
        known = {option for leaf in leaves for option in _options(leaf)}
        if name not in known:
            raise InputError(
                f"{CONFIG_FILE}: no command has an option {name!r}{_meant(name, sorted(known))}"
            )


def unknown_variables(command: click.Command, name: str, others: Iterable[str]) -> list[str]:
    """Describe the KBQA_ variables of the environment that nothing reads, a sentence each.

    `command` is the one that is called, by its name. Variables of the others are passed over.
    """
    parameters = [parameter for leaf in _leaves(command) for parameter in leaf.params]
    known = {*_VARIABLES, *(str(each.envvar) for each in parameters if each.envvar)}
    prefixes = [f"KBQA_{other.replace('-', '_').upper()}_" for other in others if other != name]
    passed_over = ("KBQA_TEST_", *prefixes)
    return [
        f"nothing reads {variable}{_meant(variable, sorted(known), 'KBQA_')}"
        for variable in sorted(os.environ)
        if variable.startswith("KBQA_")
        and variable not in known
        and not variable.startswith(passed_over)
    ]


def is_from_file(parameter: str) -> bool:
    """Return whether a parameter of the command that runs has its value from `kbqa.toml`."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is ParameterSource.DEFAULT_MAP


def check_key(parameter: str, server: str, variable: str) -> None:
    """Check that a key of the environment goes only to a server that the user has named.

    The file in the working folder may be somebody else's. `parameter` names the server, and
    `variable` holds the key.
    """
    from kbqa.kb.connections import hide_secrets

    if os.environ.get(variable) and is_from_file(parameter):
        command = click.get_current_context().command
        option = next(each for each in command.params if each.name == parameter)
        raise InputError(
            f"{CONFIG_FILE} in the working folder has the key in {variable} sent to "
            f"{hide_secrets(server)}. If you trust that server, name it by {option.opts[0]} or "
            f"{option.envvar}; if not, take it out of {CONFIG_FILE} or unset {variable}"
        )


def _leaves(command: click.Command) -> Iterator[click.Command]:
    """Yield a command, or the commands below a group."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            yield from _leaves(below)
    else:
        yield command


def _meant(name: str, known: Sequence[str], prefix: str = "") -> str:
    """Return a question about the name that was probably meant, or nothing."""
    rest = [each.removeprefix(prefix) for each in known]  # what all share makes none alike
    ends = [each for each in rest if name.endswith(f"_{each}")]  # as KBQA_ASK_STORE for KBQA_STORE
    close = ends or difflib.get_close_matches(name.removeprefix(prefix), rest, 1)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def command_defaults(
    config: Mapping[str, object], command: click.Command, name: str
) -> dict[str, object]:
    """Pick a command's defaults out of a configuration, in the shape of click's `default_map`."""
    shared = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    return _defaults(shared, config.get(name, {}), command, name)


def _defaults(
    shared: Mapping[str, object], table: object, command: click.Command, name: str
) -> dict[str, object]:
    if not isinstance(table, Mapping):
        raise InputError(f"{CONFIG_FILE}: {name} is a command, so [{name}] must be a table")
    known = command.commands if isinstance(command, click.Group) else _options(command)
    for key in table:
        if key not in known:
            raise InputError(f"{CONFIG_FILE}: [{name}] has no option {key!r}")
    if isinstance(command, click.Group):
        return {
            key: _defaults(shared, table.get(key, {}), below, f"{name}.{key}")
            for key, below in command.commands.items()
        }
    options = _options(command)
    values = {**shared, **table}
    return {
        str(options[key].name): _as_typed(value, key, options[key])
        for key, value in values.items()
        if key in options
    }


def _as_typed(value: object, key: str, option: click.Option) -> object:
    """Return a value of the file as it would be typed: text, or a list of texts if repeatable."""
    several = value if isinstance(value, list) and option.multiple else [value]
    if not all(isinstance(each, str | int | float) for each in several):
        raise InputError(f"{CONFIG_FILE}: {key} is {value!r}, which no option can be")
    texts = [str(each) for each in several]
    if any("\0" in text for text in texts):  # not even the command line can hold it
        raise InputError(f"{CONFIG_FILE}: {key} holds a NUL character, which no option can")
    return texts if option.multiple else texts[0]


def _options(command: click.Command) -> dict[str, click.Option]:
    """Map the long names of a command's options to the options."""
    return {
        text.removeprefix("--"): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for text in parameter.opts
        if text.startswith("--")
    }


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_NOTICE = b"\nStopping once the questions in progress are done. A second signal stops at once.\n"
_STDERR = 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number  # as shells have it: 130 or 143


class LazyCommand(NamedTuple):
    """Where a subcommand is found, and its line in `kbqa --help`, for which it is not imported."""

    place: str
    help: str


COMMANDS = {
    name: LazyCommand(f"kbqa.{place}", help_)
    for name, place, help_ in (
        ("ask", "engine.commands.ask:ask", "Answer questions, each with its proof."),
        ("serve", "engine.commands.serve:serve", "Answer over HTTP: a page, an API, SPARQL, MCP."),
        ("mcp", "engine.commands.serve:mcp", "Answer language models, by MCP."),
        (
            "eval",
            "engine.commands.evaluate:evaluate",
            "Answer a question set and score the answers.",
        ),
        ("report", "engine.commands.evaluate:report", "Report on a run in full."),
        ("compare", "engine.commands.evaluate:compare", "Compare two runs."),
        ("methods", "engine.commands.options:methods", "List methods and their settings."),
        ("link", "engine.commands.link:link", "Show which entities a question may be about."),
        (
            "retrieve",
            "engine.commands.retrieve:retrieve_set",
            "Write the triples that help each question.",
        ),
        ("entities", "kb.commands.load:entities", "Find entities by name."),
        ("relations", "kb.commands.graph:relations", "List the relations of an entity."),
        ("sparql", "kb.commands.graph:sparql", "Run a read-only SPARQL query."),
        ("crp", "engine.commands.crp:crp", "Convert, compile, run, explain and write paths."),
        ("doctor", "engine.commands.doctor:doctor", "Find what is wrong, and say what to do."),
        ("completion", "engine.commands.ask:completion", "Complete commands on Tab."),
        ("load-freebase", "kb.commands.load:load_freebase", "Load a Freebase dump into a store."),
        ("train-crp", "training.cli:train_crp", "Fine-tune a model that writes reasoning paths."),
        (
            "train-judge",
            "training.judge.command:train_judge",
            "Train what chooses among candidates.",
        ),
        (
            "train-retriever",
            "training.retriever.command:train_retriever",
            "Train the scorer of triples.",
        ),
    )
}


class _Formatter(logging.Formatter):
    """Writes log records that no terminal obeys: they quote names, and servers' answers."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _LazyGroup(click.Group):
    def main(self, *args: Any, **kwargs: Any) -> Any:
        if sys.stdin is None:  # it is closed, which is as good as empty
            sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 (until the end)
        try:
            try:
                return super().main(*args, **kwargs)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()  # at exit, an error would be a traceback
        except OSError as error:
            if error.errno not in _UNWRITABLE or error.filename is not None:
                raise
            _end_unwritten(error)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.ClickException as error:
            _end_refused(error)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = COMMANDS[cmd_name]
        with held_signals():
            found = cast(click.Command, pkgutil.resolve_name(command.place))
        _name_variables(found, f"KBQA_{cmd_name}")
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands from the table: click would import each for its help."""
        commands = [
            CompletionItem(name, help=command.help)
            for name, command in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # click knows no commands that are not imported
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None
        if ctx.resilient_parsing:  # for completion, which must not speak
            return name, command, rest
        config = read_config()
        check_config(config, partial(self.get_command, ctx))
        if name is not None and command is not None:
            ctx.default_map = {name: command_defaults(config, command, name)}
            for problem in unknown_variables(command, name, COMMANDS):
                print_note(f"Warning: {problem}")
        return name, command, rest

    def invoke(self, ctx: click.Context) -> object:
        try:
            with stop_on_sigterm():
                return super().invoke(ctx)
        except click.ClickException as error:
            _end_refused(error)
        except KbqaError as error:
            is_debugged = ctx.params["debug"]
            print_note(traceback.format_exc().rstrip() if is_debugged else f"Error: {error}")
            raise SystemExit(2 if isinstance(error, InputError) else 1) from error
        except Stopped as stop:
            raise click.exceptions.Exit(stop.exit_code) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None


def _end_refused(error: click.ClickException) -> NoReturn:
    """End the process with what click says of the arguments, which it would print as they are."""
    message = io.StringIO()
    error.show(message)
    print_note(message.getvalue().removesuffix("\n"))
    raise SystemExit(error.exit_code) from error


def _end_unwritten(error: OSError) -> NoReturn:
    """End the process, whose output cannot be written."""
    print_note(f"Error: the output cannot be written: {error.strerror}")
    # What is left in the buffers would be tried again on exit, and fail with a traceback.
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a stream of a test has no number
            os.dup2(nothing, stream.fileno())
    raise SystemExit(1) from None


def _name_variables(command: click.Command, prefix: str) -> None:
    """Name the options' environment variables after their long names.

    click names them after its own names of the parameters: `--json` would be KBQA_ASK_AS_JSON.
    """
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.envvar is None:
            name = f"{prefix}_{max(parameter.opts, key=len).removeprefix('--')}"
            parameter.envvar = name.replace("-", "_").upper()
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            _name_variables(below, f"{prefix}_{name}")


@click.group(
    "kbqa",
    cls=_LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
    },
)
@click.version_option(package_name="kbqa", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, envvar="KBQA_DEBUG", help="Show the traceback of an error.")
@click.option(
    "-v",
    "--verbose",
    count=True,
    envvar="KBQA_VERBOSE",
    show_default=False,
    help="Log to stderr; twice for queries and prompts.",
)
def main(debug: bool, verbose: int) -> None:
    """Answer questions over Freebase, exactly and with proof.

    The graph is chosen by --store DIR or --endpoint URL, else it is the small demo graph that comes
    with kbqa. Every option can also be set as KBQA_<COMMAND>_<OPTION>, and in kbqa.toml in the
    working folder.
    """
    # torch's threads spin while they wait, unless told otherwise before torch is imported. Beside
    # other jobs on the same cores, a question then takes three times as long and more.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # A level of its own: the libraries below kbqa would drown what it logs.
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("kbqa").setLevel(level)


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise `Stopped` on the first signal in the block; only in the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in handled:
            signal.signal(each, _end)
        os.write(_STDERR, _NOTICE)  # print may have been interrupted itself
        raise Stopped(number)

    # A process that a script started in the background ignores Ctrl-C, and still must.
    handled = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, stop) for each in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Raise `Stopped` on SIGTERM in the block, so that temporary files are deleted as on Ctrl-C.

    A second one ends the process at once. Nothing changes outside the main thread, or if SIGTERM is
    ignored or handled already.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Stopped(number)

    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def held_signals() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the block ends: for imports in the main thread.

    An error raised within an import may be lost or turned into another one. It may also leave a
    lock of Python's behind, so that another import waits for ever.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
