"""Word questions as people do: with a condition that no path has, or with words that ask nothing.

Benchmarks ask for what their graph knows. Of *walkable cities in Mexico* a path lists all cities,
and nothing right can be chosen; of *quick question: cities in Mexico?* it answers. A judge that
reads both learns which words count. The words are made up, and are neither in the benchmarks nor in
the questions of people that kbqa is measured on.
"""

import random
import re
from collections.abc import Callable

# ruff: noqa: SIM905 – lists of words read better as text
_OF_THINGS = """beautiful boring cheap friendly haunted polluted romantic overrated corrupt walkable
    cosy scenic trendy snobbish sleepy photogenic touristy unforgettable quirky elegant loneliest
    friendliest cleanest ugliest funniest bravest weirdest noisiest""".split()
_OF_ONE = "favourite favorite secret worst real imaginary forgotten hidden".split()
_KIN = """mother brother sister neighbour boss daughter uncle rival cousin grandfather teacher
    lawyer landlord assistant son dog""".split()
_CONDITIONS = (
    "that children like",
    "with a nice beach",
    "with the best food",
    "that my mother would love",
    "that has free parking",
    "without any crime",
    "where it never rains",
    "that I can reach by train",
    "that are safe at night",
    "with good restaurants",
    "that nobody remembers",
    "with a swimming pool",
    "that smells of roses",
    "with low taxes",
    "that are open on Sundays",
    "but only the ones painted green",
    "that are worth a visit",
    "with many students",
    "that vegetarians would like",
    "without a railway",
    "outside the mountains",
    "that were never finished",
    "for beginners",
    "with a harbour",
    "that are left-handed",
)
_BEFORE = (
    "please tell me, ",
    "quick question: ",
    "do you know ",
    "I'm writing an essay, ",
    "for a school project: ",
    "my son would like to know ",
    "hey, ",
    "I keep forgetting, ",
    "sorry to bother you, ",
    "I wonder ",
    "just curious, ",
    "could you please look up ",
)
_BEHIND = (
    " thanks",
    " please",
    " i need it today",
    " asap",
    ", I always forget",
    " (it is for a crossword)",
    " cheers",
    "?? thx",
    " by the way",
)
_NOUN = re.compile(
    r"\b(?:which|what) (?!(?:is|are|was|were|did|do|does|has|have|had|can|could|will|would|s|of|the"
    r"|type|kind|year|date|day|time)\b)(?=[a-z])"
)
_OWN = re.compile(r"\b(?:the|his|her|its|all|'s) (?=[a-z]{4,}(?:s\b| of\b| in\b|\W*$))")


def with_condition(question: str, topic: str, rng: random.Random) -> str:
    """Ask for something that no path of a question can say.

    >>> with_condition("which cities are in Mexico?", "Mexico", random.Random(3))
    'which cities are in Mexico that vegetarians would like?'
    """
    said = question.rstrip(" ?.!")
    ways: list[Callable[[], str]] = [lambda: f"{said} {rng.choice(_CONDITIONS)}"]
    named = rf"(?<!\w){re.escape(topic)}(?!\w)(?!['’]s)"
    if topic and (match := re.search(named, said, re.IGNORECASE)):
        end = match.end()
        ways.append(lambda: f"{said[:end]}'s {rng.choice(_KIN)}{said[end:]}")
    for pattern, words in ((_NOUN, _OF_THINGS), (_OWN, _OF_THINGS + _OF_ONE)):
        if match := pattern.search(said):
            before, noun = said[: match.end()], said[match.end() :]
            ways.append(lambda b=before, n=noun, w=words: f"{b}{rng.choice(w)} {n}")  # type: ignore[misc]
    return rng.choice(ways)() + question[len(said) :]


def with_words_beside(question: str, rng: random.Random) -> str:
    """Ask the same with words that ask nothing, and perhaps without capitals.

    >>> with_words_beside("which cities are in Mexico?", random.Random(1))
    'quick question: which cities are in Mexico?? thx'
    """
    if rng.random() < 0.6:
        question = rng.choice(_BEFORE) + question
    if rng.random() < 0.5:
        question = question.rstrip(" ?.!") + rng.choice(_BEHIND)
    return question.lower().rstrip("?") if rng.random() < 0.4 else question
