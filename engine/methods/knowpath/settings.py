"""The settings of KnowPath."""

from dataclasses import dataclass
from typing import Annotated, Literal

from kbqa.engine.deciding.session import SEED
from kbqa.sparql.errors import InputError

Order = Literal["stable", "embedder"]
AskedFor = Literal["entity", "subgraph"]
Mediators = Literal["keep", "drop"]
Part = Literal["hint", "paths", "subgraph"]


@dataclass(frozen=True, slots=True)
class KnowpathSettings:
    """How KnowPath answers; each setting says its meaning."""

    depth: Annotated[int, "Rounds of exploration, at most; each goes one hop further."] = 3
    temperature: Annotated[
        float,
        "Of the replies that choose relations and entities. With temperature above 0 a model may "
        "reply differently in each run.",
    ] = 0.4
    triples: Annotated[int, "Triples that the model lists from memory before it answers."] = 15
    relations: Annotated[int, "Relations chosen in one decision, at most."] = 7
    entities: Annotated[int, "Entities of a subgraph that each round goes on from, at most."] = 7
    shown: Annotated[int, "Entities offered of those that one relation leads to, at most."] = 40
    order: Annotated[
        Order, "Which entities are offered if there are more: the first by id, or the most similar."
    ] = "stable"
    calls: Annotated[
        AskedFor,
        "Choose relations for each entity, as the released code does, or for a whole subgraph, "
        "as the text of the paper says.",
    ] = "entity"
    mediators: Annotated[
        Mediators,
        "Nodes without a name: keep them, or drop them, and literals and ids other than m., as the "
        "released code does.",
    ] = "keep"
    ablate: Annotated[
        tuple[Part, ...],
        "Parts left out: the hint in prompts, the paths from memory altogether, or the graph.",
    ] = ()
    seed: Annotated[int, "Seed of everything drawn by chance."] = SEED

    def __post_init__(self) -> None:
        for name in ("depth", "relations", "entities", "shown"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: use 1 or more")
        if self.triples < 0:
            raise InputError(f"triples is {self.triples}: use 0 or more")
        if not 0 <= self.temperature <= 2:
            raise InputError(f"temperature is {self.temperature}: use 0 to 2")
