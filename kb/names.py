"""The name index: which entities bear a name, exactly, nearly, or inside a question.

Read here, built by `kbqa.kb.build_names`. It is one SQLite file:

    key(id, key)                               normalised names, the most popular first
    name(key_id, place, mid, text, is_alias)   who bears them; place 0 is the best entity
    entity(mid, name, popularity)              own names
    trigram                                    FTS5 over `key`, for prefixes and typing errors

Ids ascend as popularity falls, so that whatever reads only the first rows reads the best ones.
"""

import re
import sqlite3
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kbqa.kb.sqlite_files import open_read_only

MAX_SPAN_TOKENS = 8
"""Longest name that is looked for in a question, in tokens, unless the caller says otherwise."""

_CANDIDATES = 200
_TRIGRAM_ROWS = 2000
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
        "&": " and ",
    }
)
_APOSTROPHE = re.compile(r"\s*['’ʼ`´](?=s\b)|['’ʼ`´]")
_POSSESSIVE = re.compile(r"\s*['’ʼ`´]s?\s*$", re.IGNORECASE)
_NOT_A_WORD = re.compile(r"[\W_]+")
_INITIALS = re.compile(r"\b(?:\w )+\w\b")

_SELECT = """
    SELECT key.key, name.mid, entity.name, name.text, name.is_alias, entity.popularity
    FROM key JOIN name ON name.key_id = key.id JOIN entity ON entity.mid = name.mid
"""


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
    folded = _APOSTROPHE.sub("", folded.translate(_FOLDED))
    words = _NOT_A_WORD.sub(" ", folded).strip()
    words = _INITIALS.sub(lambda run: run.group().replace(" ", ""), words)
    if words := words.removeprefix("the "):
        return words
    # Lone surrogates, which JSON can say, are no text that an index can hold.
    return " ".join(text.encode(errors="ignore").decode().split())


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
        probe = "SELECT 1 FROM key, name, entity, trigram LIMIT 0"
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
        for key_id, key in self._similar(query):
            is_part = key.startswith(query) or words <= set(key.split())
            score = max(fuzz.ratio(query, key) / 100, _PART_SCORE if is_part else 0)
            if score >= _MIN_SCORE and key != query:
                scored.append((-score, key_id, key))
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
        bearers = self._equal_to_any(wanted, limit)
        matched = []
        for start, end, keys in spans:
            matches = next((bearers[key] for key in keys if key in bearers), None)
            if matches is not None:
                matched.append(Span(start, end, matches))
        return matched

    def _equal(self, key: str, limit: int, score: float = 1.0) -> list[NameMatch]:
        rows = self._rows(
            f"{_SELECT} WHERE key.key = ? AND name.place < ? ORDER BY name.place", (key, limit)
        )
        return [_match(row, score) for row in rows]

    def _equal_to_any(self, keys: Iterable[str], limit: int) -> dict[str, list[NameMatch]]:
        wanted = sorted(keys)
        matches: dict[str, list[NameMatch]] = {}
        # SQLite takes 32,766 parameters; a question of 100 words has under 1,000 spans.
        for start in range(0, len(wanted), 10_000):
            part = wanted[start : start + 10_000]
            places = ",".join("?" * len(part))
            rows = self._rows(
                f"{_SELECT} WHERE key.key IN ({places}) AND name.place < ? ORDER BY name.place",
                (*part, limit),
            )
            for row in rows:
                matches.setdefault(row["key"], []).append(_match(row, 1.0))
        return matches

    def _similar(self, query: str) -> list[tuple[int, str]]:
        """Collect keys that share a beginning, all words or many trigrams with the query."""
        rows = self._rows(
            "SELECT id, key FROM key WHERE key >= ? AND key < ? ORDER BY id LIMIT ?",
            (query, query + "\U0010ffff", _CANDIDATES),
        )
        trigrams = sorted(
            {
                word[i : i + 3]
                for word in (*query.split(), query)
                for i in range(len(word) - 2)
                if '"' not in word
            }
        )
        if trigrams:
            rows += self._by_id(self._holding_all(trigrams) + self._holding_many(trigrams))
        return list({(row["id"], row["key"]) for row in rows})

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
        return self._rows(f"SELECT id, key FROM key WHERE id IN ({places})", tuple(key_ids))

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
    return NameMatch(
        mid=row["mid"],
        name=row["name"] or row["text"],
        matched=row["text"],
        is_alias=bool(row["is_alias"]),
        popularity=row["popularity"],
        score=score,
    )
