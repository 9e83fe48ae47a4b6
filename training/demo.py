"""Questions on the demo graph with their CRPs, for the training mix.

They teach the model the demo graph's vocabulary, and what is rare in WebQSP: counts, yes and no,
comparisons, negation, places in an order, numbers in words. What they ask are the intents of
`intents.toml`, with slots for entities, codes and numbers. Each question has an answer in the demo
graph. Its CRP holds names and no mids.
"""

import lzma
import random
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, Self, TypeAlias

from kbqa.engine.running.path_runner import PathRunner, is_reachable
from kbqa.kb.loading.dump import literal_parts
from kbqa.kb.open import DEMO_DUMP, demo_store_directory
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.forms import bracketed, read_crp
from kbqa.sparql.terms import FREEBASE_NS, LiteralTerm

_OPEN = len(f"<{FREEBASE_NS}")
_NAME = "type.object.name"
_TYPE = "type.object.type"
_POPULATION = "location.statistical_region.population"
_NUMBER = "measurement_unit.dated_integer.number"
_LIMIT_S = 10.0

_FILE = Path(__file__).with_name("intents.toml")
_PLACE = re.compile(r"\{(\w+)\}")
_ASKED = re.compile(r"^\?x = \{(\w+)\}$", re.MULTILINE)

_FILLINGS = 24  # of an intent's slots, at most
_HELD_OUT = 8  # one of this many fillings is held out
_TRIES = 2_000
_SLIPS = 0.1  # share of the questions with a typing error; names are never touched
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


class DemoFacts:
    """The demo graph: what relations lead to, entities by type, and what paths over names say."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._members: dict[str, list[str]] = defaultdict(list)
        self._degrees: Counter[str] = Counter()
        with lzma.open(DEMO_DUMP) as lines:
            # Our own file, so it needs none of the checks of a dump.
            for line in lines:
                first, second, end, _ = line.split(b"\t")
                subject, relation = first[_OPEN:-1].decode(), second[_OPEN:-1].decode()
                literal = literal_parts(end) if end.startswith(b'"') else None
                node = literal.text if literal else end[_OPEN:-1].decode()
                self._degrees[subject] += 1
                self._ends[subject, relation].append(node)
                if relation == _TYPE:
                    self._members[node].append(subject)
        self._ranked: dict[str, tuple[str, ...]] = {}
        self._best_known: dict[str, str] = {}
        named = [subject for subject, relation in self._ends if relation == _NAME]
        for mid in sorted(named, key=self._prominence, reverse=True):
            self._best_known.setdefault(self.name(mid).casefold(), mid)
        self._graph = OxigraphStore.open(demo_store_directory())
        self._runner = PathRunner(self._graph, _LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._graph.close()

    def ranked(self, type_id: str) -> tuple[str, ...]:
        """List a type's entities, the most populous or else most connected first.

        Of those that share a name, only the best known: Cambridge never means the one in Ohio.
        """
        if type_id not in self._ranked:
            members = sorted(self._members[type_id], key=self._prominence, reverse=True)
            self._ranked[type_id] = tuple(
                mid for mid in members if self._best_known[self.name(mid).casefold()] == mid
            )
        return self._ranked[type_id]

    def name(self, mid: str) -> str:
        """Return an entity's name."""
        return self._ends[mid, _NAME][0]

    def ends(self, mid: str, relation: str) -> Sequence[str]:
        """List what a relation leads to, in the order of the triples; of literals, the texts."""
        return self._ends.get((mid, relation), ())

    def says(self, crp: Crp) -> bool | None:
        """Return what a CRP over names says, or True if it asks neither; None without an answer.

        A name means the best known entity of that name.
        """
        grounded = crp.with_entities(self._linked)
        outcome = self._runner.run(grounded)
        if outcome is None and crp.form == "ask" and is_reachable(self._graph, grounded, _LIMIT_S):
            outcome = self._runner.run_unsatisfied(grounded)
        if outcome is None:
            return None
        return True if outcome.boolean is None else outcome.boolean

    def answers(self, crp: Crp) -> list[str]:
        """List the answers of a CRP over names: mids, and the text of literals."""
        outcome = self._runner.run(crp.with_entities(self._linked))
        rows = outcome.table.rows if outcome else ()
        return [end.text if isinstance(end, LiteralTerm) else end for [end] in rows if end]

    def _linked(self, entity: Entity) -> Entity:
        if entity.name is None:
            return entity
        return Entity(entity.name, self._best_known[entity.name.casefold()])

    def _prominence(self, mid: str) -> tuple[float, int, str]:
        people = [
            float(number)
            for node in self.ends(mid, _POPULATION)
            for number in self.ends(node, _NUMBER)
        ]
        return max(people, default=0.0), self._degrees[mid], mid


@dataclass(frozen=True, slots=True)
class OfType:
    """Filled with an entity of this type; the CRP gets its name."""

    type_id: str


@dataclass(frozen=True, slots=True)
class Code:
    """Filled with what a relation leads to from an entity of the relation's type."""

    relation: str


@dataclass(frozen=True, slots=True)
class Number:
    """Filled with one of these numbers."""

    choices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ordinal:
    """Filled with a place in an order, from 2 to 7; the CRP gets how many come before it."""

    choices: tuple[int, ...]


Slot: TypeAlias = OfType | Code | Number | Ordinal


