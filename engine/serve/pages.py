"""The routes of the page. Every state of it is an address, rendered whole by the server.

With JavaScript, the page asks by `POST /page/ask` and `POST /page/path`, which stream progress and
then the same HTML that the server would have rendered; and it completes a path that is being typed,
in kbqa's own text form, by `POST /page/relations`.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, Undefined

from kbqa.engine.graph_walk import PathEnds
from kbqa.engine.serve import browsing
from kbqa.engine.serve.problems import Problem
from kbqa.engine.serve.records import (
    AskBody,
    NeighboursRecord,
    PathBody,
    RelationRecord,
    RunPathBody,
)
from kbqa.engine.serve.routes import Caller, ClientLeft, TheCaller, TheService
from kbqa.engine.serve.served import MAX_QUESTION, Served
from kbqa.engine.serve.service import Ask
from kbqa.engine.serve.view import AnswerView, Asking, entity_url, page_url
from kbqa.kb.graph import Direction, Graph, printable
from kbqa.kb.names import Names
from kbqa.kb.open import DEMO_DUMP
from kbqa.sparql.crp import Hop
from kbqa.sparql.errors import KbqaError
from kbqa.sparql.terms import is_mid

MAX_RELATIONS = 20
_MEANT = 3
_HOP = re.compile(r"(->|<-)\s*([\w.]+)")
_OPEN_HOP = re.compile(r"(?P<before>.*?)(?P<arrow>->|<-)\s*(?P<begun>[\w.]*)$")
_NODE = re.compile(r"\?(x|\d+)\s*$")
_ENTITY = re.compile(r"\[?(?P<name>[^\]]*?)\]?\s*(?:\((?P<mid>[^()\s]+)\))?$")
_ID = re.compile(r"(?:ns:)?([mg]\.[0-9a-z_]+)")

router = APIRouter(include_in_schema=False)

STATIC = Path(__file__).with_name("static")
"""Style sheet, scripts and icon, which the application serves at ``/static/``."""

NEIGHBOURS = 20
_BOOKKEEPING = ("type", "common", "freebase", "kg", "base", "user")
_TEMPLATES = Environment(
    loader=PackageLoader("kbqa.engine.serve", "templates"),
    autoescape=True,
    # Markup, which is another type, is made here and holds what it needs.
    finalize=lambda shown: printable(shown) if type(shown) is str else shown,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals |= {"page_url": page_url, "entity_url": entity_url, "is_mid": is_mid}
_EXAMPLES = (
    "what is the largest city in Kenya?",
    "which countries border Peru?",
    "how many countries use the euro?",
    "does France border Spain?",
    "what languages are spoken in Switzerland?",
    "what is the melting point of tungsten?",
)
"""Questions that the demo graph answers."""


class GraphWords(NamedTuple):
    """The graph in the words of the page."""

    name: str
    triples: int | None
    examples: tuple[str, ...]


class Topic(NamedTuple):
    """An entity that the user chose."""

    mid: str
    name: str


@router.get("/", response_model=None)
async def home(
    caller: TheCaller,
    q: str = "",
    topic: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI copies defaults
    path: str = "",
) -> Response:
    """Show the page; with a question or a path, also its answer."""
    asking = Asking(" ".join(q.split()), tuple(dict.fromkeys(topic[:20])), path)
    show = partial(_show, "home.html", caller, asking)
    # A link of another site must not make the server work: the field is filled, no more.
    if asking.is_empty or caller.visit.is_foreign or not caller.visit.is_known:
        return await show()
    try:
        served = await caller.wait(_ask(caller, asking)())
    except ClientLeft:
        raise
    except Exception as error:  # noqa: BLE001 - every error is a page
        return await show(problem=caller.problem(error))
    return await show(view=AnswerView(served, asking))


@router.get("/entity/{mid}", response_model=None)
async def entity(
    mid: str,
    caller: TheCaller,
    relation: str = "",
    direction: Direction = "out",
    offset: Annotated[int, Query(ge=0, le=browsing.MAX_OFFSET)] = 0,
) -> Response:
    """Show an entity: its relations with counts, and what one of them leads to."""
    show = partial(_show, "entity.html", caller, Asking(), mid=mid)
    if not caller.visit.is_known:
        return await show(found=None)
    service = caller.service
    try:
        found = await service.look_up(browsing.describe_entity, mid)
        relations = await service.look_up(browsing.list_relations, mid)
        ends: NeighboursRecord | None = None
        if relation:
            ends = await service.look_up(
                browsing.list_neighbours, mid, relation, direction, NEIGHBOURS, offset
            )
    except Exception as error:  # noqa: BLE001 - every error is a page
        return await show(found=None, problem=caller.problem(error))
    domains = _by_domain(relations.relations)
    return await show(found=found, domains=domains, cut=relations.truncated, ends=ends)


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """List the routes, with what they take and return."""
    templates = _TEMPLATES.overlay(undefined=Undefined)  # a schema leaves out what it has not
    page = templates.get_template("docs.html").render(api=request.app.openapi())
    return HTMLResponse(page)


@router.post("/page/ask")
async def ask(body: AskBody, caller: TheCaller) -> StreamingResponse:
    """Answer a question for the page's script."""
    asking = Asking(" ".join(body.question.split()), tuple(body.topics))
    return await _stream(caller, asking)


@router.post("/page/path")
async def path(body: RunPathBody, caller: TheCaller) -> StreamingResponse:
    """Run a path for the page's script."""
    asking = Asking(" ".join(body.question.split()), tuple(body.topics), body.path)
    return await _stream(caller, asking)


