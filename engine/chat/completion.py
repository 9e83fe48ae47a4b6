"""The wire form of a conversation and of its answer, in OpenAI's protocol.

Servers differ, so an answer needs no more than a text; wrong token counts do not spoil it.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from kbqa.engine.chat.model import Message
from kbqa.engine.chat.openai_server import OPENAI_URL, OpenAIServer

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types.chat import ChatCompletionMessageParam


@dataclass(frozen=True, slots=True)
class Completion:
    """What a server answered.

    Attributes:
        text: May be blank.
        finish_reason: Why the text ends, in the server's words.
        input_tokens: As the server counted them; 0 if it does not say.
        output_tokens: As the server counted them; 0 if it does not say.
    """

    text: str
    finish_reason: str
    input_tokens: int
    output_tokens: int


def complete_chat(
    server: OpenAIServer,
    model: str,
    messages: Sequence[Message],
    *,
    max_tokens: int,
    temperature: float = 0.0,
    seed: int | None = None,
    ends_at: float | None = None,
    refused: AbstractSet[str] = frozenset(),
) -> Completion:
    """Ask a server to continue a conversation, once, without the parameters that it refused.

    Raises:
        RequestFailed: No answer came, or none that is a chat completion.
    """
    from openai import omit

    # OpenAI's newer models refuse the older name, other servers may not know the newer one.
    names = ("max_tokens", "max_completion_tokens")
    limit_name = next(
        name for name in (names[::-1] if server.url == OPENAI_URL else names) if name not in refused
    )

    def request(client: "OpenAI") -> bytes:
        response = client.chat.completions.with_raw_response.create(
            model=model,
            messages=[_write_message(message) for message in messages],
            max_tokens=max_tokens if limit_name == "max_tokens" else omit,
            max_completion_tokens=max_tokens if limit_name != "max_tokens" else omit,
            temperature=omit if "temperature" in refused else temperature,
            seed=omit if seed is None or "seed" in refused else seed,
        )
        return response.content

    answer = server.send(request, _Answer, model=model, ends_at=ends_at)
    choice, tokens = answer.choices[0], _read_tokens(answer.usage)
    return Completion(
        text=choice.message.content or "",
        finish_reason=choice.finish_reason or "no reason given",
        input_tokens=tokens.prompt_tokens,
        output_tokens=tokens.completion_tokens,
    )


def _write_message(message: Message) -> "ChatCompletionMessageParam":
    # JSON can hold half a surrogate pair, which UTF-8 cannot: the client would fail.
    content = message.content.encode(errors="replace").decode()
    match message.role:
        case "system":
            return {"role": "system", "content": content}
        case "user":
            return {"role": "user", "content": content}
        case "assistant":
            return {"role": "assistant", "content": content}


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Answer(BaseModel):
    """A chat completion."""

    choices: list[_Choice] = Field(min_length=1)
    usage: object = None


class _Tokens(BaseModel):
    prompt_tokens: NonNegativeInt = 0
    completion_tokens: NonNegativeInt = 0


def _read_tokens(usage: object) -> _Tokens:
    try:
        return _Tokens.model_validate(usage)
    except ValidationError:
        return _Tokens()
