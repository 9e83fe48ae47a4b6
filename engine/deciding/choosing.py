"""Decisions between options, by a general model, the embedder, or chance.

A `Choice` holds the options, the prompt for a general model, and the reader of its reply. A
`Chooser` takes several choices that do not depend on each other:

    choose = make_chooser("llm", question, seed, chat=asked.chat)
    [decided] = choose([choice])
    best = [choice.options[at] for at in decided.picked.chosen]

A chooser counts nothing: take the decisions from the question's `Budget` first.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from kbqa.engine.asked import ChooserName
from kbqa.engine.chat.cache import CountedChat
from kbqa.engine.chat.model import Message, ReplySampling, Usage
from kbqa.engine.deciding.reading import Picked
from kbqa.engine.embedding.embedder import Embedder
from kbqa.sparql.errors import InputError


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision between options, for any chooser."""

    kind: str  # what is decided, such as ``relations``: names the step in traces and reports
    hop: int  # from 1
    at: str  # the node or walk that it is about; draws by chance depend on it
    options: tuple[str, ...]  # as the prompt names them
    most: int  # how many may be chosen
    prompt: tuple[Message, ...]
    read: Callable[[str, Sequence[str]], Picked]  # reads the reply to the prompt, by the options
    meanings: tuple[str, ...] = ()  # words for each option, which the embedder compares, if others
    hidden: int = 0  # options that exist and are not offered
    sampling: ReplySampling = field(default_factory=ReplySampling)  # of the reply


class Decided(NamedTuple):
    """The picked options, and the usage of a general model."""

    picked: Picked
    usage: Usage | None = None
    is_truncated: bool = False


Chooser: TypeAlias = Callable[[Sequence[Choice]], list[Decided]]
"""Takes decisions that do not depend on each other. Raises a `ModelError` if the model failed."""


def make_chooser(
    name: ChooserName,
    question: str,
    seed: int,
    *,
    chat: CountedChat | None = None,
    embedder: Embedder | None = None,
) -> Chooser:
    """Return the chooser of one question; an `InputError` if its general model is missing.

    The embedder is free and offline: the baseline that a general model must beat. A stand-in for
    the general model counts its prompts and lets chance decide, for an estimate of a run.
    """
    by_chance = partial(choose_by_chance, question=question, seed=seed)
    if name == "random":
        return by_chance
    if name == "embedder":
        assert embedder is not None
        return partial(choose_by_embedder, question=question, embedder=embedder)
    if chat is None:
        raise InputError("a general model is to decide: add --llm URL or --llm-model NAME")
    by_chat = partial(choose_by_chat, chat=chat, seed=seed)
    if not chat.is_stand_in:
        return by_chat

    def rehearse(choices: Sequence[Choice]) -> list[Decided]:
        drawn, asked = by_chance(choices), by_chat(choices)
        return [Decided(d.picked, a.usage) for d, a in zip(drawn, asked, strict=True)]

    return rehearse


def choose_by_chat(choices: Sequence[Choice], chat: CountedChat, seed: int) -> list[Decided]:
    """Send the prompts together, all with the sampling of the first, and read the replies."""
    if not choices:
        return []
    prompts = [choice.prompt for choice in choices]
    replies = chat.complete_all(prompts, **seeded(choices[0].sampling, seed))
    return [
        Decided(choice.read(reply.text, choice.options), reply.usage, reply.is_truncated)
        for choice, reply in zip(choices, replies, strict=True)
    ]


def seeded(sampling: ReplySampling, seed: int) -> ReplySampling:
    """Add the seed, but not at temperature 0, where nothing is drawn."""
    return {**sampling, "seed": seed} if sampling.get("temperature", 0.0) > 0 else sampling


def choose_by_embedder(
    choices: Sequence[Choice], question: str, embedder: Embedder
) -> list[Decided]:
    """Take the options most similar to the question; scores are their cosines, from 0."""
    decided = []
    for choice in choices:
        cosines = embedder.similarity(question, choice.meanings or choice.options)
        best = most_similar_first(cosines)[: choice.most]
        decided.append(Decided(Picked(tuple(best), tuple(max(cosines[at], 0.0) for at in best))))
    return decided


def most_similar_first(cosines: Sequence[float]) -> list[int]:
    """Sort indexes by their cosines, equal ones by their order."""
    # The last digits of a cosine depend on the batch.
    return sorted(range(len(cosines)), key=lambda at: (-round(cosines[at], 6), at))


def choose_by_chance(choices: Sequence[Choice], question: str, seed: int) -> list[Decided]:
    """Draw uniformly, all with equal scores."""
    decided = []
    for choice in choices:
        about = (question, choice.kind, str(choice.hop), choice.at)
        drawn = draw(len(choice.options), choice.most, seed, *about)
        decided.append(Decided(Picked(drawn, (1.0 / max(len(drawn), 1),) * len(drawn))))
    return decided


def draw(size: int, most: int, seed: int, *about: str) -> tuple[int, ...]:
    """Draw at most `most` of `size` indexes by chance, in an order of chance.

    Only the seed and `about` decide, so a resumed run draws the same.
    """
    content = "|".join((str(seed), *about))
    chance = random.Random(sha256(content.encode(errors="replace")).digest())
    return tuple(chance.sample(range(size), min(most, size)))


def numbered(options: Sequence[str]) -> str:
    """Write options one a line, numbered from 1, so that a reply may name them by number."""
    return "\n".join(f"{at}. {option}" for at, option in enumerate(options, 1)) or "(none)"


def written_prompt(template: str, **fields: object) -> tuple[Message, ...]:
    """Fill in a template, as a conversation of one message."""
    return (Message("user", template.format(**fields)),)
