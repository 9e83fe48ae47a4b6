"""Protocols of others: OpenAI's chat, the SPARQL 1.1 Protocol, read-only, and TEXT2SPARQL.

A chat's question is the last message of the user. Its answer is whole, with the record as ``kbqa``.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from kbqa.engine.answer import Answer
from kbqa.engine.linking.ground import ungrounded_entities
from kbqa.engine.running.evidence import PathTrace
from kbqa.engine.serve.problems import Problem
from kbqa.engine.serve.routes import MEDIA_TYPE, PROBLEMS, Caller, TheCaller
from kbqa.engine.serve.served import MAX_QUERY, MAX_QUESTION, MAX_ROWS, Served
from kbqa.kb.commands.graph import format_rows
from kbqa.kb.graph import Table
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.errors import InputError, QueryRefused, QuerySyntaxError, QueryTooLarge

openai_routes = APIRouter(prefix="/v1", tags=["OpenAI"])

MODEL = "kbqa"
_LISTED = 20
_ADVICE = {"unlinked": " Use the name that the graph has."}
"""Advice by the reason why there is no answer."""


class _TextPart(BaseModel):
    type: str
    text: str = ""


class _Message(BaseModel):
    role: str
    content: str | list[_TextPart] | None = None

    def text(self) -> str:
        """Return the text of all parts."""
        if isinstance(self.content, list):
            return " ".join(part.text for part in self.content if part.type == "text")
        return self.content or ""


class ChatBody(BaseModel):
    """A conversation. Parameters of models, such as temperature, are ignored."""

    model: str = MODEL
    messages: Annotated[list[_Message], Field(min_length=1, max_length=200)]
    stream: bool = False
    n: Literal[1, None] = None
    tools: Annotated[list[dict[str, Any]] | None, Field(max_length=0)] = None


@openai_routes.get("/models")
async def models() -> dict[str, Any]:
    """List the one model there is."""
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "kbqa"}]}


@openai_routes.post("/chat/completions")
async def chat(body: ChatBody, caller: TheCaller) -> Response:
    """Answer the last message of the user."""
    if body.model != MODEL:
        raise HTTPException(404, f"The only model is {MODEL}.")
    asked = [message for message in body.messages if message.role == "user"]
    if not asked:
        raise InputError("no message is of the user")
    served = await caller.wait(caller.service.ask(asked[-1].text()))
    if body.stream:
        return StreamingResponse(_chunks(served), media_type=MEDIA_TYPE)
    message = {"role": "assistant", "content": content_of(served.answer)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = served.answer.usage
    counts = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
    total = usage.input_tokens + usage.output_tokens
    return JSONResponse(
        {
            **_head(served, "chat.completion"),
            "choices": [choice],
            "usage": {**counts, "total_tokens": total},
            "kbqa": served.to_dict(),
        }
    )


def content_of(answer: Answer) -> str:
    """Write an answer as text: the names, how sure they are, and the path in words."""
    if answer.status == "none":
        advice = _ADVICE.get(answer.reason or "", "")
        return f"No answer: {(answer.problem or '').removesuffix('.')}.{advice}"
    if answer.boolean is not None:
        found = "Yes" if answer.boolean else "No"
    elif answer.count is not None:
        found = str(answer.count)
    else:
        found = ", ".join(each.name for each in answer.answers[:_LISTED])
        if len(answer.answers) > _LISTED:
            more = "or more others" if answer.truncated else "more"
            found = f"{found} and {len(answer.answers) - _LISTED:,} {more}"
    sure = ""
    if answer.status == "unsure":
        found = f"Not sure ({answer.confidence:.2f}): {answer.doubt}. Best guess: {found}"
    elif answer.confidence is not None:
        sure = f"Confidence: {answer.confidence:.2f}"
    path = "\n".join(answer.trace.to_dict().get("crp_words") or ())
    return "\n\n".join(filter(None, (found, path, sure)))


def openai_error(problem: Problem, headers: Mapping[str, str] | None) -> Response:
    """Answer a request with a problem, as OpenAI's clients read errors."""
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    if problem.status == 429:
        kind = "rate_limit_error"
    error = {"message": problem.detail, "type": kind, "param": None, "code": problem.code}
    sent = {**(headers or {}), **problem.headers}
    return Response(json.dumps({"error": error}), problem.status, sent, "application/json")


def _head(served: Served, kind: str) -> dict[str, Any]:
    return {"id": served.id, "object": kind, "created": int(time.time()), "model": MODEL}


def _chunks(served: Served) -> Iterator[bytes]:
    head = _head(served, "chat.completion.chunk")
    delta = {"role": "assistant", "content": content_of(served.answer)}
    for choice, more in (
        ({"index": 0, "delta": delta, "finish_reason": None}, {}),
        ({"index": 0, "delta": {}, "finish_reason": "stop"}, {"kbqa": served.to_dict()}),
    ):
        chunk = json.dumps({**head, "choices": [choice], **more}, ensure_ascii=False)
        yield f"data: {chunk}\n\n".encode()
    yield b"data: [DONE]\n\n"


sparql_routes = APIRouter(tags=["SPARQL"], responses=PROBLEMS)

_ResultFormat = Literal["json", "csv", "tsv"]

