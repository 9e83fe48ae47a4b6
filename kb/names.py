"""The name index: which entities bear a name, exactly, nearly, or inside a question.

Read here, built by `kbqa.kb.build_names`. It is one SQLite file:

    name(key, weight, mid, text, own_name)   who bears a normalised name, the best entity first
    key(id, key, popularity)                 normalised names, the most popular first
    trigram                                  FTS5 over `key`, for words inside and typing errors

Ids ascend as popularity falls, so that whatever reads only the first rows reads the best ones.
"""

import re
import sqlite3
import threading
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kbqa.kb.sqlite_files import open_read_only

MAX_SPAN_TOKENS = 8
"""Longest name that is looked for in a question, in tokens, unless the caller says otherwise."""

_CANDIDATES = 200
_TRIGRAM_ROWS = 2000
_PREFIX_ROWS = 5000
_TRIGRAM = 3
_MIN_SCORE = 0.6
_PART_SCORE = 0.9

_FOLDED = str.maketrans(
    {
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "æ": "ae",
        "œ": "oe",
        "ı": "i",
    }
)
_ASCII_WORDS = bytes(c if chr(c).isalnum() else ord(" ") for c in range(128)).lower() + bytes(128)
"""Translation of an ASCII text: its letters in lower case and its digits, blanks for the rest."""

_APOSTROPHE = re.compile(r"\s*['’ʼ`´](?=s\b)|['’ʼ`´]")
_POSSESSIVE = re.compile(r"\s*['’ʼ`´]s?\s*$", re.IGNORECASE)
_NOT_A_WORD = re.compile(r"[\W_]+")
_INITIALS = re.compile(r"\b(?:\w )+\w\b")

_POPULARITY_BITS = 40

POPULARITY_MASK = (1 << _POPULARITY_BITS) - 1
"""The part of a name's weight that is the popularity of who bears it."""

_OWN = 1 << _POPULARITY_BITS


@dataclass(frozen=True, slots=True)
class NameMatch:
    """An entity that bears a name.

    Attributes:
        mid: The entity.
        name: Its own name; where it has aliases alone, the alias that matched.
        matched: The name or alias that matched, as written in the graph.
        is_alias: `matched` is an alias.
        popularity: Number of triples that hold the entity.
        score: How well it matches, in [0, 1]; 1 is equality after normalisation.
    """

    mid: str
    name: str
    matched: str
    is_alias: bool
    popularity: int
    score: float


class Span(NamedTuple):
    """Tokens ``start`` to ``end`` (exclusive) of a question, and who bears them as a name."""

    start: int
    end: int
    matches: list[NameMatch]


def normalise(text: str) -> str:
    """Reduce a name to what decides equality: no case, accents, punctuation or leading "the".

    Initials are joined, ``&`` is read as "and", and an apostrophe vanishes. A name without any
    letter or digit stands for itself.

    >>> normalise("The  Schindler's List"), normalise("J. R. R. Tolkien"), normalise("Beyoncé")
    ('schindlers list', 'jrr tolkien', 'beyonce')
    """
    folded = text.casefold()
    if not folded.isascii():
        decomposed = unicodedata.normalize("NFKD", folded).casefold()
        folded = "".join(c for c in decomposed if not unicodedata.combining(c))
        folded = folded.translate(_FOLDED)
    if "&" in folded:
        folded = folded.replace("&", " and ")
    is_ascii = folded.isascii()
    if not is_ascii or "'" in folded or "`" in folded:
        folded = _APOSTROPHE.sub("", folded)
    # Nearly all names are ASCII, and a table of bytes takes a quarter of the expression's time.
    if is_ascii:
        parts = folded.encode().translate(_ASCII_WORDS).decode().split()
    else:
        parts = _NOT_A_WORD.sub(" ", folded).split()
    words = " ".join(parts)
    if 1 in map(len, parts):
        words = _INITIALS.sub(lambda run: run.group().replace(" ", ""), words)
    if words := words.removeprefix("the "):
        return words
    # Lone surrogates, which JSON can say, are no text that an index can hold.
    return " ".join(text.encode(errors="ignore").decode().split())


def standing(popularity: int, is_alias: int) -> int:
    """Weigh an entity among those that bear the same name; higher goes first.

    Popularity counts in classes of a factor of two, and an alias as a quarter of it: on the 3,097
    questions of webqsp.train this puts the topic entity first in 93.0 % of the spans that name it,
    against 90.8 % without; other weights give no more than that.
    """
    return popularity.bit_length() - 2 * is_alias


def name_weight(popularity: int, is_alias: bool) -> int:
    """Put what orders the bearers of a name into one number; higher goes first.

    It is the standing; then an own name before an alias; then the popularity.
    """
    # Two more, as the standing of an alias may be -2.
    return (standing(popularity, is_alias) + 2) << (_POPULARITY_BITS + 1) | (
        popularity if is_alias else popularity | _OWN
    )


