"""Check that the operator words of a question are accounted for by the path that answers it.

An operator word changes what is asked: *not*, *how many*, *third*, *more than*. A path that lists
the countries that use the euro does not answer which of them do not, however likely it is. Each
rule of the table has the words, and the parts of a path that may express them; one of these is
enough. A word does not count within the name of an entity or within quotation marks. What is
negated must stand behind the word: a path that negates *Europe* does not say "which European
countries do not use the euro?".

Words that say too little by themselves have no rule: a plain *and*, or *over* without a number.
What no path can say, such as *average*, is accounted for by a relation only.

Numbers have a rule of their own. A large number, such as *60 million*, must be in the path; a small
one often says only how many answers there are, as in "the four nations of the UK". If the path
compares with any number, it may compare with no other than those of the question: *60 million* is
not 6,000,000. Last, no yes, no or count answers a question that begins with *which* or another such
word.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from math import isclose
from types import MappingProxyType
from typing import NamedTuple

from kbqa.engine.questions.numbers import WrittenNumber, read_numbers
from kbqa.sparql.compiler.values import is_number
from kbqa.sparql.crp import (
    AnyOf,
    Compare,
    Constraint,
    Crp,
    Entity,
    Fork,
    IsEntity,
    IsNotEntity,
    IsNotNode,
    TextEquals,
    nested_constraints,
    path_relations,
)
from kbqa.sparql.terms import LiteralTerm

_YEARS = range(1000, 2100)
_LARGE = 100
"""From here on, a number is no count of the answers. The right paths of 7,080 training questions
say nearly all of them (`tools/fit/operator_words.py`)."""
_ASKS_WHICH = re.compile(
    r"(?:(?:at|by|for|from|in|of|on|to|with) )?(who|whom|whose|what|which|where|when)\b"
)
_HOW_MANY = re.compile(r"\b(?:how many|numbers?|count|total|amount|quantity)\b")


class Rule(NamedTuple):
    """What may express some operator words.

    Attributes:
        words: A regular expression of the words.
        parts: Each returns whether a path has a part that expresses them.
        relations: A regular expression; a relation that has it expresses the words itself.
        of_answers: Only the relations of the main path count, as the words ask for the answers.
    """

    words: str
    parts: tuple[Callable[[Crp], bool], ...]
    relations: str | None = None
    of_answers: bool = False


def find_unaccounted(
    question: str,
    crp: Crp,
    mentions: Mapping[str, str] = MappingProxyType({}),
    *,
    are_numbers: bool = False,
) -> tuple[str, ...]:
    """Return the operator words of a question that nothing in a path accounts for.

    Args:
        question: As asked.
        crp: The path that answers, as it was run.
        mentions: What the question calls an entity, by mid; if nothing else, its name.
        are_numbers: The answers are numbers, so they may say *how many* or *how long*.

    Returns:
        The words in lower case, in the order of the rules; then numbers, and what asks.

    >>> from kbqa.sparql.forms import parse_crp
    >>> crp = parse_crp("Europe -> location.location.contains").crp
    >>> find_unaccounted("which countries in Europe do not use the euro?", crp)
    ('not',)
    """
    text = " ".join(question.lower().replace("’", "'").split())
    said = {
        entity: mentions.get(entity.mid or "", str(entity)).lower() for entity in crp.entities()
    }
    names = {*said.values(), *(str(entity).lower() for entity in said)}
    masked = _without_names(text, names)
    relations, of_answers = " ".join(crp.relations()), " ".join(path_relations(crp.path))
    found = []
    for rule in _RULES:
        match = re.search(rule.words, masked)
        if match is None:
            continue
        behind = {each for each in said if _occurs(said[each], text[match.end() :])}
        if any(has(crp) for has in rule.parts) and not _negates_others(rule, crp, behind):
            continue
        if are_numbers and match.group().startswith("how "):
            continue
        read = of_answers if rule.of_answers else relations
        if rule.relations is None or not re.search(rule.relations, read):
            found.append(match.group().strip())
    return (*found, *_misread_numbers(masked, crp), *_misread_form(masked, crp))


def _misread_numbers(question: str, crp: Crp) -> list[str]:
    """List the numbers of a question that its path passes over.

    All that it does not compare with if it compares with others, else only large ones. Years do not
    count: they may be a part of a name or a date.
    """
    asked = [each for each in read_numbers(question) if each.text != "one"]
    values = {value for each in asked for value in each.values}
    compared = {
        float(each.test.value.text)
        for each in crp.all_constraints()
        if isinstance(each.test, Compare)
        and isinstance(each.test.value, LiteralTerm)
        and is_number(each.test.value)
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
        match constraint.test:
            case TextEquals(text) | Compare(_, LiteralTerm(text)):
                texts.append(text)
    for text in texts:
        for number in read_numbers(text.lower()):
            yield from number.values
    if crp.order is not None:
        yield from (crp.order.limit, crp.order.offset + 1)


def _misread_form(question: str, crp: Crp) -> list[str]:
    """List the word that asks for answers if the path gives yes, no or a number."""
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
        nested.test.entity
        for constraint in filter(_is_negative, crp.all_constraints())
        for nested in nested_constraints((constraint,))
        if isinstance(nested.test, IsEntity | IsNotEntity)
    }
    return bool(negated) and not negated & behind


def _counts(crp: Crp) -> bool:
    return crp.form in ("count", "count bindings")


def _asks(crp: Crp) -> bool:
    return crp.form == "ask"


def _orders(crp: Crp) -> bool:
    return crp.order is not None


def _takes_a_place(crp: Crp) -> bool:
    return crp.order is not None and (crp.order.offset > 0 or crp.order.limit > 1)


def _compares(crp: Crp) -> bool:
    return any(isinstance(each.test, Compare) for each in crp.all_constraints())


def _negates(crp: Crp) -> bool:
    return any(map(_is_negative, crp.all_constraints()))


def _is_negative(constraint: Constraint) -> bool:
    match constraint.test:
        case IsNotEntity() | IsNotNode() | Compare("!="):
            return True
        case Compare("=", LiteralTerm(text)) | TextEquals(text):
            return constraint.negated or text in ("false", "0")
    return constraint.negated


def _excludes_a_node(crp: Crp) -> bool:
    return crp.differs_from not in (None, 0)


def _has_alternatives(crp: Crp) -> bool:
    is_fork = any(isinstance(step, Fork) for step in crp.path)
    return is_fork or any(isinstance(each.test, AnyOf) for each in crp.all_constraints())


def _names_two(crp: Crp) -> bool:
    return len({each.mid or each.name for each in crp.entities()}) > 1


def _meets_a_literal(crp: Crp) -> bool:
    return any(isinstance(each.test, TextEquals) for each in crp.all_constraints())


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
        r"(?<![a-z])(?:date|year|season|day|month|week|century|period|start|end|begin|found|form"
        r"|open|introduc|discontinu|establish|launch|debut|event|championship|competition|olympic"
        r"|tournament|award|honor|draft|inaugurat|election|campaign|last_eruption|instances|ratif"
        r"|current_frequency)|\.from\b|\.to\b",
    ),
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
        (_orders, _compares, _meets_a_literal),
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
    Rule(r"\b(?:average|sum|difference|combined)\b", (), r"average|mean|sum|difference|combined"),
)
"""Operator words, and what in a path may express them; chosen on training questions only."""
