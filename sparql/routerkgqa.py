"""Read and write CRPs in RouterKGQA's text form, so that its data and adapters work unchanged.

    Main Path:
     Justin Bieber -[people , person , sibling s]-> ?y
     ?y -[people , sibling relationship , sibling]-> ?x
    Entity Restrictions:
     ?x -[people , person , gender]-> Male

Reading is lenient about spacing and case; what cannot be read is kept as a named problem. Writing
is canonical. The form says less than the model: no inverse hop outside the main path, no
``IsNotEntity``, no typed literals; `render_routerkgqa` answers None where it would lose meaning.

Two habits of the published texts carry meaning and are kept. A ``?c`` on the main path is the node
that the answer must differ from (else it is the topic). A date compared with ``<=`` or ``>=`` is
one end of an interval, which a missing value satisfies.

Source: RouterKGQA, appendix B, and its published files.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, cast

from kbqa.sparql.crp import (
    Compare,
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    Operator,
    Order,
    Test,
    TextEquals,
)
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.terms import Literal, is_mid
from kbqa.sparql.tree import BranchNode
from kbqa.sparql.values import is_date

_SECTIONS = {
    "main path:": "main",
    "entity restrictions:": "entity",
    "numeric restrictions:": "numeric",
    "string restrictions:": "string",
}
_TRIPLE = re.compile(
    r"(?P<subject>.*?)\s*-\[\s*(?P<inverse>R\s*\[)?\s*(?P<relation>[^\[\]]+?)\s*"
    r"(?(inverse)\]\s*)\]\s*->\s*(?P<object>.*)"
)
_FILTER = re.compile(
    r"""FILTER\s*\(\s*(?:(?:str|xsd:\w+)\s*\(\s*)?(?P<variable>\?\w+)\s*\)?\s*
        (?P<operator><=|>=|!=|<|>|=)\s*(?:"(?P<quoted>.*)"|(?P<bare>\d+))\s*\)""",
    re.IGNORECASE | re.VERBOSE,
)
_ORDER = re.compile(r"ORDER\s+BY\s+(?:(ASC|DESC)\s*\()?\s*(\?\w+)\s*\)?", re.IGNORECASE)
_LIMIT = re.compile(r"LIMIT\s+([1-9]\d{0,5})", re.IGNORECASE)
_UNSAYABLE = re.compile(r"-\[|\]->|[\x00-\x1f]|^\?|^\s|\s$|^$")


class RouterkgqaReading(NamedTuple):
    """What was read of a text, and what was not."""

    crp: Crp
    problems: tuple[str, ...]


def parse_routerkgqa(text: str) -> RouterkgqaReading:
    r"""Read a CRP in RouterKGQA's text form.

    >>> parse_routerkgqa("Main Path:\n Kenya -[location , country , capital]-> ?x").crp.path
    (Hop(relation='location.country.capital', inverse=False),)

    Returns:
        The CRP, and one line for each part of the text that is not in it.

    Raises:
        CrpSyntaxError: There is no main path to be read.
    """
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        reader.read_line(line.strip(), number)
    return reader.finish()


def render_routerkgqa(crp: Crp) -> str | None:
    """Write a CRP in RouterKGQA's text form, or answer None where that form cannot say it.

    Variables follow the published habit: ``?x`` the answer, ``?c`` the node that it must differ
    from, ``?k`` before and ``?y`` after that node.
    """
    return _Writer(crp).write()


def relation_text(relation: str) -> str:
    """Write a relation as words.

    >>> relation_text("people.person.sibling_s")
    'people , person , sibling s'
    """
    return relation.replace(".", " , ").replace("_", " ")


def relation_id(text: str) -> str:
    """Read a relation from words; the inverse of `relation_text`.

    >>> relation_id("people , person , sibling s")
    'people.person.sibling_s'
    """
    return re.sub(r"\s+", "_", re.sub(r"\s*,\s*", ".", text.strip()))


class _Reader:
    """Reads line by line; a variable stands for the node that the last line to define it made."""

    def __init__(self) -> None:
        self._section = ""
        self._topic = ""
        self._path: list[Hop] = []
        self._main: list[BranchNode] = [BranchNode()]
        self._names: list[str] = [""]
        self._nodes: dict[str, BranchNode] = {}
        self._way: dict[str, tuple[str, Hop]] = {}
        self._order: tuple[str, bool] | None = None
        self._limit = 1
        self._problems: list[str] = []

    def read_line(self, line: str, number: int) -> None:
        if not line:
            return
        if (section := _SECTIONS.get(line.lower())) is not None:
            self._section = section
        elif self._section == "main":
            self._read_hop(line, number)
        elif not (self._section and self._read_restriction(line)):
            self._problems.append(f"line {number}: cannot read {line!r}")

    def finish(self) -> RouterkgqaReading:
        if not self._path:
            raise CrpSyntaxError("; ".join(self._problems) or "no main path")
        order = self._finish_order()
        constraints = tuple(
            constraint for at, node in enumerate(self._main) for constraint in node.constraints(at)
        )
        inner = self._names[:-1]
        crp = Crp(
            topic=_entity(self._topic),
            path=tuple(self._path),
            constraints=constraints,
            order=order,
            differs_from=inner.index("?c") if "?c" in inner else 0,
        )
        return RouterkgqaReading(crp, tuple(self._problems))

    def _read_hop(self, line: str, number: int) -> None:
        match = _TRIPLE.fullmatch(line)
        if match is None:
            self._problems.append(f"line {number}: not a hop: {line!r}")
            return
        subject, hop, object_ = match["subject"], _hop(match), match["object"]
        if not self._path:
            if not subject or subject.startswith("?"):
                raise CrpSyntaxError(f"the main path starts with no entity: {line!r}", number)
            self._topic = subject
        elif subject != self._names[-1]:
            self._problems.append(f"line {number}: does not go on from {self._names[-1]}: {line!r}")
            return
        self._path.append(hop)
        self._names.append(object_)
        node = BranchNode()
        self._main.append(node)
        self._nodes[object_] = node

    def _read_restriction(self, line: str) -> bool:
        if (match := _TRIPLE.fullmatch(line)) is not None:
            return self._read_triple(match)
        if (match := _FILTER.fullmatch(line)) is not None:
            return self._read_filter(match)
        if (match := _ORDER.fullmatch(line)) is not None:
            self._order = (match[2], (match[1] or "").upper() == "DESC")
            return match[2] in self._nodes
        if (match := _LIMIT.fullmatch(line)) is not None and self._order is not None:
            self._limit = int(match[1])
            return True
        return False

    def _read_triple(self, match: re.Match[str]) -> bool:
        subject, object_ = match["subject"], match["object"]
        if subject not in self._nodes or not object_:
            return False
        hop, node = _hop(match), BranchNode()
        self._nodes[subject].edges.append((hop, node))
        if object_.startswith("?"):
            self._nodes[object_] = node
            self._way[object_] = (subject, hop)
        else:
            node.tests.append(IsEntity(_entity(object_)))
        return True

    def _read_filter(self, match: re.Match[str]) -> bool:
        node = self._nodes.get(match["variable"])
        if node is None:
            return False
        quoted, operator = match["quoted"], cast(Operator, match["operator"])
        if self._section == "string":
            if operator != "=" or quoted is None:
                return False
            node.tests.append(TextEquals(quoted))
        else:
            value = Literal(match["bare"], "integer") if quoted is None else Literal(quoted)
            test = Compare(operator, value)
            node.tests.append(test)
            node.optional = _is_interval_end(test) and node not in self._main
        return True

    def _finish_order(self) -> Order | None:
        """Turn the ORDER BY variable into a branch, and take that branch from the tree."""
        if self._order is None:
            return None
        variable, descending = self._order
        hops: list[Hop] = []
        node = self._nodes.get(variable)
        if node is None:
            self._problems.append(f"ORDER BY {variable}: the variable is not bound")
            return None
        while variable in self._way and variable not in self._names:
            parent, hop = self._way[variable]
            hops.insert(0, hop)
            if not node.edges and not node.tests:
                edges = self._nodes[parent].edges
                edges[:] = [edge for edge in edges if edge[1] is not node]
            variable, node = parent, self._nodes[parent]
        return Order(self._names.index(variable), tuple(hops), descending, self._limit)


class _Writer:
    """Writes one CRP; `write` gives up at the first thing that the form cannot say."""

    def __init__(self, crp: Crp) -> None:
        self._crp = crp
        self._names = _main_names(crp)
        self._used = set(self._names)

    def write(self) -> str | None:
        crp = self._crp
        try:
            sections: dict[str, list[str]] = {"entity": [], "numeric": [], "string": []}
            for constraint in crp.constraints:
                sections[constraint.kind] += self._constraint(constraint, self._names)
            if crp.order is not None:
                sections["numeric"] += self._order(crp.order)
            lines = ["Main Path:", *self._main_path()]
        except _UnsayableError:
            return None
        for kind, body in sections.items():
            if body:
                lines += [f"{kind.capitalize()} Restrictions:", *body]
        return "\n".join(lines)

    def _main_path(self) -> Iterator[str]:
        subject = _name(self._crp.topic)
        for hop, name in zip(self._crp.path, self._names[1:], strict=True):
            relation = relation_text(hop.relation)
            yield f" {subject} -[{f'R[{relation}]' if hop.inverse else relation}]-> {name}"
            subject = name

    def _constraint(self, constraint: Constraint, names: list[str]) -> list[str]:
        test = constraint.test
        if constraint.at == 0 and names is self._names:
            raise _UnsayableError  # the topic is no variable in this form
        if constraint.optional != _is_interval_end(test) and constraint.hops:
            raise _UnsayableError
        match test:
            case IsEntity(entity) if constraint.hops:
                *inner, last = constraint.hops
                lines, end = self._triples(names[constraint.at], tuple(inner), "?c")
                lines.append(f" {end} -[{_forward(last)}]-> {_name(entity)}")
            case Compare(operator, value):
                lines, end = self._triples(
                    names[constraint.at], constraint.hops, _value_name(constraint)
                )
                lines.append(f"  FILTER ({_comparison(end, operator, value)})")
            case TextEquals(text, None):
                lines, end = self._triples(names[constraint.at], constraint.hops, "?name")
                lines.append(f'  FILTER (str({end}) = "{_text(text)}")')
            case None if constraint.branches:
                lines, end = self._triples(names[constraint.at], constraint.hops, "?c")
                inner_names = [""] * len(constraint.hops) + [end]
                for branch in constraint.branches:
                    if branch.at != len(constraint.hops) or branch.kind != constraint.kind:
                        raise _UnsayableError
                    lines += self._constraint(branch, inner_names)
            case _:
                raise _UnsayableError
        return lines

    def _order(self, order: Order) -> list[str]:
        if order.offset or order.at == 0:
            raise _UnsayableError
        lines, end = self._triples(self._names[order.at], order.hops, "?sk0")
        direction = "DESC" if order.descending else "ASC"
        return [*lines, f"  ORDER BY {direction}({end})", f"  LIMIT {order.limit}"]

    def _triples(
        self, subject: str, hops: tuple[Hop, ...], last_name: str
    ) -> tuple[list[str], str]:
        lines = []
        for remaining, hop in zip(range(len(hops) - 1, -1, -1), hops, strict=True):
            name = self._fresh("?c" if remaining else last_name)
            lines.append(f" {subject} -[{_forward(hop)}]-> {name}")
            subject = name
        return lines, subject

    def _fresh(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._used:
            number += 1
            name = f"{wanted}{number}"
        self._used.add(name)
        return name


class _UnsayableError(Exception):
    """The form has no words for this."""


def _hop(match: re.Match[str]) -> Hop:
    return Hop(relation_id(match["relation"]), inverse=match["inverse"] is not None)


def _entity(text: str) -> Entity:
    return Entity(mid=text) if is_mid(text) else Entity(name=text)


def _name(entity: Entity) -> str:
    text = str(entity)
    if _UNSAYABLE.search(text) or (entity.mid is None and is_mid(text)):
        raise _UnsayableError
    return text


def _text(text: str) -> str:
    if re.search(r"[\x00-\x1f\x85\u2028\u2029]", text):
        raise _UnsayableError
    return text


def _forward(hop: Hop) -> str:
    if hop.inverse:
        raise _UnsayableError
    return relation_text(hop.relation)


def _main_names(crp: Crp) -> list[str]:
    """Name the main path's nodes; `?k ?c ?y ?x` as far as they exist."""
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


def _is_interval_end(test: Test | None) -> bool:
    return isinstance(test, Compare) and test.operator in ("<=", ">=") and is_date(test.value)


def _comparison(variable: str, operator: Operator, value: Literal) -> str:
    """Write a comparison; quoted values are dates or decimals by their looks, bare ones integers."""
    if value.datatype == "integer" and value.text.isdigit():
        return f"xsd:integer({variable}) {operator} {value.text}"
    if value.datatype not in (None, "dateTime" if is_date(Literal(value.text)) else "float"):
        raise _UnsayableError
    return f'{variable} {operator} "{_text(value.text)}"'
