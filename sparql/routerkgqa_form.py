"""Read RouterKGQA's text form and its extension leniently, and write them exactly.

`kbqa.sparql.forms` describes them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from string import ascii_lowercase
from typing import cast

from kbqa.sparql.crp import (
    AnyOf,
    BranchNode,
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
    compare_with,
)
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.terms import TYPE, LiteralTerm, is_mid, is_well_formed
from kbqa.sparql.values import is_date

_SECTIONS = {
    "main path:": "main",
    "entity restrictions:": "entity",
    "numeric restrictions:": "numeric",
    "string restrictions:": "string",
    "further restrictions:": "further",
}
_TO_CLASS = Hop(TYPE)  # classes are written in words, as relations are
_OR = " | "  # between entities that a node may be
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
_INTEGER = re.compile(r"[0-9]++")
# Control characters, which a text file may lose or change, and surrogates, which it cannot hold.
_LOST = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_UNSAYABLE = re.compile(rf"-\[|{_LOST.pattern}|^\?|^\s|\s\Z|^\Z")
_FORMS: Mapping[str, Form] = {"count": "count", "count bindings": "count bindings", "ask": "ask"}
_MAX_LINES = 100  # The published texts have eleven at most.
_KINDS: tuple[Kind, ...] = ("entity", "numeric", "string")


def parse_routerkgqa(text: str) -> CrpReading:
    r"""Read a CRP in RouterKGQA's text form.

    >>> parse_routerkgqa("Main Path:\n Kenya -[location , country , capital]-> ?x").crp.path
    (Hop(relation='location.country.capital', inverse=False),)

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


def render_routerkgqa(crp: Crp) -> str | None:
    """Write a CRP in RouterKGQA's text form, or return None if that form cannot say it."""
    return _Writer(crp).write()


def render_extended(crp: Crp) -> str | None:
    """Write a CRP in the extended form, or return None if that form cannot say it."""
    return _Writer(crp).write() or _Writer(crp, extended=True).write()


def relation_id(text: str) -> str:
    """Return the relation that is written in words; the inverse of `relation_text`.

    >>> relation_id("people , person , sibling s")
    'people.person.sibling_s'
    """
    return re.sub(r"\s+", "_", re.sub(r"\s*,\s*", ".", text.strip()))


