"""Check that the operator words of a question are accounted for by the path that answers it.

An operator word changes what is asked: *not*, *how many*, *third*, *more than*. A path that lists
the countries that use the euro does not answer which of them do not, however likely it is. Each
rule of the table has the words, and the parts of a path that may express them; one of these is
enough. A word does not count within the name of an entity or within quotation marks. What is
negated must stand behind the word: a path that negates *Europe* does not say "which European
countries do not use the euro?".

Words that say too little by themselves have no rule: a plain *and*, or *over* without a number. No
path can say *density*; only a relation accounts for it.

A large number, such as *60 million*, must be in the path; a small one often says only how many
answers there are, as in "the four nations of the UK". If the path compares with a number, it must
be one of the question's: *60 million* is not 6,000,000. No yes, no or count answers a question that
begins with *which* or another such word.

Words that a path passes over lower its confidence. `find_objection` is stricter: it finds paths
that cannot answer the question, because they are about something else.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from difflib import get_close_matches
from math import isclose
from types import MappingProxyType
from typing import NamedTuple

from kbqa.engine.questions.words import (
    VALUE_KINDS,
    Bound,
    Kind,
    WrittenNumber,
    find_aggregate,
    find_directions,
    find_measures,
    find_periods,
    read_numbers,
    singular,
)
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import (
    Aggregate,
    Constraint,
    Crp,
    Entity,
    Fork,
    Hop,
    NodeRef,
    Operator,
    Step,
    nested_constraints,
    path_relations,
)
from kbqa.sparql.terms import NOTABLE_TYPES, TYPE, LiteralTerm, is_mid
from kbqa.sparql.values import is_number

_YEARS = range(1000, 2100)
# From here on, a number is no count of the answers: the right paths of 7,080 training questions say
# nearly all of these.
_LARGE = 100
_ALIKE = 0.7  # of the letters of a name, in a typing error
_ASKS_WHICH = re.compile(
    r"(?:(?:at|by|for|from|in|of|on|to|with) )?(who|whom|whose|what|which|where|when)\b"
)
_OF_TIME = (
    r"(?<![a-z])(?:date|year|season|day|month|week|century|period|start|end|begin|found|form(?!er)"
    r"|open|introduc|discontinu|establish|launch|debut|event|championship|competition|olympic"
    r"|tournament|award|honor|draft|inaugurat|election|campaign|last_eruption|instances|ratif"
    r"|current_frequency)|\.from\b|\.to\b"
)
_HOW_MANY = re.compile(r"\b(?:how many|numbers?|count|total|amount|quantity)\b")


class Rule(NamedTuple):
    """Operator words, and the parts and relations that may express them."""

    words: str  # a regular expression
    parts: tuple[Callable[[Crp], bool], ...]  # whether a path has such a part
    relations: str | None = None  # a regular expression
    of_answers: bool = False  # only relations of the main path: the words ask for the answers


def find_unaccounted(
    question: str,
    crp: Crp,
    mentions: Mapping[str, str] = MappingProxyType({}),
    *,
    are_numbers: bool = False,
) -> tuple[str, ...]:
    """Return the operator words of a question that nothing in a path accounts for.

    They are in lower case and in the order of the rules, then numbers, then the question word. The
    path is as it was run. `mentions` has what the question calls entities, by mid, if that is not
    their name. If the answers are numbers, they may say *how many* or *how long*.

    >>> from kbqa.sparql.forms import parse_crp
    >>> crp = parse_crp("Europe -> location.location.contains").crp
    >>> find_unaccounted("which countries in Europe do not use the euro?", crp)
    ('not',)
    """
    text, said, masked = _read(question, crp, mentions)
    crp = _without_unsaid_dates(crp, text)
    relations, of_answers = " ".join(crp.relations()), " ".join(path_relations(crp.path))
    found = []
    for rule in _RULES:
        match = re.search(rule.words, masked)
        if match is None:
            continue
        behind = {each for each in said if _is_named(each, said[each], text[match.end() :])}
        if any(has(crp) for has in rule.parts) and not _negates_others(rule, crp, behind):
            continue
        if are_numbers and re.match(r"how (?!much)", match.group()):
            continue
        read = of_answers if rule.of_answers else relations
        if rule.relations is None or not re.search(rule.relations, read):
            found.append(match.group().strip())
    misread = (*_misread_numbers(masked, crp), *_misread_form(masked, crp))
    return (*found, *misread)


def _without_unsaid_dates(crp: Crp, text: str) -> Crp:
    """Leave out the intervals around a date that a question does not name, such as today's.

    That a marriage has not ended by today does not make it the first.
    """

    def is_said(constraint: Constraint) -> bool:
        match constraint.operand:
            case LiteralTerm(date) if constraint.optional and constraint.kind == "numeric":
                return date[:4] in text
        return True

    said = tuple(filter(is_said, crp.constraints))
    return crp if len(said) == len(crp.constraints) else replace(crp, constraints=said)


def operator_words(question: str) -> set[str]:
    """Return the words of a question that the rules are about, in lower case."""
    text = question.lower().replace("’", "'")
    matches = (match for rule in _RULES for match in re.finditer(rule.words, text))
    return {word for match in matches for word in re.findall(r"[\w']+", match.group())}


def find_objection(
    question: str,
    crp: Crp,
    schema: GraphSchema,
    mentions: Mapping[str, str] = MappingProxyType({}),
    given: Collection[Entity] = (),
    *,
    is_number: bool = False,
    is_linked: bool = True,
) -> str | None:
    """Return why a path cannot answer a question, whatever else it finds; None if it may.

    `mentions` is as in `find_unaccounted`; `given` has the entities that the asker says the
    question is about; `is_number` says that the path found one number and nothing else, `is_linked`
    whether the question names anything that the graph has.
    """
    about = {each.mid for each in given if each.mid is not None}
    if about and about.isdisjoint(each.mid for each in crp.entities()):
        return f"it is not about {' or '.join(map(str, given))}"
    read = _read(question, crp, mentions)
    return (
        _lacks_a_topic(read, crp, about, is_linked=is_linked)
        or _gives_no_reason(read.text, crp)
        or _says_only_what_it_is(read.masked, crp)
        or _asks_for_nothing_in_particular(read.masked)
        or _orders_by_no_value(crp, schema)
        or _orders_other_way(read, crp, schema)
        or _orders_what_is_not_asked(read, crp, schema)
        or _takes_a_bound_for_a_place(read, crp)
        or _takes_a_period_for_a_year(read, crp)
        or _compares_other_way(read, crp, schema)
        or _compares_unlike_values(crp, schema)
        or _says_too_little(read.text, crp)
        or _passes_over_one_of_both(read, crp)
        or _does_not_add_up(read, crp, is_number=is_number)
    )


class _Read(NamedTuple):
    """A question as the rules read it."""

    text: str  # in lower case
    said: Mapping[Entity, str]  # what it calls the entities of the path
    masked: str  # the text with these names and quotations blanked out, as long as before


def _read(question: str, crp: Crp, mentions: Mapping[str, str]) -> _Read:
    text = " ".join(question.lower().replace("’", "'").split())
    said = {
        entity: mentions.get(entity.mid or "", str(entity)).lower() for entity in crp.entities()
    }
    names = {*said.values(), *(str(entity).lower() for entity in said)}
    return _Read(text, said, _without_names(text, names))


_FOLLOWS_UP = re.compile(r"(?:and|so|but|what about|how about)\b")
_QUESTION_WORD = re.compile(r"\b(?:who|which|what|where|when|how) (?!about\b)")
_WITHOUT_ANTECEDENT = re.compile(
    r"\b(?:his|her|hers|him|he|she|those|these|(?<!do )they|them|the two|which other"
    r"|(?:in|of|at) (?:that|this)(?! (?:has|have|had|is|are|was|were)\b))\b"
    r"|(?<!is )(?<!are )(?<!was )(?<!were )\bthere\b"
    r"|^(?:(?!\b(?:which|what(?! (?:is|are|was|were)\b)|whose)\b).)*\b(?:it|its|their)\b"
)
_LISTS = re.compile(r"\b(?:all|list|every|each|any|names?|how many|what are)\b")
_ASKS_OF_IT = re.compile(
    r"(?:is|was|does|did|has|had|can|could|will) (?:it|he|she)\b(?! (?:true|correct|the case)\b)"
)


def _lacks_a_topic(read: _Read, crp: Crp, given: Set[str], *, is_linked: bool) -> str | None:
    """Object to a question that names nothing of the path, or asks nothing about what it names."""
    unnamed = "the question does not say whose; name it, as in “the population of Kenya”"
    if not given and _ASKS_OF_IT.match(read.text):
        return unnamed
    conditions = [
        each
        for each in crp.constraints
        if not _says_a_class(each.hops) and (each.label is None or each.label != crp.value)
    ]
    classes = {each.entity for each in crp.constraints} - {each.entity for each in conditions}
    if isinstance(crp.path[0], Hop) and crp.path[0].inverse and _says_a_class(crp.path[:1]):
        classes.add(crp.topic)
    entities = [
        each for each in crp.entities() if each not in classes and is_mid(each.mid or "m.unknown")
    ]
    if any(each.mid in given or _is_named(each, read.said[each], read.text) for each in entities):
        rest = _FOLLOWS_UP.sub("", read.masked).strip("_ ?!.,")
        names_only = _FOLLOWS_UP.match(read.masked) is not None and not rest
        return f"it does not say what is asked about {crp.topic}" if names_only else None
    is_fragment = _FOLLOWS_UP.match(read.masked) and not _QUESTION_WORD.search(read.masked)
    if is_fragment or _WITHOUT_ANTECEDENT.search(read.masked):
        return unnamed
    names = [str(each).lower() for each in entities if each.name is not None]
    if names and not is_linked and not any(_is_spelled_alike(name, read.text) for name in names):
        return f"the question does not name {' or '.join(map(str, entities))}"
    is_class = not entities and len(crp.path) > 1 and not conditions and crp.order is None
    return unnamed if is_class and not _LISTS.search(read.masked) else None


def _says_a_class(hops: Sequence[Step]) -> bool:
    """Return whether hops lead to the type of a node."""
    last = hops[-1] if hops else None
    return isinstance(last, Hop) and last.relation in (TYPE, NOTABLE_TYPES)


def _is_named(entity: Entity, mention: str, text: str) -> bool:
    """Return whether a text has a word of an entity's name, or of its mention."""
    said = f"{entity} {mention}".lower()
    return any(len(word) > 2 and _occurs(word, text) for word in re.findall(r"\w+", said))


