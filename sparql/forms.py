"""The text forms of reasoning paths: kbqa's own, which says everything, RouterKGQA's, and between.

**kbqa's own form**, read by `parse_crp` and written by `render_crp`:

    Justin Bieber -> people.person.sibling_s -> people.sibling_relationship.sibling
    ?x -> people.person.gender = Male

The first line is the main path. Each further line is a constraint, or something about all answers.
``->`` follows a relation, ``<-`` follows it backwards. ``?0`` is the topic, ``?1``, ``?2``, … are
the nodes after it, and ``?x`` is the answer.

    text       = entity { step } { NL line }
    line       = ( node | entity ) branch                  an entity needs brackets or an id here
               | rank [ number ] [ "after" number ] [ "with ties" ] ( node | label ) { hop }
               | "distinct from" ( node | "none" )         by default: distinct from ?0
               | "any language" | "answers in" tag         by default: answers in en
               | "count" [ "bindings" ] | "ask"            by default: the answers themselves
               | total ( node | label )                    of the numbers there
    total      = ( "sum" | "average" ) [ "bindings" ] | "difference"
    rank       = "largest" | "smallest"                    by the value at the end
               | "most" | "fewest"                         by how many ends there are
    step       = hop | "(" way "|" way { "|" way } ")"
    way        = [ held ] step { step [ held ] }           held: constraints on the node before it
    held       = "{" [ node | entity ] branch { "," … } "}"  its nodes: ?0 is where the way begins
    hop        = ( "->" | "<-" ) relation
    branch     = [ "no" ] { hop } [ end ] [ "or none" ]    no end: the branch only has to exist
    end        = test | label | [ label ] "{" branch { "," branch } "}"
    test       = ( "=" | "!=" ) entity
               | ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) ( literal | node | label )
               | "is" [ "not" ] ( node | label )           two branches meet
               | "reads" string [ "@" tag | "untagged" ]   without a tag: in any language
               | "{" branches "|" branches { "|" … } "}"   at least one of them holds
    node       = "?x" | "?0" | "?1" | …                    label = "?end", "?a", …  (?_x for x)
    entity     = name | id | name "(" id ")"
    id         = "m.0abc" | "ns:location.country" | "<http://…>"
    literal    = ( 12 | 2010-12-31 | string ) [ "^^" datatype ]

    China (-> film.film.country <- film.actor.film | <- people.person.nationality)
    ?x -> people.person.date_of_birth ?born
    ?x no -> people.person.spouse_s
    ?x -> government.politician.offices {-> government.office.title = [Mayor], -> office.to > 2001}
    [World War II] -> time.event.end_date < ?born
    largest 3 ?born

    ns:location.country <- type.object.type
    ?x no -> location.country.currency_used = Euro
    count

    Kenya -> location.country.capital
    ?x = Nairobi
    ask

    Europe -> location.location.contains
    ?x -> location.location.area ?a
    average ?a

A name is written in square brackets if it could be mistaken for something else, or if more can
follow it: in braces, in parentheses, at the start of a line. So is a relation that is not just
words and dots. A backslash escapes in brackets and quotes. Reading is lenient about spacing and the
case of keywords; writing is canonical. At most 1,000 lines are read, and braces and parentheses
nested at most 32 deep. A word that can be read without marks is written without them. Everything
else is in brackets or quotes, with backslash escapes.

**RouterKGQA's form**, read by `parse_routerkgqa` and written by `render_routerkgqa`, so that its
data and adapters work unchanged:

    Main Path:
     Justin Bieber -[people , person , sibling s]-> ?y
     ?y -[people , sibling relationship , sibling]-> ?x
    Entity Restrictions:
     ?x -[people , person , gender]-> Male

It can say less, and nothing about the topic; docs/crp.md lists what. The datatype of a value is
guessed from its text. The only reference is the ordering's: the node that orders the answers can
have constraints as well, and is read as the label ``a``.

Two habits of the published texts have a meaning. A ``?c`` on the main path is the node that the
answer must differ from (otherwise it is the topic). A date compared with ``<=`` or ``>=`` is one
end of an interval, and a missing value satisfies it.

**The extended form**, read by `parse_routerkgqa` too and written by `render_extended`, is what the
shipped model writes. It is RouterKGQA's text wherever that can say it, so a model that knows the
one learns the other quickly. Else a last section says the rest; docs/crp.md lists its lines:

    Further Restrictions:
      no ?x -[location , country , currency used]-> Euro
      after 2

Outside the main path, too, triples may be inverse. A class, at the ends of ``type.object.type``, is
written in words.

Source: RouterKGQA, appendix B, and its published files.
"""