_TYPES: Mapping[str, _ResultFormat] = {
    "application/sparql-results+json": "json",
    "application/json": "json",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
}
"""Of types that a client likes equally well and names no more exactly, the first is sent."""
_SENT_AS: Mapping[_ResultFormat, str] = {
    "json": "application/sparql-results+json",
    "csv": "text/csv; charset=utf-8",
    "tsv": "text/tab-separated-values; charset=utf-8",
}
_MAX_RESULT_BYTES = 5_000_000
_NOTHING = "SELECT ?x WHERE { ?x ?relation ?value FILTER(false) }"
"""A valid query without results, for questions that no query answers."""


@sparql_routes.get("/sparql")
async def query_by_url(
    request: Request,
    caller: TheCaller,
    query: Annotated[str, Query(description="A SELECT or ASK.")] = "",
) -> Response:
    """Run a query of your own: the SPARQL 1.1 Protocol, read-only.

    SELECT is answered as JSON, CSV or TSV, by `Accept`; ASK as JSON. If a result is cut off, the
    header `X-Kbqa-Truncated` says so.
    """
    names = [name for name, _ in request.query_params.multi_items()]
    return await _answer_query(query, names, caller)


@sparql_routes.post(
    "/sparql",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/sparql-query": {"schema": {"type": "string"}},
                "application/x-www-form-urlencoded": {
                    "schema": {"type": "object", "properties": {"query": {"type": "string"}}}
                },
            },
        }
    },
)
async def query_by_body(request: Request, caller: TheCaller) -> Response:
    """Run a query of your own, as GET does: from a form, or as the body itself."""
    try:
        body = (await request.body()).decode()
    except UnicodeDecodeError:
        raise InputError("the body is not UTF-8") from None
    if request.headers["content-type"].lower().startswith("application/sparql-query"):
        names = [name for name, _ in request.query_params.multi_items()]
        return await _answer_query(body, ["query", *names], caller)
    form = parse_qsl(body, keep_blank_values=True)
    names = [name for name, _ in form]
    return await _answer_query(dict(form).get("query", ""), names, caller)


@sparql_routes.get("/text2sparql")
async def text2sparql(
    dataset: Annotated[str, Query(max_length=500)],
    question: Annotated[str, Query(min_length=1, max_length=MAX_QUESTION)],
    request: Request,
    caller: TheCaller,
) -> Response:
    """Return a query that answers a question, as the TEXT2SPARQL challenge asks for it.

    Where nothing answers, it is the best candidate's, or else one without results.
    """
    if dataset != request.app.state.dataset:
        raise HTTPException(404, f"The only data set is {request.app.state.dataset}.")
    served = await caller.wait(caller.service.ask(question))
    query = _query_of(served.answer)
    return JSONResponse({"dataset": dataset, "question": question, "query": query})


def _query_of(answer: Answer) -> str:
    """Return the query that answered, or that of the best candidate, or one without results."""
    if answer.sparql is not None:
        return answer.sparql
    if isinstance(answer.trace, PathTrace):
        crps = (tried.crp for tried in answer.trace.tried)
        for crp in crps:
            if crp is not None and not ungrounded_entities(crp):
                return compile_crp(crp)
    return _NOTHING


async def _answer_query(query: str, parameters: Sequence[str], caller: Caller) -> Response:
    if not query.strip():
        raise QuerySyntaxError("there is no query: send it as the parameter `query`")
    if parameters.count("query") > 1:
        raise QuerySyntaxError("there is more than one query: send them one by one")
    if len(query) > MAX_QUERY:
        raise InputError(f"the query has {len(query):,} characters; {MAX_QUERY:,} are allowed")
    if any(name.endswith("-graph-uri") for name in parameters):
        raise QueryRefused("there is one graph only; leave out the parameters that name others")
    style = _chosen_format(caller.accepts)
    result = await caller.wait(caller.service.sparql(query, MAX_ROWS, caller.visit.client))
    if isinstance(result, bool):
        text = json.dumps({"head": {}, "boolean": result})
        return Response(text, media_type=_SENT_AS["json"])
    body, is_cut = await caller.service.look_up(lambda *_: _body(result, style))
    headers = {"X-Kbqa-Truncated": "true"} if is_cut else {}
    return Response(body, media_type=_SENT_AS[style], headers=headers)


def _chosen_format(accepted: Mapping[str, float]) -> _ResultFormat:
    """Choose the type that a client likes best; of several, the one that it names first."""
    order = list(accepted)
    found: list[tuple[float, int, _ResultFormat]] = []
    for name, style in _TYPES.items():
        ranges = (name, f"{name.partition('/')[0]}/*", "*/*")  # RFC 9110: the most exact one counts
        named = next((each for each in ranges if each in accepted), None)
        if named is not None and accepted[named] > 0:
            found.append((-accepted[named], order.index(named), style))
    if not found:
        raise HTTPException(406, f"Results are sent as {', '.join(_SENT_AS.values())}.")
    return min(found, key=lambda each: each[:2])[2]


def _body(table: Table, style: _ResultFormat) -> tuple[bytes, bool]:
    """Write a result within the limit of bytes, and say whether rows are missing."""
    rows, is_cut = table.rows, table.truncated
    while True:
        body = format_rows(replace(table, rows=rows), style).encode("utf-8", "replace")
        if len(body) <= _MAX_RESULT_BYTES:
            return body, is_cut
        if len(rows) <= 1:
            raise QueryTooLarge(f"a row of the result is larger than {_MAX_RESULT_BYTES:,} bytes")
        # Rows differ in length, so it may take more than one cut.
        rows = rows[: max(len(rows) * _MAX_RESULT_BYTES * 9 // (len(body) * 10), 1)]
        is_cut = True
