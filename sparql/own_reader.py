"""Read kbqa's own text form, leniently; `kbqa.sparql.forms` has the grammar, and writes it.

Each line is read by itself; then the labels of all lines together are checked.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias, cast

from kbqa.sparql.crp import (
    MAX_DEPTH,
    AnyOf,
    Constraint,
    Crp,
    CrpReading,
    Entity,
    Fork,
    Form,
    Hop,
    IsNode,
    IsNotNode,
    NodeRef,
    Operator,
    Order,
    Step,
    Test,
    TextEquals,
    Way,
    changed_constraints,
    changed_step,
    compare_with,
    nested_ways,
    outer_references,
    references,
    unused_labels_dropped,
    visible_labels,
)
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.terms import LiteralTerm

_MAX_LINES = 1000
_SHOWN = 40  # characters of the text in an error message

# Blanks and digits are matched possessively throughout: no text takes more than linear time.
MID = re.compile(r"[mg]\.[0-9a-z_]++(?![\w.])")
PLAIN_ID = re.compile(r"[A-Za-z0-9_.]++")
FULL_IRI = re.compile(
    r"[A-Za-z][A-Za-z0-9+.\-]*+:[^\s<>\"{}|^`\\\x00-\x20\x7f-\x9f\ud800-\udfff]*+"
)
LANGUAGE_TAG = re.compile(r"[A-Za-z0-9]++(?:-[A-Za-z0-9]++)*")
OR_NONE = re.compile(r"(?<!\s)(?:^|\s++)or\s++none\Z", re.IGNORECASE)

# Texts that are clearly a number or date, so that they need no quotes.
PLAIN_VALUE = re.compile(
    r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?"  # a number
    r"|-?\d{4,}+(?:-\d\d(?:-\d\d(?:T[\d:.]++)?)?)?(?:Z|[-+]\d\d:\d\d)?",  # a date
    re.ASCII,
)
ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}

# What a name without brackets may hold inside braces and parentheses, and on a separate line.
# On a separate line, it may hold parentheses, unless an id is in them.
_NAME_PART = r"(?:[^\[\](){}<>|\\^\-]|-(?!>))"
_SHORT_RAW_NAME = re.compile(_NAME_PART.replace("[^", "[^,") + "+")
_RAW_NAME = re.compile(rf"{_NAME_PART}+(?:\((?!\s*+(?:[mg]\.|ns:)){_NAME_PART}*\){_NAME_PART}*)*")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)


def _word(pattern: str, flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    """Build a pattern for `_Scanner.take` that skips blanks first."""
    return re.compile(rf"\s*+(?:{pattern})", flags)


_EXACTLY = re.RegexFlag(0)
_BLANKS = _word("")
_ARROW = _word("(->)|<-")
_BRACKETED = _word(r"\[((?:[^\]\\]|\\.)*)\]", re.DOTALL)
_QUOTED = _word(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_MID_WORD = _word(f"({MID.pattern})", _EXACTLY)
_NS = _word("ns:", _EXACTLY)
_IRI = _word(f"<({FULL_IRI.pattern})>", _EXACTLY)
_ID = _word(f"({PLAIN_ID.pattern})", _EXACTLY)
_TAG = _word(f"({LANGUAGE_TAG.pattern})", _EXACTLY)
_AT = _word("@")
_DATATYPE = _word(r"\^\^")
_OPEN_ID = _word(r"\((?=\s*+(?:[mg]\.|ns:|<[A-Za-z]))", _EXACTLY)
_OPERATOR = _word("(<=|>=|!=|<|>|=)")
_IS = _word(r"is\b(\s++not\b)?")
_READS = _word(r"reads\b")
_UNTAGGED = _word(r"untagged\b")
_NO = _word(r"no\b")
_NONE = _word(r"none\b")
_OR_NONE = _word(r"or\s++none\b")
_ORDER = _word(
    r"(largest|smallest|most|fewest)\b(?:\s++([0-9]++))?(?:\s++after\s++([0-9]++))?"
    r"(\s++with\s++ties\b)?"
)
_DISTINCT = _word(r"distinct\s++from\b")
_ANY_LANGUAGE = _word(r"any\s++language\b")
_ANSWERS_IN = _word(r"answers\s++in\b")
_FORM = _word(r"(ask|count|sum|average|difference)\b(?:\s++(bindings)\b)?")
_POSITION = _word(r"\?([0-9]++|x\b)")
_LABEL = _word(r"\?(?!x\b)_?([a-z][a-z0-9_]*+)")


class _Distinct(NamedTuple):
    node: int | None  # that the answers differ from


class _Language(NamedTuple):
    tag: str | None  # of answers that are texts; None if any will do


class _Form(NamedTuple):
    form: Form
    value: int | str | None = None  # the node whose numbers it is about


_Statement: TypeAlias = Constraint | Order | _Distinct | _Language | _Form
_ONLY_ONCE = (Order, _Distinct, _Language, _Form)


@dataclass(frozen=True)
class _Line:
    number: int
    statement: _Statement
    labels: set[str]  # all in the line

    @cached_property
    def visible_labels(self) -> set[int | str]:
        statement = self.statement
        return set(visible_labels([statement])) if isinstance(statement, Constraint) else set()

    @cached_property
    def outer_labels(self) -> set[str]:
        nodes: Iterable[int | str] = ()
        match self.statement:
            case Constraint() as constraint:
                nodes = outer_references((constraint,))
            case Order() as order:
                nodes = order.references()
            case _Form(_, int() | str() as value):
                nodes = (value,)
        return {node for node in nodes if isinstance(node, str)}


def parse_crp(text: str) -> CrpReading:
    r"""Read a CRP in kbqa's own text form; `problems` has one line for each that cannot be read.

    A line is read as a whole or not at all. A label that nothing refers to is dropped.

    >>> parse_crp("Kenya -> location.country.capital\n?x ~> type.object.name").problems
    ("line 2: expected an arrow or a test, found '~> type.object.name'",)

    Raises:
        CrpSyntaxError: The main path, on the first line, cannot be read; or the text is too long.
    """
    # Not splitlines(): names hold U+0085, from UTF-8 read as Latin-1.
    rows = [(n, row.strip()) for n, row in enumerate(text.split("\n"), 1) if row.strip()]
    if not rows:
        raise CrpSyntaxError("there is no main path: the text is empty")
    if len(rows) > _MAX_LINES:
        raise CrpSyntaxError(f"the text has {len(rows)} lines; a CRP has at most {_MAX_LINES}")
    (number, first), *others = rows
    main = _LineReader(first, -1)
    try:
        topic, path = main.main_line()
    except ValueError as error:
        raise CrpSyntaxError(str(error), number) from None
    lines: list[_Line] = []
    problems: dict[int, str] = {}
    for number, row in others:
        reader = _LineReader(row, len(path))
        try:
            lines.append(_Line(number, reader.statement(), reader.labels))
        except ValueError as error:
            problems[number] = str(error)
    lines = _without_repetitions(lines, main.labels, problems)
    lines = _without_order_conflicts(lines, len(path), problems)
    lines = _without_dangling(lines, problems)
    statements = [line.statement for line in lines]
    constraints = tuple(s for s in statements if isinstance(s, Constraint))
    order = next((s for s in statements if isinstance(s, Order)), None)
    form = next((s for s in statements if isinstance(s, _Form)), _Form("select"))
    if main.labels or any(line.labels for line in lines):
        in_ways = [constraint for way in nested_ways(path) for constraint in way.constraints]
        used = references((*in_ways, *constraints, order))
        drop = unused_labels_dropped(used if form.value is None else {*used, form.value})
        path = tuple(changed_step(step, drop) for step in path)
        constraints = changed_constraints(constraints, drop)
    crp = Crp(
        topic,
        path,
        constraints,
        order,
        next((s.node for s in statements if isinstance(s, _Distinct)), 0),
        next((s.tag for s in statements if isinstance(s, _Language)), "en"),
        *form,
    )
    return CrpReading(crp, tuple(f"line {n}: {what}" for n, what in sorted(problems.items())))


class _LineReader:
    """Reads one line; a ValueError says what cannot be read, or what no CRP can hold."""

    def __init__(self, line: str, answer: int) -> None:
        self._scanner = _Scanner(line)
        self._answer = answer  # -1 on the first line, whose ways cannot refer to positions
        self._depth = 0
        self.labels: set[str] = set()  # all in the line

    def main_line(self) -> tuple[Entity, tuple[Step, ...]]:
        """Read the topic and the main path."""
        topic = self._scanner.topic()
        path: list[Step] = []
        while (step := self._step()) is not None:
            path.append(step)
        if not path:
            raise self._scanner.unreadable("an arrow")
        self._scanner.expect_end()
        return topic, tuple(path)

    def statement(self) -> _Statement:
        statement = self._statement()
        self._scanner.expect_end()
        return statement

    def _statement(self) -> _Statement:
        scanner = self._scanner
        if match := scanner.take(_ORDER):
            return self._order(match)
        if match := scanner.take(_FORM):
            return self._form(" ".join(filter(None, match.groups())).lower())
        if scanner.take(_DISTINCT):
            return _Distinct(None if scanner.take(_NONE) else self._position(self._answer - 1))
        if scanner.take(_ANY_LANGUAGE):
            return _Language(None)
        if scanner.take(_ANSWERS_IN):
            return _Language(scanner.language())
        anchor = scanner.entity()
        at = self._position(self._answer) if anchor is None else anchor
        return self._branch(at, on_own_line=True)

    def _form(self, words: str) -> _Form:
        if words.startswith("ask"):
            return _Form("ask")
        form = cast(Form, words.replace("difference bindings", "difference"))
        return _Form(form, None if form.startswith("count") else self._reference().node)

    def _order(self, match: re.Match[str]) -> Order:
        word = match[1].lower()
        return Order(
            self._reference().node,
            self._hops(),
            descending=word in ("largest", "most"),
            limit=int(match[2] or 1),
            offset=int(match[3] or 0),
            ties=match[4] is not None,
            counted=word in ("most", "fewest"),
        )

    def _step(self) -> Step | None:
        return self._scanner.hop() or (self._fork() if self._scanner.skip("(") else None)

    def _hops(self) -> tuple[Hop, ...]:
        return tuple(iter(self._scanner.hop, None))

    def _fork(self) -> Fork:
        ways = []
        with self._deeper():
            ways.append(self._way())
            while self._scanner.skip("|"):
                ways.append(self._way())
            self._scanner.expect(")")
        return Fork(tuple(ways))

    def _way(self) -> Way:
        steps: list[Step] = []
        constraints: list[Constraint] = []
        while True:
            if self._scanner.skip("{"):
                with self._deeper():
                    constraints += self._items(len(steps), in_way=True)
                    self._scanner.expect("}")
            elif (step := self._step()) is not None:
                steps.append(step)
            else:
                break
        if outside := {*map(str, outer_references(constraints))}:
            raise _UnreadableError(f"a way cannot refer to ?{min(outside)}, which is outside it")
        return Way(tuple(steps), tuple(constraints))

    def _items(self, at: int, in_way: bool = False) -> tuple[Constraint, ...]:
        """Read constraints on one node; in a way, each may also name its node."""
        items = [self._item(at, in_way)]
        while self._scanner.skip(","):
            items.append(self._item(at, in_way))
        return tuple(items)

    def _item(self, at: int, in_way: bool) -> Constraint:
        subject: int | Entity = at
        if in_way:
            anchor = self._scanner.entity()
            if anchor is not None:
                subject = anchor
            elif self._scanner.sees("?"):
                subject = self._position(at)
        return self._branch(subject)

    def _branch(self, at: int | Entity, on_own_line: bool = False) -> Constraint:
        if self._scanner.take(_NO):
            return replace(self._affirmed(at, on_own_line), negated=True)
        return self._affirmed(at, on_own_line)

    def _affirmed(self, at: int | Entity, on_own_line: bool) -> Constraint:
        hops = self._hops()
        label = self._label()
        test: Test | None = None
        branches: tuple[Constraint, ...] = ()
        if self._scanner.skip("{"):
            first, *others = self._alternatives(len(hops))
            if others:
                test = AnyOf((first, *others))
            else:
                branches = first
        elif label is None:
            test = self._test(on_own_line)
            if test is None and not hops:
                raise self._scanner.unreadable("an arrow or a test")
        optional = self._scanner.take(_OR_NONE) is not None
        return Constraint(at, hops, test, branches, optional, label=label)

    def _alternatives(self, at: int) -> list[tuple[Constraint, ...]]:
        """Read the content of braces: one list of branches, or several alternatives."""
        alternatives: list[tuple[Constraint, ...]] = []
        with self._deeper():
            while not alternatives or self._scanner.skip("|"):
                alternatives.append(self._items(at))
            self._scanner.expect("}")
        return alternatives

    def _test(self, on_own_line: bool) -> Test | None:
        scanner = self._scanner
        if match := scanner.take(_OPERATOR):
            return self._compared(cast(Operator, match[1]), on_own_line)
        if match := scanner.take(_IS):
            return IsNotNode(self._reference()) if match[1] else IsNode(self._reference())
        if scanner.take(_READS):
            text = scanner.quoted()
            return TextEquals(text, "" if scanner.take(_UNTAGGED) else scanner.tag())
        return None

    def _compared(self, operator: Operator, on_own_line: bool) -> Test:
        if self._scanner.sees("?"):
            return compare_with(operator, self._reference())
        value = self._scanner.value(on_own_line)
        if isinstance(value, Entity) and operator not in ("=", "!="):
            raise _UnreadableError(
                f"expected a number or date after {operator}, found {str(value)!r}"
            )
        return compare_with(operator, value)

    def _label(self) -> str | None:
        match = self._scanner.take(_LABEL)
        if match is None:
            return None
        label = match[1].lower()
        if label in self.labels:
            raise _UnreadableError(f"two branches have the label ?{label}")
        self.labels.add(label)
        return label

    def _reference(self) -> NodeRef:
        match = self._scanner.take(_LABEL)
        return NodeRef(match[1].lower() if match else self._position(self._answer))

    def _position(self, last: int) -> int:
        """Read a node's number, or ``?x``; `last` is the last number in scope."""
        match = self._scanner.take(_POSITION)
        if match is None:
            raise self._scanner.unreadable("a node such as ?x")
        position = self._answer if match[1] in "xX" else int(match[1])
        if not 0 <= position <= last:
            raise _UnreadableError(f"?{match[1]} is not defined here")
        return position

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _UnreadableError(f"braces and parentheses are nested deeper than {MAX_DEPTH}")
        yield
        self._depth -= 1


