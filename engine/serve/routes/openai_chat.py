"""OpenAI's chat protocol, so that programs made for it can ask; each answer is whole.

The question is the last message of the user. The whole record is under ``kbqa``.
"""

import json
import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from kbqa.engine.serve.asking.served import Served
from kbqa.engine.serve.problems import Problem
from kbqa.engine.serve.routes.parts import CLIENT_LEFT, TheService, until_gone
from kbqa.engine.serve.streaming import MEDIA_TYPE
from kbqa.sparql.errors import InputError

router = APIRouter(prefix="/v1", tags=["OpenAI"])

MODEL = "kbqa"
_LISTED = 20
_ADVICE = {"unlinked": " Use the name that the graph has."}
"""What to try, by the reason why there is no answer."""


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


@router.get("/models")
async def models() -> dict[str, Any]:
    """List the one model there is."""
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "kbqa"}]}


@router.post("/chat/completions")
async def chat(body: ChatBody, request: Request, service: TheService) -> Response:
    """Answer the last message of the user."""
    if body.model != MODEL:
        raise HTTPException(404, f"The only model is {MODEL}.")
    asked = [message for message in body.messages if message.role == "user"]
    if not asked:
        raise InputError("no message is of the user")
    served = await until_gone(request, service.ask(asked[-1].text()))
    if served is None:
        return Response(status_code=CLIENT_LEFT)
    if body.stream:
        return StreamingResponse(_chunks(served), media_type=MEDIA_TYPE)
    message = {"role": "assistant", "content": content_of(served)}
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


def content_of(served: Served) -> str:
    """Write an answer as text: the names, how sure they are, and the path in words."""
    answer = served.answer
    if served.status == "none":
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
    if served.status == "unsure":
        found = f"Not sure ({answer.confidence:.2f}): {answer.doubt}. Best guess: {found}"
    elif answer.confidence is not None:
        sure = f"Confidence: {answer.confidence:.2f}"
    path = "\n".join(answer.trace.to_dict().get("crp_words") or ())
    return "\n\n".join(filter(None, (found, path, sure)))


def openai_error(problem: Problem) -> dict[str, Any]:
    """Write a problem as OpenAI's clients read errors."""
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    if problem.status == 429:
        kind = "rate_limit_error"
    return {"error": {"message": problem.detail, "type": kind, "param": None, "code": problem.code}}


def _head(served: Served, kind: str) -> dict[str, Any]:
    return {"id": served.id, "object": kind, "created": int(time.time()), "model": MODEL}


def _chunks(served: Served) -> Iterator[bytes]:
    head = _head(served, "chat.completion.chunk")
    delta = {"role": "assistant", "content": content_of(served)}
    for choice, more in (
        ({"index": 0, "delta": delta, "finish_reason": None}, {}),
        ({"index": 0, "delta": {}, "finish_reason": "stop"}, {"kbqa": served.to_dict()}),
    ):
        chunk = json.dumps({**head, "choices": [choice], **more}, ensure_ascii=False)
        yield f"data: {chunk}\n\n".encode()
    yield b"data: [DONE]\n\n"