import re
from collections.abc import Iterable, Iterator

from kbqa.sparql.crp import (
    AnyOf,
    Compare,
    Constraint,
    Crp,
    CrpReading,
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
from kbqa.sparql.own_reader import (
    ESCAPED,
    FULL_IRI,
    LANGUAGE_TAG,
    MID,
    OR_NONE,
    PLAIN_ID,
    PLAIN_VALUE,
)
from kbqa.sparql.own_reader import parse_crp as parse_crp
from kbqa.sparql.routerkgqa_form import parse_routerkgqa as parse_routerkgqa
from kbqa.sparql.routerkgqa_form import relation_id as relation_id
from kbqa.sparql.routerkgqa_form import relation_text as relation_text
from kbqa.sparql.routerkgqa_form import render_extended as render_extended
from kbqa.sparql.routerkgqa_form import render_routerkgqa as render_routerkgqa
from kbqa.sparql.terms import LiteralTerm, is_mid

# Control characters, other ends of lines, and surrogates, which no file can hold.
_HIDDEN = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_PLAIN_NAME = re.compile(rf"\w[^\[\](){{}}<>|\\^{_HIDDEN}]*+")
_IN_BRACKETS = re.compile(rf"[{_HIDDEN}\\\]]")
_IN_QUOTES = re.compile(rf'[{_HIDDEN}\\"]')
_ESCAPES = {character: f"\\{letter}" for letter, character in ESCAPED.items()}


def read_crp(text: str) -> CrpReading:
    r"""Read a CRP in either form; RouterKGQA's begins with a line ``Main Path:``.

    >>> read_crp("Main Path:\n Kenya -[a , b]-> ?x") == read_crp("Kenya -> a.b")
    True

    Raises:
        CrpSyntaxError: The main path cannot be read, or the text is too long.
    """
    return (parse_routerkgqa if is_routerkgqa(text) else parse_crp)(text)


def is_routerkgqa(text: str) -> bool:
    """Return whether a text is in RouterKGQA's form, even if it cannot be read."""
    first = next(filter(None, map(str.strip, text.split("\n"))), "")
    return first.lower() == "main path:"


def render_crp(crp: Crp) -> str:
    """Write a CRP in kbqa's own text form; equal CRPs have equal texts, others do not.

    >>> render_crp(Crp(Entity("Kenya", "m.019rg5"), (Hop("location.country.capital"),)))
    'Kenya (m.019rg5) -> location.country.capital'
    """
    return "\n".join(_lines(crp))


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
        yield crp.form if crp.value is None else f"{crp.form} {_node(crp.value, crp.answer)}"


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
    text = value.text if PLAIN_VALUE.fullmatch(value.text) else _quoted(value.text)
    return text if value.datatype is None else f"{text}^^{_id(value.datatype)}"


def _language(language: str) -> str:
    return language if LANGUAGE_TAG.fullmatch(language) else _quoted(language)


def _is_plain_name(text: str) -> bool:
    """Return whether a name cannot be mistaken for anything else, so that it needs no brackets."""
    return (
        _PLAIN_NAME.fullmatch(text) is not None
        and text == text.rstrip()
        and not (PLAIN_VALUE.fullmatch(text) or MID.match(text) or text.startswith("ns:"))
        and OR_NONE.search(text) is None
    )


def _quoted(text: str) -> str:
    return f'"{_IN_QUOTES.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if character.isprintable():
        return f"\\{character}"
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"
