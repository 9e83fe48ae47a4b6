"""Find entities by name in the name index, which `kbqa.kb.loading.shards` writes: one SQLite file.

    name(key, weight, mid, text, own_name)   entities of a normalised name, best first
    key(id, key, popularity)                 normalised names, the most popular first
    key_word                                 FTS5: the words of `key`
    word(id, word)                           the words that may hold typing errors, by frequency
    word_form                                FTS5: what is left of `word` when letters are deleted

Ids ascend as popularity falls, so that the first rows are the best ones. A name is found by its
key, which `normalise` makes of it; `read_name` lists other keys that a text may mean.

A typing error is a letter too many, too few or wrong, or two neighbours swapped: the distance of
optimal string alignment. Two words that differ by one error have a form in common, each with at
most one letter deleted, and are found by that. Only the first letters are varied: that is selective
enough and bounds the forms of a word.

Source: W. Garbe's SymSpell (deletions on both sides, and of a beginning alone), after Mor and
Fraenkel 1982, A hash code method for detecting and correcting spelling errors.
"""

import json
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from math import isqrt
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from kbqa.kb.layout import SqliteFile

_FOLDED = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"}
)
# Translates an ASCII text: its letters to lower case, its digits to themselves, the rest to blanks.
_ASCII_WORDS = bytes(c if chr(c).isalnum() else ord(" ") for c in range(128)).lower() + bytes(128)

_PERCENT_ENCODED = re.compile(r"%[0-9a-f]{2}", re.IGNORECASE)
_APOSTROPHE = re.compile(r" ?['’ʼ`´](?=s\b)|['’ʼ`´]")
_POSSESSIVE = re.compile(r" ?['’ʼ`´]s?$", re.IGNORECASE)
_ANY_APOSTROPHE = re.compile(r"['’ʼ`´]")
_NOT_A_WORD = re.compile(r"[\W_]+")
_INITIALS = re.compile(r"\b(?:[^\W\d_] )+[^\W\d_]\b")
_SAINT = re.compile(r"\bst (?=\w)")

_HISSING = ("s", "x", "z", "ch", "sh")
_VOWELS = "aeiou"
_SHORTEST_STEM = 3

_MARKS = "#*!@%"
_SYMBOLS = ("Sm", "Sc", "So")

_ONE_ERROR_FROM = 4
_TWO_ERRORS_FROM = 8
_SHORTEST_WORD = 2
_VARIED_LETTERS = 7

MAX_SPAN_TOKENS = 8  # of the longest name looked for in a question

_LONGEST = 100  # characters of a text that is searched otherwise than by equality
_CANDIDATES = 200  # names considered that begin with a text, or contain its words
_PREFIX_ROWS = 1000  # names read to find those that begin with a text
_SHORT = 3  # characters; shorter beginnings are too frequent for `_PREFIX_ROWS`
_FORM_ROWS = 2000  # words considered for a mistyped one, by frequency
_NEAR_WORDS = 200  # corrections of a mistyped word, at most
_REMEMBERED_WORDS = 256  # mistyped words whose near words are kept
_SYMBOL_ROWS = 2000  # entities of a key in search of those with the symbols of a text
_PAIRS = 800  # spellings tried for errors in two words: 300 find fewer, 2,000 hardly more
_TELLING_WORDS = 3  # words that a name must hold where another word is wrong

_PART_SCORE = 0.9
_MOST_LIKE = 0.99
_OTHER_FORM_SCORE = 0.95

_POPULARITY_BITS = 40

POPULARITY_MASK = (1 << _POPULARITY_BITS) - 1  # the entity's popularity in a name's weight
_OWN = 1 << _POPULARITY_BITS


class Readings(NamedTuple):
    """The keys that a text may mean."""

    key: str
    shorter: tuple[str, ...]  # without a possessive, or in the singular; the most likely first
    plural: str | None  # if it may have one

    @property
    def keys(self) -> tuple[str, ...]:
        """All of them."""
        return (self.key, *self.shorter, *([self.plural] if self.plural else []))


