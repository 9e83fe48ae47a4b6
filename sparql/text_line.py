"""Read one line of kbqa's own text form; `kbqa.sparql.text` says what the form is.

Beside what the line says, its reader keeps which labels it bears, shows and refers to: only all
lines together tell whether those agree.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias, cast

from kbqa.sparql.constraints import MAX_DEPTH
from kbqa.sparql.crp import (
    AnyOf,
    Compare,
    Constraint,
    Entity,
    Fork,
    Hop,
    IsEntity,
    IsNode,
    IsNotEntity,
    IsNotNode,
    NodeRef,
    Operator,
    Order,
    Step,
    Test,
    TextEquals,
    Way,
)
from kbqa.sparql.terms import Literal
from kbqa.sparql.text_scanner import Scanner, UnreadableError, word

_OPERATOR = word("(<=|>=|!=|<|>|=)")
_IS = word(r"is\b(\s++not\b)?+")
_READS = word(r"reads\b")
_UNTAGGED = word(r"untagged\b")
_NO = word(r"no\b")
_NONE = word(r"none\b")
_OR_NONE = word(r"or\s++none\b")
_ORDER = word(r"(?:(largest)|smallest)\b(?:\s++([0-9]++))?+(?:\s++after\s++([0-9]++))?+")
_DISTINCT = word(r"distinct\s++from\b")
_ANY_LANGUAGE = word(r"any\s++language\b")
_ANSWERS_IN = word(r"answers\s++in\b")
_POSITION = word(r"\?([0-9]++|x\b)")
_LABEL = word(r"\?(?!x\b)_?([a-z][a-z0-9_]*+)")


class Distinct(NamedTuple):
    """The line ``distinct from``: the node that the answers differ from, if any."""

    node: int | None


class Language(NamedTuple):
    """The line about the language of answers that are texts; None where any will do."""

    tag: str | None


class MainLine(NamedTuple):
    """The first line."""

    topic: Entity
    path: tuple[Step, ...]


Statement: TypeAlias = Constraint | Order | Distinct | Language


@dataclass(slots=True)
class Scope:
    """Labels that are seen in a part of a line, and the references made in it.

    Attributes:
        labels: Labels of the part that are seen in all of it.
        references: Labels that the part refers to, its own or those of what lies around it.
    """

    labels: set[str] = field(default_factory=set)
    references: set[str] = field(default_factory=set)

    @property
    def unresolved(self) -> set[str]:
        """References to labels that are not here."""
        return self.references - self.labels


class LineReader:
    """Reads one line.

    Attributes:
        scope: The labels that the line shows to others, and the references that it makes.
        borne: All labels in the line.
        used: All references in the line.
    """

    def __init__(self, line: str, answer: int) -> None:
        """Start at a line's beginning.

        Args:
            line: The line.
            answer: Position of the answer; -1 on the first line, whose ways see no positions.
        """
        self._scanner = Scanner(line)
        self._answer = answer
        self._depth = 0
        self.scope = Scope()
        self.borne: set[str] = set()
        self.used: set[str] = set()

    def main_line(self) -> MainLine:
        """Read the first line.

        Raises:
            ValueError: It cannot be read, or the model refuses what it says.
        """
        topic = self._scanner.topic()
        path: list[Step] = []
        while (step := self._step()) is not None:
            path.append(step)
        if not path:
            raise self._scanner.unreadable("an arrow")
        self._scanner.expect_end()
        return MainLine(topic, tuple(path))

    def statement(self) -> Statement:
        """Read any other line.

        Raises:
            ValueError: It cannot be read, or the model refuses what it says.
        """
        statement = self._statement()
        self._scanner.expect_end()
        return statement

    def _statement(self) -> Statement:
        scanner = self._scanner
        if match := scanner.take(_ORDER):
            limit, offset = int(match[2] or 1), int(match[3] or 0)
            return Order(self._reference().node, self._hops(), bool(match[1]), limit, offset)
        if scanner.take(_DISTINCT):
            return Distinct(None if scanner.take(_NONE) else self._position(self._answer - 1))
        if scanner.take(_ANY_LANGUAGE):
            return Language(None)
        if scanner.take(_ANSWERS_IN):
            return Language(scanner.language())
        anchor = scanner.entity()
        at = self._position(self._answer) if anchor is None else anchor
        return self._branch(at, on_own_line=True)

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
        with self._scope_of_its_own() as scope:
            while True:
                if self._scanner.skip("{"):
                    with self._deeper():
                        constraints += self._items(len(steps), in_way=True)
                        self._scanner.expect("}")
                elif (step := self._step()) is not None:
                    steps.append(step)
                else:
                    break
        if scope.unresolved:
            raise UnreadableError(f"a way sees no ?{min(scope.unresolved)} outside of it")
        return Way(tuple(steps), tuple(constraints))

    def _items(self, at: int, in_way: bool = False) -> tuple[Constraint, ...]:
        """Read constraints on one node; those of a way may also say what they hang on."""
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
        if not self._scanner.take(_NO):
            return self._affirmed(at, on_own_line)
        with self._scope_of_its_own() as scope:
            constraint = self._affirmed(at, on_own_line)
        self.scope.references |= scope.unresolved
        return replace(constraint, negated=True)

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
        """Read what stands in braces: one list of branches, or several alternatives."""
        alternatives: list[tuple[Constraint, ...]] = []
        scopes = []
        with self._deeper():
            while not alternatives or self._scanner.skip("|"):
                with self._scope_of_its_own() as scope:
                    alternatives.append(self._items(at))
                scopes.append(scope)
            self._scanner.expect("}")
        if len(scopes) == 1:  # What hangs on the same node is seen from everywhere around it.
            self.scope.labels |= scopes[0].labels
        for scope in scopes:
            self.scope.references |= scope.unresolved
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
            return Compare(operator, self._reference())
        value = self._scanner.value(on_own_line)
        if isinstance(value, Literal):
            return Compare(operator, value)
        if operator == "=":
            return IsEntity(value)
        if operator == "!=":
            return IsNotEntity(value)
        raise UnreadableError(f"expected a number or date after {operator}, found {str(value)!r}")

    def _label(self) -> str | None:
        match = self._scanner.take(_LABEL)
        if match is None:
            return None
        label = match[1].lower()
        if label in self.borne:
            raise UnreadableError(f"two branches bear the label ?{label}")
        self.borne.add(label)
        self.scope.labels.add(label)
        return label

    def _reference(self) -> NodeRef:
        if (match := self._scanner.take(_LABEL)) is None:
            return NodeRef(self._position(self._answer))
        label = match[1].lower()
        self.scope.references.add(label)
        self.used.add(label)
        return NodeRef(label)

    def _position(self, last: int) -> int:
        """Read a node's number, or ``?x``; `last` is the last number that is seen from here."""
        match = self._scanner.take(_POSITION)
        if match is None:
            raise self._scanner.unreadable("a node such as ?x")
        position = self._answer if match[1] in "xX" else int(match[1])
        if not 0 <= position <= last:
            raise UnreadableError(f"no node ?{match[1]} is to be seen here")
        return position

    @contextmanager
    def _scope_of_its_own(self) -> Iterator[Scope]:
        """Keep the labels and references of a part apart from those around it."""
        around, self.scope = self.scope, Scope()
        yield self.scope
        self.scope = around

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UnreadableError(f"braces and parentheses deeper than {MAX_DEPTH}")
        yield
        self._depth -= 1