class NameIndex:
    """The names and aliases of a store's entities. Any number of threads may use one index."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        connection.row_factory = sqlite3.Row
        self._connection = connection
        # SQLite takes one statement at a time on a connection; a look-up takes 0.1 ms.
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> "NameIndex":
        """Open a name index for reading.

        Raises:
            StoreError: The file is missing, or is no name index.
        """
        probe = "SELECT weight, popularity FROM name, key, trigram LIMIT 0"
        return cls(open_read_only(path, "name index", probe))

    def close(self) -> None:
        """Close the file; the index is not used afterwards."""
        self._connection.close()

    def lookup(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find the entities that bear exactly this name or alias, after normalisation.

        Best first: popularity decides, in classes of a factor of two, where an alias counts as a
        quarter; within a class an own name goes before an alias. A possessive ``'s`` is taken off
        where the whole finds nothing.
        """
        for key in _keys(text):
            if found := self._equal(key, limit):
                return found
        return []

    def search(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find entities by a name that may be incomplete or mistyped, best first.

        Equal names come first; then names that begin with the text, hold its words, or are spelled
        much like it.
        """
        from rapidfuzz import fuzz

        found = {match.mid: match for match in self.lookup(text, limit)}
        query = normalise(text)
        if not query:
            return []
        words = set(query.split())
        scored: list[tuple[float, int, str]] = []
        for key, popularity in self._similar(query):
            is_part = key.startswith(query) or words <= set(key.split())
            score = max(fuzz.ratio(query, key) / 100, _PART_SCORE if is_part else 0)
            if score >= _MIN_SCORE and key != query:
                scored.append((-score, -popularity, key))
        for negative_score, _, key in sorted(scored)[:limit]:
            if len(found) >= limit:
                break
            for match in self._equal(key, limit, min(-negative_score, 0.99)):
                found.setdefault(match.mid, match)
        return list(found.values())[:limit]

    def match_spans(
        self, tokens: Sequence[str], max_tokens: int = MAX_SPAN_TOKENS, limit: int = 10
    ) -> list[Span]:
        """Find every run of tokens that is somebody's name, in reading order, longer runs first.

        Args:
            tokens: A question's words, as written; ``kenya's`` also matches Kenya.
            max_tokens: Longest run to try.
            limit: Entities for each run.
        """
        spans: list[tuple[int, int, list[str]]] = []
        for start in range(len(tokens)):
            for end in range(min(len(tokens), start + max_tokens), start, -1):
                spans.append((start, end, _keys(" ".join(tokens[start:end]))))
        wanted = {key for _, _, keys in spans for key in keys}
        bearers = {key: found for key in wanted if (found := self._equal(key, limit))}
        matched = []
        for start, end, keys in spans:
            matches = next((bearers[key] for key in keys if key in bearers), None)
            if matches is not None:
                matched.append(Span(start, end, matches))
        return matched

    def _equal(self, key: str, limit: int, score: float = 1.0) -> list[NameMatch]:
        rows = self._rows(
            "SELECT mid, text, own_name, weight FROM name WHERE key = ? "
            "ORDER BY weight DESC, mid LIMIT ?",
            (key, limit),
        )
        return [_match(row, score) for row in rows]

    def _similar(self, query: str) -> list[tuple[str, int]]:
        """Collect keys that share a beginning, all words or many trigrams with the query.

        Each comes with the popularity of its most popular bearer.
        """
        rows = self._beginning_with(query)
        trigrams = sorted(
            {
                word[i : i + _TRIGRAM]
                for word in (*query.split(), query)
                for i in range(len(word) - _TRIGRAM + 1)
                if '"' not in word
            }
        )
        if trigrams:
            rows += self._by_id(self._holding_all(trigrams) + self._holding_many(trigrams))
        return list({(row["key"], row["popularity"]) for row in rows})

    def _beginning_with(self, query: str) -> list[sqlite3.Row]:
        # Bounded, as a million names begin with "j": of those that follow in the alphabet, and of
        # the most popular of all. Where a longer beginning is that frequent, the trigrams help.
        bounds = (query, query + "\U0010ffff")
        rows = self._rows(
            "SELECT * FROM "
            f"(SELECT key, max(weight & {POPULARITY_MASK}) AS popularity FROM name "
            "WHERE key >= ? AND key < ? GROUP BY key LIMIT ?) "
            "ORDER BY popularity DESC, key LIMIT ?",
            (*bounds, _PREFIX_ROWS, _CANDIDATES),
        )
        if len(query) < _TRIGRAM:
            rows += self._rows(
                "SELECT key, popularity FROM (SELECT * FROM key ORDER BY id LIMIT ?) "
                "WHERE key >= ? AND key < ? LIMIT ?",
                (_PREFIX_ROWS, *bounds, _CANDIDATES),
            )
        return rows

    def _holding_all(self, trigrams: Sequence[str]) -> list[int]:
        # Only those within a word: the query's words may stand in another order, or apart.
        inside = [f'"{trigram}"' for trigram in trigrams if " " not in trigram]
        if not inside:
            return []
        rows = self._rows(
            "SELECT rowid FROM trigram WHERE trigram MATCH ? ORDER BY rowid LIMIT ?",
            (" AND ".join(inside), _CANDIDATES),
        )
        return [row["rowid"] for row in rows]

    def _holding_many(self, trigrams: Sequence[str]) -> list[int]:
        shared: Counter[int] = Counter()
        for trigram in trigrams:
            # FTS5's own ranking needs positions, which the index leaves out for its size.
            rows = self._rows(
                "SELECT rowid FROM trigram WHERE trigram MATCH ? ORDER BY rowid LIMIT ?",
                (f'"{trigram}"', _TRIGRAM_ROWS),
            )
            shared.update(row["rowid"] for row in rows)
        best = sorted(shared.items(), key=lambda item: (-item[1], item[0]))
        return [key_id for key_id, _ in best[:_CANDIDATES]]

    def _by_id(self, key_ids: Sequence[int]) -> list[sqlite3.Row]:
        places = ",".join("?" * len(key_ids))
        return self._rows(f"SELECT key, popularity FROM key WHERE id IN ({places})", tuple(key_ids))

    def _rows(self, sql: str, parameters: tuple[str | int, ...]) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(sql, parameters).fetchall()


def _keys(text: str) -> list[str]:
    keys = [normalise(text)]
    bare = _POSSESSIVE.sub("", text)
    if bare != text and bare.strip():
        keys.append(normalise(bare))
    return keys


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