def _is_spelled_alike(name: str, text: str) -> bool:
    """Return whether a text has a word like one of a name, or the name itself."""
    words, said = re.findall(r"\w+", name), re.findall(r"\w+", text)
    return _occurs(name, text) or any(get_close_matches(word, said, 1, _ALIKE) for word in words)


_ASKS_WHY = re.compile(r"(?:(?:and|so|but) )?(?:why|how come)\b")
_MOTIVE = re.compile(r"\b(?:him|her|it|them)sel(?:f|ves)\b")
_ASKS_HOW = re.compile(
    r"(?:(?:and|so|but) )?how (?:to|do|does|did|is|are|was|were|can|could|should|would|will|has"
    r"|have|had)\b(?!.*\b(?:classif\w+|categori\w+|describe|called|named|refer|living)\b)"
)
_REASONS = re.compile(r"cause|reason|motiv|purpose")
_MANNERS = re.compile(
    r"cause|reason|method|mode|means|manner|process|technique|format|binding|release_type|dosage"
    r"|route|status|transmi|treatment|prevent|propul|propel|lost|shoots|composition\.form|category"
)


def _gives_no_reason(text: str, crp: Crp) -> str | None:
    """Object to a path that answers *why* or *how* by something else."""
    relations = " ".join(path_relations(crp.path))
    if _ASKS_WHY.match(text) and (not _REASONS.search(relations) or _MOTIVE.search(text)):
        return "no relation of it gives a reason"
    if _ASKS_HOW.match(text) and not _MANNERS.search(relations):
        return "no relation of it says how"
    return None


