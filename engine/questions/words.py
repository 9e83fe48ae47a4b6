"""Read a question by its words: whether it is one, and what it counts, orders and compares.

It finds numbers, ends of an order, directions, values to compare with, and sums.

>>> [(each.text, sorted(each.values)) for each in read_numbers("over 1,5 million or sixty-two")]
[('1,5 million', [1500000.0]), ('sixty-two', [62.0])]
>>> find_measures("Which EU country has the smallest army?")
[Extreme(kind='number', descending=False)]
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from kbqa.kb.schema import MONTHS
from kbqa.sparql.crp import Aggregate, Entity, Operator
from kbqa.sparql.terms import LiteralTerm
from kbqa.sparql.values import is_date, is_number

Kind: TypeAlias = Literal["number", "date"]

# By the expected type of a relation, the kind of its values.
VALUE_KINDS: Mapping[str | None, Kind] = {
    "type.datetime": "date",
    "type.int": "number",
    "type.float": "number",
}


class WrittenNumber(NamedTuple):
    """A number in a text."""

    text: str
    values: frozenset[float]  # that it may mean: the comma of ``1,500`` may be decimal


@dataclass(frozen=True, slots=True)
class Extreme:
    """An end of an order: *latest* is said of dates, *largest* of numbers."""

    kind: Kind
    descending: bool

    def measures(self, kind: Kind) -> bool:
        """Return whether it can be said of values of a kind."""
        return kind == self.kind


@dataclass(frozen=True, slots=True)
class Bound:
    """A comparison with a value."""

    operator: Operator
    value: LiteralTerm  # right of the operator: a number, a date of ISO 8601, or a year as both

    def measures(self, kind: Kind) -> bool:
        """Return whether values of a kind can be compared with it."""
        return is_date(self.value) if kind == "date" else is_number(self.value)


@dataclass(frozen=True, slots=True)
class EntityBound:
    """A comparison with the value that an entity has: *larger than France*."""

    entity: Entity

    def measures(self, kind: Kind) -> bool:
        """Return whether values of a kind can be compared."""
        return True


@dataclass(frozen=True, slots=True)
class Period:
    """A decade or a century: from one year to before another."""

    first: LiteralTerm
    after: LiteralTerm

    def measures(self, kind: Kind) -> bool:
        """Return whether values of a kind lie in it."""
        return kind == "date"


@dataclass(frozen=True, slots=True)
class Total:
    """What several numbers come to."""

    form: Aggregate

    def measures(self, kind: Kind) -> bool:
        """Return whether values of a kind come to anything."""
        return kind == "number"


Measure: TypeAlias = Bound | EntityBound | Extreme | Period | Total

# ruff: noqa: SIM905 – lists of a hundred words read better as text
_ANY_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_LATIN = re.compile(r"[a-zA-Z]")

_ENGLISH = frozenset(
    """a an the of in on at to for from by with and or not no as is are was were be been am do does
    did has have had can could will would should may might must who whom whose what whats which when
    where why how many much that this these those there it its he his she her they their them i me
    my you your we our us if than then about into over under between during before after tell name
    list give show find""".split()
)
_FOREIGN = frozenset(
    """le les des du dans est sont qui que quel quelle quels quelles combien où et une un au aux
    der das den dem ist sind wer wie wo wann welche welcher welches und ein eine von im
    el los las del en es son quién quien qué cuál cual cuáles cuántos dónde donde cuándo
    il gli di è che chi quale quali quanti dove qual quais onde quem são""".split()
)
SMALL_TALK = frozenset(
    """hello hi hey thanks thank you good morning afternoon evening night bye goodbye ok okay cool
    yes no please cheers great nice well how are welcome sorry so very much lol""".split()
)
_FOREIGN_QUESTION = frozenset(
    """welche welcher welches wer wie wo wann warum wieso combien quel quelle quels quelles qui où
    pourquoi quand qual quale quali quanto quanta quanti quante dove perché quando quién quiénes
    quien cuál cual cuáles cuánto cuánta cuántos cuántas dónde donde cuándo qué quem onde""".split()
)
_MOST_SHARE = 0.25  # of English function words, up to which foreign ones decide

_STARTS = re.compile(r"^(?:(?:and|so|but|ok|what about|how about)\b[ ,]*)+", re.IGNORECASE)
_THERE = re.compile(r"(?<!\bis )(?<!\bare )(?<!\bwas )(?<!\bwere )\bthere\b", re.IGNORECASE)
_OWN = re.compile(r"\b(?:its|his|her|their)\b(?= \w)", re.IGNORECASE)
_ITSELF = re.compile(r"\b(?:it|he|she|him|her|they|them)\b", re.IGNORECASE)
_MOST_WORDS = 4  # of a question without a pronoun that may leave out its topic

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS: dict[str, float] = {
    **{word: number for number, word in enumerate(_SMALL.split())},
    **{word: 10 * number for number, word in enumerate(_TENS.split(), 2)},
    "dozen": 12,
    "half a": 0.5,
    "and a half": 0.5,
}
_SCALES = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_WORD = "|".join(sorted((*_WORDS, *_SCALES), key=len, reverse=True))
_NUMERAL = re.compile(
    rf"(?<![\w.,])(?:(?P<digits>-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?)|{_WORD})"
    rf"(?:(?: |-| and (?!a\b))(?:{_WORD}))*(?!\w)"
)

_LARGER = r"more|greater|larger|bigger|higher|longer|taller|later"
_SMALLER = r"less|fewer|smaller|lower|shorter|earlier"
_COMPARATIVES: Mapping[bool, str] = {
    True: rf"{_LARGER}|heavier|newer|faster|deeper|wider|hotter|warmer",
    False: rf"{_SMALLER}|lighter|sooner|slower|narrower|colder|cooler",
}
_LARGEST = r"largest|biggest|highest|greatest|longest|tallest|heaviest|deepest|fastest|maximum|most"
_SMALLEST = r"smallest|lowest|shortest|lightest|slowest|fewest|minimum|least"
_LATEST, _EARLIEST = r"last|latest|newest", r"first|earliest"
_SUPERLATIVES: Mapping[bool, str] = {
    True: rf"{_LARGEST}|{_LATEST}|hottest",
    False: rf"{_SMALLEST}|{_EARLIEST}|coldest",
}
# True is a larger age, and so an earlier date.
_AGES: Mapping[bool, str] = {True: r"older|elder|oldest", False: r"younger|youngest"}

COMPARISON_WORDS = re.compile(
    "|".join((*_COMPARATIVES.values(), *_SUPERLATIVES.values(), *_AGES.values())), re.IGNORECASE
)

# In an order in which none takes a part of another.
_EXTREMES: Mapping[Extreme, str] = {
    Extreme("date", True): rf"{_LATEST}|youngest|most recent(?:ly)?",
    Extreme("date", False): rf"{_EARLIEST}|oldest|least recent(?:ly)?",
    Extreme("number", True): _LARGEST,
    Extreme("number", False): _SMALLEST,
}

_WORDS_TO_OF = r"(?:[\w']+ ){1,3}of\b"
# *Total* and *average* may also be said of something else: "which has 5 as total emissions".
_AGGREGATES: Mapping[Aggregate, re.Pattern[str]] = {
    "average": re.compile(
        r"(?<!\ban )\baverage\b|\bmean (?=\w+ of\b)|\bon average\b", re.IGNORECASE
    ),
    "sum": re.compile(
        rf"\b(?:the|what|how much) total (?!numbers?\b)|^total {_WORDS_TO_OF}|\bin total\b"
        rf"|\bsum of\b|\bcombined {_WORDS_TO_OF}"
        r"|\band\b.*\b(?:together|combined|altogether|between them)\W*$",
        re.IGNORECASE,
    ),
    "difference": re.compile(
        rf"\bdifference (?:in (?:\w+ )+?between|between the {_WORDS_TO_OF})"
        r"|\b(?!the |a )\w+ difference between\b"
        r"|\bhow (?:much|many) (?:more|less|fewer|\w+er)\b(?=.*\bthan\b)",
        re.IGNORECASE,
    ),
}

_NO_EXTREME = re.compile(r"\bat (?:least|most)\b|\b(?:first|last) (?:name|lady)\b", re.IGNORECASE)
_NEGATED = re.compile(r"(?:\b(?:not|never|no)\b|n['’]t\b).*", re.IGNORECASE)

_DAY, _YEAR = r"\d{1,2}(?:st|nd|rd|th)?", r"\d{4}"
_MONTH = rf"(?:{'|'.join(f'{each[:3]}(?:{each[3:]}|t)?' for each in MONTHS)})\.?"
_DATE = rf"{_YEAR}-\d\d(?:-\d\d)?|(?:{_DAY} (?:of )?)?{_MONTH},? {_YEAR}|{_MONTH} {_DAY},? {_YEAR}"
_NUMBER = r"\d+(?:[,.]\d+)*(?: (?:hundred|thousand|million|billion))?"
# After a comparison and a few words at most: *after the year 1980*.
_VALUE = rf"(?: (?!and\b)[a-z]+){{0,3}}? \$?(?:({_DATE})(?!\w)|({_NUMBER})(?![\w-]))"

_MORE, _LESS = rf"(?:{_LARGER}|great|older)", rf"(?:{_SMALLER}|younger)"
_THAN = r"th[ae][nt]"  # the benchmarks have "greater then" and "less that"
# In an order in which none takes a part of another: *no more than 5* is not *more than 5*.
_BOUND_WORDS: Mapping[Operator, str] = {
    ">=": rf"at least|(?:no|not) {_LESS} {_THAN}",
    "<=": rf"at most|(?:no|not) {_MORE} {_THAN}",
    ">": rf"{_MORE} {_THAN}|over|above|exceed(?:s|ing)?|after|since",
    "<": rf"{_LESS} {_THAN}|under|below|before|prior to",
}

_BOUNDS = {
    operator: re.compile(rf"\b(?:{words}){_VALUE}", re.IGNORECASE)
    for operator, words in _BOUND_WORDS.items()
}
_DATES = re.compile(rf"\b(?:{_DATE})(?![\w-])", re.IGNORECASE)
_DECADE = re.compile(r"\b(?:in|during|of|from) the (\d{3})0'?s\b", re.IGNORECASE)
_CENTURY = re.compile(
    r"\b(?:in|during|of|from) the (\d\d?)(?:st|nd|rd|th) century\b", re.IGNORECASE
)
_NUMBERS = re.compile(rf"(?<![\w.,-]){_NUMBER}(?![\w-])", re.IGNORECASE)
_CODES = re.compile(r"\b[A-Z]{2,4}\b")
_QUOTATIONS = re.compile(r'"([^"]+)"')


def unlike_a_question(text: str) -> str | None:
    """Return why a text is not a question in English; None if it may be one.

    It is small talk if all its words are. Key words without any function word, such as "france
    capital", pass.
    """
    words = _lower_words(text)
    if all(word in SMALL_TALK for word in words):
        return "this does not look like a question"
    if foreign_words(text) or not _LATIN.search(text):
        return "the question does not look like English"
    return None


def foreign_words(text: str) -> tuple[str, ...]:
    """Return the words that show that a text is in another language; none if it may be English.

    It is in another if it has at least two function words of another, or one that asks among its
    first three words, more than English ones, and few of these.

    >>> foreign_words("Welche Länder grenzen an die Schweiz?")
    ('welche',)
    """
    words = _lower_words(text)
    english = sum(word.partition("'")[0] in _ENGLISH for word in words)
    foreign = [word for word in words if word in _FOREIGN or word in _FOREIGN_QUESTION]
    is_asked = not _FOREIGN_QUESTION.isdisjoint(words[:3])
    is_more = len(foreign) >= max(english, 1) if is_asked else len(foreign) > max(english, 1)
    return tuple(foreign) if is_more and english <= _MOST_SHARE * len(words) else ()


def _lower_words(text: str) -> list[str]:
    return [each.lower().replace("’", "'") for each in _ANY_WORD.findall(text)]


def singular(noun: str) -> str:
    """Return a noun without the ending of a plural, if it has one.

    >>> singular("countries"), singular("city")
    ('country', 'city')
    """
    return f"{noun[:-3]}y" if noun.endswith("ies") else noun.removesuffix("s")


def with_topic(question: str, name: str) -> str:
    """Write the name of its topic into a question that leaves it out; else return it as it is.

    >>> with_topic("and its neighbours?", "Bulgaria"), with_topic("how big is it", "Finland")
    ("Bulgaria's neighbours?", 'how big is Finland')
    >>> with_topic("population?", "Nepal")
    'population of Nepal'
    """
    rest = _STARTS.sub("", question.strip())
    for pattern, words in ((_THERE, f"in {name}"), (_OWN, f"{name}'s"), (_ITSELF, name)):
        if match := pattern.search(rest):
            return rest[: match.start()] + words + rest[match.end() :]
    if rest and len(rest.split()) <= _MOST_WORDS:
        return f"{rest.rstrip(' ?!.')} of {name}"
    return question


def find_measures(question: str) -> list[Measure]:
    """Return the measures of a question, each once, bounds first and totals last."""
    bounds, text = _cut_bounds(question)
    text = _NO_EXTREME.sub(" ", text)
    found: list[Measure] = [*bounds]
    for extreme, words in _EXTREMES.items():
        text, count = re.subn(rf"\b(?:{words})\b", " ", text, flags=re.IGNORECASE)
        if count:
            found.append(extreme)
    found += find_periods(question)
    if (form := find_aggregate(question)) is not None:
        found.append(Total(form))
    return list(dict.fromkeys(found))


def find_periods(question: str) -> list[Period]:
    """Return the decades and centuries of a question.

    >>> [(each.first.text, each.after.text) for each in find_periods("found in the 1940s")]
    [('1940', '1950')]
    """
    years = [(int(each) * 10, int(each) * 10 + 10) for each in _DECADE.findall(question)]
    years += [(int(each) * 100 - 99, int(each) * 100 + 1) for each in _CENTURY.findall(question)]
    return [
        Period(LiteralTerm(f"{first:04}"), LiteralTerm(f"{after:04}")) for first, after in years
    ]


def find_aggregate(question: str) -> Aggregate | None:
    """Return what a question asks of several numbers: their sum, average or difference.

    >>> find_aggregate("how many people live in France and Germany together")
    'sum'
    >>> find_aggregate("which waterfall has an average flow of 934?") is None
    True
    """
    found = (form for form, words in _AGGREGATES.items() if words.search(question))
    return next(found, None)


def find_directions(question: str, kind: Kind | None, *, orders: bool) -> set[bool]:
    """Return the directions that a question's words ask for: True for larger, False for smaller.

    Names should be blanked out. Words behind a negation and bounds such as *more than 5* say
    nothing. With `orders`, superlatives count as well as comparatives. The kind is that of the
    values: who is *older* has an earlier date of birth, but a larger age.
    """
    _, text = _cut_bounds(question)
    text = _NEGATED.sub(" ", _NO_EXTREME.sub(" ", text))
    words = [*_COMPARATIVES.items()]
    if orders:
        words += _SUPERLATIVES.items()
    if kind is not None:
        words += [(up == (kind == "number"), ages) for up, ages in _AGES.items()]
    return {up for up, said in words if re.search(rf"\b(?:{said})\b", text, re.IGNORECASE)}


def find_values(question: str) -> list[LiteralTerm]:
    """Find the values that a question names and compares with nothing, each once.

    Dates come first, then numbers, codes and quotations. Numbers of one digit are left out, as they
    often say how many answers there are.
    """
    _, text = _cut_bounds(question)
    texts = [_iso(each) for each in _DATES.findall(text)]
    text = _DATES.sub(" ", text)
    texts += [_plain(each) for each in _NUMBERS.findall(text) if len(each) > 1]
    texts += [each for code in _CODES.findall(text) for each in (code, code.lower())]
    texts += _QUOTATIONS.findall(text)
    return [LiteralTerm(each) for each in dict.fromkeys(filter(None, texts))]


def read_numbers(text: str) -> list[WrittenNumber]:
    """Find the numbers of a text in lower case, in order. Ordinals are none."""
    return [
        WrittenNumber(match[0], frozenset(_value(first, match[0]) for first in _firsts(match)))
        for match in _NUMERAL.finditer(text)
    ]


def _firsts(match: re.Match[str]) -> set[float]:
    """Return what the digits that a number begins with may mean; 0 if it has none."""
    digits, _, power = (match["digits"] or "0").partition("e")
    means = set()
    for mark, point in ((",", "."), (".", ",")):
        whole, _, decimals = digits.partition(point)
        is_grouped = all(len(group) == 3 for group in whole.split(mark)[1:])
        if is_grouped and re.fullmatch(r"\d*", decimals):
            means.add(float(f"{whole.replace(mark, '')}.{decimals}e{power or 0}"))
    return means


def _value(first: float, text: str) -> float:
    """Add up the words of a number that begins with a value."""
    total, current = 0.0, first
    for word in re.findall(rf"\b(?:{_WORD})\b", text):
        if word in _WORDS:
            current += _WORDS[word]
        elif word == "hundred":
            current = (current or 1) * _SCALES[word]
        else:
            total += (current or 1) * _SCALES[word]
            current = 0.0
    return total + current


def _cut_bounds(question: str) -> tuple[list[Bound], str]:
    """Return the bounds of a question, and its text without them."""
    text, bounds = " ".join(question.split()), list[Bound]()
    for operator, pattern in _BOUNDS.items():
        for date, number in pattern.findall(text):
            if value := _iso(date) if date else _plain(number):
                bounds.append(Bound(operator, LiteralTerm(value)))
        text = pattern.sub(" ", text)
    return bounds, text


def _iso(date: str) -> str:
    """Write a date such as *June 5th, 1999* as the graph does: 1999-06-05."""
    if "-" in date:
        return date
    starts = [each[:3].lower() for each in MONTHS]
    [month] = [each for each in re.findall(r"[a-z]{3}", date.lower()) if each in starts]
    day = re.search(r"\d+", date[:-4])
    return f"{date[-4:]}-{starts.index(month) + 1:02}" + (f"-{int(day[0]):02}" if day else "")


def _plain(number: str) -> str:
    """Write a number in digits; what is none, such as 127.0.0.1, becomes empty."""
    if number.isdigit():
        return number  # zeros at the start count: ISO's 056 is a code
    values = [value for read in read_numbers(number.lower()) for value in read.values]
    return f"{max(values):.15g}" if values else ""
