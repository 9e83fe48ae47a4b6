"""The settings of Think-on-Graph."""

from dataclasses import dataclass
from typing import Annotated, Literal

from kbqa.engine.deciding.session import SEED
from kbqa.engine.methods.settings import check_counts, check_temperature


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
        check_counts(self, "width", "depth", "sample", "sample_from")
        check_temperature(self.temperature)