_WHAT_IT_IS = re.compile(
    r"(?:what|who|which|whom)(?:'s)?|is|are|was|were|be|being|does|do|did|the|a|an|of|for|as|in|to|by"
    r"|kinds?|types?|sorts?|things?|class|category|genre|example|notable|notably|known|knows|famous"
    r"|best|most|mostly|primarily|mainly|exactly|mean|professions?|occupations?|jobs?|living|work"
    r"|s|his|her|their|its"
)


def _says_only_what_it_is(masked: str, crp: Crp) -> str | None:
    """Object to the notable types of a topic, unless the question asks what it is."""
    if [*path_relations(crp.path)] != [NOTABLE_TYPES] or crp.constraints:
        return None
    words = re.findall(r"[a-z]+(?:'s)?", masked)
    if crp.hops[0].inverse or (crp.form == "select" and all(map(_WHAT_IT_IS.fullmatch, words))):
        return None
    return f"it only says what {crp.topic} is"


_ASKS_ANYTHING = re.compile(
    r"(?:please |can you |could you |would you )*(?:tell me|talk|say|explain|describe)"
    r"(?: something| anything| everything| more| a bit| a little| all)?(?: to me)?(?: about)? _+"
    r"(?: please)?\W*"
)


def _asks_for_nothing_in_particular(masked: str) -> str | None:
    """Object to any path for *tell me something about Tesla*."""
    if _ASKS_ANYTHING.fullmatch(masked):
        return "the question does not say what to tell"
    return None