@dataclass(frozen=True, slots=True)
class Intent:
    """One kind of question: ways to ask it, with a place such as ``{country}`` for each slot."""

    wordings: tuple[str, ...]
    crp: str  # in kbqa's own text form, with places for the same slots
    slots: Mapping[str, Slot]  # in the order in which they are filled

    def build(self, values: Mapping[str, str]) -> Crp:
        """Write values into the places of the CRP.

        >>> capital = Intent((), "{x} -> location.country.capital", {"x": OfType("a.b")})
        >>> capital.build({"x": "Kenya"}).topic.name
        'Kenya'
        """
        written = {
            name: bracketed(value) if isinstance(self.slots[name], OfType) else value
            for name, value in values.items()
        }
        crp, problems = read_crp(self.crp.format(**written))
        if problems:
            raise ValueError(f"{self.crp!r} with {written}: {'; '.join(problems)}")
        return crp


def read_intents() -> dict[str, Intent]:
    """Read every intent by its name."""
    data = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    slots: dict[str, Slot] = {
        **{name: OfType(type_id) for name, type_id in data["slots"]["entity"].items()},
        **{name: Number(tuple(choices)) for name, choices in data["slots"]["number"].items()},
        **{name: Ordinal(tuple(places)) for name, places in data["slots"]["ordinal"].items()},
        **{name: Code(relation) for name, relation in data["slots"]["code"].items()},
    }
    intents = {}
    for name, row in data["intents"].items():
        places = set(_PLACE.findall(row["crp"]))
        used = {slot: what for slot, what in slots.items() if slot in places}
        intents[name] = Intent(tuple(row["wordings"]), row["crp"], used)
    return intents


@dataclass(frozen=True, slots=True)
class DemoExample:
    """A question as a user may type it, and its CRP over names."""

    question: str
    crp: Crp
    split: Literal["train", "valid"]  # a filling of an intent is in one split only
    intent: str  # a key of `read_intents`


class _Filled(NamedTuple):
    """What fills a slot, in the CRP and in the question."""

    value: str
    shown: str


def demo_examples(seed: int, intents: Mapping[str, Intent] | None = None) -> list[DemoExample]:
    """Write the demo questions, in the order of the intents; the same seed gives the same list.

    There are about 11,700 for training and 1,400 held out. Half of the yes/no questions are
    answered yes. The seed decides for each intent by itself.
    """
    return list(_all_examples(seed) if intents is None else _examples_of(intents, seed))


@cache  # to try what fills the slots takes a minute
def _all_examples(seed: int) -> tuple[DemoExample, ...]:
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
        split: Literal["train", "valid"] = (
            "valid" if number % _HELD_OUT == _HELD_OUT - 1 else "train"
        )
        for wording in islice(wordings[split], rounds if split == "train" else 1):
            question = _typed(_worded(_with_slip(wording, rng), shown), rng)
            yield DemoExample(question, crp, split, name)


def _fillings(
    intent: Intent, facts: DemoFacts, rng: random.Random
) -> Iterator[tuple[Crp, Mapping[str, str]]]:
    """Yield distinct CRPs that have an answer, yes and no by turns, and what fills the question."""
    tried: set[tuple[str, ...]] = set()
    found = 0
    asked = _ASKED.search(intent.crp)  # the slot of which it asks whether it is an answer
    for _ in range(_TRIES):
        filled = {name: _fill(slot, facts, rng) for name, slot in intent.slots.items()}
        if asked and found % 2 == 0:
            _fill_with_an_answer(asked[1], filled, intent, facts, rng)
        values = tuple(one.value for one in filled.values())
        if values in tried or len(set(values)) < len(values):
            continue
        tried.add(values)
        crp = intent.build(dict(zip(filled, values, strict=True)))
        says = facts.says(crp)
        wanted = crp.form != "ask" or found % 2 == 0
        if says is wanted:
            yield crp, _shown(filled)
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
            filled[asked] = _called(rng.choice(known), type_id, facts, rng)
        case Code() if answers:
            filled[asked] = _Filled(answers[0], answers[0])


def _fill(slot: Slot, facts: DemoFacts, rng: random.Random) -> _Filled:
    match slot:
        case Number(choices):
            number = rng.choice(choices)
            return _Filled(str(number), rng.choice(_spellings(number)))
        case Ordinal(choices):
            place = rng.choice(choices)
            digits = f"{place}{ {2: 'nd', 3: 'rd'}.get(place, 'th') }"
            return _Filled(str(place - 1), rng.choice((_ORDINALS[place - 2], digits)))
        case OfType(type_id):
            return _called(_draw(type_id, facts, rng), type_id, facts, rng)
        case Code(relation):
            while True:
                codes = facts.ends(_draw(relation.rpartition(".")[0], facts, rng), relation)
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


def _called(mid: str, type_id: str, facts: DemoFacts, rng: random.Random) -> _Filled:
    """Choose what a question calls an entity: mostly its name, as people say it."""
    name = called = facts.name(mid)
    if type_id == "language.human_language" and rng.random() < 0.9:
        return _Filled(name, name.removesuffix(" Language"))
    if type_id in _COMMON_NOUNS and rng.random() < 0.5:
        return _Filled(name, name.lower())
    if type_id in _PLACES and rng.random() < 0.15:
        aliases = facts.ends(mid, "common.topic.alias")
        called = rng.choice([name, *(alias for alias in aliases if len(alias) <= len(name))])
    return _Filled(name, f"the {called}" if called in _WITH_ARTICLE else called)


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
