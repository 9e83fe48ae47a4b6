"""Questions over the demo graph with their CRPs, for the training mix.

They teach the model the demo graph's vocabulary and the kinds of constraint that WebQSP has few
of. Each has an answer in the demo graph; its CRP holds names and no mids.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal as Choice
from typing import NamedTuple

from kbqa.sparql.crp import Crp
from kbqa.training.demo_facts import DemoFacts
from kbqa.training.demo_intent import Code, Intent, Number, OfType, Slot
from kbqa.training.demo_intents import INTENTS

Split = Choice["train", "valid"]

_FILLINGS = 24
"""Distinct fillings of an intent's slots, at most."""

_HELD_OUT = 8
"""Of so many fillings one is held out."""

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
        split: No filling of an intent stands in both.
        intent: The kind of question, a key of `kbqa.training.demo_intents.INTENTS`.
    """

    question: str
    crp: Crp
    split: Split
    intent: str


class _Filled(NamedTuple):
    """What fills a slot: what the CRP says, and what the question says."""

    value: str
    shown: str


def demo_examples(seed: int) -> list[DemoExample]:
    """Make the demo questions; the same seed gives the same list.

    Returns:
        About 1,700 for training and 200 held out, in the order of the intents.
    """
    facts = DemoFacts()
    return [
        example
        for name in INTENTS
        for example in _examples(name, facts, random.Random(f"{seed}/{name}"))
    ]


def _examples(name: str, facts: DemoFacts, rng: random.Random) -> Iterator[DemoExample]:
    intent = INTENTS[name]
    fillings = list(_fillings(intent, facts, rng))
    # There are but seven continents: what has few fillings is asked in more of its wordings.
    rounds = min(_FILLINGS // len(fillings), len(intent.wordings))
    for number, filled in enumerate(fillings):
        crp = intent.build({slot: one.value for slot, one in filled.items()})
        is_held_out = number % _HELD_OUT == _HELD_OUT - 1
        for turn in range(1 if is_held_out else rounds):
            wording = intent.wordings[(number + turn) % len(intent.wordings)]
            split: Split = "valid" if is_held_out else "train"
            yield DemoExample(_word(wording, filled, rng), crp, split, name)


def _fillings(
    intent: Intent, facts: DemoFacts, rng: random.Random
) -> Iterator[Mapping[str, _Filled]]:
    """Yield distinct fillings of the slots for which the CRP has an answer."""
    tried: set[tuple[str, ...]] = set()
    found = 0
    for _ in range(_TRIES):
        filled = {name: _fill(slot, facts, rng) for name, slot in intent.slots.items()}
        values = tuple(one.value for one in filled.values())
        if values in tried or len(set(values)) < len(values):
            continue
        tried.add(values)
        if facts.answers(intent.build(dict(zip(filled, values, strict=True)))):
            yield filled
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
        case Code(type_id, relation):
            while True:
                codes = facts.ends(_draw(type_id, facts, rng), relation)
                if codes:
                    return _Filled(codes[0], codes[0])


def _draw(type_id: str, facts: DemoFacts, rng: random.Random) -> str:
    """Draw an entity of a type, well known ones more often."""
    ranked = facts.ranked(type_id)
    return ranked[int(len(ranked) * rng.random() ** 2)]


def _call(mid: str, type_id: str, facts: DemoFacts, rng: random.Random) -> str:
    """Choose what a question calls an entity: most often its name, as people say it."""
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


def _word(wording: str, filled: Mapping[str, _Filled], rng: random.Random) -> str:
    """Write a question the way users type: most often in lower case, at times with a mark."""
    question = wording.format(**{name: one.shown for name, one in filled.items()})
    style = rng.random()
    if style < 0.45:
        return question.lower()
    if style < 0.7:
        return f"{question.lower()}?"
    return f"{question[0].upper()}{question[1:]}?"