_COMPASS = re.compile(
    r"\b(?:far|fur)\w* (north|south|east|west)\b|\b(north|south|east|west)ernmost\b"
)
_COORDINATES = {
    "north": ("latitude", True),
    "south": ("latitude", False),
    "east": ("longitude", True),
    "west": ("longitude", False),
}
_IS_MORE: Mapping[Operator | None, bool] = {">": True, ">=": True, "<": False, "<=": False}
_MULTIPLE = re.compile(r"\b(?:times|twice|half|double)\b")


def _orders_by_no_value(crp: Crp, schema: GraphSchema) -> str | None:
    """Object to an order by entities, such as the largest capital."""
    order = crp.order
    if order is None or order.counted:
        return None
    hops = order.hops or crp.hops_to(order.at)
    end = schema.end(hops[-1]) if hops else None
    if end is None or end.startswith("type."):
        return None
    return "it orders by what is neither a number nor a date"


_BOUND = re.compile(r"\b(?:(?:more|less|fewer) than|at least|at most|over|under)\b")


def _takes_a_bound_for_a_place(read: _Read, crp: Crp) -> str | None:
    """Object to the first nine where the question asks for more than nine."""
    order = crp.order
    if order is None:
        return None
    bound = _BOUND.search(read.text)
    numbers = read_numbers(read.text[bound.end() :])[:1] if bound is not None else []
    for place in (order.limit, order.offset, order.offset + 1):
        if place > 1 and any(place in each.values for each in numbers):
            return f"it takes {place} in order where the question compares with {place}"
    return None


def _takes_a_period_for_a_year(read: _Read, crp: Crp) -> str | None:
    """Object to *before 1940* for the 1940s."""
    starts = {each.first.text for each in find_periods(read.text)}
    compared = [
        each.operand.text[:4]
        for each in crp.all_constraints()
        if each.kind == "numeric" and isinstance(each.operand, LiteralTerm)
    ]
    if len(compared) != 1 or compared[0] not in starts:
        return None
    return f"it compares with {compared[0]} alone, and not with the whole period"


_SUPERLATIVE = re.compile(r"\b(?:\w+est|most \w+|least \w+) (\w{4,})")


def _orders_what_is_not_asked(read: _Read, crp: Crp, schema: GraphSchema) -> str | None:
    """Object to the largest capital where the question asks for the largest country."""
    order, match = crp.order, _SUPERLATIVE.search(read.masked)
    if order is None or match is None or not isinstance(order.at, int):
        return None
    classes = [(schema.end(hop) or "").rpartition(".")[2].split("_") for hop in crp.hops]
    named = [
        at for at, words in enumerate(classes, 1) if singular(match[1]) in map(singular, words)
    ]
    if not named or order.at in named or order.at == 0:
        return None
    return f"it orders by what is not said of the {match[1]}"


