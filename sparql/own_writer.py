"""Write kbqa's own text form, exactly; `kbqa.sparql.forms` has the grammar.

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
MID = re.compile(r"[mg]\.[0-9a-z_]++(?![\w.])")
PLAIN_ID = re.compile(r"[A-Za-z0-9_.]++")
FULL_IRI = re.compile(
    r"[A-Za-z][A-Za-z0-9+.\-]*+:[^\s<>\"{}|^`\\\x00-\x20\x7f-\x9f\ud800-\udfff]*+"
)
LANGUAGE_TAG = re.compile(r"[A-Za-z0-9]++(?:-[A-Za-z0-9]++)*")
OR_NONE = re.compile(r"(?<!\s)(?:^|\s++)or\s++none\Z", re.IGNORECASE)

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
ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_ESCAPES = {character: f"\\{letter}" for letter, character in ESCAPED.items()}


def render_crp(crp: Crp) -> str:
    """Write a CRP in kbqa's own text form; equal CRPs have equal texts, others do not.

    >>> render_crp(Crp(Entity("Kenya", "m.019rg5"), (Hop("location.country.capital"),)))
    'Kenya (m.019rg5) -> location.country.capital'
    """
    return "\n".join(_lines(crp))


def is_plain_value(text: str) -> bool:
    """Return whether a text is clearly a number or date, so that it needs no quotes."""
    return _PLAIN_VALUE.fullmatch(text) is not None


def bracketed(text: str) -> str:
    r"""Write any text in brackets.

    >>> print(bracketed("a [b]\n"))
    [a [b\]\n]
    """
    return f"[{_IN_BRACKETS.sub(_escape, text)}]"


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
    """Write a way, each constraint after its node or a later one, so that their order is kept."""
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
    """Write a constraint without its node; inside a way, without positions."""
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
            return f"reads {_quoted(text)}"
        case TextEquals(text, ""):
            return f"reads {_quoted(text)} untagged"
        case TextEquals(text, str(language)):
            return f"reads {_quoted(text)}@{_language(language)}"
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
    name = entity.name if raw and _is_plain_name(entity.name) else bracketed(entity.name)
    return name if mid is None else f"{name} ({mid})"


def _entity_id(mid: str) -> str:
    if is_mid(mid):
        return mid
    text = _id(mid)
    return text if text.startswith("<") else f"ns:{text}"


def _id(text: str) -> str:
    if PLAIN_ID.fullmatch(text):
        return text
    return f"<{text}>" if FULL_IRI.fullmatch(text) else bracketed(text)


def _value(value: LiteralTerm) -> str:
    text = value.text if is_plain_value(value.text) else _quoted(value.text)
    return text if value.datatype is None else f"{text}^^{_id(value.datatype)}"


def _language(language: str) -> str:
    return language if LANGUAGE_TAG.fullmatch(language) else _quoted(language)


def _is_plain_name(text: str) -> bool:
    """Return whether a name cannot be mistaken for anything else, so that it needs no brackets."""
    return (
        _PLAIN_NAME.fullmatch(text) is not None
        and text == text.rstrip()
        and not (is_plain_value(text) or MID.match(text) or text.startswith("ns:"))
        and OR_NONE.search(text) is None
    )


def _quoted(text: str) -> str:
    return f'"{_IN_QUOTES.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if character.isprintable():
        return f"\\{character}"
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"
