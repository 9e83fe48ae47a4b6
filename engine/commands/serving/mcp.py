"""The command `kbqa mcp`."""

import sys
from contextlib import closing, redirect_stdout
from functools import partial
from importlib.util import find_spec

import click

from kbqa.engine.commands.chat_options import ChatChoice, chat_options
from kbqa.engine.commands.methods import MethodChoice, method_options
from kbqa.engine.commands.options import model_options, open_engine
from kbqa.engine.evaluation.signals import held_signals
from kbqa.engine.writing.model_choice import ModelChoice
from kbqa.kb.commands.options import SECONDS, GraphChoice, graph_options
from kbqa.sparql.errors import InputError


@click.command()
@graph_options
@click.option(
    "--deadline",
    "deadline_s",
    type=SECONDS,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up a question after this time in all.",
)
@method_options
@chat_options
@model_options
def mcp(
    graph: GraphChoice,
    deadline_s: float,
    method: MethodChoice,
    chat: ChatChoice,
    model: ModelChoice,
) -> None:
    """Let a language model ask, by the Model Context Protocol on standard input and output.

    Assistants start this command themselves: add it to their settings. `kbqa serve` offers the
    same over HTTP, at /mcp.
    """
    if find_spec("mcp") is None:
        raise InputError("kbqa mcp needs the extra `mcp`: pip install 'kbqa[mcp]'")
    chat.check()
    # Standard output belongs to the protocol; later the server keeps everything else from it.
    with redirect_stdout(sys.stderr):
        with held_signals():
            from kbqa.engine.serve.asking.observer import Observer
            from kbqa.engine.serve.mcp_server.server import make_mcp_server
            from kbqa.engine.serve.service import Service
            from kbqa.engine.serve.settings import Settings

        settings = Settings(deadline_s=deadline_s)
        aside = graph.open(workers=settings.query_workers + 1, low_priority=True)
    with closing(aside):
        opened = partial(open_engine, graph, model, chat, method)
        service = Service(opened, aside, settings, Observer())
        make_mcp_server(service, is_local=True).run("stdio")
