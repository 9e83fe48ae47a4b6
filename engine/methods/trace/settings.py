"""The settings of TRACE; the defaults are the paper's."""

from dataclasses import dataclass
from typing import Annotated, Literal

from kbqa.engine.exploring.neighbourhood import Directions
from kbqa.engine.methods.settings import check_counts
from kbqa.sparql.errors import InputError

Context = Literal["narrative", "relations", "none"]
AnswerBy = Literal["joined", "ends", "llm"]
PathScore = Literal["mean", "product", "min", "last"]


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """How TRACE answers; each setting says its meaning. Source: TRACE §4.1."""

    candidates: Annotated[
        int, "Relations that are proposed at each hop; the paper has 3 for WebQSP, 4 for CWQ (k)."
    ] = 3
    depth: Annotated[int, "Hops of a trajectory, at most (L)."] = 4
    keep: Annotated[
        float, "The score from which a proposed relation is followed; a language model's only (ζ)."
    ] = 0.5
    iterations: Annotated[int, "Trajectories that are followed to their end, at most (I)."] = 30
    context: Annotated[
        Context,
        "What relations are proposed by: a narrative of the path so far, its relations as they "
        "are, or nothing.",
    ] = "narrative"
    priors: Annotated[
        bool, "Whether trajectories that ended are summarised, and what they teach is used."
    ] = True
    eager_priors: Annotated[
        bool,
        "Whether that is done as soon as a trajectory ends, as the paper does, and not when it is "
        "first needed: the same answers with more calls.",
    ] = False
    path_score: Annotated[
        PathScore, "How the scores of a trajectory's hops become its relevance."
    ] = "mean"
    answer: Annotated[
        AnswerBy,
        "What is answered: the ends of the most relevant trajectory, those ends that trajectories "
        "from the other topics also lead to, or those that the language model picks.",
    ] = "joined"
    directions: Annotated[
        Directions, "Whether relations are also followed backwards; the paper only leaves nodes."
    ] = "both"
    max_relations: Annotated[
        int, "Relations of a hop that a language model is shown: those most like the question."
    ] = 100
    seed: Annotated[int, "For the random chooser."] = 42

    def __post_init__(self) -> None:
        check_counts(self, "candidates", "depth", "iterations", "max_relations")
        if not 0 <= self.keep <= 1:
            raise InputError(f"keep is {self.keep}: use a score from 0 to 1")
        if self.eager_priors and not self.priors:
            raise InputError("eager_priors=yes is about priors, and there are none: priors=no")

    @property
    def of_language_model(self) -> str:
        """The settings that change only what a language model does, as texts; mostly none."""
        changed = {
            f"answer={self.answer}": self.answer == "llm",
            f"context={self.context}": self.context != "narrative",
            "priors=no": not self.priors,
            "eager_priors=yes": self.eager_priors,
        }
        return ", ".join(text for text, is_changed in changed.items() if is_changed)
