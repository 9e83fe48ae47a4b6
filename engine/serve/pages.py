"""The routes of the page. Every state of it is an address, rendered whole by the server.

With JavaScript, the page asks by `POST /page/ask` and `POST /page/path`, which stream progress and
then the same HTML that the server would have rendered; and it completes a path that is being typed,
in kbqa's own text form, by `POST /page/relations`.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, Undefined
from markupsafe import Markup

from kbqa.engine.display.drawing import draw_evidence
from kbqa.engine.display.notebook import ORIGIN_NOTES
from kbqa.engine.graph_walk import PathEnds
from kbqa.engine.serve import browsing, records
from kbqa.engine.serve.problems import Problem
from kbqa.engine.serve.routes import Caller, ClientLeft, TheCaller, TheService
from kbqa.engine.serve.served import MAX_QUESTION, Served
from kbqa.engine.serve.service import Ask
from kbqa.kb.graph import Direction, Graph, printable
from kbqa.kb.names import Names
from kbqa.kb.open import DEMO_DUMP
from kbqa.sparql.crp import Hop
from kbqa.sparql.errors import KbqaError
from kbqa.sparql.terms import is_mid

MAX_RELATIONS = 20
_MOST_HISTORY = 10
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
_EXAMPLES = (
    "what is the largest city in Kenya?",
    "which countries border Peru?",
    "how many countries use the euro?",
    "does France border Spain?",
    "what languages are spoken in Switzerland?",
    "what is the melting point of tungsten?",
)
"""Questions that the demo graph answers."""
_FATES = {
    "unreadable": "could not be read",
    "unlinked": "starts from a name that the graph does not have",
    "unreachable": "breaks: the graph has no such way",
    "failed": "the graph did not answer",
    "unfit": "answers another question",
}
_SOURCES = {
    "writer": "Written by the model.",
    "search": "Found by searching the graph.",
    "repair": "Found by a repair.",
}
_ADVICE = {
    "no-question": "Ask a question in English, such as “what is the capital of Kenya?”.",
    "unlinked": "Use the name that the graph has, or add the entity yourself, above.",
    "none-written": "Word the question differently, or write a path below.",
    "unreadable": "Word the question differently, or write a path below.",
    "unreachable": "Choose another entity above, or edit a path below: the graph may call "
    "what you ask for something else. Browse the entity to see what the graph has.",
    "unfit": "Say in full what you ask, and about what.",
    "empty": "Ask for less, or edit the path below and leave a condition out.",
    "graph": "Ask again in a moment, or ask for less.",
    "calls": "Ask something simpler; the operator limits the calls of the language model.",
    "unnamed": "Word the question differently.",
}
_DEFAULT_ADVICE = "Word the question differently, choose another entity, or edit a path below."
_RELATION = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)+", re.IGNORECASE)
_MID = re.compile(r"\b[mg]\.[0-9a-z_]+")
_OTHERS = 5
_BAR_WIDTH = 400


class QuestionPart(NamedTuple):
    """Some words of the question, and the number of the mention that they are, from 1 on."""

    text: str
    mention: int | None = None


class Meaning(NamedTuple):
    """An entity that words of the question may mean, and the address that asks about it."""

    mid: str
    name: str
    score: float
    url: str


class Mention(NamedTuple):
    """Words of the question, the entity they were taken for, if any was, and others."""

    text: str
    taken: Meaning | None
    others: tuple[Meaning, ...]


class ShownCandidate(NamedTuple):
    """A path that was considered."""

    words: Sequence[str]
    text: str
    source: str
    confidence: float | None
    fate: str
    found: str
    is_best: bool
    url: str | None


@dataclass(frozen=True, slots=True)
class Asking:
    """A question with the mids that the user chose as topics, or a path that the user wrote."""

    question: str = ""
    topics: tuple[str, ...] = ()
    path: str = ""
    history: tuple[str, ...] = ()  # the questions that it goes on from, oldest first

    @property
    def url(self) -> str:
        """The address of the page that asks this."""
        return page_url(self.question, self.topics, self.path, self.history)

    @property
    def next_history(self) -> Sequence[str]:
        """What the next question goes on from."""
        return [*self.history, self.question][-_MOST_HISTORY:]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked."""
        return not self.question.strip() and not self.path.strip()


