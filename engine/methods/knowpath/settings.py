"""The settings of KnowPath."""

from dataclasses import dataclass
from typing import Annotated, Literal

from kbqa.engine.deciding.session import SEED
from kbqa.engine.methods.settings import check_counts, check_temperature

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
        check_counts(self, "depth", "relations", "entities", "shown")
        check_counts(self, "triples", least=0)
        check_temperature(self.temperature)