def _without_repetitions(
    lines: list[_Line], known: set[str], problems: dict[int, str]
) -> list[_Line]:
    """Keep the first of the lines that have the same label, or that may come only once."""
    kept: list[_Line] = []
    labels, seen = set(known), set[type]()
    for line in lines:
        kind = type(line.statement)
        if twice := labels & line.labels:
            problems[line.number] = f"two branches have the label ?{min(twice)}"
        elif kind in seen:
            problems[line.number] = "an earlier line already says this in another way"
        else:
            kept.append(line)
            labels |= line.labels
            seen |= {kind} & set(_ONLY_ONCE)
    return kept


def _without_order_conflicts(
    lines: list[_Line], answer: int, problems: dict[int, str]
) -> list[_Line]:
    """Keep the lines that can go with an order, or with a count."""
    statements = [line.statement for line in lines]
    form = next((s.form for s in statements if isinstance(s, _Form)), "select")
    is_ordered = any(isinstance(s, Order) for s in statements)
    kept = []
    for line in lines:
        match line.statement:
            case Order() if form not in ("select", "ask"):
                problems[line.number] = "what is counted or added up cannot be ordered as well"
            case Constraint(at=at, hops=()) as test if (
                form == "ask" and is_ordered and at == answer and tuple(test.references())
            ):
                problems[line.number] = "a test of ordered answers cannot name another node"
            case _:
                kept.append(line)
    return kept


