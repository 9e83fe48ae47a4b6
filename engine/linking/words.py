"""The words of a question: which are function words, and which are marked as a name.

Function words hold a sentence together and are hardly ever names: of the 57,000 function words in
webqsp.train, cwq.dev and SimpleQuestions that are a name in the slice, six alone are the topic. But
*is*, *in* and *do* are names of domains, *cup* and *all* are codes of currencies, and *It* is a
novel. A question that means them marks them: by quotation marks, by capitals, by an article (*the
who*), by a dot (*.is*), or by a word such as "code" before them.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

MAX_WORDS = 100
"""Words of a question that are searched for names; later words are ignored."""

FUNCTION_WORDS = frozenset(
    """& a about after all also am an and any are as at be because been before being between but by
    can could did do does during each every for from had has have he her him his how i if in into is
    it its many me more most much my name names no nor not of off on one or our out over she should
    since so some such than that the their them then there these they this those through to too
    under until up us was we were what when where which while who whom whose why will with within
    without would you your""".split()  # noqa: SIM905 – a list of a hundred words reads better as text
)
"""Lower-case words that do not identify an entity by themselves.

Words of the closed classes that occur in questions: determiners, pronouns, prepositions,
conjunctions, auxiliaries, question words and quantifiers, and "name".

Source: R. Quirk et al. 1985, A Comprehensive Grammar of the English Language, section 2.35.
"""

_AFTER_THE = frozenset(
    [
        "all",
        "any",
        "every",
        "many",
        "me",
        "more",
        "most",
        "much",
        "name",
        "names",
        "no",
        "one",
        "some",
        "such",
        "too",
    ]
)
"""Function words that follow "the" without being a name."""

_ANNOUNCING = frozenset(
    [
        "abbreviated",
        "abbreviation",
        "acronym",
        "called",
        "code",
        "codes",
        "domain",
        "entitled",
        "initials",
        "letters",
        "named",
        "symbol",
        "tld",
        "titled",
    ]
)
"""Words that announce a name if one word follows."""

_WORD = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*(?:['’]s)?|&", re.UNICODE)
_OPENING = ('"', "“", "”", "«", "‘", "'", "`")
_CLOSING = ('"', "“", "”", "»", "’", "'", "`")
_SENTENCE_ENDS = (".", "?", "!", ":")
_LEAST_TITLE = 3
_LONGEST_CODE = 5
_LONGEST_SMALL_CODE = 3


class Word(NamedTuple):
    """A word of a question, at characters ``start`` to ``end``."""

    text: str
    start: int
    end: int


def tokenise(text: str) -> list[Word]:
    """Split a text into its first `MAX_WORDS` words; marks inside a word are part of it.

    >>> [token.text for token in tokenise("Who's in AT&T's St. Mary-le-Bow?")]
    ["Who's", 'in', "AT&T's", 'St', 'Mary-le-Bow']
    """
    tokens = []
    for match in _WORD.finditer(text):
        tokens.append(Word(match.group(), *match.span()))
        if len(tokens) == MAX_WORDS:
            break
    return tokens


def capitals_mark_names(words: Sequence[str]) -> bool:
    """Return whether a question capitalises names and not other words."""
    return any(
        word[:1].isupper() and word.partition("'")[0] != "I" for word in words[1:]
    ) and not all(word.isupper() for word in words)


def is_only_function_words(words: Sequence[str]) -> bool:
    """Return whether words are one or two function words; more may be a title by themselves.

    >>> is_only_function_words(["the", "us"]), is_only_function_words(["being", "with", "you"])
    (True, False)
    """
    return len(words) < _LEAST_TITLE and all(word.lower() in FUNCTION_WORDS for word in words)


def is_code(name: str) -> bool:
    """Return whether a name is written as codes are.

    >>> [is_code(name) for name in ("CUP", "is", "Cup", "NATO members")]
    [True, True, False, False]
    """
    most = _LONGEST_CODE if name.isupper() else _LONGEST_SMALL_CODE
    return name.isalpha() and (name.isupper() or name.islower()) and 1 < len(name) <= most


def are_marked(text: str, tokens: Sequence[Word], start: int, end: int) -> bool:
    """Return whether a question marks tokens `start` to `end` (exclusive) as a name.

    The marks are quotation marks, a dot before the word, capitals where its neighbours have none,
    and a word such as "code" before the last word of the question.

    >>> [are_marked(text, tokenise(text), 3, 4) for text in (
    ...     "which domain is 'is'?", "which country has IS as domain?", "who plays in It today?",
    ...     "whose domain is .is?", "country with code is", "what does it do?")]
    [True, True, True, True, True, False]
    """
    first, last = tokens[start], tokens[end - 1]
    before, after = text[: first.start], text[last.end :]
    if before.endswith(_OPENING) and after.startswith(_CLOSING):
        return True
    if before.endswith(" .") or before == ".":
        return True
    is_announced = start > 0 and tokens[start - 1].text.lower() in _ANNOUNCING
    return (is_announced and end == len(tokens)) or _have_capitals(text, tokens, start, end)


def follow_article(tokens: Sequence[Word], start: int, end: int) -> bool:
    """Return whether function words follow "the" as only a name does: *the us*, not *the most*."""
    words = [token.text.lower() for token in tokens[max(0, start - 1) : end]]
    while len(words) > 1 and words[0] != "the":
        words = words[1:]
    return len(words) > 1 and words[1] not in _AFTER_THE


def _have_capitals(text: str, tokens: Sequence[Word], start: int, end: int) -> bool:
    """Return whether words have capitals that mark them and not their neighbours."""
    words = [token.text for token in tokens]
    run = words[start:end]
    if not any(word.islower() for word in words):
        return False
    if all(word.isupper() and len(word) > 1 for word in run):
        return True
    begins_sentence = start == 0 or text[: tokens[start].start].rstrip().endswith(_SENTENCE_ENDS)
    follows_name = start > 1 and words[start - 1][:1].isupper() and "'" not in words[start - 1]
    leads_name = end < len(words) and words[end][:1].isupper()
    is_capitalised = all(word[:1].isupper() and word != "I" for word in run)
    return is_capitalised and not (begins_sentence or follows_name or leads_name)