def _orders_other_way(read: _Read, crp: Crp, schema: GraphSchema) -> str | None:
    """Object to an order in the other direction than the question's words."""
    order = crp.order
    if order is None:
        return None
    hops = order.hops or crp.hops_to(order.at)
    if compass := _COMPASS.search(read.masked):
        side = compass[1] or compass[2]
        if _COORDINATES[side] != (hops[-1].relation.rpartition(".")[2], order.descending):
            return f"it does not say which is farthest {side}"
        return None
    asked = find_directions(read.masked, _kind(hops, schema), orders=True)
    is_other = asked == {not order.descending}
    return "the question asks for the other end of the order" if is_other else None


def _compares_other_way(read: _Read, crp: Crp, schema: GraphSchema) -> str | None:
    """Object to a comparison in the other direction than the question's words."""
    bounds = [each for each in find_measures(read.text) if isinstance(each, Bound)]
    for constraint in crp.all_constraints():
        is_more = _IS_MORE.get(constraint.operator)
        if constraint.negated or is_more is None:
            continue
        match constraint.operand:
            case LiteralTerm(text):
                asked = {_IS_MORE.get(each.operator) for each in bounds if each.value.text == text}
                if asked == {not is_more}:
                    return f"the question compares with {text} the other way round"
            case NodeRef(node):
                if _asks_if_more(read, crp, constraint, node, schema) == (not is_more):
                    return "the question compares the other way round"
    return None


def _asks_if_more(
    read: _Read, crp: Crp, tested: Constraint, node: int | str, schema: GraphSchema
) -> bool | None:
    """Return whether a question asks for more than at a node; None if it does not say."""
    kind = _kind(crp.hops_to(node), schema)
    directions = find_directions(read.masked, kind, orders=False)
    than = re.search(r"\bth[ae]n\b", read.masked)
    if len(directions) != 1 or than is None or _MULTIPLE.search(read.masked):
        return None
    topic = tested.at if isinstance(tested.at, Entity) else crp.topic
    at_topic, at_other = _position(read, topic), _position(read, _compared_with(crp, node))
    if at_other is None:
        return None
    is_behind = at_other > than.start()
    if at_topic is not None and (at_topic > than.start()) == is_behind:
        return None
    # "Is A larger than B" may be asked of A, or the other way round of B.
    [is_more] = directions
    return is_more == is_behind


def _compared_with(crp: Crp, node: int | str) -> Entity:
    """Return the entity whose value a comparison refers to."""
    for each in crp.all_constraints():
        if each.label == node and isinstance(each.at, Entity):
            return each.at
    return crp.topic


def _position(read: _Read, entity: Entity) -> int | None:
    """Return where a question names an entity."""
    match = re.search(_whole(read.said.get(entity, str(entity).lower())), read.text)
    return None if match is None else match.start()


def _kind(hops: tuple[Hop, ...], schema: GraphSchema) -> Kind | None:
    """Return the kind of value that hops lead to."""
    return VALUE_KINDS.get(schema.end(hops[-1])) if hops else None


def _compares_unlike_values(crp: Crp, schema: GraphSchema) -> str | None:
    """Object to counting numbers, and to comparing non-numbers or values of two relations."""
    counted: tuple[Hop, ...] = ()
    if crp.order is not None and crp.order.counted:
        counted = crp.order.hops
    elif crp.form == "count":
        counted = crp.hops_to(crp.answer)
    if counted:
        end = schema.end(counted[-1]) or ""
        if VALUE_KINDS.get(end) == "number" or end.startswith("measurement_unit."):
            return "it counts how many numbers there are"
    for constraint in crp.asked:
        if constraint.kind == "numeric" and isinstance(constraint.operand, NodeRef):
            tested = crp.hops_to(crp.answer)
            other = crp.hops_to(constraint.operand.node)
            if tested and other and tested[-1] != other[-1]:
                return "it compares two different things"
            if tested and _kind(tested, schema) is None and schema.end(tested[-1]) is not None:
                return "it compares what are neither numbers nor dates"
    return None


