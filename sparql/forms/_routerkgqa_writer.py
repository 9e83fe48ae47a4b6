"""Write RouterKGQA's text form and its extension, exactly; `kbqa.sparql.forms` describes them."""

import re
from collections.abc import Iterator
from dataclasses import replace

from kbqa.sparql.compiler.values import is_date
from kbqa.sparql.crp import (
    AnyOf,
    Compare,
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    IsNotEntity,
    NodeRef,
    Operator,
    Order,
    TextEquals,
)
from kbqa.sparql.forms._routerkgqa_reader import (
    OR,
    TYPE,
    end_in_text,
    entity_in_text,
    is_interval_end,
    relation_id,
)
from kbqa.sparql.terms import LiteralTerm, is_mid, is_well_formed

_INTEGER = re.compile(r"[0-9]++")
# Control characters, which a text file may lose or change, and surrogates, which it cannot hold.
_LOST = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_UNSAYABLE = re.compile(rf"-\[|{_LOST.pattern}|^\?|^\s|\s\Z|^\Z")


def render_routerkgqa(crp: Crp) -> str | None:
    """Write a CRP in RouterKGQA's text form, or return None if that form cannot say it.

    An entity is written by its name, if it has one. Variables follow the published habit: ``?x``
    the answer, ``?c`` the node that it must differ from, ``?k`` before and ``?y`` after that node.
    """
    return _Writer(crp).write()


def render_extended(crp: Crp) -> str | None:
    """Write a CRP in the extended form, or return None if that form cannot say it.

    What RouterKGQA's form can say is written in it.
    """
    return _Writer(crp).write() or _Writer(crp, extended=True).write()


def relation_text(relation: str) -> str:
    """Write a relation as words.

    >>> relation_text("people.person.sibling_s")
    'people , person , sibling s'
    """
    return relation.replace(".", " , ").replace("_", " ")


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
            if crp.differs_from is None or crp.answer_language != "en":
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
        subject = self._end(self._crp.topic, is_class=self._crp.path[0] == Hop(TYPE, inverse=True))
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
                name = self._end(entity, is_class=hops[-1] == Hop(TYPE))
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
        if at == 0 or isinstance(at, str):
            raise _UnsayableError
        start = _name(at) if isinstance(at, Entity) else names[at]
        if constraint.negated:
            if isinstance(at, Entity):  # a name may begin with "no"
                raise _UnsayableError
            first, *rest = self._restriction(replace(constraint, negated=False), start)
            return [f"  no{first}", *rest]
        if isinstance(at, Entity):
            return self._restriction(constraint, start)
        lines, end = self._triples(start, hops, "?c")
        match test:
            case IsEntity(entity):
                return [*lines, f"  {end} = {_name(entity)}"]
            case IsNotEntity(entity):
                return [*lines, f"  {end} != {_name(entity)}"]
            case AnyOf() if entities := test.entities():
                return [*lines, f"  {end} = {OR.join(map(_choice, entities))}"]
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
        if is_class and end_in_text(name, is_class=True) != entity_in_text(name):
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


def _name(entity: Entity) -> str:
    text = str(entity)
    if _UNSAYABLE.search(text) or is_mid(text) != (entity.name is None):
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


def _places(order: Order) -> list[str]:
    """Write what RouterKGQA's form cannot say of an order."""
    return [
        *(["  by number"] if order.counted else []),
        *([f"  after {order.offset}"] if order.offset else []),
        *(["  with ties"] if order.ties else []),
    ]


def _choice(entity: Entity) -> str:
    if OR in (name := _name(entity)):
        raise _UnsayableError
    return name


def _class_text(entity: Entity) -> str:
    if entity.mid is None or relation_id(text := relation_text(entity.mid)) != entity.mid:
        raise _UnsayableError
    if not is_well_formed(entity.mid) or "." not in entity.mid:
        raise _UnsayableError
    return text


def _main_names(crp: Crp) -> list[str]:
    """Name the main path's nodes: those of `?k ?c ?y ?x` that exist."""
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


def _reads_as_optional(constraint: Constraint) -> bool:
    """Return whether the reader reads a constraint as one or both ends of an interval."""
    ends = constraint.branches or (constraint,)
    return bool(constraint.hops) and all(
        is_interval_end(end.test) and (end is constraint or not end.hops) for end in ends
    )


def _comparison(variable: str, operator: Operator, value: LiteralTerm) -> str:
    """Write a comparison: integers bare, everything else in quotes."""
    if value.datatype == "integer" and _INTEGER.fullmatch(value.text):
        return f"xsd:integer({variable}) {operator} {value.text}"
    if value.datatype not in (None, "dateTime" if is_date(LiteralTerm(value.text)) else "float"):
        raise _UnsayableError
    return f'{variable} {operator} "{_text(value.text)}"'