class AnswerView:
    """The record of an answer, and all else that the templates show of it."""

    notes = ORIGIN_NOTES

    def __init__(self, served: Served, asking: Asking, part: str = "") -> None:
        self.asking, self.part = asking, part  # such as "1 of 2", of several questions in one
        self.record = served.to_dict()
        self.question = self.record.get("understood") or asking.question
        trace = self.record["trace"]
        self.beams: Sequence[Mapping[str, Any]] = trace.get("beams") or ()
        self.sentences: Sequence[str] = trace.get("crp_words") or ()
        """The path that answers; empty if the method has none."""
        has_path = self.sentences or self.beams
        self.how = () if has_path else tuple(served.answer.trace.describe())
        self.dropped: Sequence[str] = trace.get("dropped") or ()
        """Conditions that nothing satisfied."""
        self.words, self.mentions = _mentions(self.record, self.question, asking)

    @property
    def dropped_besides(self) -> list[str]:
        """The dropped conditions that are no sentences of their own."""
        return [each for each in self.dropped if each not in self.sentences]

    @property
    def advice(self) -> str:
        """What to try if there is no answer."""
        return _ADVICE.get(self.record["reason"] or "", _DEFAULT_ADVICE)

    @cached_property
    def drawing(self) -> Markup | None:
        """The evidence as SVG; None if there is none."""
        drawing = draw_evidence(self.record, entity_url)
        # Everything in it is escaped; see `kbqa.engine.display.drawing`.
        return None if drawing is None else Markup(drawing)

    @property
    def editable(self) -> str:
        """The path to begin with when one is edited."""
        written = (beam.get("crp") for beam in self.beams)
        paths = (self.record["trace"].get("crp"), self.asking.path, *written)
        return next(filter(None, paths), "")

    @cached_property
    def lines(self) -> list[dict[str, str]]:
        """The query, each line with the sentences that have its relations or its order: ``0 2``."""
        relations = [set(_RELATION.findall(sentence)) for sentence in self.sentences]
        ordering = [n for n, each in enumerate(self.sentences) if each.startswith("Take the ")]
        lines = []
        for line in self.record["sparql"].split("\n") if self.record["sparql"] else ():
            found = {each.rpartition("/")[2] for each in re.findall(r"<([^<>]*)>", line)}
            found |= {each.rpartition(":")[2] for each in re.findall(r"\b\w*:[\w.]+", line)}
            parts = [n for n, known in enumerate(relations) if known & found]
            if not parts and line.lstrip().startswith(("ORDER BY", "LIMIT", "OFFSET")):
                parts = ordering
            lines.append({"text": line, "parts": " ".join(map(str, parts))})
        return lines

    @cached_property
    def candidates(self) -> list[ShownCandidate]:
        """The paths that were considered, best first, each with its source if these differ."""
        is_mixed = len({beam["source"] for beam in self.beams}) > 1
        asking, best = self.asking, self.record["trace"].get("beam")
        shown = []
        for number, beam in enumerate(self.beams):
            text = beam.get("crp") or beam.get("routerkgqa") or ""
            is_readable = beam["fate"] != "unreadable"
            candidate = ShownCandidate(
                words=beam.get("crp_words") or (),
                text=text,
                source=_SOURCES[beam["source"]] if is_mixed else "",
                confidence=beam.get("confidence"),
                fate=_FATES.get(beam["fate"], ""),
                found=_found(beam),
                is_best=number == best,
                url=page_url(self.question, asking.topics, text) if is_readable else None,
            )
            shown.append(candidate)
        return shown

    @property
    def seconds(self) -> float:
        """Seconds in all."""
        return float(sum(self.record["seconds"].values()))

    @property
    def stages(self) -> Iterator[dict[str, object]]:
        """Where the time went: each stage, and its place in a bar."""
        total, x = self.seconds or 1.0, 0.0
        for name, spent in self.record["seconds"].items():
            width = spent / total * _BAR_WIDTH
            bar = {"x": round(x, 1), "width": round(width, 1)}
            yield {"name": name, "seconds": spent, **bar}
            x += width

    @property
    def spoken(self) -> str:
        """The answer for a screen reader, in a sentence."""
        record = self.record
        if record["status"] == "none":
            return f"No answer: {record['problem'].removesuffix('.')}."
        if record.get("boolean") is not None:
            said = "Yes" if record["boolean"] else "No"
        elif record.get("count") is not None:
            said = f"{record['count']:,}"
        elif record.get("value") is not None:
            said = f"{record['value']:,.12g}"
        else:
            names = [each["name"][:100] for each in record["answers"][:3]]
            hidden = len(record["answers"]) - len(names)
            said = ", ".join(names) + (f" and {hidden} more" if hidden else "")
        is_guess = record["status"] == "unsure"
        opening = f"Not sure: {record['doubt']}. Best guess" if is_guess else "Answer"
        sure = record["confidence"]
        return f"{opening}: {said}." + ("" if sure is None else f" Confidence {sure:.2f}.")