_ASKS_FOR_MORE = re.compile(r"(?:who|whom|whose|what|which|where|when|how)\b(?!.*\bor not\b)")
_ASKS_FOR_DATE = re.compile(
    r"(?:(?:in|on|during|by) )?(?:what|which) (?:year|date|day|month|decade|century)"
    r" (?:is|are|was|were|did|do|does|will|has|had|have)\b"
)
_TELLS_TO_SAY = re.compile(
    r"(?!.*(?:\?|\b(?:if|whether|true|right|correct)\b)).*\b(?:say|write) that\b"
)
_ASKS_FOR_AMOUNT = re.compile(r"how (?:much|long|old|far|tall|big|large|high)\b")


def _says_too_little(text: str, crp: Crp) -> str | None:
    """Object to yes or no, or to a count, where the question asks for more."""
    if crp.form == "ask" and (_ASKS_FOR_MORE.match(text) or _TELLS_TO_SAY.match(text)):
        return "it only says yes or no"
    if _counts(crp) and _ASKS_FOR_AMOUNT.match(text):
        return "it only says how many there are"
    relations = [*path_relations(crp.path)]
    if _ASKS_FOR_DATE.match(text) and not re.search(_OF_TIME, " ".join(relations)):
        return "it does not say when"
    if text.startswith("how old") and relations[-1].endswith("date_of_death"):
        return "it says when, and not how old"
    return None


# Two names of four words at most, at the end: longer ones are descriptions.
_BOTH = re.compile(r"\bboth (?=\S+(?: \S+){0,3} and \S+(?: \S+){0,3}$)")


def _passes_over_one_of_both(read: _Read, crp: Crp) -> str | None:
    """Object to a path that has only one of two things, as in "both Gambia and Senegal"."""
    both = _BOTH.search(read.text)
    if both is None or _has_alternatives(crp):
        return None
    places = {each: _position(read, each) for each in crp.entities()}
    # A mediator's condition by the hop that leads on to the answer only names the answer.
    for each in crp.constraints:
        is_answer = each.at == crp.answer - 1 and each.hops == crp.path[-1:]
        if is_answer and each.entity is not None:
            places[each.entity] = None
    named = [at for at in places.values() if at is not None and at >= both.end()]
    return "it passes over one of both" if len(named) == 1 else None


_SAYS_AGGREGATE: Mapping[Aggregate, re.Pattern[str]] = {
    "sum": re.compile(r"total|sum|combined|gross"),
    "average": re.compile(r"average|mean"),
    "difference": re.compile(r"difference"),
}
_DOES_NOT: Mapping[Aggregate, str] = {
    "sum": "it adds nothing up",
    "average": "it takes no average",
    "difference": "it does not say by how much they differ",
}


def names_aggregate(asked: Aggregate, crp: Crp) -> bool:
    """Return whether the relations of a path say a sum, an average or a difference."""
    return any(map(_SAYS_AGGREGATE[asked].search, crp.relations()))


def _does_not_add_up(read: _Read, crp: Crp, *, is_number: bool) -> str | None:
    """Object to what is no sum, average or difference where the question asks for one.

    The graph may know it as one number, such as the total population of a country.
    """
    asked = find_aggregate(read.masked)
    if asked is None or crp.form.startswith(asked) or names_aggregate(asked, crp):
        return None
    is_of_several = asked != "sum" or re.search(r"\band\b", read.masked) is not None
    if is_number and crp.order is None and not is_of_several:
        return None
    if asked == "sum" and _counts(crp) and (_has_alternatives(crp) or not is_of_several):
        return None
    return _DOES_NOT[asked]


def _misread_numbers(question: str, crp: Crp) -> list[str]:
    """List the numbers of a question that its path passes over."""
    # If it compares with others, all that it does not compare with, else only large ones. Years do
    # not count: they may be part of a name or a date.
    asked = [each for each in read_numbers(question) if each.text != "one"]
    values = {value for each in asked for value in each.values}
    compared = {
        float(each.operand.text)
        for each in crp.all_constraints()
        if isinstance(each.operand, LiteralTerm) and is_number(each.operand)
    }
    others = {number for number in compared if not any(isclose(number, value) for value in values)}
    if not all(number in _YEARS for number in others):
        return [each.text for each in asked if not each.values & compared]
    stated = compared | set(_stated_numbers(crp))
    return [each.text for each in asked if _is_large(each) and not each.values & stated]


