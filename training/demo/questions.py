"""Questions on the demo graph with their CRPs, for the training mix.

They teach the model the demo graph's vocabulary, and what is rare in WebQSP: counts, yes and no,
comparisons, negation, places in an order, numbers in words. Each has an answer in the demo graph.
Its CRP holds names and no mids.
"""

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from types import MappingProxyType
from typing import Literal, NamedTuple

from kbqa.sparql.crp import Crp
from kbqa.training.demo.facts import DemoFacts
from kbqa.training.demo.intents import (
    Code,
    Intent,
    Number,
    OfType,
    Ordinal,
    Slot,
    read_intents,
)

DemoSplit = Literal["train", "valid"]

_FILLINGS = 24
"""The most fillings of an intent's slots."""

_HELD_OUT = 8
"""One of this many fillings is held out."""

_TRIES = 2_000
_SLIPS = 0.1
"""Share of the questions with a typing error. Names are never touched."""
_LONG = re.compile(r"(?<![{\w])[a-z]{5,}(?![}\w])")
_ONES = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBER_WORDS: Mapping[int, str] = MappingProxyType(
    dict(enumerate(_ONES, 2)) | {10 * ten: word for ten, word in enumerate(_TENS, 2)}
)
_UNITS = ((10**9, "billion"), (10**6, "million"), (10**3, "thousand"))
_ORDINALS = ("second", "third", "fourth", "fifth", "sixth", "seventh")
_CONTINENTAL: Mapping[str, str] = MappingProxyType(
    {
        "Africa": "African",
        "Antarctica": "Antarctic",
        "Asia": "Asian",
        "Europe": "European",
        "North America": "North American",
        "Oceania": "Oceanian",
        "South America": "South American",
    }
)
_VOWELS = tuple("aeiouAEIOU")
_COMMON_NOUNS = frozenset(
    {
        "chemistry.chemical_element",
        "chemistry.chemical_series",
        "chemistry.isotope",
        "finance.currency",
    }
)
_PLACES = frozenset({"location.country", "location.citytown"})
_WITH_ARTICLE = frozenset(
    {
        "Bahamas",
        "Central African Republic",
        "Cayman Islands",
        "Democratic Republic of the Congo",
        "Dominican Republic",
        "Gambia",
        "Maldives",
        "Marshall Islands",
        "Netherlands",
        "Philippines",
        "Republic of the Congo",
        "Solomon Islands",
        "United Arab Emirates",
        "United Kingdom",
        "United States",
        "United States of America",
    }
)


@dataclass(frozen=True, slots=True)
class DemoExample:
    """A question with its CRP.

    Attributes:
        question: As a user may type it.
        crp: Over names; it has an answer in the demo graph.
        split: A filling of an intent is in one split only.
        intent: The kind of question, a key of `kbqa.training.demo.intents.read_intents`.
    """

    question: str
    crp: Crp
    split: DemoSplit
    intent: str


class _Filled(NamedTuple):
    """What fills a slot, in the CRP and in the question."""

    value: str
    shown: str


class _Filling(NamedTuple):
    """An intent's CRP with filled slots, and what fills them in the question."""

    crp: Crp
    shown: Mapping[str, str]


def demo_examples(seed: int, intents: Mapping[str, Intent] | None = None) -> list[DemoExample]:
    """Write the demo questions; the same seed gives the same list.

    Args:
        seed: Decides what is asked about and in which words, for each intent by itself.
        intents: What to ask, by name; by default all intents.

    Returns:
        About 11,700 for training and 1,400 held out, in the order of the intents. Half of the
        yes/no questions are answered yes.
    """
    return list(_all_examples(seed) if intents is None else _examples_of(intents, seed))


@cache
def _all_examples(seed: int) -> tuple[DemoExample, ...]:
    """Write them once: to try what fills the slots takes a minute."""
    return tuple(_examples_of(read_intents(), seed))


