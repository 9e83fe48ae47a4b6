"""Questions on the demo graph with their CRPs, for the training mix.

They teach the model the demo graph's vocabulary, and the kinds of constraint that are rare in
WebQSP. Each has an answer in the demo graph. Its CRP holds names and no mids.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kbqa.sparql.crp import Crp
from kbqa.training.demo.facts import DemoFacts
from kbqa.training.demo.intents import Code, Intent, Number, OfType, Slot, read_intents

DemoSplit = Literal["train", "valid"]

_FILLINGS = 24
"""The most fillings of an intent's slots."""

_HELD_OUT = 8
"""One of this many fillings is held out."""

_TRIES = 3_000
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
        About 1,700 for training and 200 held out, in the order of the intents.
    """
    facts = DemoFacts()
    return [
        example
        for name, intent in (read_intents() if intents is None else intents).items()
        for example in _examples(name, intent, facts, random.Random(f"{seed}/{name}"))
    ]


def _examples(
    name: str, intent: Intent, facts: DemoFacts, rng: random.Random
) -> Iterator[DemoExample]:
    fillings = list(_fillings(intent, facts, rng))
    # Intents with few fillings, such as the seven continents, are asked in more wordings.
    rounds = min(_FILLINGS // len(fillings), len(intent.wordings))
    for number, (crp, shown) in enumerate(fillings):
        is_held_out = number % _HELD_OUT == _HELD_OUT - 1
        for turn in range(1 if is_held_out else rounds):
            wording = intent.wordings[(number + turn) % len(intent.wordings)]
            question = _typed(wording.format(**shown), rng)
            yield DemoExample(question, crp, "valid" if is_held_out else "train", name)


def _fillings(intent: Intent, facts: DemoFacts, rng: random.Random) -> Iterator[_Filling]:
    """Yield distinct fillings with which the CRP has an answer."""
    tried: set[tuple[str, ...]] = set()
    found = 0
    for _ in range(_TRIES):
        filled = {name: _fill(slot, facts, rng) for name, slot in intent.slots.items()}
        values = tuple(one.value for one in filled.values())
        if values in tried or len(set(values)) < len(values):
            continue
        tried.add(values)
        crp = intent.build(dict(zip(filled, values, strict=True)))
        if facts.answers(crp):
            yield _Filling(crp, {name: one.shown for name, one in filled.items()})
            found += 1
            if found == _FILLINGS:
                return


def _fill(slot: Slot, facts: DemoFacts, rng: random.Random) -> _Filled:
    match slot:
        case Number(choices):
            number = rng.choice(choices)
            return _Filled(str(number), rng.choice(_spellings(number)))
        case OfType(type_id):
            mid = _draw(type_id, facts, rng)
            return _Filled(facts.name(mid), _call(mid, type_id, facts, rng))
        case Code(relation):
            while True:
                codes = facts.ends(_draw(slot.type_id, facts, rng), relation)
                if codes:
                    return _Filled(codes[0], codes[0])


def _draw(type_id: str, facts: DemoFacts, rng: random.Random) -> str:
    """Draw an entity of a type, well-known ones more often."""
    ranked = facts.ranked(type_id)
    return ranked[int(len(ranked) * rng.random() ** 2)]


def _call(mid: str, type_id: str, facts: DemoFacts, rng: random.Random) -> str:
    """Choose what a question calls an entity: mostly its name, as people say it."""
    name = facts.name(mid)
    if type_id == "language.human_language" and rng.random() < 0.9:
        return name.removesuffix(" Language")
    if type_id in _PLACES and rng.random() < 0.15:
        aliases = facts.ends(mid, "common.topic.alias")
        name = rng.choice([name, *(alias for alias in aliases if len(alias) <= len(name))])
    return f"the {name}" if name in _WITH_ARTICLE else name


def _spellings(number: int) -> tuple[str, ...]:
    """Write a number as people do.

    >>> _spellings(2000000)
    ('2000000', '2,000,000', '2 million')
    """
    if number < 10_000:
        return (str(number),)
    if number % 1_000_000:
        return str(number), f"{number:,}"
    return str(number), f"{number:,}", f"{number // 1_000_000} million"


def _typed(question: str, rng: random.Random) -> str:
    """Write a question as users type: mostly in lower case, sometimes with a question mark."""
    style = rng.random()
    if style < 0.45:
        return question.lower()
    if style < 0.7:
        return f"{question.lower()}?"
    return f"{question[0].upper()}{question[1:]}?"