def _is_large(number: WrittenNumber) -> bool:
    value = max(number.values, default=0)  # 127.0.0.1 is no number
    return value >= _LARGE and value not in _YEARS


def _stated_numbers(crp: Crp) -> Iterator[float]:
    """Yield the numbers in the names, literals and relations of a path, and those of its order."""
    yield from map(float, re.findall(r"\d+", " ".join(crp.relations())))
    texts = [str(entity) for entity in crp.entities()]
    for constraint in crp.all_constraints():
        match constraint.operand:
            case str(text) | LiteralTerm(text):
                texts.append(text)
    for text in texts:
        for number in read_numbers(text.lower()):
            yield from number.values
    if crp.order is not None:
        yield from (crp.order.limit, crp.order.offset + 1)


def _misread_form(question: str, crp: Crp) -> list[str]:
    """List the question word if it asks for answers and the path gives yes, no or a number."""
    match = _ASKS_WHICH.match(question)
    is_other = crp.form == "ask" or (_counts(crp) and not _HOW_MANY.search(question))
    return [match[1]] if match is not None and is_other else []


def _without_names(text: str, names: Iterable[str]) -> str:
    """Blank out names and quotations of a text in lower case."""
    text = re.sub(r'"[^"]*"|“[^”]*”|(?<!\w)\'[^\']*\'(?!\w)', _blank, text)
    for name in sorted(names, key=lambda name: (-len(name), name)):
        text = re.sub(_whole(name), _blank, text)
    return text


def _blank(match: re.Match[str]) -> str:
    return "_" * len(match[0])


def _occurs(name: str, text: str) -> bool:
    return re.search(_whole(name), text) is not None


def _whole(name: str) -> str:
    return rf"(?<!\w){re.escape(name)}(?!\w)"


def _negates_others(rule: Rule, crp: Crp, behind: Set[Entity]) -> bool:
    """Return whether a path negates entities, but none of those behind the word that negates."""
    if _negates not in rule.parts or not behind:
        return False
    negated = {
        nested.operand
        for constraint in filter(_is_negative, crp.all_constraints())
        for nested in nested_constraints((constraint,))
        if isinstance(nested.operand, Entity)
    }
    return bool(negated) and not negated & behind


def _counts(crp: Crp) -> bool:
    return crp.form in ("count", "count bindings")


def _adds_up(crp: Crp) -> bool:
    return crp.value is not None or (_counts(crp) and _has_alternatives(crp))


def _asks(crp: Crp) -> bool:
    return crp.form == "ask"


def _orders(crp: Crp) -> bool:
    return crp.order is not None


def _takes_a_place(crp: Crp) -> bool:
    return crp.order is not None and (crp.order.offset > 0 or crp.order.limit > 1)


def _compares(crp: Crp) -> bool:
    return any(each.kind == "numeric" for each in crp.all_constraints())


def _negates(crp: Crp) -> bool:
    return any(map(_is_negative, crp.all_constraints()))


def _is_negative(constraint: Constraint) -> bool:
    match constraint.operator, constraint.operand:
        case "!=", _:
            return True
        case "=", str(text) | LiteralTerm(text):
            return constraint.negated or text in ("false", "0")
    return constraint.negated


def _excludes_a_node(crp: Crp) -> bool:
    return crp.differs_from not in (None, 0)


def _has_alternatives(crp: Crp) -> bool:
    is_fork = any(isinstance(step, Fork) for step in crp.path)
    return is_fork or any(each.alternatives for each in crp.all_constraints())


def _names_two(crp: Crp) -> bool:
    return len({each.mid or each.name for each in crp.entities()}) > 1


def _meets_a_literal(crp: Crp) -> bool:
    return any(each.kind == "string" for each in crp.all_constraints())


