"""Read RouterKGQA's text form and its extension, leniently; `kbqa.sparql.forms` describes them.

Constraints on one node come in the order of the sections, wherever their lines were.
"""

import re
from collections.abc import Mapping
from string import ascii_lowercase
from typing import cast

from kbqa.sparql.compiler.values import is_date
from kbqa.sparql.crp import (
    Compare,
    Constraint,
    Crp,
    CrpReading,
    Entity,
    Form,
    Hop,
    IsEntity,
    IsNotEntity,
    Kind,
    NodeRef,
    Operator,
    Order,
    Test,
    TextEquals,
)
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.forms.tree import BranchNode
from kbqa.sparql.terms import LiteralTerm, is_mid, is_well_formed

_SECTIONS = {
    "main path:": "main",
    "entity restrictions:": "entity",
    "numeric restrictions:": "numeric",
    "string restrictions:": "string",
    "further restrictions:": "further",
}
TYPE = "type.object.type"
"""What leads from an entity to its classes. A class is written in words, as relations are."""

OR = " | "
"""Between the entities of which an answer must be one."""
# Runs of blanks are matched possessively: no line takes more than linear time.
_TRIPLE = re.compile(
    r"(?P<subject>.*?)-\[\s*+(?P<inverse>R\s*+\[)?(?P<relation>[^\[\]]+)"
    r"(?(inverse)\]\s*+)\]\s*+->(?P<object>.*)"
)
_FILTER = re.compile(
    r"""FILTER\s*+\(\s*+(?:(?:str|xsd:\w++)\s*+\(\s*+)?(?P<variable>\?\w++)\s*+(?:\)\s*+)?
        (?P<operator><=|>=|!=|<|>|=)\s*+(?:"(?P<quoted>.*)"|(?P<bare>[0-9]++))\s*+\)""",
    re.IGNORECASE | re.VERBOSE,
)
_ORDER = re.compile(
    r"ORDER\s++BY\s++(?:(?P<direction>ASC|DESC)\s*+\(\s*+)?(?P<variable>\?\w++)\s*+\)?",
    re.IGNORECASE,
)
_LIMIT = re.compile(r"LIMIT\s++([1-9][0-9]{0,5})", re.IGNORECASE)
_VARIABLE = re.compile(r"\?\w++")
_TEST = re.compile(r"(?P<variable>\?\w++)\s*+(?P<operator><=|>=|!=|<|>|=)\s*+(?P<value>\S.*)")
_AFTER = re.compile(r"after\s++([0-9]{1,6})", re.IGNORECASE)
_NO = re.compile(r"no\s++(?=\?\w++\s*+-\[)", re.IGNORECASE)
_FORMS: Mapping[str, Form] = {"count": "count", "count bindings": "count bindings", "ask": "ask"}
_MAX_LINES = 100  # The published texts have eleven at most.
_KINDS: tuple[Kind, ...] = ("entity", "numeric", "string")


def parse_routerkgqa(text: str) -> CrpReading:
    r"""Read a CRP in RouterKGQA's text form.

    >>> parse_routerkgqa("Main Path:\n Kenya -[location , country , capital]-> ?x").crp.path
    (Hop(relation='location.country.capital', inverse=False),)

    Returns:
        The CRP, and one line for each part of the text that is not in it.

    Raises:
        CrpSyntaxError: There is no readable main path, or the text is too long.
    """
    lines = text.split("\n")  # not splitlines(): names hold U+0085, from UTF-8 read as Latin-1
    if len(lines) > _MAX_LINES:
        raise CrpSyntaxError(f"the text has {len(lines)} lines; a CRP has at most {_MAX_LINES}")
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        reader.read_line(line.strip(), number)
    return reader.finish()


def relation_id(text: str) -> str:
    """Return the relation that is written in words; the inverse of `relation_text`.

    >>> relation_id("people , person , sibling s")
    'people.person.sibling_s'
    """
    return re.sub(r"\s+", "_", re.sub(r"\s*,\s*", ".", text.strip()))


def entity_in_text(text: str) -> Entity:
    """Read an entity: a mid if it looks like one, else a name."""
    return Entity(mid=text) if is_mid(text) else Entity(name=text)


def is_interval_end(test: Test | None) -> bool:
    """Return whether a test is one end of an interval: a date with ``<=`` or ``>=``."""
    match test:
        case Compare("<=" | ">=", LiteralTerm() as value):
            return is_date(value)
        case _:
            return False


