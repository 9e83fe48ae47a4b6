"""The command `kbqa serve`."""

from contextlib import closing
from functools import partial
from pathlib import Path

import click

from kbqa.engine.commands.chat_options import ChatChoice, chat_options
from kbqa.engine.commands.methods import MethodChoice, method_options
from kbqa.engine.commands.options import model_options, open_engine
from kbqa.engine.config import CONFIG_FILE, is_from_file
from kbqa.engine.writing.model_choice import ModelChoice
from kbqa.kb.commands.options import SECONDS, GraphChoice, graph_options
from kbqa.sparql.errors import InputError

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="0: any free one.",
)
@click.option(
    "--allowed-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Name that clients call the server by, such as kbqa.example.org; repeatable.",
)
@click.option(
    "--api-keys",
    "keys_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Let only those ask who have a key of this TOML file.",
)
@click.option("--public", is_flag=True, help="Let anybody ask who reaches --host.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Requests a minute of one client.  [default: 120 with --public, else any number]",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Proxy whose X-Forwarded-For names the client; repeatable.",
)
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
@click.option(
    "--query-timeout",
    "query_timeout_s",
    type=SECONDS,
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop a query or path of a client after this time.",
)
@click.option(
    "--queue",
    type=click.IntRange(1),
    default=12,
    show_default=True,
    help="Questions that may wait; more are refused.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Questions that the small model writes for at once.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Queries of questions that run at once; each is a process.",
)
@click.option("--openai", is_flag=True, help="Offer OpenAI's chat protocol below /v1.")
@click.option("--dataset", metavar="URI", help="What TEXT2SPARQL is to call the graph.")
@method_options
@chat_options
@model_options
def serve(
    host: str,
    port: int,
    hosts: tuple[str, ...],
    keys_file: Path | None,
    public: bool,
    rate: float | None,
    proxies: tuple[str, ...],
    graph: GraphChoice,
    deadline_s: float,
    query_timeout_s: float,
    queue: int,
    batch_size: int,
    workers: int,
    openai: bool,
    dataset: str | None,
    method: MethodChoice,
    chat: ChatChoice,
    model: ModelChoice,
) -> None:
    """Answer questions over HTTP: a page, a JSON interface, SPARQL and MCP.

    The server listens at once, and answers when the model is loaded. It listens on this machine
    only, unless --host says otherwise; then it needs --api-keys or --public.
    """
    is_local = host in _LOOPBACK
    _refuse_opening_by_file(is_local)
    if not is_local and keys_file is None and not public:
        raise InputError(
            f"--host {host} lets other machines in: add --api-keys FILE, or --public to let "
            "anybody ask"
        )
    _require_extra()
    from kbqa.engine.serve.access.api_keys import ApiKeys
    from kbqa.engine.serve.access.guard import Access
    from kbqa.engine.serve.app import DEFAULT_DATASET, make_app
    from kbqa.engine.serve.metrics import Metrics
    from kbqa.engine.serve.server import run_server
    from kbqa.engine.serve.service import Service
    from kbqa.engine.serve.settings import Settings

    settings = Settings(
        queue=queue,
        batch_size=batch_size,
        deadline_s=deadline_s,
        query_timeout_s=query_timeout_s,
        unsure_below=method.unsure_below,
    )
    access = Access(
        hosts=frozenset(name.lower() for name in hosts),
        allows_addresses=not is_local,
        keys=None if keys_file is None else ApiKeys.read(keys_file),
        rate=rate if rate is not None else (120.0 if public else None),
    )
    chat.check()
    with closing(graph.open(workers=settings.query_workers + 1, low_priority=True)) as aside:
        metrics = Metrics()
        opened = partial(open_engine, graph, model, chat, method, workers=workers)
        service = Service(opened, aside, settings, metrics)
        app = make_app(service, metrics, access, openai=openai, dataset=dataset or DEFAULT_DATASET)
        run_server(app, service, host, port, proxies)


def _refuse_opening_by_file(is_local: bool) -> None:
    """Let only the command line and the environment open the server to others."""
    opening = ("public", "hosts", *(() if is_local else ("host",)))
    for parameter in click.get_current_context().command.params:
        if parameter.name in opening and is_from_file(parameter.name):
            raise InputError(
                f"{CONFIG_FILE} in the working folder would open the server to others. "
                f"Use {parameter.opts[0]} or {parameter.envvar} to do so."
            )


def _require_extra() -> None:
    from importlib.util import find_spec

    for package in ("fastapi", "uvicorn", "jinja2", "prometheus_client", "mcp"):
        if find_spec(package) is None:
            raise InputError(
                f"kbqa serve needs the extra `serve`, as {package} is missing: "
                "pip install 'kbqa[serve]'"
            )
