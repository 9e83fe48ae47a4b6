"""Read the numbers that a question says, in digits or in words.

>>> [(each.text, sorted(each.values)) for each in read_numbers("over 1,5 million or sixty-two")]
[('1,5 million', [1500000.0]), ('sixty-two', [62.0])]
"""

import re
from typing import NamedTuple

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS: dict[str, float] = {
    **{word: number for number, word in enumerate(_SMALL.split())},
    **{word: 10 * number for number, word in enumerate(_TENS.split(), 2)},
    "dozen": 12,
    "half a": 0.5,
    "and a half": 0.5,
}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_SCALES["trillion"] = 10**12

_WORD = "|".join(sorted((*_WORDS, *_SCALES), key=len, reverse=True))
_NUMBER = re.compile(
    rf"(?<![\w.,])(?:(?P<digits>-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?)|{_WORD})"
    rf"(?:(?: |-| and (?!a\b))(?:{_WORD}))*(?!\w)"
)


class WrittenNumber(NamedTuple):
    """A number of a text.

    Attributes:
        text: As it is written.
        values: What it may mean: the comma of ``1,500`` may be a decimal one.
    """

    text: str
    values: frozenset[float]


def read_numbers(text: str) -> list[WrittenNumber]:
    """Find the numbers of a text in lower case, in order. Ordinals are none."""
    return [
        WrittenNumber(match[0], frozenset(_value(first, match[0]) for first in _firsts(match)))
        for match in _NUMBER.finditer(text)
    ]


def _firsts(match: re.Match[str]) -> set[float]:
    """Return what the digits that a number begins with may mean; 0 if it has none."""
    digits, _, power = (match["digits"] or "0").partition("e")
    means = set()
    for mark, point in ((",", "."), (".", ",")):
        whole, _, decimals = digits.partition(point)
        is_grouped = all(len(group) == 3 for group in whole.split(mark)[1:])
        if is_grouped and re.fullmatch(r"\d*", decimals):
            means.add(float(f"{whole.replace(mark, '')}.{decimals}e{power or 0}"))
    return means


def _value(first: float, text: str) -> float:
    """Add up the words of a number that begins with a value.

    >>> _value(0, "two hundred and fifty thousand")
    250000.0
    """
    total, current = 0.0, first
    for word in re.findall(rf"\b(?:{_WORD})\b", text):
        if word in _WORDS:
            current += _WORDS[word]
        elif word == "hundred":
            current = (current or 1) * _SCALES[word]
        else:
            total += (current or 1) * _SCALES[word]
            current = 0.0
    return total + current
