"""The single words of kbqa's own text form, read and written; `kbqa.sparql.forms` has the grammar.

A word that can be read without marks is written without them. Everything else is in brackets or
quotes, with backslash escapes.
"""

import re

from kbqa.sparql.crp import Entity, Hop
from kbqa.sparql.terms import LiteralTerm

# Blanks and digits are matched possessively throughout: no text takes more than linear time.
_MID = re.compile(r"[mg]\.[0-9a-z_]++(?![\w.])")
PLAIN_ID = re.compile(r"[A-Za-z0-9_.]++")
FULL_IRI = re.compile(
    r"[A-Za-z][A-Za-z0-9+.\-]*+:[^\s<>\"{}|^`\\\x00-\x20\x7f-\x9f\ud800-\udfff]*+"
)
LANGUAGE_TAG = re.compile(r"[A-Za-z0-9]++(?:-[A-Za-z0-9]++)*")
# What a name without brackets may hold inside braces and parentheses, and on a separate line.
# On a separate line, it may hold parentheses, unless an id is in them.
_NAME_PART = r"(?:[^\[\](){}<>|\\^\-]|-(?!>))"
_SHORT_RAW_NAME = re.compile(_NAME_PART.replace("[^", "[^,") + "+")
_RAW_NAME = re.compile(rf"{_NAME_PART}+(?:\((?!\s*+(?:[mg]\.|ns:)){_NAME_PART}*\){_NAME_PART}*)*")
_OR_NONE = re.compile(r"(?<!\s)(?:^|\s++)or\s++none\Z", re.IGNORECASE)

_PLAIN_VALUE = re.compile(
    r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?"  # a number
    r"|-?\d{4,}+(?:-\d\d(?:-\d\d(?:T[\d:.]++)?)?)?(?:Z|[-+]\d\d:\d\d)?",  # a date
    re.ASCII,
)
# Control characters, other ends of lines, and surrogates, which no file can hold.
_HIDDEN = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_PLAIN_NAME = re.compile(rf"\w[^\[\](){{}}<>|\\^{_HIDDEN}]*+")
_IN_BRACKETS = re.compile(rf"[{_HIDDEN}\\\]]")
_IN_QUOTES = re.compile(rf'[{_HIDDEN}\\"]')
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_ESCAPES = {character: f"\\{letter}" for letter, character in _ESCAPED.items()}

_SHOWN = 40  # characters of the text in an error message


def is_plain_value(text: str) -> bool:
    """Return whether a text is clearly a number or date, so that it needs no quotes.

    >>> is_plain_value("2010-12-31"), is_plain_value("-1.5e3"), is_plain_value("Male")
    (True, True, False)
    """
    return _PLAIN_VALUE.fullmatch(text) is not None


def is_plain_name(text: str) -> bool:
    """Return whether a name cannot be mistaken for anything else, so that it needs no brackets.

    >>> is_plain_name("Washington, D.C."), is_plain_name("1984"), is_plain_name("Pi (film)")
    (True, False, False)
    """
    return (
        _PLAIN_NAME.fullmatch(text) is not None
        and text == text.rstrip()
        and not (is_plain_value(text) or _MID.match(text) or text.startswith("ns:"))
        and _OR_NONE.search(text) is None
    )


def bracketed(text: str) -> str:
    r"""Write any text in brackets.

    >>> print(bracketed("a [b]\n"))
    [a [b\]\n]
    """
    return f"[{_IN_BRACKETS.sub(_escape, text)}]"


def quoted(text: str) -> str:
    """Write any text in quotes."""
    return f'"{_IN_QUOTES.sub(_escape, text)}"'