def decode_name(name: str) -> str:
    """Decode a name that was stored percent-encoded; others stay as they are.

    >>> decode_name("Shaquille O%27Neal"), decode_name("100% Wolf")
    ("Shaquille O'Neal", '100% Wolf')
    """
    return unquote(name) if _PERCENT_ENCODED.search(name) else name


def normalise(text: str) -> str:
    """Remove from a name its case, accents, punctuation and leading "the".

    Initials are joined, but not digits; ``&`` is read as "and", ``St.`` before a name as "Saint",
    and apostrophes are removed. Percent-encoded names are decoded. A name without any letter or
    digit is kept as it is.

    >>> normalise("The  Schindler's List"), normalise("J. R. R. Tolkien"), normalise("Beyoncé")
    ('schindlers list', 'jrr tolkien', 'beyonce')
    """
    folded = text.casefold()
    if "%" in folded and _PERCENT_ENCODED.search(folded):
        folded = unquote(folded).casefold()
    if not folded.isascii():
        decomposed = unicodedata.normalize("NFKD", folded).casefold()
        folded = "".join(c for c in decomposed if not unicodedata.combining(c))
        folded = folded.translate(_FOLDED)
    if "&" in folded:
        folded = folded.replace("&", " and ")
    is_ascii = folded.isascii()
    if not is_ascii or "'" in folded or "`" in folded:
        # Single spaces, because the expression would try each space of a long run.
        folded = _APOSTROPHE.sub("", " ".join(folded.split()))
    # Nearly all names are ASCII, and a table of bytes takes a quarter of the expression's time.
    if is_ascii:
        parts = folded.encode().translate(_ASCII_WORDS).decode().split()
    else:
        parts = _NOT_A_WORD.sub(" ", folded).split()
    words = " ".join(parts)
    if 1 in map(len, parts):
        words = _INITIALS.sub(lambda run: run.group().replace(" ", ""), words)
    if "st " in words:
        words = _SAINT.sub("saint ", words)
    if words := words.removeprefix("the "):
        return words
    # An index cannot hold NUL or lone surrogates, which JSON can contain.
    return " ".join(text.encode(errors="ignore").decode().replace("\0", " ").split())


def symbols(text: str) -> str:
    """Return the symbols of a name, which its key lacks: ``++`` of C++, ``#`` of C#.

    Punctuation is left out, because people write it in several ways.
    """
    text = unicodedata.normalize("NFKC", decode_name(text))
    return "".join(c for c in text if c in _MARKS or unicodedata.category(c) in _SYMBOLS)


def read_name(text: str) -> Readings:
    """Return the keys that a text may mean.

    A possessive is ``'s``, or the lone ``s`` that is left if apostrophes were removed. Singular and
    plural are those of the last word, by the endings "-s", "-es" and "-ies" without exceptions.

    >>> read_name("Kenya's").shorter, read_name("two galaxies").shorter
    (('kenya',), ('two galaxy', 'two galaxie'))
    """
    key = normalise(text)
    return Readings(key, _shorter(text, key), _plural(key))


def _shorter(text: str, key: str) -> tuple[str, ...]:
    if _ANY_APOSTROPHE.search(text):
        bare = normalise(_POSSESSIVE.sub("", " ".join(text.split())))
        if bare != key:
            return (bare,) if bare else ()
    if key.endswith(" s"):
        return (key[:-2],)
    if not key.endswith("s") or key.endswith("ss") or len(_last_word(key)) <= _SHORTEST_STEM:
        return ()
    if key.endswith("ies"):
        return (key[:-3] + "y", key[:-1])
    if key.endswith("es") and key[:-2].endswith(_HISSING):
        return (key[:-2], key[:-1])
    return (key[:-1],)


def _plural(key: str) -> str | None:
    last = _last_word(key)
    if len(last) < _SHORTEST_STEM or not last.isalpha():
        return None
    if last.endswith("y") and last[-2] not in _VOWELS:
        return key[:-1] + "ies"
    return key + ("es" if last.endswith(_HISSING) else "s")


def _last_word(key: str) -> str:
    return key[key.rfind(" ") + 1 :]


def allowed_errors(text: str) -> int:
    """Return the number of typing errors that a text may hold: 1 from 4 characters, 2 from 8."""
    return (len(text) >= _ONE_ERROR_FROM) + (len(text) >= _TWO_ERRORS_FROM)