def _examples_of(intents: Mapping[str, Intent], seed: int) -> Iterator[DemoExample]:
    with DemoFacts() as facts:
        for name, intent in intents.items():
            yield from _examples(name, intent, facts, random.Random(f"{seed}/{name}"))


def _examples(
    name: str, intent: Intent, facts: DemoFacts, rng: random.Random
) -> Iterator[DemoExample]:
    fillings = list(_fillings(intent, facts, rng))
    if not fillings:
        raise ValueError(f"the intent {name!r} has no filling with an answer in the demo graph")
    # Intents with few fillings, such as the seven continents, are asked in more wordings.
    rounds = min(_FILLINGS // len(fillings), len(intent.wordings))
    # Each split has its own turns, or some wordings would be held out only.
    wordings = {"train": cycle(intent.wordings), "valid": cycle(intent.wordings)}
    for number, (crp, shown) in enumerate(fillings):
        split: DemoSplit = "valid" if number % _HELD_OUT == _HELD_OUT - 1 else "train"
        for wording in islice(wordings[split], rounds if split == "train" else 1):
            question = _typed(_worded(_with_slip(wording, rng), shown), rng)
            yield DemoExample(question, crp, split, name)


def _fillings(intent: Intent, facts: DemoFacts, rng: random.Random) -> Iterator[_Filling]:
    """Yield distinct fillings with which the CRP has an answer, yes and no by turns."""
    tried: set[tuple[str, ...]] = set()
    found = 0
    for _ in range(_TRIES):
        filled = {name: _fill(slot, facts, rng) for name, slot in intent.slots.items()}
        if intent.asked and found % 2 == 0:
            _fill_with_an_answer(intent.asked, filled, intent, facts, rng)
        values = tuple(one.value for one in filled.values())
        if values in tried or len(set(values)) < len(values):
            continue
        tried.add(values)
        crp = intent.build(dict(zip(filled, values, strict=True)))
        says = facts.says(crp)
        wanted = crp.form != "ask" or found % 2 == 0
        if says is wanted:
            yield _Filling(crp, _shown(filled))
            found += 1
            if found == _FILLINGS:
                return


def _fill_with_an_answer(
    asked: str, filled: dict[str, _Filled], intent: Intent, facts: DemoFacts, rng: random.Random
) -> None:
    """Ask for an answer, if there is one: of ten cities, none is likely to be the capital."""
    crp = intent.build({name: one.value for name, one in filled.items()})
    answers = facts.answers(crp.presupposed())
    match intent.slots[asked]:
        case OfType(type_id) if known := sorted(set(answers) & set(facts.ranked(type_id))):
            mid = rng.choice(known)
            filled[asked] = _Filled(facts.name(mid), _call(mid, type_id, facts, rng))
        case Code() if answers:
            filled[asked] = _Filled(answers[0], answers[0])


def _fill(slot: Slot, facts: DemoFacts, rng: random.Random) -> _Filled:
    match slot:
        case Number(choices):
            number = rng.choice(choices)
            return _Filled(str(number), rng.choice(_spellings(number)))
        case Ordinal(choices):
            place = rng.choice(choices)
            return _Filled(str(place - 1), rng.choice((_ORDINALS[place - 2], _digits(place))))
        case OfType(type_id):
            mid = _draw(type_id, facts, rng)
            return _Filled(facts.name(mid), _call(mid, type_id, facts, rng))
        case Code(relation):
            while True:
                codes = facts.ends(_draw(slot.type_id, facts, rng), relation)
                if codes:
                    return _Filled(codes[0], codes[0])


def _shown(filled: Mapping[str, _Filled]) -> Mapping[str, str]:
    """Return what stands in a question's places, also in those that no slot fills by itself."""
    shown = {name: one.shown for name, one in filled.items()}
    if "country" in filled:
        shown["land"] = shown["country"].removeprefix("the ")
    if "continent" in filled:
        shown["continental"] = _CONTINENTAL[filled["continent"].value]
    if "nth" in filled:
        shown["rank"] = str(int(filled["nth"].value) + 1)
    if "zone" in filled:
        shown["local_time"] = shown["zone"].removesuffix(" Zone")
    return shown


def _worded(wording: str, shown: Mapping[str, str]) -> str:
    """Fill the places of a wording, with the plurals and articles that go with the names.

    >>> _worded("is {element} a {series} or one of the {series}s",
    ...         {"element": "Zinc", "series": "Alkali gas"})
    'is Zinc an Alkali gas or one of the Alkali gases'
    """
    for name, what in shown.items():
        place = f"{{{name}}}"
        ends_in_s = what.endswith("s")
        wording = wording.replace(f"{place}s", f"{place}es" if ends_in_s else f"{place}s")
        wording = wording.replace(f"{place}'s", f"{place}'" if ends_in_s else f"{place}'s")
        if what.startswith(_VOWELS):
            wording = re.sub(rf"\ba {re.escape(place)}", f"an {place}", wording)
    return wording.format(**shown)


def _draw(type_id: str, facts: DemoFacts, rng: random.Random) -> str:
    """Draw an entity of a type, well-known ones more often."""
    ranked = facts.ranked(type_id)
    return ranked[int(len(ranked) * rng.random() ** 2)]


def _call(mid: str, type_id: str, facts: DemoFacts, rng: random.Random) -> str:
    """Choose what a question calls an entity: mostly its name, as people say it."""
    name = facts.name(mid)
    if type_id == "language.human_language" and rng.random() < 0.9:
        return name.removesuffix(" Language")
    if type_id in _COMMON_NOUNS and rng.random() < 0.5:
        return name.lower()
    if type_id in _PLACES and rng.random() < 0.15:
        aliases = facts.ends(mid, "common.topic.alias")
        name = rng.choice([name, *(alias for alias in aliases if len(alias) <= len(name))])
    return f"the {name}" if name in _WITH_ARTICLE else name


def _spellings(number: int) -> tuple[str, ...]:
    """Write a number as people do.

    >>> _spellings(1500000)
    ('1500000', '1,500,000', '1.5 million', '1,5 million')
    >>> _spellings(500000)
    ('500000', '500,000', '500 thousand', 'half a million')
    >>> _spellings(-50)
    ('-50', 'minus 50', 'minus fifty')
    """
    if number < 0:
        return str(number), *(f"minus {one}" for one in _spellings(-number))
    if number < 10_000:
        return (str(number), *([_NUMBER_WORDS[number]] if number in _NUMBER_WORDS else ()))
    unit, name = next(one for one in _UNITS if number >= one[0])
    spellings = [str(number), f"{number:,}", f"{number / unit:g} {name}"]
    if number % unit:
        spellings.append(f"{number / unit:g} {name}".replace(".", ","))
    elif number // unit in _NUMBER_WORDS:
        spellings.append(f"{_NUMBER_WORDS[number // unit]} {name}")
    if number == 500_000:
        spellings.append("half a million")
    return tuple(spellings)


def _digits(place: int) -> str:
    """Write a place in an order with digits: 2nd."""
    return f"{place}{ {2: 'nd', 3: 'rd'}.get(place, 'th') }"


def _with_slip(wording: str, rng: random.Random) -> str:
    """Misspell a long word at times, as quick typists do: two letters swapped, or one left out."""
    if rng.random() >= _SLIPS or not (words := list(_LONG.finditer(wording))):
        return wording
    word = rng.choice(words)
    at = word.start() + rng.randrange(1, len(word[0]) - 2)
    swapped = wording[at + 1] + wording[at] if rng.random() < 0.5 else wording[at]
    return wording[:at] + swapped + wording[at + 2 :]


def _typed(question: str, rng: random.Random) -> str:
    """Write a question as users type: mostly in lower case, sometimes with a question mark."""
    style = rng.random()
    if style < 0.45:
        return question.lower()
    if style < 0.7:
        return f"{question.lower()}?"
    return f"{question[0].upper()}{question[1:]}?"
