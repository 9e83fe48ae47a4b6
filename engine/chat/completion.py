"""The wire form of a conversation and of its answer, in OpenAI's protocol.

Servers differ, so that no more is asked of an answer than that there is a text; what is wrong with
its token counts does not make a text worse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from kbqa.engine.chat.model import Message

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam


@dataclass(frozen=True, slots=True)
class Completion:
    """What a server answered.

    Attributes:
        text: May be blank.
        finish_reason: Why the text ends, in the server's words.
        input_tokens: As the server counted them; 0 where it does not say.
        output_tokens: As the server counted them; 0 where it does not say.
    """

    text: str
    finish_reason: str
    input_tokens: int
    output_tokens: int


def write_messages(messages: Sequence[Message]) -> "list[ChatCompletionMessageParam]":
    """Write a conversation as it is sent."""
    return [_write_message(message) for message in messages]


def read_completion(body: bytes) -> Completion:
    """Read the answer to a conversation.

    Raises:
        ValueError: It is none.
    """
    answer = _Answer.model_validate_json(body)
    choice, tokens = answer.choices[0], _read_tokens(answer.usage)
    return Completion(
        text=choice.message.content or "",
        finish_reason=choice.finish_reason or "no reason given",
        input_tokens=tokens.prompt_tokens,
        output_tokens=tokens.completion_tokens,
    )


def read_models(body: bytes) -> list[str]:
    """Read the names out of a list of models.

    Raises:
        ValueError: It is none.
    """
    return [model.id for model in _Models.model_validate_json(body).data]


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


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Answer(BaseModel):
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