class _Reader:
    """Reads line by line; a variable means the node that was last defined by that name."""

    def __init__(self) -> None:
        self._section = ""
        self._topic = ""
        self._path: list[Hop] = []
        self._main: list[BranchNode] = [BranchNode()]
        self._names: list[str] = [""]  # of the main path's nodes
        self._nodes: dict[str, BranchNode] = {}
        self._ways: dict[BranchNode, tuple[BranchNode, Hop]] = {}
        self._order_node: BranchNode | None = None
        self._descending = False
        self._limit = 1
        self._offset, self._ties, self._counted = 0, False, False
        self._form: Form = "select"
        self._others: list[tuple[Entity, BranchNode]] = []
        self._problems: list[str] = []

    def read_line(self, line: str, number: int) -> None:
        if not line:
            return
        if (section := _SECTIONS.get(line.lower())) is not None:
            self._section = section
        elif self._section == "main":
            self._read_hop(line, number)
        elif not (
            (self._section == "further" and self._read_further(line))
            or (self._section and self._read_restriction(line))
        ):
            self._problems.append(f"line {number}: cannot read {line!r}")

    def finish(self) -> CrpReading:
        if not self._path:
            raise CrpSyntaxError("; ".join(self._problems) or "there is no main path")
        order = self._take_order()
        constraints = tuple(
            constraint
            for at, node in enumerate(self._main)
            for constraint in sorted(node.constraints(at), key=_place)
        )
        others = tuple(c for entity, node in self._others for c in node.constraints(entity))
        inner = self._names[:-1]
        is_class = self._path[0] == Hop(TYPE, inverse=True)
        try:
            crp = Crp(
                topic=end_in_text(self._topic, is_class=is_class),
                path=tuple(self._path),
                constraints=(*others, *constraints),
                order=order,
                differs_from=inner.index("?c") if "?c" in inner else 0,
                form=self._form,
            )
        except ValueError as error:
            raise CrpSyntaxError(str(error)) from None
        return CrpReading(crp, tuple(self._problems))

    def _read_hop(self, line: str, number: int) -> None:
        match = _TRIPLE.fullmatch(line)
        hop = match and _hop(match)
        if match is None or hop is None:
            self._problems.append(f"line {number}: not a hop: {line!r}")
            return
        subject, object_ = match["subject"].strip(), match["object"].strip()
        if not self._path and (not subject or subject.startswith("?")):
            raise CrpSyntaxError(f"the main path does not start with an entity: {line!r}", number)
        if self._path and subject != self._names[-1]:
            self._problems.append(
                f"line {number}: does not continue from {self._names[-1]}: {line!r}"
            )
            return
        if _VARIABLE.fullmatch(object_) is None or object_ in self._nodes:
            self._problems.append(f"line {number}: does not lead to a new variable: {line!r}")
            return
        self._topic = self._topic or subject
        self._path.append(hop)
        self._names.append(object_)
        self._nodes[object_] = BranchNode()
        self._main.append(self._nodes[object_])

    def _read_restriction(self, line: str) -> bool:
        # A filter's text may hold what looks like a triple, but no triple what looks like a filter.
        if (match := _FILTER.fullmatch(line)) is not None:
            return self._read_filter(match)
        if (match := _TRIPLE.fullmatch(line)) is not None:
            return self._read_triple(match)
        if (match := _ORDER.fullmatch(line)) is not None:
            return self._read_order(match)
        if (match := _LIMIT.fullmatch(line)) is not None and self._order_node is not None:
            self._limit = int(match[1])
            return True
        return False

    def _read_triple(self, match: re.Match[str]) -> bool:
        parent, object_ = self._nodes.get(match["subject"].strip()), match["object"].strip()
        hop = _hop(match)
        if parent is None or hop is None or not object_:
            return False
        node = BranchNode()
        if _VARIABLE.fullmatch(object_) is not None:
            self._nodes[object_] = node
            self._ways[node] = (parent, hop)
        elif object_.startswith("?"):
            return False
        else:
            node.tests.append(IsEntity(end_in_text(object_, is_class=hop == Hop(TYPE))))
        parent.edges.append((hop, node))
        return True

    def _read_further(self, line: str) -> bool:
        """Read a line that only the extended form has; False if it is another line."""
        if (form := _FORMS.get(line.lower())) is not None:
            self._form = form
        elif line.lower() == "with ties":
            self._ties = True
        elif line.lower() == "by number":
            self._counted = True
        elif (match := _AFTER.fullmatch(line)) is not None:
            self._offset = int(match[1])
        elif (match := _NO.match(line)) is not None:
            return self._read_absent(line[match.end() :])
        elif (match := _TRIPLE.fullmatch(line)) is not None:
            subject = match["subject"].strip()
            if not subject or subject.startswith("?"):
                return False
            self._others.append((entity_in_text(subject), BranchNode()))
            self._nodes[subject] = self._others[-1][1]
            return self._read_triple(match)
        else:
            match = _TEST.fullmatch(line)
            return match is not None and self._read_test(match)
        return True

    def _read_absent(self, line: str) -> bool:
        match = _TRIPLE.fullmatch(line)
        parent = match and self._nodes.get(match["subject"].strip())
        if match is None or parent is None or not self._read_triple(match):
            return False
        parent.edges[-1][1].negated = True
        return True

    def _read_test(self, match: re.Match[str]) -> bool:
        node, value = self._nodes.get(match["variable"]), match["value"]
        operator = cast(Operator, match["operator"])
        if node is None:
            return False
        if value.startswith("?"):
            if (other := self._nodes.get(value)) is None or other is node:
                return False
            node.tests.append(Compare(operator, NodeRef(self._reference(other))))
        elif operator == "=" and OR in value:
            node.any_of.append(tuple(_being(name) for name in value.split(OR)))
        elif operator == "=":
            node.tests.append(IsEntity(entity_in_text(value)))
        elif operator == "!=":
            node.tests.append(IsNotEntity(entity_in_text(value)))
        else:
            return False
        return True

    def _reference(self, node: BranchNode) -> int | str:
        """Return what refers to a node: its place on the main path, or a label."""
        if node in self._main:
            return self._main.index(node)
        if node.label is None:
            taken = {each.label for each in self._nodes.values()}
            node.label = next(c for c in ascii_lowercase if c not in taken)
        return node.label

    def _read_filter(self, match: re.Match[str]) -> bool:
        node = self._nodes.get(match["variable"])
        quoted, operator = match["quoted"], cast(Operator, match["operator"])
        if node is None or (self._section == "string" and (operator != "=" or quoted is None)):
            return False
        if self._section == "string":
            node.tests.append(TextEquals(quoted))
        else:
            value = LiteralTerm(match["bare"], "integer") if quoted is None else LiteralTerm(quoted)
            node.tests.append(Compare(operator, value))
        node.optional = node in self._ways and all(map(is_interval_end, node.tests))
        return True

    def _read_order(self, match: re.Match[str]) -> bool:
        node = self._nodes.get(match["variable"])
        if node is None or self._order_node is not None:
            return False
        self._order_node = node
        self._descending = (match["direction"] or "").upper() == "DESC"
        return True

    def _take_order(self) -> Order | None:
        """Turn the ORDER BY variable into a branch, and cut that branch off the tree.

        If a node on the way there has its own constraints, the order refers to that node.
        """
        node = self._order_node
        if node is None:
            return None
        hops: tuple[Hop, ...] = ()
        while node in self._ways and node.is_bare:
            parent, hop = self._ways[node]
            parent.edges.remove((hop, node))
            hops = (hop, *hops)
            node = parent
        node.optional = False  # a missing value cannot be ranked
        return Order(
            self._reference(node),
            hops,
            self._descending,
            self._limit,
            self._offset,
            self._ties,
            self._counted and bool(hops),
        )


def end_in_text(text: str, *, is_class: bool) -> Entity:
    """Read an entity, or a class that is written in words."""
    class_id = relation_id(text)
    if is_class and "." in class_id and is_well_formed(class_id):
        return Entity(mid=class_id)
    return entity_in_text(text)


def _being(name: str) -> BranchNode:
    return BranchNode(tests=[IsEntity(entity_in_text(name.strip()))])


def _place(constraint: Constraint) -> tuple[bool, int]:
    """Sort a node's constraints as the sections do, so that they are written in the same order."""
    return bool(constraint.hops), _KINDS.index(constraint.kind)


def _hop(match: re.Match[str]) -> Hop | None:
    relation = relation_id(match["relation"])
    if not is_well_formed(relation):
        return None
    return Hop(relation, inverse=match["inverse"] is not None)
