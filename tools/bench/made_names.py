"""Make up entities with names like those of Freebase, for measuring the name index.

Half are people, a third works, the rest places. Words recur as in texts (the n-th has a frequency
proportional to 1/n), so few names have many matches and most words are rare. A fifth of the
entities have an alias, and popularity has a long tail. Nothing here is taken from a graph.
"""

from collections.abc import Iterator
from random import Random

import polars as pl

_FIRST_NAMES = """anna john maria peter laura james olga david emma paul sofia mark clara henry julia
    carl nina oscar irene felix marta simon vera hugo edith boris alice ivan helen otto ruth leon
    grace emil dora max lydia arthur rosa victor elena martin agnes louis ida frank eva george""".split()  # noqa: E501, SIM905
_NOUNS = """night river house winter garden shadow summer road city star stone heart song mirror
    island door letter forest train window bridge sea moon storm child king queen dream fire bird
    clock ship tower street snow field wolf crown silence harbour mountain valley dance memory
    secret morning promise soldier stranger""".split()  # noqa: SIM905
_QUALITIES = """last long blue silent broken golden dark lost old distant white hidden empty wild
    burning little red endless cold sweet""".split()  # noqa: SIM905
_PLACES = ("{}", "{} County", "Lake {}", "{} River", "Mount {}", "St. {}", "{} Township", "New {}")
_WORKS = (
    "The {q} {n}",
    "{n} of {w}",
    "{q} {n}",
    "The {n} and the {m}",
    "{w}",
    "{w}'s {n}",
    "{n} {number}",
    "{w}: The {q} {n} of {m}",
)
_ONSETS = "b br ch d dr f g gr h k kl l m n p r s sh st t tr v w z".split()  # noqa: SIM905
_VOWELS = "a e i o u ai ou".split()  # noqa: SIM905
_CODAS = ("", "n", "r", "l", "s", "rt", "nd", "ck")
_SYLLABLES = len(_ONSETS) * len(_VOWELS) * len(_CODAS)
_RARE_WORDS = 5_000_000
_CHUNK = 100_000
_MOST_POPULAR = 3_000_000


def made_names(names: int, seed: int) -> Iterator[pl.DataFrame]:
    """Make up entities with this many names and aliases, as `NameIndexBuilder.add` takes them."""
    random = Random(seed)
    made = 0
    while made < names:
        rows: list[tuple[str, int, str, bool]] = []
        size = min(_CHUNK, names - made)
        while len(rows) < size:
            rows += _entity(random, made + len(rows))
        rows = rows[:size]
        made += size
        yield pl.DataFrame(rows, ["mid", "popularity", "text", "is_alias"], orient="row")


def _entity(random: Random, number: int) -> list[tuple[str, int, str, bool]]:
    kind = random.random()
    make = _person if kind < 0.5 else _work if kind < 0.83 else _place
    name, alias = make(random)
    popularity = min(_MOST_POPULAR, int(3 / (1 - random.random())))
    mid = f"m.{number:08x}"
    rows = [(mid, popularity, name, False)]
    if random.random() < 0.2:
        rows.append((mid, popularity, alias, True))
    return rows


def _person(random: Random) -> tuple[str, str]:
    first, last = _pick(random, _FIRST_NAMES).title(), _word(random)
    middle = _pick(random, _FIRST_NAMES).title()
    return random.choice(
        (
            (f"{first} {last}", f"{first[0]}. {last}"),
            (f"{first} {last}", f"{first} {middle} {last}"),
            (f"{first} {middle[0]}. {last}", f"{first} {last}"),
            (f"{first} {last}-{_word(random)}", last),
        )
    )


def _work(random: Random) -> tuple[str, str]:
    title = random.choice(_WORKS).format(
        q=_pick(random, _QUALITIES).title(),
        n=_pick(random, _NOUNS).title(),
        m=_pick(random, _NOUNS).title(),
        w=_word(random),
        number=random.randint(2, 2015),
    )
    return title, f"{title} ({random.randint(1900, 2015)} film)"


def _place(random: Random) -> tuple[str, str]:
    word = _word(random)
    return random.choice(_PLACES).format(word), f"{word}, {_word(random)}"


def _word(random: Random) -> str:
    """Make up a word: the n-th of all has a frequency proportional to 1/n."""
    number = int(_RARE_WORDS ** random.random())
    parts = []
    while number:
        number, syllable = divmod(number - 1, _SYLLABLES)
        syllable, onset = divmod(syllable, len(_ONSETS))
        coda, vowel = divmod(syllable, len(_VOWELS))
        parts.append(_ONSETS[onset] + _VOWELS[vowel] + _CODAS[coda])
    return "".join(parts).title()


def _pick(random: Random, words: list[str]) -> str:
    return words[int(len(words) ** random.random()) - 1]
