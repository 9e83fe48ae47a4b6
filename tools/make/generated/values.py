"""Prepared objects of lines: literals of each kind, as bytes with the line's end.

A line then takes one at random, which costs a list look-up.
"""

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


def encoded(texts: list[str]) -> list[bytes]:
    """Return texts as UTF-8."""
    return [text.encode() for text in texts]


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
    end = END.decode()
    texts = [f"{random.choice(FIRST_WORDS)} {random.choice(LAST_WORDS)}" for _ in range(_MANY)]
    return Values(
        of={
            Kind.DATE: encoded([_date(random) + end for _ in range(_MANY)]),
            Kind.WHOLE: encoded(
                [f'"{int(10 ** random.uniform(0, 8))}"{end}' for _ in range(_MANY)]
            ),
            Kind.DECIMAL: encoded([f'"{_decimal(random)}"{end}' for _ in range(_MANY)]),
            Kind.TRUTH: encoded([f'"true"{end}', f'"false"{end}']),
            Kind.TEXT: encoded([f'"{text}"{random.choice(("@en", ""))}{end}' for text in texts]),
        },
        first_words=encoded([f'"{word}' for word in FIRST_WORDS]),
        last_words=encoded([f" {word}" for word in LAST_WORDS]),
        name_tails=encoded(list(NAME_TAILS)),
        foreign_names=encoded(
            [
                f'"{foreign_name(language, number)}"@{language}{end}'
                for language in OTHER_LANGUAGES
                for number in range(NAMES_A_LANGUAGE)
            ]
        ),
        sentences=encoded([f" {sentence}" for sentence in SENTENCES]),
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
    return "".join(
        character
        if character.isascii() and character.isalnum()
        else "_"
        if character == " "
        else f"${ord(character):04X}"
        for character in text
    ).encode()
