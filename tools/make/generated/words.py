"""The words of a synthetic dump: English names and texts, and names in thirty languages.

Characters that N-Triples requires to be escaped are escaped already.
"""

import itertools
import tomllib
from pathlib import Path

_TABLES = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def _words(name: str) -> list[str]:
    return str(_TABLES[name]).split()


FIRST_TYPES, FIRST_MEDIATORS = _words("first_types"), _words("first_mediators")
PROPERTY_WORDS, DOMAIN_WORDS = _words("properties"), _words("domains")
TYPE_WORDS, FIRST_WORDS = _words("types"), _words("first")
_STEMS, _ENDINGS, _NOUNS = _words("stems"), _words("endings"), _words("nouns")
COUNTRIES, GENDERS, LANGUAGES = (
    tuple(_TABLES[name].items()) for name in ("countries", "genders", "languages")
)
OTHER_LANGUAGES = tuple(sorted(_TABLES["syllables"]))

LAST_WORDS = tuple(
    [stem + ending for stem, ending in itertools.product(_STEMS, _ENDINGS)]
    + _NOUNS
    + [
        f"{stem}{ending} {noun}"
        for stem, ending, noun in zip(_STEMS * 3, _ENDINGS * 5, _NOUNS * 2, strict=False)
    ]
)

NAME_TAILS = tuple(
    [f" {number}" for number in range(2, 400)]
    + [f" ({year} film)" for year in range(1920, 2015)]
    + [f" ({year})" for year in range(1900, 2015)]
    + [f", {stem}{ending}" for stem, ending in zip(_STEMS * 2, _ENDINGS * 3, strict=False)]
    + [f" {word}" for word in ("II", "III", "IV", "Jr.", "Sr.", "& Sons", "No. 1", r"\"Live\"")]
    + [f" and the {noun}" for noun in _NOUNS]
    + [f" of the {noun}s" for noun in _NOUNS]
    + [f" {noun}" for noun in _NOUNS]
)

SENTENCES = tuple(
    f"{opening} {subject} {verb} {rest}."
    for opening, subject, verb, rest in itertools.product(
        ("It is known that the", "According to the records the", "Since then the", "Today the"),
        ("family", "company", "village", "novel", "orchestra", "species", "river"),
        ("was described by", "has been part of", "moved away from", "took its name from"),
        (
            "the northern districts, which were settled late",
            "a small group of engineers around the turn of the century",
            "its first owner and, after a long dispute, of his daughters",
            r"what was called \"the great work\" in the newspapers",
            r"two regions that share a border\nand little else",
            "the university, where most of the collection is still kept",
        ),
    )
)


def foreign_name(language: str, number: int) -> str:
    """Return the name for a number in a language; the same number gives the same name."""
    syllables = _TABLES["syllables"][language].split()
    number = number * 2654435761 % 2**32
    words = []
    for length in (3, 2):
        word = ""
        for _ in range(length):
            number, place = divmod(number * 7 + 3, len(syllables))
            word += syllables[place]
        words.append(word.capitalize())
    return ("" if language in ("ja", "zh", "zh-Hant", "th") else " ").join(words)
