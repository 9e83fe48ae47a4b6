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

Words that a path passes over lower its confidence. `kbqa.engine.questions.objections` is stricter:
it finds paths that cannot answer the question.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from math import isclose
from types import MappingProxyType
from typing import NamedTuple

from kbqa.engine.questions.words import (
    WrittenNumber,
    read_numbers,
)
from kbqa.sparql.crp import (
    Constraint,
    Crp,
    Entity,
    Fork,
    nested_constraints,
    path_relations,
)
from kbqa.sparql.terms import LiteralTerm
from kbqa.sparql.values import is_number

_YEARS = range(1000, 2100)
# From here on, a number is no count of the answers: the right paths of 7,080 training questions say
# nearly all of these.
_LARGE = 100
_ASKS_WHICH = re.compile(
    r"(?:(?:at|by|for|from|in|of|on|to|with) )?(who|whom|whose|what|which|where|when)\b"
)
OF_TIME = (
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
    text, said, masked = read_question(question, crp, mentions)
    crp = _without_unsaid_dates(crp, text)
    relations, of_answers = " ".join(crp.relations()), " ".join(path_relations(crp.path))
    found = []
    for rule in _RULES:
        match = re.search(rule.words, masked)
        if match is None:
            continue
        behind = {each for each in said if is_named(each, said[each], text[match.end() :])}
        if any(has(crp) for has in rule.parts) and not _negates_others(rule, crp, behind):
            continue
        if are_numbers and re.match(r"how (?!much)", match.group()):
            continue
        read = of_answers if rule.of_answers else relations
        if rule.relations is None or not re.search(rule.relations, read):
            found.append(match.group().strip())
    return (*found, *_misread_numbers(masked, crp), *_misread_form(masked, crp))


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


class ReadQuestion(NamedTuple):
    """A question as the rules read it."""

    text: str  # in lower case
    said: Mapping[Entity, str]  # what it calls the entities of the path
    masked: str  # the text with these names and quotations blanked out, as long as before


def read_question(question: str, crp: Crp, mentions: Mapping[str, str]) -> ReadQuestion:
    """Read a question together with a path; `mentions` is as in `find_unaccounted`."""
    text = " ".join(question.lower().replace("’", "'").split())
    said = {
        entity: mentions.get(entity.mid or "", str(entity)).lower() for entity in crp.entities()
    }
    names = {*said.values(), *(str(entity).lower() for entity in said)}
    return ReadQuestion(text, said, _without_names(text, names))


def is_named(entity: Entity, mention: str, text: str) -> bool:
    """Return whether a text has a word of an entity's name, or of its mention."""
    said = f"{entity} {mention}".lower()
    return any(len(word) > 2 and occurs(word, text) for word in re.findall(r"\w+", said))


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
    is_other = crp.form == "ask" or (counts(crp) and not _HOW_MANY.search(question))
    return [match[1]] if match is not None and is_other else []


def _without_names(text: str, names: Iterable[str]) -> str:
    """Blank out names and quotations of a text in lower case."""
    text = re.sub(r'"[^"]*"|“[^”]*”|(?<!\w)\'[^\']*\'(?!\w)', _blank, text)
    for name in sorted(names, key=lambda name: (-len(name), name)):
        text = re.sub(whole(name), _blank, text)
    return text


def _blank(match: re.Match[str]) -> str:
    return "_" * len(match[0])


def occurs(name: str, text: str) -> bool:
    """Return whether a text has a name, as whole words."""
    return re.search(whole(name), text) is not None


def whole(name: str) -> str:
    """Return a regular expression for a name as whole words."""
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


def counts(crp: Crp) -> bool:
    """Return whether a path counts."""
    return crp.form in ("count", "count bindings")


def _adds_up(crp: Crp) -> bool:
    return crp.value is not None or (counts(crp) and has_alternatives(crp))


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


def has_alternatives(crp: Crp) -> bool:
    """Return whether a path says *or*."""
    is_fork = any(isinstance(step, Fork) for step in crp.path)
    return is_fork or any(each.alternatives for each in crp.all_constraints())


def _names_two(crp: Crp) -> bool:
    return len({each.mid or each.name for each in crp.entities()}) > 1


def _meets_a_literal(crp: Crp) -> bool:
    return any(each.kind == "string" for each in crp.all_constraints())


# Chosen on training questions; the rule of decades and centuries after reading people.dev.
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
        (counts, _compares, _orders),
        r"number|num_|population|_count\b|total|size|quantity|amount|fatalities",
    ),
    Rule(
        r"\bhow (?:long|tall|high|deep|wide|far|large|big|heavy|old|fast|hot|cold)\b",
        (counts,),
        r"(?<![a-z])(?:length|height|elevation|depth|width|distance|area|size|population|weight"
        r"|mass|age|date|year|duration|runtime|speed|temperature|term|tenure)|\.from\b|\.to\b",
        of_answers=True,
    ),
    Rule(
        r"^when(?= (?:is|are|was|were|did|do|does|will|has|had|have|can|could|should)\b(?! i\b))",
        (_compares, _orders),
        OF_TIME,
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
        (_names_two, has_alternatives, _compares),
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
    Rule(r"\bboth\b(?=.* and )", (_names_two, has_alternatives)),
    Rule(
        r"\b(?:average|sum|difference|combined|altogether|density|between them)\b|\btogether\W*$"
        r"|\bhow much (?:more|less|fewer|\w+er)\b(?=.*\bthan\b)",
        (_adds_up,),
        r"average|mean|sum|difference|combined|density",
    ),
)
