"""Read the single words of kbqa's own text form; `kbqa.sparql.text` says what the form is."""

import re

from kbqa.sparql.crp import Entity, Hop
from kbqa.sparql.terms import Literal
from kbqa.sparql.text_lexis import (
    FULL_IRI,
    LANGUAGE_TAG,
    MID,
    OR_NONE,
    PLAIN_ID,
    RAW_NAME,
    SHORT_RAW_NAME,
    is_plain_value,
    unescaped,
)

_SHOWN = 40  # characters of what cannot be read


def word(pattern: str, flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    """Make a pattern for `Scanner.take` that passes over blanks first."""
    return re.compile(rf"\s*+(?:{pattern})", flags)


_EXACTLY = re.RegexFlag(0)
_BLANKS = word("")
_ARROW = word("(->)|<-")
_BRACKETED = word(r"\[((?:[^\]\\]|\\.)*+)\]", re.DOTALL)
_QUOTED = word(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_MID = word(f"({MID.pattern})", _EXACTLY)
_NS = word("ns:", _EXACTLY)
_IRI = word(f"<({FULL_IRI.pattern})>", _EXACTLY)
_PLAIN_ID = word(f"({PLAIN_ID.pattern})", _EXACTLY)
_TAG = word(f"({LANGUAGE_TAG.pattern})", _EXACTLY)
_AT = word("@")
_DATATYPE = word(r"\^\^")
_OPEN_ID = word(r"\((?=\s*+(?:[mg]\.|ns:|<[A-Za-z]))", _EXACTLY)


class UnreadableError(ValueError):
    """A line cannot be read from some place on."""


class Scanner:
    """Goes through a line from left to right."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Pass over what a pattern matches here, if it does."""
        match = pattern.match(self._line, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def sees(self, mark: str) -> bool:
        """Tell whether a mark stands here, after blanks or none."""
        return self._line.startswith(mark, self._after_blanks())

    def skip(self, mark: str) -> bool:
        """Pass over a mark, if it stands here."""
        if not self.sees(mark):
            return False
        self._at = self._after_blanks() + len(mark)
        return True

    def expect(self, mark: str) -> None:
        """Pass over a mark that must stand here.

        Raises:
            UnreadableError: It does not.
        """
        if not self.skip(mark):
            raise self.unreadable(mark)

    def expect_end(self) -> None:
        """See that the line ends here.

        Raises:
            UnreadableError: It goes on.
        """
        if self._line[self._at :].strip():
            raise self.unreadable("the end of the line")

    def unreadable(self, wanted: str) -> UnreadableError:
        """Make the error that says what should stand here."""
        rest = self._line[self._at :].strip()
        shown = repr(rest if len(rest) <= _SHOWN else f"{rest[:_SHOWN]}…") if rest else "nothing"
        return UnreadableError(f"expected {wanted}, found {shown}")

    def hop(self) -> Hop | None:
        """Read an arrow and its relation, if an arrow stands here."""
        arrow = self.take(_ARROW)
        return arrow and Hop(self._id("a relation"), inverse=arrow[1] is None)

    def quoted(self) -> str:
        """Read a string in quotes."""
        if (match := self.take(_QUOTED)) is None:
            raise self.unreadable("a string in quotes")
        return unescaped(match[1])

    def language(self) -> str:
        """Read a language tag."""
        if (match := self.take(_TAG)) is not None:
            return match[1]
        return self.quoted()

    def tag(self) -> str | None:
        """Read the language tag of a string, if one stands here."""
        return self.language() if self.take(_AT) else None

    def entity(self) -> Entity | None:
        """Read an entity that has marks of its own, if one stands here."""
        if (mid := self._entity_id()) is not None:
            return Entity(mid=mid)
        if (match := self.take(_BRACKETED)) is None:
            return None
        return self._entity(unescaped(match[1]))

    def topic(self) -> Entity:
        """Read an entity that needs no marks."""
        return self.entity() or self._entity(self._raw(RAW_NAME, "an entity"))

    def value(self, on_own_line: bool) -> Entity | Literal:
        """Read an entity, a number, a date, or a string in quotes.

        Args:
            on_own_line: A name without brackets may hold commas and parentheses here.
        """
        if (match := self.take(_QUOTED)) is not None:
            return Literal(unescaped(match[1]), self._datatype())
        if (entity := self.entity()) is not None:
            return entity
        text = self._raw(RAW_NAME if on_own_line else SHORT_RAW_NAME, "a name or value")
        datatype = self._datatype()
        if datatype is not None or is_plain_value(text):
            return Literal(text, datatype)
        return self._entity(text)

    def _after_blanks(self) -> int:
        blanks = _BLANKS.match(self._line, self._at)
        return blanks.end() if blanks else self._at

    def _raw(self, pattern: re.Pattern[str], wanted: str) -> str:
        """Read a text without marks; an ``or none`` at its end is not part of it."""
        match = pattern.match(self._line, self._at)
        text = match[0].strip() if match else ""
        if match is None or text[:1] in ("", "?", '"'):
            raise self.unreadable(wanted)
        self._at = match.end()
        if (suffix := OR_NONE.search(text)) is not None:
            self._at = match.start() + match[0].index(text) + suffix.start()
            text = text[: suffix.start()]
        return text

    def _entity(self, name: str) -> Entity:
        if not self.take(_OPEN_ID):
            return Entity(name)
        if (mid := self._entity_id()) is None:
            raise self.unreadable("an id")
        self.expect(")")
        return Entity(name, mid)

    def _entity_id(self) -> str | None:
        if self.take(_NS):
            return self._id("an id")
        match = self.take(_MID) or self.take(_IRI)
        return match and match[1]

    def _datatype(self) -> str | None:
        return self._id("a datatype") if self.take(_DATATYPE) else None

    def _id(self, wanted: str) -> str:
        if match := self.take(_PLAIN_ID) or self.take(_IRI):
            return match[1]
        if match := self.take(_BRACKETED):
            return unescaped(match[1])
        raise self.unreadable(wanted)