# Chosen on training questions only.
_RULES = (
    Rule(
        r"\b(?:not(?! only)|never|neither|nor|without)\b|\b\w+n't\b"
        r"|\bno (?!more\b|less\b|fewer\b|longer\b|larger\b|higher\b)",
        (_negates,),
        r"non_|\bnon|without",
    ),
    Rule(r"\b(?:except|excluding|apart from|other than|besides)\b", (_negates, _excludes_a_node)),
    Rule(
        r"\bhow many\b|\b(?:total )?numbers? of\b",
        (_counts, _compares, _orders),
        r"number|num_|population|_count\b|total|size|quantity|amount|fatalities",
    ),
    Rule(
        r"\bhow (?:long|tall|high|deep|wide|far|large|big|heavy|old|fast|hot|cold)\b",
        (_counts,),
        r"(?<![a-z])(?:length|height|elevation|depth|width|distance|area|size|population|weight"
        r"|mass|age|date|year|duration|runtime|speed|temperature|term|tenure)|\.from\b|\.to\b",
        of_answers=True,
    ),
    Rule(
        r"^when(?= (?:is|are|was|were|did|do|does|will|has|had|have|can|could|should)\b(?! i\b))",
        (_compares, _orders),
        _OF_TIME,
    ),
    Rule(r"\b\d\d?(?:st|nd|rd|th) century\b|\b\d{3}0'?s\b", (_compares, _meets_a_literal)),
    Rule(
        r"^(?:is|are|was|were|do|does|did|has|have)\b(?! you know| there any)"
        r"(?!.*\b(?:wh\w+|or)\b)",
        (_asks,),
    ),
    Rule(
        r"\b(?:second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|2nd|3rd|[4-9]th|10th)\b"
        r"(?:[ -](?:most|largest|biggest|highest|tallest|longest|oldest|smallest|deepest)\b)?",
        (_takes_a_place, _compares, _meets_a_literal),
        r"second|third|fourth|fifth",
    ),
    Rule(
        r"\b(?:first|1st|last)\b(?! (?:name|lady))",
        (_orders, _meets_a_literal),
        r"first|last|date|start|\.from\b|\.to\b|original|debut|begin|beginning|end|final",
    ),
    Rule(
        r"\b(?:largest|biggest|smallest|highest|lowest|tallest|shortest|longest|oldest|youngest"
        r"|earliest|latest|newest|fewest|greatest|heaviest|lightest|fastest|slowest|deepest"
        r"|closest|nearest|hottest|coldest|strongest)\b",
        (_orders, _compares),
        r"\w\west_|near|max|min",
    ),
    Rule(
        r"\bthe (?:most|least) (?!common\b|important\b|famous\b|of\b)\w+"
        r"|\b(?:most|least) (?:\w+ )?(?:recent|popul\w+|expensive)\w*\b",
        (_orders,),
        r"most_|least_",
    ),
    Rule(
        r"\b(?:more|less|fewer|greater|higher|lower|larger|smaller|bigger|older|younger|longer"
        r"|shorter|taller|later|earlier|heavier|lighter) than\b",
        (_compares, _orders),
    ),
    Rule(
        r"\b(?:more|less|fewer|greater|higher|lower|larger|smaller|bigger|older|younger|longer"
        r"|shorter|taller|later|earlier|heavier|lighter|first)\b(?=.* or )",
        (_names_two, _has_alternatives, _compares),
    ),
    Rule(
        r"\b(?:over|under|above|below|at least|at most|between) "
        r"(?=(?:\$ ?|the year )?"
        r"(?:\d|(?:one|two|three|four|five|six|seven|eight|nine|ten|a|half)\b))",
        (_compares, _orders),
    ),
    Rule(
        r"\b(?:before|after|since|until)\b(?! (?:i|we|you)\b)",
        (_compares, _orders),
        r"success|succeed|predecess|previous|next|follow|former|before|after|since|from|to\b|named_",
    ),
    Rule(r"\bboth\b(?=.* and )", (_names_two, _has_alternatives)),
    Rule(
        r"\b(?:average|sum|difference|combined|altogether|density|between them)\b|\btogether\W*$"
        r"|\bhow much (?:more|less|fewer|\w+er)\b(?=.*\bthan\b)",
        (_adds_up,),
        r"average|mean|sum|difference|combined|density",
    ),
)