def relation_text(relation: str) -> str:
    """Write a relation as words.

    >>> relation_text("people.person.sibling_s")
    'people , person , sibling s'
    """
    return relation.replace(".", " , ").replace("_", " ")


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
        self._labels = (f"{c}{n or ''}" for n in range(_MAX_LINES) for c in ascii_lowercase)
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
        try:
            crp = Crp(
                topic=_end_in_text(self._topic, is_class=self._path[0] == _TO_CLASS.back),
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
            node.tests.append(IsEntity(_end_in_text(object_, is_class=hop == _TO_CLASS)))
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
            self._others.append((_entity_in_text(subject), BranchNode()))
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
            if (other := self._nodes.get(value)) is None or not self._sees(node, other):
                return False
            node.tests.append(compare_with(operator, NodeRef(self._reference(other))))
        elif operator == "=" and _OR in value:
            names = [name.strip() for name in value.split(_OR)]
            if not all(names):
                return False
            entities = map(_entity_in_text, names)
            node.any_of.append(tuple(BranchNode(tests=[IsEntity(each)]) for each in entities))
        elif operator in ("=", "!="):
            node.tests.append(compare_with(operator, _entity_in_text(value)))
        else:
            return False
        return True

    def _sees(self, node: BranchNode, other: BranchNode) -> bool:
        """Return whether a node can refer to another: no negation hides it."""
        hidden = set(self._negated_above(other)) - set(self._negated_above(node))
        return other is not node and not (hidden or other.negated)

    def _negated_above(self, node: BranchNode) -> Iterator[BranchNode]:
        """Yield a node and those that lead to it, as far as they are negated."""
        while node in self._ways:
            if node.negated:
                yield node
            node, _ = self._ways[node]

    def _reference(self, node: BranchNode) -> int | str:
        """Return what refers to a node: its place on the main path, or a label."""
        if node in self._main:
            return self._main.index(node)
        node.label = node.label or next(self._labels)
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
        node.optional = node in self._ways and all(map(_is_interval_end, node.tests))
        return True

    def _read_order(self, match: re.Match[str]) -> bool:
        node = self._nodes.get(match["variable"])
        if node is None or self._order_node is not None or any(self._negated_above(node)):
            return False
        self._order_node = node
        self._descending = (match["direction"] or "").upper() == "DESC"
        return True

    def _take_order(self) -> Order | None:
        """Turn the ORDER BY variable into a branch, and cut off what leads to it alone."""
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


def _entity_in_text(text: str) -> Entity:
    return Entity(mid=text) if is_mid(text) else Entity(name=text)


def _end_in_text(text: str, *, is_class: bool) -> Entity:
    """Read an entity, or a class that is written in words."""
    class_id = relation_id(text)
    if is_class and "." in class_id and is_well_formed(class_id):
        return Entity(mid=class_id)
    return _entity_in_text(text)


def _is_interval_end(test: Test | None) -> bool:
    """Return whether a test is one end of an interval: a date with ``<=`` or ``>=``."""
    match test:
        case Compare("<=" | ">=", LiteralTerm() as value):
            return is_date(value)
        case _:
            return False


def _place(constraint: Constraint) -> tuple[bool, int]:
    """Return the key by which a node's constraints have the order of the sections."""
    return bool(constraint.hops), _KINDS.index(constraint.kind)


def _hop(match: re.Match[str]) -> Hop | None:
    relation = relation_id(match["relation"])
    if not is_well_formed(relation):
        return None
    return Hop(relation, inverse=match["inverse"] is not None)


class _Writer:
    """Writes one CRP; `write` stops at the first part that the form cannot say."""

    def __init__(self, crp: Crp, *, extended: bool = False) -> None:
        self._crp, self._extended = crp, extended
        self._names = _main_names(crp)
        self._used = set(self._names)
        self._labels: dict[str, str] = {}  # to variables

    def write(self) -> str | None:
        crp = self._crp
        try:
            sections: dict[str, list[str]] = {"entity": [], "numeric": [], "string": []}
            further: list[str] = []
            if crp.differs_from is None or crp.answer_language != "en" or crp.value is not None:
                raise _UnsayableError
            for constraint in crp.constraints:
                if self._extended and _is_further(constraint):
                    further += self._further(constraint, self._names)
                else:
                    sections[constraint.kind] += self._constraint(constraint, self._names)
            if crp.order is not None:
                sections["numeric"] += self._order(crp.order)
                further += _places(crp.order)
            if crp.form != "select":
                further.append(f"  {crp.form}")
            if further and not self._extended:
                raise _UnsayableError
            lines = ["Main Path:", *self._main_path()]
        except _UnsayableError:
            return None
        for kind, body in {**sections, "further": further}.items():
            if body:
                lines += [f"{kind.capitalize()} Restrictions:", *body]
        return "\n".join(lines)

    def _main_path(self) -> Iterator[str]:
        subject = self._end(self._crp.topic, is_class=self._crp.path[0] == _TO_CLASS.back)
        for hop, name in zip(self._crp.path, self._names[1:], strict=True):
            if not isinstance(hop, Hop):
                raise _UnsayableError
            relation = _relation(hop)
            yield f" {subject} -[{f'R[{relation}]' if hop.inverse else relation}]-> {name}"
            subject = name

    def _constraint(self, constraint: Constraint, names: list[str]) -> list[str]:
        at, hops = constraint.at, constraint.hops
        if not isinstance(at, int) or at == 0 or constraint.negated:
            raise _UnsayableError  # the topic is not a variable in this form
        if constraint.label is None and constraint.optional != _reads_as_optional(constraint):
            raise _UnsayableError
        match constraint.test:
            case IsEntity(entity) if hops:
                lines, end = self._triples(names[at], hops[:-1], "?c")
                name = self._end(entity, is_class=hops[-1] == _TO_CLASS)
                lines.append(f" {end} {self._arrow(hops[-1])} {name}")
            case Compare(operator, LiteralTerm() as value):
                lines, end = self._triples(names[at], hops, _value_name(constraint))
                lines.append(f"  FILTER ({_comparison(end, operator, value)})")
            case TextEquals(text, None):
                lines, end = self._triples(names[at], hops, "?name")
                lines.append(f'  FILTER (str({end}) = "{_text(text)}")')
            case None:
                lines = self._branching(constraint, names[at])
            case _:
                raise _UnsayableError
        return lines

    def _branching(self, constraint: Constraint, start: str) -> list[str]:
        name, order = "?c", self._crp.order
        if self._extended and constraint.label is not None:
            name = "?a"
        elif constraint.label is not None:
            if order is None or order.at != constraint.label or constraint.kind == "string":
                raise _UnsayableError  # a string's variable is defined after the order
            name = "?c" if order.hops else "?sk0"
        lines, end = self._triples(start, constraint.hops, name)
        if constraint.label is not None:
            self._labels[constraint.label] = end
        inner_names = [""] * len(constraint.hops) + [end]
        for branch in constraint.branches:
            if branch.kind != constraint.kind:
                raise _UnsayableError
            lines += self._constraint(branch, inner_names)
        return lines

    def _further(self, constraint: Constraint, names: list[str]) -> list[str]:
        """Write a line of the section that RouterKGQA's form does not have, and those it needs."""
        at, hops, test = constraint.at, constraint.hops, constraint.test
        if at == 0 or constraint.optional:
            raise _UnsayableError
        if isinstance(at, Entity):
            if constraint.negated:  # a name may begin with "no"
                raise _UnsayableError
            return self._restriction(constraint, _name(at))
        if constraint.negated:
            first, *rest = self._restriction(replace(constraint, negated=False), names[at])
            return [f"  no{first}", *rest]
        lines, end = self._triples(names[at], hops, "?c")
        match test:
            case IsEntity(entity):
                return [*lines, f"  {end} = {_name(entity)}"]
            case IsNotEntity(entity):
                return [*lines, f"  {end} != {_name(entity)}"]
            case AnyOf() if entities := test.entities():
                return [*lines, f"  {end} = {_OR.join(map(_choice, entities))}"]
            case Compare(operator, NodeRef(node)):
                other = self._labels.get(node) if isinstance(node, str) else names[node]
                if other:
                    return [*lines, f"  {end} {operator} {other}"]
        raise _UnsayableError

    def _restriction(self, constraint: Constraint, start: str) -> list[str]:
        """Write the triples of a constraint that begins at this node."""
        if constraint.optional or constraint.kind != "entity" or not constraint.hops:
            raise _UnsayableError
        at = 1  # any node but the topic: its name is given
        return self._constraint(replace(constraint, at=at), ["", start])

    def _order(self, order: Order) -> list[str]:
        if order.at == 0:
            raise _UnsayableError
        at = order.at
        start = self._labels[at] if isinstance(at, str) else self._names[at]
        lines, end = self._triples(start, order.hops, "?sk0")
        direction = "DESC" if order.descending else "ASC"
        return [*lines, f"  ORDER BY {direction}({end})", f"  LIMIT {order.limit}"]

    def _end(self, entity: Entity, *, is_class: bool) -> str:
        """Write an entity, or a class where one is expected."""
        if is_class and self._extended:
            return _class_text(entity)
        name = _name(entity)
        if is_class and _end_in_text(name, is_class=True) != _entity_in_text(name):
            raise _UnsayableError  # a name with a dot would be read as a class
        return name

    def _triples(
        self, subject: str, hops: tuple[Hop, ...], last_name: str
    ) -> tuple[list[str], str]:
        lines = []
        for remaining, hop in zip(range(len(hops) - 1, -1, -1), hops, strict=True):
            name = self._fresh("?c" if remaining else last_name)
            lines.append(f" {subject} {self._arrow(hop)} {name}")
            subject = name
        return lines, subject

    def _arrow(self, hop: Hop) -> str:
        if hop.inverse and not self._extended:
            raise _UnsayableError
        relation = _relation(hop)
        return f"-[R[{relation}]]->" if hop.inverse else f"-[{relation}]->"

    def _fresh(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._used:
            number += 1
            name = f"{wanted}{number}"
        self._used.add(name)
        return name


class _UnsayableError(Exception):
    """The form cannot say this."""


def _is_further(constraint: Constraint) -> bool:
    """Return whether a constraint goes into the section that RouterKGQA's form does not have."""
    if constraint.negated or isinstance(constraint.at, Entity):
        return True
    match constraint.test:
        case IsEntity():
            return not constraint.hops
        case IsNotEntity() | AnyOf() | Compare(value=NodeRef()):
            return True
        case _:
            return False


def _reads_as_optional(constraint: Constraint) -> bool:
    """Return whether the reader reads a constraint as one or both ends of an interval."""
    ends = constraint.branches or (constraint,)
    return bool(constraint.hops) and all(
        _is_interval_end(end.test) and (end is constraint or not end.hops) for end in ends
    )


def _main_names(crp: Crp) -> list[str]:
    """Name the main path's nodes as the published texts do.

    ``?x`` is the answer, ``?c`` the node that it must differ from; ``?k`` come before it, ``?y``
    after it.
    """
    names = ["" for _ in range(crp.answer)] + ["?x"]
    pivot = crp.differs_from or 0
    if pivot:
        names[pivot] = "?c"
    for base, positions in (("?k", range(pivot - 1, 0, -1)), ("?y", range(pivot + 1, crp.answer))):
        for number, position in enumerate(positions):
            names[position] = f"{base}{number + 1}" if number else base
    return names


def _value_name(constraint: Constraint) -> str:
    match constraint.test:
        case Compare(operator="<=") if constraint.optional:
            return "?sk1"
        case Compare(operator=">=") if constraint.optional:
            return "?sk3"
        case Compare(operator="="):
            return "?number"
        case _:
            return "?num"


def _comparison(variable: str, operator: Operator, value: LiteralTerm) -> str:
    if value.datatype == "integer" and _INTEGER.fullmatch(value.text):
        return f"xsd:integer({variable}) {operator} {value.text}"
    if value.datatype not in (None, "dateTime" if is_date(LiteralTerm(value.text)) else "float"):
        raise _UnsayableError
    return f'{variable} {operator} "{_text(value.text)}"'


def _places(order: Order) -> list[str]:
    """Write the parts of an order that RouterKGQA's form cannot say."""
    return [
        *(["  by number"] if order.counted else []),
        *([f"  after {order.offset}"] if order.offset else []),
        *(["  with ties"] if order.ties else []),
    ]


def _name(entity: Entity) -> str:
    text = str(entity)
    if _UNSAYABLE.search(text) or is_mid(text) != (entity.name is None):
        raise _UnsayableError
    return text


def _choice(entity: Entity) -> str:
    if _OR in (name := _name(entity)):
        raise _UnsayableError
    return name


def _class_text(entity: Entity) -> str:
    if entity.mid is None or relation_id(text := relation_text(entity.mid)) != entity.mid:
        raise _UnsayableError
    if not is_well_formed(entity.mid) or "." not in entity.mid:
        raise _UnsayableError
    return text


def _text(text: str) -> str:
    if _LOST.search(text):
        raise _UnsayableError
    return text


def _relation(hop: Hop) -> str:
    text = relation_text(hop.relation)
    if not is_well_formed(hop.relation) or relation_id(text) != hop.relation:
        raise _UnsayableError
    return text
