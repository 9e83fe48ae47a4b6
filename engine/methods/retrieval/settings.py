"""The settings of the methods that retrieve."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from kbqa.engine.methods.settings import check_counts
from kbqa.engine.retrieval.pooling_settings import PoolingSettings, Shown
from kbqa.engine.retrieval.scorer import ScorerName

ReaderName = Literal["llm", "kernels"]
PromptForm = Literal["triples", "paths"]
PromptOrder = Literal["ascending", "descending", "edges"]

_Prompt = Annotated[
    PromptForm,
    "How the general model is shown triples: each on its own, or as paths where one begins with "
    "the end of the one before it.",
]
_Order = Annotated[
    PromptOrder,
    "Where a prompt has the best triples: last, next to the question; first; or at both ends.",
]
_FollowUp = Annotated[
    bool, "Whether the general model is asked once more if its reply has no answer."
]


@dataclass(frozen=True)
class SubgraphSettings:
    """How triples are retrieved and read; each setting says its meaning.

    Source of the defaults: SubgraphRAG's released code; `shown` is ours.
    """

    triples: Annotated[int, "Triples that are retrieved, at most."] = 100
    scorer: Annotated[
        ScorerName,
        "What scores triples: a scorer that was trained, or the similarity of the question and the "
        "relation alone.",
    ] = "trained"
    scorer_file: Annotated[
        Path | None,
        "The retriever.json that `kbqa train-retriever` wrote; by default the one that ships with "
        "kbqa.",
    ] = None
    shown: Annotated[
        Shown,
        "Whether a fact that a relation and its reverse state is retrieved once, or twice as in "
        "the papers.",
    ] = "once"
    reader: Annotated[
        ReaderName | None,
        "Who reads the triples: the general model; or, with kernels, nobody: the paths of the best "
        "triples are run as queries. By default the general model if there is one.",
    ] = None
    prompt: _Prompt = "triples"
    order: _Order = "descending"
    follow_up: _FollowUp = True
    max_tokens: Annotated[int, "The most tokens of a reply."] = 4000
    candidates: Annotated[int, "Paths that are run as queries if nobody reads, at most."] = 5

    def __post_init__(self) -> None:
        check_counts(self, "triples", "max_tokens", "candidates")


@dataclass(frozen=True)
class PathPoolingSettings(PoolingSettings, SubgraphSettings):
    """How triples are retrieved, pooled and read. Source of the defaults: Path Pooling, A.4."""

    prompt: _Prompt = "paths"
    order: _Order = "ascending"
    follow_up: _FollowUp = False

    def __post_init__(self) -> None:
        SubgraphSettings.__post_init__(self)
        PoolingSettings.__post_init__(self)
        self.check_count(self.triples)
