"""Who chooses among options: a general language model, the embedder, or chance.

The embedder is free and offline: the baseline that a language model must beat. Chance is seeded and
draws by content, so it does not depend on the order of questions, on threads, or on a resumed run.

Read a language model's judgement: whether what was found is enough, and then the answer.

What prompts of several methods share.
"""

import random
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

from kbqa.engine.chat.cache import CountedChat
from kbqa.engine.chat.model import Usage
from kbqa.engine.deciding.reading import (
    Choice,
    Picked,
    clip_unread,
    field_of,
    read_names,
    read_record,
    read_yes,
)
from kbqa.engine.embedding.embedder import Embedder


class Decided(NamedTuple):
    """What a chooser picked, and what that took of a language model."""

    picked: Picked
    usage: Usage | None = None
    is_truncated: bool = False


class Choosing(Protocol):
    """Takes the decisions of one question."""

    def choose_all(self, choices: Sequence[Choice]) -> list[Decided]:
        """Decide choices that do not depend on each other.

        Raises:
            ModelError: The model failed.
        """


class ByChat:
    """Asks a general model; the prompts of independent choices are sent together.

    Args:
        chat: The question's model.
        seed: Sent along where the temperature is above 0.
    """

    def __init__(self, chat: CountedChat, seed: int) -> None:
        self.chat, self._seed = chat, seed

    def choose_all(self, choices: Sequence[Choice]) -> list[Decided]:
        """Ask for each choice, all with the limits of the first, and read the replies."""
        if not choices:
            return []
        temperature = choices[0].temperature
        replies = self.chat.complete_all(
            [choice.prompt for choice in choices],
            max_tokens=choices[0].max_tokens,
            temperature=temperature,
            seed=self.seed(temperature),
        )
        return [
            Decided(choice.read(reply.text), reply.usage, reply.is_truncated)
            for choice, reply in zip(choices, replies, strict=True)
        ]

    def seed(self, temperature: float) -> int | None:
        """Return the seed to send; none at temperature 0, where nothing is drawn."""
        return self._seed if temperature > 0 else None


class ByEmbedder:
    """Takes the options that are most similar to the question; equal ones in their order."""

    def __init__(self, question: str, embedder: Embedder) -> None:
        self._question, self._embedder = question, embedder

    def choose_all(self, choices: Sequence[Choice]) -> list[Decided]:
        """Take the most similar of each; scores are cosines, from 0."""
        decided = []
        for choice in choices:
            cosines = self._embedder.similarity(self._question, choice.meanings)
            order = sorted(range(len(cosines)), key=lambda at: (-round(cosines[at], 6), at))
            best = tuple(order[: choice.most])
            decided.append(Decided(Picked(best, tuple(max(cosines[at], 0.0) for at in best))))
        return decided


class ByChance:
    """Draws uniformly; each draw depends on the seed, the question and the choice alone."""

    def __init__(self, question: str, seed: int) -> None:
        self._question, self._seed = question, seed

    def choose_all(self, choices: Sequence[Choice]) -> list[Decided]:
        """Draw `most` of each; all scores are equal."""
        decided = []
        for choice in choices:
            about = (self._question, choice.kind, str(choice.hop), choice.at)
            drawn = draw(len(choice.options), choice.most, self._seed, *about)
            decided.append(Decided(Picked(drawn, (1.0 / max(len(drawn), 1),) * len(drawn))))
        return decided


class ByRehearsal(ByChat):
    """Counts the prompts of a stand-in and lets chance decide, for an estimate of what a run takes.

    Args:
        chat: The question's stand-in.
        question: Its words.
        seed: Of the draws.
    """

    def __init__(self, chat: CountedChat, question: str, seed: int) -> None:
        super().__init__(chat, seed)
        self._chance = ByChance(question, seed)

    def choose_all(self, choices: Sequence[Choice]) -> list[Decided]:
        """Draw `most` of each; what a language model would be asked is counted."""
        drawn, asked = self._chance.choose_all(choices), super().choose_all(choices)
        return [Decided(d.picked, a.usage) for d, a in zip(drawn, asked, strict=True)]


def draw(size: int, most: int, seed: int, *about: str) -> tuple[int, ...]:
    """Draw at most `most` of `size` indexes by chance, in an order of chance.

    Args:
        size: How many there are.
        most: How many to draw.
        seed: Of the run.
        about: What the draw is for; equal arguments give equal draws.
    """
    content = "|".join((str(seed), *about))
    chance = random.Random(sha256(content.encode(errors="replace")).digest())
    return tuple(chance.sample(range(size), min(most, size)))


_YES = re.compile(r"^\W*(?:yes|true)\b[\s}\])*_\"'.,:;!-]*", re.IGNORECASE)
_NO = re.compile(r"\W*(?:no|false|not)\b", re.IGNORECASE)
_BRACED = re.compile(r"\{([^{}\n]{1,300})\}")


class Verdict(NamedTuple):
    """Whether it is enough, the names of the answers, and what could not be understood."""

    is_enough: bool
    names: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def read_verdict(reply: str, known: Sequence[str]) -> Verdict:
    r"""Read a judgement in words, with braces, or as a record.

    A record has the fields Sufficient and Answer, by themselves or in a field A.

    >>> read_verdict("Yes\nParis\nNice", ["Paris"])
    Verdict(is_enough=True, names=('Paris', 'Nice'), unread=())
    >>> read_verdict("{Yes}. It is {Paris}, the capital.", ["Paris"])
    Verdict(is_enough=True, names=('Paris',), unread=())
    >>> read_verdict('{"A": {"Sufficient": "No", "Answer": null}, "R": "too little"}', [])
    Verdict(is_enough=False, names=(), unread=())

    Args:
        reply: What the model wrote.
        known: Names that the prompt showed.
    """
    record = read_record(reply)
    nested = field_of(record, "a")
    if isinstance(nested, dict):
        record = {str(key): value for key, value in nested.items()}
    judged = field_of(record, "sufficient", "enough", "answerable")
    if judged is not None:
        answer = field_of(record, "answer", "answers", "response")
        is_enough, text = read_yes(judged), _lines_of(answer)
        is_clear = is_enough or judged is False or _NO.match(str(judged)) is not None
    else:
        is_enough, text = read_yes(reply), _YES.sub("", reply)
        text = "\n".join(_BRACED.findall(text)) or text
        is_clear = is_enough or _NO.match(reply) is not None
    if not is_enough:
        return Verdict(False, unread=() if is_clear else clip_unread([reply.strip() or "(empty)"]))
    names, unread = read_names(text, known)
    if not (names or unread):
        unread = clip_unread([text.strip() or "(no answer)"])
    return Verdict(True, tuple(names), unread)


def _lines_of(answer: object) -> str:
    if isinstance(answer, list | tuple | set):
        return "\n".join(map(str, answer))
    return "" if answer is None else str(answer)


def numbered(options: Sequence[str]) -> str:
    r"""Write options one a line, numbered from 1, so that a reply may name them by number.

    >>> numbered(["Paris", "Nice"]), numbered([])
    ('1. Paris\n2. Nice', '(none)')
    """
    return "\n".join(f"{at}. {option}" for at, option in enumerate(options, 1)) or "(none)"
