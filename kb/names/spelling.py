"""Which spellings may be meant by a text with typing errors.

A typing error is a letter too many, too few or wrong, or two neighbours swapped: the distance of
optimal string alignment. Words are found by what is left of them when letters are deleted: two
words that differ by one error have a form in common, each with at most one letter deleted. Only the
first letters are varied, as that is selective enough and bounds the forms of a word.

Pure text: which words and names there are is for `kbqa.kb.names.index`.

Source: W. Garbe's SymSpell (deletions on both sides, and of a beginning alone), after Mor and
Fraenkel 1982, A hash code method for detecting and correcting spelling errors.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from math import isqrt

_ONE_ERROR_FROM = 4
_TWO_ERRORS_FROM = 8
_SHORTEST_WORD = 2
_VARIED_LETTERS = 7


def allowed_errors(text: str) -> int:
    """Return how many typing errors a text may hold: 1 from 4 characters on, 2 from 8 on."""
    return (len(text) >= _ONE_ERROR_FROM) + (len(text) >= _TWO_ERRORS_FROM)


def is_spelled(word: str) -> bool:
    """Return whether a word may hold typing errors: numbers are another number, not a wrong one."""
    return len(word) >= _SHORTEST_WORD and word.isalpha()


def word_errors(word: str) -> int:
    """Return how many of its text's errors may fall on one word."""
    return max(1, allowed_errors(word))


def deletion_forms(word: str, errors: int) -> set[str]:
    """Return a word's beginning with up to N letters deleted.

    >>> sorted(deletion_forms("abc", 1))
    ['ab', 'abc', 'ac', 'bc']
    """
    beginning = word[:_VARIED_LETTERS]
    return {
        "".join(kept)
        for deleted in range(min(errors, len(beginning) - 1) + 1)
        for kept in combinations(beginning, len(beginning) - deleted)
    }


def reshaped(words: Sequence[str]) -> Iterator[str]:
    """Write a text with one error at a blank: left out, put in, moved by a letter, or mistaken.

    >>> sorted(reshaped(["ab", "cd"]))[:4]
    ['a b cd', 'a bcd', 'ab c d', 'abc d']
    """
    for at, word in enumerate(words):
        before, after = words[:at], words[at + 1 :]
        for cut in range(1, len(word)):
            yield " ".join((*before, word[:cut], word[cut:], *after))
            if cut < len(word) - 1:
                yield " ".join((*before, word[:cut], word[cut + 1 :], *after))
        if after:
            follower, rest = after[0], after[1:]
            yield " ".join((*before, word + follower, *rest))
            if len(follower) > 1:
                yield " ".join((*before, word + follower[0], follower[1:], *rest))
            if len(word) > 1:
                yield " ".join((*before, word[:-1], word[-1] + follower, *rest))


def respelled(
    words: Sequence[str], near: Sequence[Mapping[str, int]], errors: int, limit: int
) -> Iterator[str]:
    """Write a text with exactly N errors, none at a blank: 1 or 2.

    Args:
        words: The text's words.
        near: For each word, those that it may be meant for, the likeliest first, with their errors.
        errors: Errors in all.
        limit: Texts to write at most for errors in two words; the likelier words go into them.
    """
    for at, spellings in enumerate(near):
        for spelling, distance in spellings.items():
            if distance == errors:
                yield " ".join((*words[:at], spelling, *words[at + 1 :]))
    if errors == 1:
        return
    once = [[spelling for spelling, distance in each.items() if distance == 1] for each in near]
    pairs = [(a, b) for a, b in combinations(range(len(words)), 2) if once[a] and once[b]]
    each = isqrt(limit // max(1, len(pairs)))
    for a, b in pairs:
        for first, second in product(once[a][:each], once[b][:each]):
            yield " ".join((*words[:a], first, *words[a + 1 : b], second, *words[b + 1 :]))
