"""Read what the demo questions ask: the intents of `intents.toml`."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from kbqa.sparql.crp import Crp
from kbqa.sparql.forms import bracketed, read_crp

_FILE = Path(__file__).with_name("intents.toml")
_PLACE = re.compile(r"\{(\w+)\}")
_ASKED = re.compile(r"^\?x = \{(\w+)\}$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OfType:
    """Filled with an entity of this type; the CRP gets its name."""

    type_id: str


@dataclass(frozen=True, slots=True)
class Code:
    """Filled with what a relation leads to from an entity of the relation's type."""

    relation: str

    @property
    def type_id(self) -> str:
        """The type that the relation belongs to."""
        return self.relation.rpartition(".")[0]


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
    """One kind of question.

    Attributes:
        wordings: Ways to ask, with a place such as ``{country}`` for each slot.
        crp: The reasoning path in kbqa's own text form, with places for the same slots.
        slots: What fills the places, in the order in which they are filled.
    """

    wordings: tuple[str, ...]
    crp: str
    slots: Mapping[str, Slot]

    @property
    def asked(self) -> str | None:
        """The slot of which the question asks whether it is an answer."""
        found = _ASKED.search(self.crp)
        return found[1] if found else None

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
