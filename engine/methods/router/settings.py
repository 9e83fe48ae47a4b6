"""The settings of RouterKGQA."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from kbqa.engine.methods.router.repair import Stop
from kbqa.engine.running.reading import SHIPPED_JUDGE
from kbqa.sparql.crp import Kind
from kbqa.sparql.errors import InputError

RepairedBy = Literal["off", "embedder", "llm"]
Route = Literal["reachability", "confidence"]
CandidateOrder = Literal["confidence", "full-first", "beam-first"]


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """How RouterKGQA answers; each setting says its meaning."""

    write: Annotated[
        bool, "Whether the small model writes paths. If not, all are searched for in the graph."
    ] = True
    repair: Annotated[
        RepairedBy | None,
        "What chooses among the graph's paths in a repair: the embedder alone, free and offline, "
        "or the general model. By default what --chooser says, else llm with --llm or --llm-model, "
        "else off.",
    ] = None
    route: Annotated[
        Route,
        "What is repaired: questions without any path that exists, or also those whose answers "
        "are unsure, by --unsure-below.",
    ] = "reachability"
    general_calls: Annotated[
        float,
        "Calls of the general model a question, on average, that route=confidence may take: it "
        "repairs the least sure, and a run stops repairing when they are spent.",
    ] = 0.15
    stop: Annotated[
        Stop,
        "How deep a repair searches: as deep as the small model's path, as the blueprint has "
        "steps, or until the general model judges that it is enough.",
    ] = "model"
    width: Annotated[int, "Paths that each step of a repair starts from."] = 3
    embedder: Annotated[str | None, "Embedder instead of the packaged all-MiniLM-L6-v2."] = None
    seed: Annotated[int, "Seed of --chooser random."] = 42
    order: Annotated[
        CandidateOrder,
        "Which written path answers: the one whose answers are likeliest to be right, the first "
        "that answers in full, or the first that answers at all.",
    ] = "confidence"
    judge: Annotated[
        str | None,
        "What reads the candidates and chooses among them, also among paths that a search of the "
        "graph adds: kbqa's judge by default, the folder of one that kbqa train-judge wrote, or "
        "confidence, which chooses by the confidence model alone.",
    ] = None
    asker: Annotated[
        bool,
        "Whether the judge, where it is in doubt, asks its asker, a small language model, how "
        "likely the question is, given each of the best paths.",
    ] = True
    search: Annotated[bool, "Whether the judge's candidates include searched paths."] = True
    confidence: Annotated[
        Path | None, "Confidence model that tools/fit/confidence.py fitted, instead of a judge."
    ] = None
    without: Annotated[
        tuple[Kind, ...], "Classes of constraints that are left out, to see what they are worth."
    ] = ()

    @property
    def judge_folder(self) -> Path | None:
        """Where the judge is; None if candidates are not read."""
        if self.judge is not None:
            return None if self.judge == "confidence" else Path(self.judge)
        is_left_out = self.confidence is not None or self.order != "confidence" or not self.write
        return None if is_left_out else SHIPPED_JUDGE

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InputError(f"width is {self.width}: use 1 or more")
        if not 0 <= self.general_calls < math.inf:
            raise InputError(f"general_calls is {self.general_calls}: use 0 or more")
        is_read = self.judge not in (None, "confidence")
        if is_read and (self.confidence is not None or self.order != "confidence"):
            raise InputError("judge chooses: leave out confidence and order")
        if self.judge_folder is None:
            for name in ("search", "asker"):
                if not getattr(self, name):
                    raise InputError(f"{name} is about the candidates of a judge; there is none")