def answer_views(served: Served, asking: Asking) -> list[AnswerView]:
    """Return what the page shows of an answer: several, if several questions were asked in one."""
    parts = served.answer.parts
    if not parts:
        return [AnswerView(served, asking)]
    return [
        AnswerView(
            replace(served, answer=replace(part, understood=None), seconds=part.seconds),
            Asking(part.understood or part.question, asking.topics),
            f"{number} of {len(parts)}",
        )
        for number, part in enumerate(parts, 1)
    ]


def page_url(
    question: str, topics: Sequence[str] = (), path: str = "", history: Sequence[str] = ()
) -> str:
    """Return the address of the page that asks a question or runs a path."""
    fields = [("q", question), *(("topic", mid) for mid in topics), ("path", path)]
    fields += [("after", each) for each in history]
    given = [(name, value) for name, value in fields if value]
    return f"/?{urlencode(given)}" if given else "/"


def entity_url(mid: str) -> str:
    """Return the address of an entity's page."""
    return f"/entity/{quote(mid, safe='')}"


_TEMPLATES.globals |= {"page_url": page_url, "entity_url": entity_url, "is_mid": is_mid}


@router.get("/", response_model=None)
async def home(
    caller: TheCaller,
    q: str = "",
    topic: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI copies defaults
    path: str = "",
    after: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI copies defaults
) -> Response:
    """Show the page; with a question or a path, also its answer."""
    topics = dict.fromkeys(topic[:20])
    asking = Asking(" ".join(q.split()), tuple(topics), path, _history(after))
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
    return await show(views=answer_views(served, asking))


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
        ends: records.NeighboursRecord | None = None
        if relation:
            ends = await service.look_up(
                browsing.list_neighbours, mid, relation, direction, NEIGHBOURS, offset
            )
    except Exception as error:  # noqa: BLE001 - every error is a page
        return await show(found=None, problem=caller.problem(error))
    by_domain: dict[str, list[records.RelationRecord]] = {}
    for each in relations.relations:
        by_domain.setdefault(each.relation.partition(".")[0], []).append(each)
    domains = dict(sorted(by_domain.items(), key=lambda item: item[0] in _BOOKKEEPING))
    return await show(found=found, domains=domains, cut=relations.truncated, ends=ends)


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """List the routes, with what they take and return."""
    templates = _TEMPLATES.overlay(undefined=Undefined)  # a schema leaves out what it has not
    page = templates.get_template("docs.html").render(api=request.app.openapi())
    return HTMLResponse(page)


@router.post("/page/ask")
async def ask(body: records.AskBody, caller: TheCaller) -> StreamingResponse:
    """Answer a question for the page's script."""
    question, topics = " ".join(body.question.split()), tuple(body.topics)
    return await _stream(caller, Asking(question, topics, history=_history(body.history)))


@router.post("/page/path")
async def path(body: records.RunPathBody, caller: TheCaller) -> StreamingResponse:
    """Run a path for the page's script."""
    asking = Asking(" ".join(body.question.split()), tuple(body.topics), body.path)
    return await _stream(caller, asking)


@router.post("/page/relations")
async def relations(body: records.PathBody, service: TheService) -> list[str]:
    """List the relations that may follow in a path that is being typed."""
    return await service.look_up(_complete_relation, body.path)


def _history(questions: Sequence[str]) -> tuple[str, ...]:
    """Read the questions before one, of which the latest count."""
    texts = (" ".join(each.split()) for each in questions)
    return tuple(filter(None, texts))[-_MOST_HISTORY:]


def _ask(caller: Caller, asking: Asking) -> Ask:
    if not asking.path.strip():
        ask = caller.service.ask
        return partial(ask, asking.question, asking.topics, history=asking.history)
    run, client = caller.service.run_path, caller.visit.client
    return partial(run, asking.path, asking.question, asking.topics, client=client)


async def _stream(caller: Caller, asking: Asking) -> StreamingResponse:
    def to_record(served: Served) -> Mapping[str, Any]:
        views = answer_views(served, asking)
        html = _TEMPLATES.get_template("answers.html").render(
            views=views, asking=asking, max_question=MAX_QUESTION
        )
        spoken = " ".join(view.spoken for view in views)
        return {"html": html, "spoken": spoken, "url": asking.url}

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
    graph: Mapping[str, object] | None = None
    names: Mapping[str, str] = {}
    if visit.is_known:
        try:
            graph = await service.look_up(_graph_words)
            mids = list(filter(is_mid, asking.topics))
            names = await service.look_up(lambda graph, _: graph.labels(mids))
        except KbqaError as error:
            problem = problem or caller.problem(error)
    html = _TEMPLATES.get_template(template).render(
        version=version("kbqa"),
        graph=graph,
        topics=[{"mid": mid, "name": names.get(mid, mid)} for mid in asking.topics],
        asking=asking,
        state=service.state,
        needs_key=not visit.is_known,
        is_foreign=visit.is_foreign,
        problem=problem,
        request_id=visit.request_id,
        max_question=MAX_QUESTION,
        **{"views": (), **shown},
    )
    if problem is None:
        return HTMLResponse(html)
    return HTMLResponse(html, problem.status, problem.headers)


