"""The settings of Bounded Path Context."""

from dataclasses import dataclass
from typing import Annotated, Literal

from kbqa.engine.deciding.session import SEED
from kbqa.engine.exploring.neighbourhood import Directions
from kbqa.engine.methods.settings import check_counts
from kbqa.sparql.errors import InputError

Marker = Literal["neutral", "start"]
Control = Literal["none", "random", "tog", "cot"]
Keep = Literal["open", "finished"]
TailsBy = Literal["first", "choose"]


@dataclass(frozen=True, slots=True)
class BpcSettings:
    """How Bounded Path Context answers; each setting says its meaning."""

    history: Annotated[
        Literal["full"] | int,
        "Hops of a walk's past that the model sees when it chooses the next relations.",
    ] = 1
    depth: Annotated[int, "Hops of a walk, at most."] = 5
    width: Annotated[int, "Relations chosen for a walk, and nodes taken of each, at most."] = 3
    relation_cap: Annotated[int, "Relations of a node that are offered, at most."] = 50
    beams: Annotated[int, "Walks kept after each hop."] = 16
    answer_paths: Annotated[int, "Walks that the model sees when it answers."] = 8
    directions: Annotated[
        Directions, "Follow relations forwards only, as the paper does, or also backwards."
    ] = "out"
    marker: Annotated[
        Marker,
        "What stands where no history is shown: a neutral note, or the released code's claim that "
        "reasoning starts here, which is wrong after the first hop.",
    ] = "neutral"
    hop_numbers: Annotated[
        bool, "Number the hops of the history, as the released code does; this tells the depth."
    ] = False
    keep: Annotated[
        Keep, "Walks that stay when there are too many: open ones, as in the paper, or finished."
    ] = "open"
    control: Annotated[
        Control,
        "Run a control of the paper instead: random walks, its variant of Think-on-Graph "
        "(full history, chosen nodes, a check after each hop), or an answer without the graph.",
    ] = "none"
    tails: Annotated[
        TailsBy | None,
        "Take the first nodes of a relation, or let the model choose. By default choose with "
        "control=tog, else first.",
    ] = None
    check: Annotated[
        bool | None,
        "Ask after each hop whether the walks suffice. By default yes with control=tog, else no.",
    ] = None
    seed: Annotated[int, "Seed of everything drawn by chance."] = SEED

    def __post_init__(self) -> None:
        check_counts(self, "depth", "width", "relation_cap", "beams", "answer_paths")
        if self.history != "full" and self.history < 0:
            raise InputError(f"history is {self.history}: use 0 or more, or full")

    @property
    def shown_hops(self) -> int:
        """How many hops of history are shown."""
        if self.control == "tog" or self.history == "full":
            return self.depth
        return self.history

    @property
    def tails_by(self) -> TailsBy:
        """Who takes the nodes of a relation."""
        return self.tails or ("choose" if self.control == "tog" else "first")

    @property
    def is_checked(self) -> bool:
        """Whether it is asked after each hop whether the walks suffice."""
        return self.control == "tog" if self.check is None else self.check