def _without_dangling(lines: list[_Line], problems: dict[int, str]) -> list[_Line]:
    """Keep the lines whose references are labels of lines that are kept."""
    while True:
        visible = {label for line in lines for label in line.visible_labels}
        kept = []
        for line in lines:
            if dangling := line.outer_labels - visible:
                problems[line.number] = f"?{min(dangling)} is not defined here"
            else:
                kept.append(line)
        if len(kept) == len(lines):
            return kept
        lines = kept


class _UnreadableError(ValueError):
    """A line cannot be read."""


class _Scanner:
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
        if not self.skip(mark):
            raise self.unreadable(mark)

    def expect_end(self) -> None:
        if self._line[self._at :].strip():
            raise self.unreadable("the end of the line")

    def unreadable(self, expected: str) -> _UnreadableError:
        """Build the error that says what should come next."""
        rest = self._line[self._at :].strip()
        shown = repr(rest if len(rest) <= _SHOWN else f"{rest[:_SHOWN]}…") if rest else "nothing"
        return _UnreadableError(f"expected {expected}, found {shown}")

    def hop(self) -> Hop | None:
        arrow = self.take(_ARROW)
        return arrow and Hop(self._id("a relation"), inverse=arrow[1] is None)

    def quoted(self) -> str:
        if (match := self.take(_QUOTED)) is None:
            raise self.unreadable("a string in quotes")
        return _unescaped(match[1])

    def language(self) -> str:
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
        """Read an entity, a number, a date, or a string in quotes."""
        # A name without brackets may hold commas and parentheses on its own line.
        if (match := self.take(_QUOTED)) is not None:
            return LiteralTerm(_unescaped(match[1]), self._datatype())
        if (entity := self.entity()) is not None:
            return entity
        text = self._raw(_RAW_NAME if on_own_line else _SHORT_RAW_NAME, "a name or value")
        datatype = self._datatype()
        if datatype is not None or PLAIN_VALUE.fullmatch(text):
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


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_unescape, text)


def _unescape(match: re.Match[str]) -> str:
    code, character = match.groups()
    if code is not None:
        return chr(int(code, 16))
    return ESCAPED.get(character, character)