async def show_problem(caller: Caller, problem: Problem) -> HTMLResponse:
    """Show a page with the problem of an address."""
    return await _show("home.html", caller, Asking(), problem=problem)


def _graph_words(graph: Graph, _: Names) -> dict[str, object]:
    """Describe the graph in the words of the page, without its place."""
    identity = graph.identity()
    store, summary = identity.settings.get("store"), identity.notes.get("store_summary")
    triples = summary.get("kept") if isinstance(summary, Mapping) else None
    is_demo = isinstance(store, Mapping) and store.get("dumps_sha256") == [_demo_sha256()]
    name = "the demo graph" if is_demo else "a SPARQL endpoint" if store is None else "a store"
    return {"name": name, "triples": triples, "examples": _EXAMPLES if is_demo else ()}


@cache
def _demo_sha256() -> str:
    return hashlib.sha256(DEMO_DUMP.read_bytes()).hexdigest()


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
    if entity is None or not (entity["mid"] or entity["name"]):
        return []
    if entity["mid"]:
        return [entity["mid"].removeprefix("ns:")]
    return [match.mid for match in names.lookup(entity["name"], _MEANT)]


def _mentions(
    record: Mapping[str, Any], question: str, asking: Asking
) -> tuple[list[QuestionPart], list[Mention]]:
    """Mark the words of the question that were taken for entities, with their other meanings."""
    by_words: dict[str, list[Mapping[str, Any]]] = {}
    for each in record["linked"]:
        by_words.setdefault(each["mention"].casefold(), []).append(each)
    # Where nothing answered, the most likely entity is the one that the model wrote about.
    used = _used(record["trace"]) or {each["mid"] for each in record["linked"][:1]}
    spans: list[tuple[int, int, str]] = []
    for mention in sorted(by_words, key=len, reverse=True):
        pattern = re.escape(mention).replace(r"\ ", r"\s+")
        found = re.search(rf"(?<!\w){pattern}(?!\w)", question, re.IGNORECASE)
        if found and all(found.end() <= start or end <= found.start() for start, end, _ in spans):
            spans.append((*found.span(), mention))
    words: list[QuestionPart] = []
    mentions: list[Mention] = []
    end = 0
    for start, stop, mention in sorted(spans):
        words.append(QuestionPart(question[end:start]))
        words.append(QuestionPart(question[start:stop], len(mentions) + 1))
        mentions.append(_mention(question[start:stop], by_words[mention], used, asking))
        end = stop
    words.append(QuestionPart(question[end:]))
    return [word for word in words if word.text], mentions


def _mention(
    words: str, linked: Sequence[Mapping[str, Any]], used: set[str], asking: Asking
) -> Mention:
    mids = [each["mid"] for each in linked]
    kept = [mid for mid in asking.topics if mid not in mids]
    urls = [page_url(asking.question, [*kept, mid], history=asking.history) for mid in mids]
    choices = [
        Meaning(each["mid"], each["name"], each["score"], url)
        for each, url in zip(linked, urls, strict=True)
    ]
    taken = next((choice for choice in choices if choice.mid in used), None)
    others = [choice for choice in choices if choice is not taken]
    return Mention(words, taken, tuple(others[:_OTHERS]))


def _used(trace: Mapping[str, Any]) -> set[str]:
    """Return the mids that the path has, or that walks began with."""
    walks = {walk["topic"] for walk in trace.get("walks", ())}
    return walks | set(_MID.findall(trace.get("crp") or ""))


def _found(beam: Mapping[str, Any]) -> str:
    """Write the answers of a candidate, as far as they are known."""
    if beam.get("boolean") is not None:
        return "yes" if beam["boolean"] else "no"
    names, n = beam.get("first_answers") or (), beam.get("answer_count")
    if not names:
        return "" if n is None else "nothing" if n == 0 else f"{n:,}"
    hidden = (n or 0) - len(names)
    return ", ".join(names) + (f" and {hidden:,} more" if hidden > 0 else "")