@router.post("/page/relations")
async def relations(body: PathBody, service: TheService) -> list[str]:
    """List the relations that may follow in a path that is being typed."""
    return await service.look_up(_complete_relation, body.path)


def _ask(caller: Caller, asking: Asking) -> Ask:
    if not asking.path.strip():
        return partial(caller.service.ask, asking.question, asking.topics)
    run, client = caller.service.run_path, caller.visit.client
    return partial(run, asking.path, asking.question, asking.topics, client=client)


async def _stream(caller: Caller, asking: Asking) -> StreamingResponse:
    def to_record(served: Served) -> Mapping[str, Any]:
        view = AnswerView(served, asking)
        html = _TEMPLATES.get_template("answer.html").render(view=view)
        return {"html": html, "spoken": view.spoken, "url": asking.url}

    return await caller.stream(_ask(caller, asking), to_record)


async def _show(
    template: str,
    caller: Caller,
    asking: Asking,
    *,
    problem: Problem | None = None,
    **shown: object,
) -> HTMLResponse:
    """Render a whole page."""
    service, visit = caller.service, caller.visit
    graph, topics = None, [Topic(mid, mid) for mid in asking.topics]
    if visit.is_known:
        try:
            graph = await service.look_up(_graph_words)
            topics = await service.look_up(_named, asking.topics)
        except KbqaError as error:
            problem = problem or caller.problem(error)
    html = _TEMPLATES.get_template(template).render(
        version=version("kbqa"),
        graph=graph,
        topics=topics,
        asking=asking,
        state=service.state,
        needs_key=not visit.is_known,
        is_foreign=visit.is_foreign,
        problem=problem,
        request_id=visit.request_id,
        max_question=MAX_QUESTION,
        **{"view": None, **shown},
    )
    if problem is None:
        return HTMLResponse(html)
    return HTMLResponse(html, problem.status, problem.headers)


async def show_problem(caller: Caller, problem: Problem) -> HTMLResponse:
    """Show a page with the problem of an address."""
    return await _show("home.html", caller, Asking(), problem=problem)


def _graph_words(graph: Graph, _: Names) -> GraphWords:
    """Describe the graph, without its place."""
    identity = graph.identity()
    store, summary = identity.settings.get("store"), identity.notes.get("store_summary")
    triples = summary.get("kept") if isinstance(summary, Mapping) else None
    is_demo = isinstance(store, Mapping) and store.get("dumps_sha256") == [_demo_sha256()]
    name = "the demo graph" if is_demo else "a SPARQL endpoint" if store is None else "a store"
    return GraphWords(name, triples, _EXAMPLES if is_demo else ())


@cache
def _demo_sha256() -> str:
    return hashlib.sha256(DEMO_DUMP.read_bytes()).hexdigest()


def _named(graph: Graph, _: Names, mids: Sequence[str]) -> list[Topic]:
    labels = graph.labels([mid for mid in mids if is_mid(mid)])
    return [Topic(mid, labels.get(mid, mid)) for mid in mids]


def _by_domain(relations: list[RelationRecord]) -> dict[str, list[RelationRecord]]:
    """Group relations by the first part of their ids; bookkeeping comes last."""
    domains: dict[str, list[RelationRecord]] = {}
    for each in relations:
        domains.setdefault(each.relation.partition(".")[0], []).append(each)
    return dict(sorted(domains.items(), key=lambda item: item[0] in _BOOKKEEPING))


def _complete_relation(graph: Graph, names: Names, text: str) -> list[str]:
    """List the relations that may follow the last arrow of a path up to the cursor.

    Those that begin like the typed text come first, then those that contain it. There are none if
    the text does not end in a hop, or starts from an unknown name.
    """
    lines = text.split("\n")
    found = _last_hop(lines[-1])
    if found is None:
        return []
    start, done, arrow, begun = found
    node = _NODE.search(start)
    if node is None:
        starts, hops = _entities(start, names), done
    else:
        path_start, path = _hops(lines[0])
        passed = path if node[1] == "x" else path[: int(node[1])]
        starts, hops = _entities(path_start, names), [*passed, *done]
    browsing.check_hops(len(hops))
    ends = PathEnds(graph).hops(starts, hops)
    is_inverse = arrow == "<-"
    relations = [hop.relation for hop in ends if hop.inverse == is_inverse]
    wanted = [each for each in dict.fromkeys(relations) if begun.lower() in each]
    return sorted(wanted, key=lambda each: not each.startswith(begun.lower()))[:MAX_RELATIONS]


def _last_hop(line: str) -> tuple[str, list[Hop], str, str] | None:
    """Split a line at its last arrow: its start, the hops before, the arrow, and the rest."""
    last = max(line.rfind("->"), line.rfind("<-"))
    found = _OPEN_HOP.match(line[last:]) if last >= 0 else None
    if found is None:
        return None
    start, hops = _hops(line[:last])
    return start, hops, found["arrow"], found["begun"]


def _hops(line: str) -> tuple[str, list[Hop]]:
    """Split a line into its start and its hops."""
    hops = [Hop(relation, arrow == "<-") for arrow, relation in _HOP.findall(line)]
    return re.split("->|<-", line, maxsplit=1)[0].strip(), hops


def _entities(text: str, names: Names) -> list[str]:
    """Return the ids that the start of a path may mean, best first."""
    known = _ID.fullmatch(text)
    if known is not None:
        return [known[1]]
    entity = _ENTITY.fullmatch(text)
    if entity is None:
        return []
    if entity["mid"]:
        return [entity["mid"].removeprefix("ns:")]
    return [match.mid for match in names.lookup(entity["name"], _MEANT)] if entity["name"] else []
