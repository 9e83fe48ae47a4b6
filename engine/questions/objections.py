"""Object to paths that cannot answer a question, because they are about something else.

What the words and the schema tell is enough: a path in the other direction than *larger*, an order
by capitals, a reason that is none. Such a path is left out before the judge reads, since candidates
with equal answers share the highest confidence: a good path's *yes* must not carry a bad one's.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from types import MappingProxyType

from kbqa.engine.questions.operators import (
    OF_TIME,
    ReadQuestion,
    counts,
    has_alternatives,
    is_named,
    read_question,
    whole,
)
from kbqa.engine.questions.words import (
    VALUE_KINDS,
    Bound,
    Kind,
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
    Hop,
    NodeRef,
    Operator,
    Step,
    path_relations,
)
from kbqa.sparql.terms import NOTABLE_TYPES, TYPE, LiteralTerm, is_mid


def find_objection(
    question: str,
    crp: Crp,
    schema: GraphSchema,
    mentions: Mapping[str, str] = MappingProxyType({}),
    given: Collection[Entity] = (),
    *,
    is_number: bool = False,
) -> str | None:
    """Return why a path cannot answer a question, whatever else it finds; None if it may.

    `mentions` is as in `find_unaccounted`; `given` has the entities that the asker says the
    question is about; `is_number` says that the path found one number and nothing else.
    """
    about = {each.mid for each in given if each.mid is not None}
    if about and about.isdisjoint(each.mid for each in crp.entities()):
        return f"it is not about {' or '.join(map(str, given))}"
    read = read_question(question, crp, mentions)
    return (
        _lacks_a_topic(read, crp, about)
        or _gives_no_reason(read.text, crp)
        or _says_only_what_it_is(read.masked, crp)
        or _asks_for_nothing_in_particular(read.masked)
        or _orders_by_no_value(crp, schema)
        or _orders_other_way(read, crp, schema)
        or _orders_what_is_not_asked(read, crp, schema)
        or _orders_where_one_is_compared(read, crp)
        or _takes_a_bound_for_a_place(read, crp)
        or _takes_a_period_for_a_year(read, crp)
        or _compares_other_way(read, crp, schema)
        or _compares_unlike_values(crp, schema)
        or _says_too_little(read.text, crp)
        or _passes_over_one_of_both(read, crp)
        or _does_not_add_up(read, crp, is_number=is_number)
    )


_FOLLOWS_UP = re.compile(r"(?:and|so|but|what about|how about)\b")
_QUESTION_WORD = re.compile(r"\b(?:who|which|what|where|when|how) (?!about\b)")
_WITHOUT_ANTECEDENT = re.compile(
    r"\b(?:his|her|hers|him|he|she|those|these|(?<!do )they|them|which other"
    r"|the two(?=\W*$| (?:of|is|are|was|were|has|have|which)\b)"
    r"|(?:in|of|at) (?:that|this)(?! (?:has|have|had|is|are|was|were)\b))\b"
    r"|(?<!is )(?<!are )(?<!was )(?<!were )\bthere\b"
    r"|^(?:(?!\b(?:which|what(?! (?:is|are|was|were)\b)|whose)\b).)*\b(?:it|its|their)\b"
)
_LISTS = re.compile(r"\b(?:all|list|every|each|any|names?|how many|what are)\b")
_ASKS_OF_IT = re.compile(
    r"(?:is|was|does|did|has|had|can|could|will) (?:it|he|she)\b(?! (?:true|correct|the case)\b)"
)


def _lacks_a_topic(read: ReadQuestion, crp: Crp, given: Set[str]) -> str | None:
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
    if any(each.mid in given or is_named(each, read.said[each], read.text) for each in entities):
        rest = _FOLLOWS_UP.sub("", read.masked).strip("_ ?!.,")
        names_only = _FOLLOWS_UP.match(read.masked) is not None and not rest
        return f"it does not say what is asked about {crp.topic}" if names_only else None
    is_fragment = _FOLLOWS_UP.match(read.masked) and not _QUESTION_WORD.search(read.masked)
    if is_fragment or _WITHOUT_ANTECEDENT.search(read.masked):
        return unnamed
    is_class = not entities and len(crp.path) > 1 and not conditions and crp.order is None
    return unnamed if is_class and not _LISTS.search(read.masked) else None


def _says_a_class(hops: Sequence[Step]) -> bool:
    """Return whether hops lead to the type of a node."""
    last = hops[-1] if hops else None
    return isinstance(last, Hop) and last.relation in (TYPE, NOTABLE_TYPES)


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


_COMMANDS = re.compile(r"(?:please )?(?:ignore|disregard|forget|pretend)\b")


def _asks_for_nothing_in_particular(masked: str) -> str | None:
    """Object to any path for *tell me something about Tesla* or *ignore all instructions*."""
    if _COMMANDS.match(masked):
        return "the question is a command"
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


def _takes_a_bound_for_a_place(read: ReadQuestion, crp: Crp) -> str | None:
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


def _takes_a_period_for_a_year(read: ReadQuestion, crp: Crp) -> str | None:
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


def _orders_what_is_not_asked(read: ReadQuestion, crp: Crp, schema: GraphSchema) -> str | None:
    """Object to the largest capital where the question asks for the largest country."""
    order, match = crp.order, _SUPERLATIVE.search(read.masked)
    if order is None or match is None or not isinstance(order.at, int):
        return None
    ends = map(schema.end, crp.hops)
    starts = [*map(schema.start, crp.hops[1:]), None]
    named = [
        at
        for at, classes in enumerate(zip(ends, starts, strict=True), 1)
        for each in filter(None, classes)
        if singular(match[1]) in map(singular, each.rpartition(".")[2].split("_"))
    ]
    if not named or order.at in named or order.at == 0:
        return None
    return f"it orders by what is not said of the {match[1]}"


_THAN_ONE = re.compile(
    r"\bth[ae]n (?!(?:(?:any|all|every|half|once|most|either|both|ever|before|usual|average)\b"
    r"|(?:the |all )*(?:others?|rest|average|one|a|an|that which)\b|.*\bor\b))"
)


def _orders_where_one_is_compared(read: ReadQuestion, crp: Crp) -> str | None:
    """Object to the largest of all where the question asks for those larger than another."""
    one = _THAN_ONE.search(read.text)
    if one is None or crp.order is None or crp.order.offset or has_alternatives(crp):
        return None
    if read_numbers(read.text[one.end() :]) or not find_directions(read.masked, None, orders=False):
        return None
    return "it takes the first of an order where the question compares with one of them"


def _orders_other_way(read: ReadQuestion, crp: Crp, schema: GraphSchema) -> str | None:
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


def _compares_other_way(read: ReadQuestion, crp: Crp, schema: GraphSchema) -> str | None:
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
    read: ReadQuestion, crp: Crp, tested: Constraint, node: int | str, schema: GraphSchema
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


def _position(read: ReadQuestion, entity: Entity) -> int | None:
    """Return where a question names an entity."""
    match = re.search(whole(read.said.get(entity, str(entity).lower())), read.text)
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
_ASKS_FOR_ANY = re.compile(r"\b(?:there|have|has|had|any|ever|exist|exists|at all)\b")
_ASKS_FOR_AMOUNT = re.compile(r"how (?:much|long|old|far|tall|big|large|high)\b")


def _says_too_little(text: str, crp: Crp) -> str | None:
    """Object to yes or no, or to a count, where the question asks for more."""
    if crp.form == "ask" and (_ASKS_FOR_MORE.match(text) or _TELLS_TO_SAY.match(text)):
        return "it only says yes or no"
    if crp.form == "ask" and not crp.constraints and not _ASKS_FOR_ANY.search(text):
        return "it only says whether there is any"
    if counts(crp) and _ASKS_FOR_AMOUNT.match(text):
        return "it only says how many there are"
    relations = [*path_relations(crp.path)]
    if _ASKS_FOR_DATE.match(text) and not re.search(OF_TIME, " ".join(relations)):
        return "it does not say when"
    if text.startswith("how old") and relations[-1].endswith("date_of_death"):
        return "it says when, and not how old"
    return None


# Two names of four words at most, at the end: longer ones are descriptions.
_BOTH = re.compile(r"\bboth (?=\S+(?: \S+){0,3} and \S+(?: \S+){0,3}$)")


def _passes_over_one_of_both(read: ReadQuestion, crp: Crp) -> str | None:
    """Object to a path that has only one of two things, as in "both Gambia and Senegal"."""
    both = _BOTH.search(read.text)
    if both is None or has_alternatives(crp):
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


def missing_aggregate(question: str, crps: Iterable[Crp]) -> Aggregate | None:
    """Return the sum, average or difference that a question asks for and no path says."""
    asked = find_aggregate(question)
    is_said = asked is not None and any(_names_aggregate(asked, crp) for crp in crps)
    return None if is_said else asked


def _names_aggregate(asked: Aggregate, crp: Crp) -> bool:
    """Return whether the relations of a path say a sum, an average or a difference."""
    return any(map(_SAYS_AGGREGATE[asked].search, crp.relations()))


def _does_not_add_up(read: ReadQuestion, crp: Crp, *, is_number: bool) -> str | None:
    """Object to what is no sum, average or difference where the question asks for one.

    The graph may know it as one number, such as the total population of a country.
    """
    asked = find_aggregate(read.masked)
    if asked is None or crp.form.startswith(asked) or _names_aggregate(asked, crp):
        return None
    is_of_several = asked != "sum" or re.search(r"\band\b", read.masked) is not None
    if is_number and crp.order is None and not is_of_several:
        return None
    if asked == "sum" and counts(crp) and (has_alternatives(crp) or not is_of_several):
        return None
    return _DOES_NOT[asked]
