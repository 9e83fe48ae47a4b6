"""The settings of Think-on-Graph."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from kbqa.engine.deciding.session import SEED
from kbqa.sparql.errors import InputError


@dataclass(frozen=True, slots=True)
class TogSettings:
    """How Think-on-Graph answers; each setting says its meaning."""

    width: Annotated[int, "Relations scored for an entity, and triples kept after each hop."] = 3
    depth: Annotated[int, "Hops, at most."] = 3
    temperature: Annotated[
        float, "Of the replies that score relations and entities; the others have 0."
    ] = 0.4
    sample: Annotated[int, "Entities drawn of a relation that leads to many."] = 5
    sample_from: Annotated[int, "Entities from which a relation leads to many."] = 20
    prune: Annotated[
        Literal["llm", "random"],
        "Whether the chooser scores entities, or they are drawn by chance without a call, as in "
        "ToG-R.",
    ] = "llm"
    seed: Annotated[int, "Seed of everything drawn by chance."] = SEED

    def __post_init__(self) -> None:
        for name in ("width", "depth", "sample", "sample_from"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: use 1 or more")
        if not 0 <= self.temperature < math.inf:
            raise InputError(f"temperature is {self.temperature}: use 0 or more")
