"""The settings of Plan-on-Graph."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from kbqa.engine.deciding.session import SEED
from kbqa.sparql.errors import InputError

Part = Literal["plan", "memory", "reflection"]


@dataclass(frozen=True, slots=True)
class PogSettings:
    """How Plan-on-Graph answers; each setting says its meaning."""

    depth: Annotated[int, "Hops, at most."] = 4
    temperature: Annotated[float, "Of all replies."] = 0.3
    shown: Annotated[
        int, "Entities offered at once; of more, those most similar to the question are."
    ] = 70
    nameless: Annotated[
        int, "Entities drawn of a relation that leads to more of them, none with a name."
    ] = 10
    reversals: Annotated[int, "Times that earlier entities may be taken up again."] = 5
    ablate: Annotated[
        tuple[Part, ...],
        "Parts that are left out: the sub-objectives, the memory, or the reversals.",
    ] = ()
    seed: Annotated[int, "Seed of everything drawn by chance."] = SEED

    def __post_init__(self) -> None:
        for name in ("depth", "shown", "nameless"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: use 1 or more")
        if self.reversals < 0:
            raise InputError(f"reversals is {self.reversals}: use 0 or more")
        if not 0 <= self.temperature < math.inf:
            raise InputError(f"temperature is {self.temperature}: use 0 or more")
