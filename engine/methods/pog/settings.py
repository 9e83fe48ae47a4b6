"""The settings of Plan-on-Graph."""

from dataclasses import dataclass
from typing import Annotated, Literal

from kbqa.engine.deciding.session import SEED
from kbqa.engine.methods.settings import check_counts, check_temperature

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
        check_counts(self, "depth", "shown", "nameless")
        check_counts(self, "reversals", least=0)
        check_temperature(self.temperature)
