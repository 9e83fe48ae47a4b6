"""Prepared objects of lines: literals of each kind, as bytes with the line's end.

A line then takes one at random, which costs a list look-up.
"""

import re
from dataclasses import dataclass
from random import Random

from tools.make.generated.lines import END
from tools.make.generated.schema import Kind
from tools.make.generated.words import (
    FIRST_WORDS,
    LAST_WORDS,
    NAME_TAILS,
    OTHER_LANGUAGES,
    SENTENCES,
    foreign_name,
)

_XSD = "^^<http://www.w3.org/2001/XMLSchema#"
_MANY = 30_000
NAMES_A_LANGUAGE = 2048


@dataclass(slots=True)
class Values:
    """The tables."""

    of: dict[Kind, list[bytes]]  # objects by the kind of property
    first_words: list[bytes]  # what English names begin with; with the opening quote
    last_words: list[bytes]  # their ends, with the space before
    name_tails: list[bytes]  # what some of them end with
    foreign_names: list[bytes]  # names in other languages, `NAMES_A_LANGUAGE` of each
    sentences: list[bytes]  # what descriptions are built from
    key_words: list[bytes]  # words of Wikipedia's titles, as keys escape them


def make_values(seed: int) -> Values:
    """Make the tables."""
    random = Random(f"values {seed}")
    texts = [f"{random.choice(FIRST_WORDS)} {random.choice(LAST_WORDS)}" for _ in range(_MANY)]
    of = {
        Kind.DATE: [_date(random) for _ in range(_MANY)],
        Kind.WHOLE: [f'"{int(10 ** random.uniform(0, 8))}"' for _ in range(_MANY)],
        Kind.DECIMAL: [f'"{_decimal(random)}"' for _ in range(_MANY)],
        Kind.TRUTH: ['"true"', '"false"'],
        Kind.TEXT: [f'"{text}"{random.choice(("@en", ""))}' for text in texts],
    }
    foreign = [
        f'"{foreign_name(language, number)}"@{language}'
        for language in OTHER_LANGUAGES
        for number in range(NAMES_A_LANGUAGE)
    ]
    return Values(
        of={kind: [text.encode() + END for text in objects] for kind, objects in of.items()},
        first_words=[f'"{word}'.encode() for word in FIRST_WORDS],
        last_words=[f" {word}".encode() for word in LAST_WORDS],
        name_tails=[tail.encode() for tail in NAME_TAILS],
        foreign_names=[name.encode() + END for name in foreign],
        sentences=[f" {sentence}".encode() for sentence in SENTENCES],
        key_words=[_key_escaped(text) for text in texts],
    )


def _date(random: Random) -> str:
    year = 2015 - int(random.expovariate(1 / 60))
    month, day = random.randint(1, 12), random.randint(1, 28)
    shape = random.random()
    if shape < 0.45:
        return f'"{year:04}-{month:02}-{day:02}"{_XSD}date>'
    if shape < 0.75:
        return f'"{year:04}"{_XSD}gYear>'
    if shape < 0.85:
        return f'"{year:04}-{month:02}"{_XSD}gYearMonth>'
    if shape < 0.86:
        return f'"-{random.randint(1, 900):04}"{_XSD}gYear>'
    hour, minute = random.randint(0, 23), random.randint(0, 59)
    return f'"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:00Z"{_XSD}dateTime>'


def _decimal(random: Random) -> str:
    return f"{random.uniform(0, 10 ** random.randint(0, 6)):.{random.randint(1, 4)}f}"


def _key_escaped(text: str) -> bytes:
    """Escape a title like Freebase's keys: ``J.`` is ``J$002E``."""
    escaped = re.sub(r"[^0-9A-Za-z ]", lambda match: f"${ord(match[0]):04X}", text)
    return escaped.replace(" ", "_").encode()
