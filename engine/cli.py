"""The command `kbqa`: a table of subcommands, each imported when it is called.

Only errors and options that concern every subcommand are handled here. Exit codes: 0 done, 1
failed, 2 used wrongly, 130 interrupted.
"""

import importlib
import logging
from typing import NamedTuple, cast

import click

from kbqa.engine.config import check_tables, command_defaults, read_config
from kbqa.sparql.errors import InputError, KbqaError


class LazyCommand(NamedTuple):
    """Where a subcommand is found, and its line in `kbqa --help`, for which it is not imported."""

    module: str
    function: str
    help: str


COMMANDS = {
    "ask": LazyCommand("kbqa.engine.commands", "ask", "Answer questions, each with its proof."),
    "eval": LazyCommand(
        "kbqa.engine.commands", "evaluate", "Answer a question set and score the answers."
    ),
    "report": LazyCommand(
        "kbqa.engine.evaluation.report_commands", "report", "Say everything about a run."
    ),
    "compare": LazyCommand(
        "kbqa.engine.evaluation.report_commands", "compare", "Say how two runs differ."
    ),
    "link": LazyCommand(
        "kbqa.engine.link_commands", "link", "Show which entities a question may be about."
    ),
    "entities": LazyCommand("kbqa.kb.load_commands", "entities", "Find entities by name."),
    "relations": LazyCommand(
        "kbqa.kb.graph_commands", "relations", "List the relations of an entity."
    ),
    "sparql": LazyCommand("kbqa.kb.graph_commands", "sparql", "Run a read-only SPARQL query."),
    "crp": LazyCommand(
        "kbqa.engine.crp_commands", "crp", "Convert, compile, run, explain and write paths."
    ),
    "doctor": LazyCommand(
        "kbqa.engine.doctor", "doctor", "Find what is wrong, and say what to do."
    ),
    "load-freebase": LazyCommand(
        "kbqa.kb.load_commands", "load_freebase", "Load a Freebase dump into a store."
    ),
    "train-crp": LazyCommand(
        "kbqa.training.cli", "train_crp", "Fine-tune a model that writes reasoning paths."
    ),
}


class _Misuse(click.ClickException):
    """An error that the user can mend by calling otherwise."""

    exit_code = 2


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = COMMANDS[cmd_name]
        module = importlib.import_module(command.module)
        found = cast(click.Command, getattr(module, command.function))
        _name_variables(found, f"KBQA_{cmd_name}")
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        config = read_config()
        check_tables(config, COMMANDS)
        if name is not None and command is not None:
            ctx.default_map = {name: command_defaults(config, command, name)}
        return name, command, rest

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KbqaError as error:
            if ctx.params["debug"]:
                raise
            failure = _Misuse if isinstance(error, InputError) else click.ClickException
            raise failure(str(error)) from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None


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
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("kbqa").setLevel(level)


if __name__ == "__main__":
    main()