def word(pattern: str, flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    """Build a pattern for `Scanner.take` that skips blanks first."""
    return re.compile(rf"\s*+(?:{pattern})", flags)


_EXACTLY = re.RegexFlag(0)
_BLANKS = word("")
_ARROW = word("(->)|<-")
_BRACKETED = word(r"\[((?:[^\]\\]|\\.)*)\]", re.DOTALL)
_QUOTED = word(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_MID_WORD = word(f"({_MID.pattern})", _EXACTLY)
_NS = word("ns:", _EXACTLY)
_IRI = word(f"<({FULL_IRI.pattern})>", _EXACTLY)
_ID = word(f"({PLAIN_ID.pattern})", _EXACTLY)
_TAG = word(f"({LANGUAGE_TAG.pattern})", _EXACTLY)
_AT = word("@")
_DATATYPE = word(r"\^\^")
_OPEN_ID = word(r"\((?=\s*+(?:[mg]\.|ns:|<[A-Za-z]))", _EXACTLY)


class UnreadableError(ValueError):
    """A line cannot be read from some place on."""


class Scanner:
    """Reads a line from left to right."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Skip what a pattern matches here, if it does."""
        match = pattern.match(self._line, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def sees(self, mark: str) -> bool:
        """Return whether a mark comes next, perhaps after blanks."""
        return self._line.startswith(mark, self._after_blanks())

    def skip(self, mark: str) -> bool:
        """Skip a mark if it comes next."""
        if not self.sees(mark):
            return False
        self._at = self._after_blanks() + len(mark)
        return True

    def expect(self, mark: str) -> None:
        """Skip a mark that must come next.

        Raises:
            UnreadableError: Something else does.
        """
        if not self.skip(mark):
            raise self.unreadable(mark)

    def expect_end(self) -> None:
        """Check that the line ends here.

        Raises:
            UnreadableError: It does not.
        """
        if self._line[self._at :].strip():
            raise self.unreadable("the end of the line")

    def unreadable(self, expected: str) -> UnreadableError:
        """Build the error that says what should come next."""
        rest = self._line[self._at :].strip()
        shown = repr(rest if len(rest) <= _SHOWN else f"{rest[:_SHOWN]}…") if rest else "nothing"
        return UnreadableError(f"expected {expected}, found {shown}")

    def hop(self) -> Hop | None:
        """Read an arrow and its relation, if an arrow comes next."""
        arrow = self.take(_ARROW)
        return arrow and Hop(self._id("a relation"), inverse=arrow[1] is None)

    def quoted(self) -> str:
        """Read a string in quotes."""
        if (match := self.take(_QUOTED)) is None:
            raise self.unreadable("a string in quotes")
        return _unescaped(match[1])

    def language(self) -> str:
        """Read a language tag."""
        if (match := self.take(_TAG)) is not None:
            return match[1]
        return self.quoted()

    def tag(self) -> str | None:
        """Read the language tag of a string, if there is one."""
        return self.language() if self.take(_AT) else None

    def entity(self) -> Entity | None:
        """Read an entity in brackets or by id, if one comes next."""
        if (mid := self._entity_id()) is not None:
            return Entity(mid=mid)
        if (match := self.take(_BRACKETED)) is None:
            return None
        return self._entity(_unescaped(match[1]))

    def topic(self) -> Entity:
        """Read an entity that needs no brackets."""
        return self.entity() or self._entity(self._raw(_RAW_NAME, "an entity"))

    def value(self, on_own_line: bool) -> Entity | LiteralTerm:
        """Read an entity, a number, a date, or a string in quotes.

        Args:
            on_own_line: A name without brackets may hold commas and parentheses here.
        """
        if (match := self.take(_QUOTED)) is not None:
            return LiteralTerm(_unescaped(match[1]), self._datatype())
        if (entity := self.entity()) is not None:
            return entity
        text = self._raw(_RAW_NAME if on_own_line else _SHORT_RAW_NAME, "a name or value")
        datatype = self._datatype()
        if datatype is not None or is_plain_value(text):
            return LiteralTerm(text, datatype)
        return self._entity(text)

    def _after_blanks(self) -> int:
        blanks = _BLANKS.match(self._line, self._at)
        return blanks.end() if blanks else self._at

    def _raw(self, pattern: re.Pattern[str], expected: str) -> str:
        """Read a text without marks, up to an ``or none`` at its end."""
        match = pattern.match(self._line, self._at)
        text = match[0].strip() if match else ""
        if match is None or text[:1] in ("", "?", '"'):
            raise self.unreadable(expected)
        self._at = match.end()
        if (suffix := _OR_NONE.search(text)) is not None:
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
        match = self.take(_MID_WORD) or self.take(_IRI)
        return match and match[1]

    def _datatype(self) -> str | None:
        return self._id("a datatype") if self.take(_DATATYPE) else None

    def _id(self, expected: str) -> str:
        if match := self.take(_ID) or self.take(_IRI):
            return match[1]
        if match := self.take(_BRACKETED):
            return _unescaped(match[1])
        raise self.unreadable(expected)


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if character.isprintable():
        return f"\\{character}"
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


def _unescaped(text: str) -> str:
    """Read the text between brackets or quotes."""
    return _ESCAPE.sub(_unescape, text)


def _unescape(match: re.Match[str]) -> str:
    code, character = match.groups()
    if code is not None:
        return chr(int(code, 16))
    return _ESCAPED.get(character, character)
