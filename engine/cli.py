"""The command `kbqa`: a table of subcommands, each imported when it is called.

Only errors and options that concern every subcommand are handled here. Exit codes: 0 done, 1
failed, 2 used wrongly, 130 interrupted, 143 stopped by SIGTERM.
"""

import errno
import importlib
import io
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import click
from click.shell_completion import CompletionItem

from kbqa.engine.config import (
    check_config,
    command_defaults,
    read_config,
    unknown_variables,
)
from kbqa.engine.evaluation.signals import Stopped, held_signals, stop_on_sigterm
from kbqa.kb.commands.text import print_note
from kbqa.kb.escaping import printable
from kbqa.sparql.errors import InputError, KbqaError

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class LazyCommand(NamedTuple):
    """Where a subcommand is found, and its line in `kbqa --help`, for which it is not imported."""

    module: str
    function: str
    help: str


COMMANDS = {
    "ask": LazyCommand("kbqa.engine.commands.ask", "ask", "Answer questions, each with its proof."),
    "serve": LazyCommand(
        "kbqa.engine.commands.serving.serve",
        "serve",
        "Answer over HTTP: a page, an API, SPARQL, MCP.",
    ),
    "mcp": LazyCommand(
        "kbqa.engine.commands.serving.mcp", "mcp", "Answer language models, by MCP."
    ),
    "eval": LazyCommand(
        "kbqa.engine.commands.evaluate", "evaluate", "Answer a question set and score the answers."
    ),
    "report": LazyCommand("kbqa.engine.commands.report", "report", "Report on a run in full."),
    "compare": LazyCommand("kbqa.engine.commands.report", "compare", "Compare two runs."),
    "methods": LazyCommand(
        "kbqa.engine.commands.methods", "methods", "List methods and their settings."
    ),
    "link": LazyCommand(
        "kbqa.engine.commands.link", "link", "Show which entities a question may be about."
    ),
    "retrieve": LazyCommand(
        "kbqa.engine.commands.retrieve", "retrieve", "Write the triples that help each question."
    ),
    "entities": LazyCommand("kbqa.kb.commands.load", "entities", "Find entities by name."),
    "relations": LazyCommand(
        "kbqa.kb.commands.graph", "relations", "List the relations of an entity."
    ),
    "sparql": LazyCommand("kbqa.kb.commands.graph", "sparql", "Run a read-only SPARQL query."),
    "crp": LazyCommand(
        "kbqa.engine.commands.crp", "crp", "Convert, compile, run, explain and write paths."
    ),
    "doctor": LazyCommand(
        "kbqa.engine.commands.doctor.command", "doctor", "Find what is wrong, and say what to do."
    ),
    "completion": LazyCommand(
        "kbqa.engine.commands.terminal.completion", "completion", "Complete commands on Tab."
    ),
    "load-freebase": LazyCommand(
        "kbqa.kb.commands.load", "load_freebase", "Load a Freebase dump into a store."
    ),
    "train-crp": LazyCommand(
        "kbqa.training.cli", "train_crp", "Fine-tune a model that writes reasoning paths."
    ),
    "train-judge": LazyCommand(
        "kbqa.training.judge.command", "train_judge", "Train what chooses among candidates."
    ),
    "train-retriever": LazyCommand(
        "kbqa.training.retriever.command", "train_retriever", "Train the scorer of triples."
    ),
}


class _Formatter(logging.Formatter):
    """Writes log records that no terminal obeys: they quote names, and servers' answers."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _Commands(Mapping[str, click.Command]):
    """The commands by name, each imported when it is looked up."""

    def __init__(self, group: click.Group, context: click.Context) -> None:
        self._group, self._context = group, context

    def __getitem__(self, name: str) -> click.Command:
        command = self._group.get_command(self._context, name)
        if command is None:
            raise KeyError(name)
        return command

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


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
            module = importlib.import_module(command.module)
        found = cast(click.Command, getattr(module, command.function))
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
        check_config(config, _Commands(self, ctx))
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
        "auto_envvar_prefix": "KBQA",
        "help_option_names": ["-h", "--help"],
        "show_default": True,
    },
)
@click.version_option(package_name="kbqa", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "-v",
    "--verbose",
    count=True,
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


if __name__ == "__main__":
    main()