def is_spelled(word: str) -> bool:
    """Return whether a word may hold typing errors, as a number may not."""
    return len(word) >= _SHORTEST_WORD and word.isalpha()


def word_errors(word: str) -> int:
    """Return the number of a text's errors that may be in one word."""
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
    """Write a text with one error at a blank: left out, put in, moved by a letter, or mistaken."""
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
    """Write a text with exactly 1 or 2 errors, none at a blank.

    For each word, `near` maps its possible corrections to their errors, the most likely first. Of
    texts with errors in two words, at most `limit` are written.
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


@dataclass(frozen=True, slots=True)
class NameMatch:
    """An entity that matches a name."""

    mid: str
    name: str  # its own; if it has only aliases, the alias that matched
    matched: str  # the name or alias that matched, as written in the graph
    is_alias: bool  # whether `matched` is an alias
    popularity: int  # number of triples that hold the entity
    score: float  # how well it matches, in [0, 1]; 1 is equality after normalisation


class Span(NamedTuple):
    """Tokens ``start`` to ``end`` (exclusive) of a question, and the entities with that name."""

    start: int
    end: int
    matches: list[NameMatch]


def standing(popularity: int, is_alias: int) -> int:
    """Weigh an entity among those with the same name; higher goes first.

    Popularity counts in classes of a factor of two, and an alias as a quarter of it: on the 3,097
    questions of webqsp.train this puts the topic entity first in 93.0 % of the spans that name it,
    against 90.8 % without; other weights give no more.
    """
    return popularity.bit_length() - 2 * is_alias


def name_weight(popularity: int, is_alias: bool) -> int:
    """Combine standing, own name before alias, and popularity into a number; higher is first."""
    # Two more, as the rank of an alias may be -2.
    return (standing(popularity, is_alias) + 2) << (_POPULARITY_BITS + 1) | (
        popularity if is_alias else popularity | _OWN
    )


def token_runs(tokens: Sequence[str], max_tokens: int) -> list[tuple[int, int, str]]:
    """List the runs of up to `max_tokens` as start, end and text, longer ones first."""
    return [
        (start, end, " ".join(tokens[start:end]))
        for start in range(len(tokens))
        for end in range(min(len(tokens), start + max_tokens), start, -1)
    ]


class Names(Protocol):
    """The names of a graph's entities. Every method raises a `GraphError` if it cannot be read."""

    is_exact: bool  # typing errors are not forgiven

    def lookup(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find the entities with exactly this name or alias, after normalisation, best first."""

    def near(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find the entities whose name or alias is spelled nearly like a text, but not equal."""
        return []

    def containing(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find the entities whose name or alias contains all words of a text and more."""
        return []

    def search(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find entities by a name that may be incomplete or mistyped, best first."""
        return self.lookup(text, limit)

    def match_spans(
        self, tokens: Sequence[str], max_tokens: int = MAX_SPAN_TOKENS, limit: int = 10
    ) -> list[Span]:
        """Find every run of tokens that is an entity's name, in reading order, longer runs first.

        The tokens are as written; ``kenya's`` also matches Kenya, as in `lookup`. `limit` is for
        each run.
        """

    def close(self) -> None:
        """Free what the names hold; they are not used afterwards."""


class NameIndex(SqliteFile, Names):
    """The names and aliases of a store's entities. Any number of threads may use one index."""

    KIND = "name index"
    PROBE = "SELECT weight, popularity FROM name, key, key_word, word, word_form LIMIT 0"
    is_exact = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # The runs of a question have their words in common.
        self._near_words = lru_cache(_REMEMBERED_WORDS)(self._find_near_words)

    def lookup(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find the entities with exactly this name or alias, after normalisation.

        They are ordered by `standing`; among equals an own name goes before an alias. If the text
        has symbols, names with the same symbols go before all others: C++ before C. After them,
        with a score of 0.95, come the matches of the text without its possessive or in the
        singular; and if there are no matches at all, in the plural.
        """
        return self._matches(text, read_name(text), limit)

    def near(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find the entities whose name or alias is spelled nearly like a text, best first.

        That is within `allowed_errors`, after normalisation; numbers must be right. Two errors are
        tried only if one explains nothing, and not every pair is found: two in one short word need
        another word that is right. The score is 1 minus the errors per character.
        """
        found: dict[str, NameMatch] = {}
        for key, score in self._near_keys(normalise(text), limit):
            for match in self._equal(key, limit, score):
                found.setdefault(match.mid, match)
            if len(found) >= limit:
                break
        return list(found.values())[:limit]

    def containing(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find the entities whose name or alias contains all words of a text; they score 0.9."""
        query = normalise(text)
        found: dict[str, NameMatch] = {}
        if query and len(query) <= _LONGEST:
            popularity = self._holding(query)
            for key in sorted(popularity, key=lambda key: (-popularity[key], key))[:limit]:
                for match in self._equal(key, limit, _PART_SCORE):
                    found.setdefault(match.mid, match)
        return list(found.values())[:limit]

    def search(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find equal names; then those that begin with a text, hold its words, or are near it."""
        from rapidfuzz import fuzz

        found = {match.mid: match for match in self.lookup(text, limit)}
        query = normalise(text)
        if not query or len(query) > _LONGEST:
            return list(found.values())
        popularity = {**self._beginning_with(query), **self._holding(query)}
        scored = [
            (max(fuzz.ratio(query, key) / 100, _PART_SCORE), popularity[key], key)
            for key in popularity
        ]
        if len(scored) < limit:
            scored += [(score, 0, key) for key, score in self._near_keys(query, limit)]
        for score, _, key in sorted(scored, key=lambda row: (-row[0], -row[1], row[2]))[:limit]:
            if len(found) >= limit:
                break
            for match in self._equal(key, limit, min(score, _MOST_LIKE)):
                found.setdefault(match.mid, match)
        return sorted(found.values(), key=lambda match: -match.score)[:limit]

    def match_spans(
        self, tokens: Sequence[str], max_tokens: int = MAX_SPAN_TOKENS, limit: int = 10
    ) -> list[Span]:
        """Find every run of tokens that is an entity's name."""
        runs = token_runs(tokens, max_tokens)
        readings = {text: read_name(text) for _, _, text in runs}
        # Most runs are not a name at all; one statement finds these.
        known = {*self._known({key for reading in readings.values() for key in reading.keys})}
        matches = {
            text: self._matches(text, reading, limit)
            for text, reading in readings.items()
            if not known.isdisjoint(reading.keys)
        }
        return [Span(start, end, matches[text]) for start, end, text in runs if text in matches]

    def _matches(self, text: str, reading: Readings, limit: int) -> list[NameMatch]:
        marks = symbols(text)
        found = self._equal(reading.key, limit, marks=marks)
        for key in reading.shorter:
            if len(found) < limit and (more := self._equal(key, limit, _OTHER_FORM_SCORE, marks)):
                mids = {match.mid for match in found}
                return [*found, *(match for match in more if match.mid not in mids)][:limit]
        if reading.plural and not found:
            return self._equal(reading.plural, limit, _OTHER_FORM_SCORE, marks)
        return found

    def _equal(self, key: str, limit: int, score: float = 1.0, marks: str = "") -> list[NameMatch]:
        """Find the entities of a key, those with the symbols `marks` first."""
        rows = self._rows(
            "SELECT mid, text, own_name, weight FROM name WHERE key = ? "
            "ORDER BY weight DESC, mid LIMIT ?",
            key,
            max(limit, _SYMBOL_ROWS) if marks else limit,
        )
        if marks:
            rows = sorted(rows, key=lambda row: symbols(row["text"]) != marks)[:limit]
        return [_match(row, score) for row in rows]

    def _near_keys(self, query: str, limit: int) -> list[tuple[str, float]]:
        """Collect keys within the allowed errors, by fewest errors and then the best known."""
        from rapidfuzz.distance import OSA

        if len(query) > _LONGEST:
            return []
        errors = allowed_errors(query)
        words = query.split()
        for distance in range(1, errors + 1):
            near = [self._near_words(word, min(distance, word_errors(word))) for word in words]
            spellings = {*respelled(words, near, distance, _PAIRS)}
            if distance == 1:
                spellings.update(reshaped(words))
            else:
                spellings.update(
                    key
                    for key in self._all_but_one(words)
                    if OSA.distance(query, key, score_cutoff=distance) <= distance
                )
            spellings.discard(query)
            if known := self._known(spellings):
                found = [(key, OSA.distance(query, key)) for key in known]
                best = sorted(found, key=lambda row: row[1])[:limit]
                return [(key, 1 - count / max(len(query), len(key))) for key, count in best]
        return []

    def _all_but_one(self, words: Sequence[str]) -> Iterator[str]:
        """Find keys that hold all words but one, whichever it is."""
        # The longest are the rarest, and reading the list of "of" takes as long as it is.
        longest = sorted(words, key=len, reverse=True)
        for at in range(min(len(words), _TELLING_WORDS + 1)):
            if others := (longest[:at] + longest[at + 1 :])[:_TELLING_WORDS]:
                yield from self._holding(" ".join(others))

    def _known(self, keys: Iterable[str]) -> list[str]:
        """Return the keys that have a match, that of the best match first."""
        rows = self._rows(
            "SELECT value AS key, (SELECT weight FROM name WHERE key = value "
            "ORDER BY weight DESC LIMIT 1) AS best FROM json_each(?) "
            "WHERE best IS NOT NULL ORDER BY best DESC, key",
            json.dumps(sorted(keys)),
        )
        return [row["key"] for row in rows]

    def _find_near_words(self, word: str, errors: int) -> Mapping[str, int]:
        """Collect the other words within N errors of a word, with their errors."""
        from rapidfuzz.distance import OSA

        if not is_spelled(word):
            return {}
        forms = " OR ".join(f'"{form}"' for form in deletion_forms(word, errors))
        rows = self._rows(
            "SELECT word FROM word WHERE id IN "
            "(SELECT rowid FROM word_form WHERE word_form MATCH ? ORDER BY rowid LIMIT ?) "
            "ORDER BY id",
            forms,
            _FORM_ROWS,
        )
        near: dict[str, int] = {}
        for row in rows:
            distance = OSA.distance(word, row["word"], score_cutoff=errors)
            if 0 < distance <= errors and len(near) < _NEAR_WORDS:
                near[row["word"]] = distance
        return near

    def _beginning_with(self, query: str) -> dict[str, int]:
        """Find keys that begin with a query, with their popularity."""
        # Bounded, as a million names begin with "j": of those that follow in the alphabet, and of
        # the most popular of all. Where a longer beginning is that frequent, its words help.
        bounds = (query, query + "\U0010ffff")
        rows = self._rows(
            "SELECT * FROM "
            f"(SELECT key, max(weight & {POPULARITY_MASK}) AS popularity FROM name "
            "WHERE key >= ? AND key < ? GROUP BY key LIMIT ?) "
            "ORDER BY popularity DESC, key LIMIT ?",
            *bounds,
            _PREFIX_ROWS,
            _CANDIDATES,
        )
        if len(query) < _SHORT:
            rows += self._rows(
                "SELECT key, popularity FROM (SELECT * FROM key ORDER BY id LIMIT ?) "
                "WHERE key >= ? AND key < ? LIMIT ?",
                _PREFIX_ROWS,
                *bounds,
                _CANDIDATES,
            )
        return {row["key"]: row["popularity"] for row in rows if row["key"] != query}

    def _holding(self, query: str) -> dict[str, int]:
        """Find keys that hold all words of a query, in any order, with their popularity."""
        words = " AND ".join('"{}"'.format(word.replace('"', '""')) for word in query.split())
        rows = self._rows(
            "SELECT key, popularity FROM key WHERE id IN "
            "(SELECT rowid FROM key_word WHERE key_word MATCH ? ORDER BY rowid LIMIT ?)",
            words,
            _CANDIDATES,
        )
        return {row["key"]: row["popularity"] for row in rows if row["key"] != query}


def _match(row: sqlite3.Row, score: float) -> NameMatch:
    weight: int = row["weight"]
    return NameMatch(
        mid=row["mid"],
        name=row["own_name"] or row["text"],
        matched=row["text"],
        is_alias=not weight & _OWN,
        popularity=weight & POPULARITY_MASK,
        score=score,
    )
