"""Write kbqa's own text form, exactly; `kbqa.sparql.forms` has the grammar.

The single words of kbqa's own text form, read and written; `kbqa.sparql.forms` has the grammar.

A word that can be read without marks is written without them. Everything else is in brackets or
quotes, with backslash escapes.
"""

import re
from collections.abc import Iterable, Iterator

from kbqa.sparql.crp import (
    AnyOf,
    Compare,
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    IsNode,
    IsNotEntity,
    IsNotNode,
    NodeRef,
    Order,
    Step,
    Test,
    TextEquals,
    Way,
)
from kbqa.sparql.terms import LiteralTerm, is_mid

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


def render_crp(crp: Crp) -> str:
    """Write a CRP in kbqa's own text form; equal CRPs have equal texts, others do not.

    >>> render_crp(Crp(Entity("Kenya", "m.019rg5"), (Hop("location.country.capital"),)))
    'Kenya (m.019rg5) -> location.country.capital'
    """
    return "\n".join(_lines(crp))


def _lines(crp: Crp) -> Iterator[str]:
    yield " ".join([_entity(crp.topic, raw=True), *map(_step, crp.path)])
    for constraint in crp.constraints:
        at = constraint.at
        subject = _entity(at) if isinstance(at, Entity) else _node(at, crp.answer)
        yield f"{subject} {_branch(constraint, crp.answer, raw=True)}"
    if crp.order is not None:
        yield _order(crp.order, crp.answer)
    if crp.differs_from is None:
        yield "distinct from none"
    elif crp.differs_from:
        yield f"distinct from ?{crp.differs_from}"
    language = crp.answer_language
    if language is None:
        yield "any language"
    elif language != "en":
        yield f"answers in {_language(language)}"
    if crp.form != "select":
        yield crp.form


def _order(order: Order, answer: int) -> str:
    ends = ("fewest", "most") if order.counted else ("smallest", "largest")
    words = [ends[order.descending]]
    if order.limit > 1 or order.offset:
        words.append(str(order.limit))
    if order.offset:
        words.append(f"after {order.offset}")
    if order.ties:
        words.append("with ties")
    return " ".join([*words, _node(order.at, answer), *map(_step, order.hops)])


def _step(step: Step) -> str:
    if isinstance(step, Hop):
        return f"{'<-' if step.inverse else '->'} {_id(step.relation)}"
    return f"({' | '.join(map(_way, step.ways))})"


def _way(way: Way) -> str:
    """Write a way, each constraint after its node or a later one.

    This keeps the constraints in their order.
    """
    held: list[list[str]] = [[] for _ in range(len(way.path) + 1)]
    reached = 0
    for constraint in way.constraints:
        text = _branch(constraint, None)
        if isinstance(constraint.at, Entity):
            text = f"{_entity(constraint.at)} {text}"
        elif constraint.at < reached:
            text = f"?{constraint.at} {text}"
        else:
            reached = constraint.at
        held[reached].append(text)
    words = [_braces(held[0])] if held[0] else []
    for step, items in zip(way.path, held[1:], strict=True):
        words.append(_step(step))
        if items:
            words.append(_braces(items))
    return " ".join(words)


def _branch(constraint: Constraint, answer: int | None, raw: bool = False) -> str:
    """Write a constraint without its node.

    Args:
        constraint: The constraint.
        answer: Position of the answer; None inside a way, which cannot refer to positions.
        raw: The branch is on a separate line.
    """
    words = ["no"] if constraint.negated else []
    words += map(_step, constraint.hops)
    if constraint.label is not None:
        words.append(_node(constraint.label, answer))
    if constraint.branches:
        words.append(_braces(_branch(branch, answer) for branch in constraint.branches))
    if constraint.test is not None:
        words.append(_test(constraint.test, answer, raw))
    if constraint.optional:
        words.append("or none")
    return " ".join(words)


def _braces(items: Iterable[str]) -> str:
    return f"{{{', '.join(items)}}}"


def _test(test: Test, answer: int | None, raw: bool) -> str:
    match test:
        case IsEntity(entity):
            return f"= {_entity(entity, raw)}"
        case IsNotEntity(entity):
            return f"!= {_entity(entity, raw)}"
        case IsNode(other):
            return f"is {_node(other.node, answer)}"
        case IsNotNode(other):
            return f"is not {_node(other.node, answer)}"
        case Compare(operator, NodeRef(node)):
            return f"{operator} {_node(node, answer)}"
        case Compare(operator, LiteralTerm() as value):
            return f"{operator} {_value(value)}"
        case TextEquals(text, None):
            return f"reads {quoted(text)}"
        case TextEquals(text, ""):
            return f"reads {quoted(text)} untagged"
        case TextEquals(text, str(language)):
            return f"reads {quoted(text)}@{_language(language)}"
        case AnyOf(alternatives):
            ways = (
                ", ".join(_branch(constraint, answer) for constraint in alternative)
                for alternative in alternatives
            )
            return f"{{{' | '.join(ways)}}}"
    raise AssertionError(test)


def _node(node: int | str, answer: int | None) -> str:
    if node == answer:
        return "?x"
    # ?x is the answer, so that a label of that name needs a mark.
    return "?_x" if node == "x" else f"?{node}"


def _entity(entity: Entity, raw: bool = False) -> str:
    mid = None if entity.mid is None else _entity_id(entity.mid)
    if entity.name is None:
        return mid or ""
    name = entity.name if raw and is_plain_name(entity.name) else bracketed(entity.name)
    return name if mid is None else f"{name} ({mid})"


def _entity_id(mid: str) -> str:
    if is_mid(mid):
        return mid
    text = _id(mid)
    return text if text.startswith("<") else f"ns:{text}"


def _id(text: str) -> str:
    """Write a relation, datatype or id."""
    if PLAIN_ID.fullmatch(text):
        return text
    return f"<{text}>" if FULL_IRI.fullmatch(text) else bracketed(text)


def _value(value: LiteralTerm) -> str:
    text = value.text if is_plain_value(value.text) else quoted(value.text)
    return text if value.datatype is None else f"{text}^^{_id(value.datatype)}"


def _language(language: str) -> str:
    return language if LANGUAGE_TAG.fullmatch(language) else quoted(language)
