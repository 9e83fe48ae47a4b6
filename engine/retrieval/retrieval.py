"""Retrieve the triples that help to answer a question: extract, score, pool and select.

`extract` looks up the triples around the topics, a `TripleScorer` returns the probability that each
helps, and `select_triples` chooses among them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kbqa.engine.answer import term_text
from kbqa.engine.asked import Clock
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files import file_sha256
from kbqa.engine.retrieval.pooling import (
    PoolingSettings,
    ScoredTriples,
    Selected,
    Shown,
    select_triples,
)
from kbqa.engine.retrieval.retriever import (
    SHIPPED_SCORER,
    ReadLabels,
    Retriever,
    ScorerName,
    cosine_scores,
)
from kbqa.engine.retrieval.subgraphs import Cut, Subgraph, extract
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Hop
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import LiteralTerm, Term

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# From a question and a subgraph to a score for each triple, above 0 and at most 1.
TripleScorer: TypeAlias = "Callable[[str, Subgraph], NDArray[np.float64]]"


class RetrievedTriple(NamedTuple):
    """A triple that was selected, with its score, above 0 and at most 1."""

    subject: Term
    relation: str
    object: Term
    score: float
    pooled: float | None  # the score after pooling; None without pooling

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record: a literal is its text, with ``is_literal``."""
        return {
            "subject": term_text(self.subject),
            "relation": self.relation,
            "object": term_text(self.object),
            "score": float(f"{self.score:.4g}"),
            "pooled": None if self.pooled is None else float(f"{self.pooled:.4g}"),
            **({"is_literal": True} if isinstance(self.object, LiteralTerm) else {}),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Retrieved:
    """The triples around a question's topics, with their scores, and those selected."""

    subgraph: Subgraph
    scores: "NDArray[np.float64]"
    selected: Selected
    is_pooled: bool

    @property
    def seen(self) -> int:
        """How many triples were scored."""
        return len(self.subgraph.heads)

    @property
    def truncated(self) -> bool:
        """Whether something around the topics was left out."""
        return self.subgraph.cut != Cut()

    def triples(self) -> Iterator[RetrievedTriple]:
        """Yield the selected triples, best first."""
        graph = self.subgraph
        for at, pooled in zip(
            self.selected.triples[::-1].tolist(), self.selected.scores[::-1].tolist(), strict=True
        ):
            yield RetrievedTriple(
                graph.nodes[graph.heads[at]],
                graph.relations[graph.links[at]],
                graph.nodes[graph.tails[at]],
                float(self.scores[at]),
                pooled if self.is_pooled else None,
            )


def retrieve(
    graph: Graph,
    schema: GraphSchema,
    score: TripleScorer,
    question: str,
    topics: Sequence[str],
    count: int,
    settings: PoolingSettings,
    *,
    shown: Shown = "once",
    clock: Clock | None = None,
) -> Retrieved:
    """Retrieve at most `count` triples for a question, whose topics are ids, best first.

    Random walks are drawn by its words. With ``shown="once"``, a fact that a relation and its
    reverse state is selected once, by the better of its triples.

    Raises:
        GraphError: The graph does not answer.
        DeadlineExceeded: The clock's deadline has passed.
    """
    clock = clock or Clock()
    with clock.stage("extract"):
        subgraph = extract(graph, schema, topics)
    with clock.stage("score"):
        scores = score(question, subgraph)
    with clock.stage("pool"):
        facts = number_facts(subgraph, schema) if shown == "once" else None
        scored = ScoredTriples(subgraph.heads, subgraph.tails, scores, range(subgraph.topics))
        selected = select_triples(scored, count, settings, question, facts=facts)
    return Retrieved(subgraph, scores, selected, settings.mechanism != "none")


def make_scorer(
    name: ScorerName,
    embedder: Embedder,
    file: Path | None = None,
    read_labels: ReadLabels | None = None,
) -> TripleScorer:
    """Load a scorer from its file, by default the one that ships with kbqa.

    Raises:
        InputError: There is a file for a scorer that is not trained.
        ModelError: The scorer cannot be read, or was trained with another embedder.
    """
    if name == "cosine":
        if file is not None:
            raise InputError(f"the scorer cosine is not trained: leave out {file}")
        return lambda question, subgraph: cosine_scores(embedder, question, subgraph)
    return Retriever.load(embedder, file or SHIPPED_SCORER, read_labels).score


def describe_scorer(
    name: ScorerName, embedder: Embedder, file: Path | None = None
) -> dict[str, object]:
    """Return the scorer, its files' hashes and the embedder, for manifests."""
    card = file or SHIPPED_SCORER
    files = (card, card.with_suffix(".safetensors"))
    hashes = [file_sha256(each) for each in files] if name == "trained" else None
    return {"scorer": name, "scorer_sha256": hashes, "embedder": embedder.name}


def number_facts(subgraph: Subgraph, schema: GraphSchema) -> "NDArray[np.int64]":
    """Number the facts that triples state: a triple and its reverse have the same number."""
    import numpy as np

    hops = schema.canonical(map(Hop, subgraph.relations))
    numbers = {relation: at for at, relation in enumerate(sorted({hop.relation for hop in hops}))}
    links = np.array([numbers[hop.relation] for hop in hops], np.int64)[subgraph.links]
    turned = np.array([hop.inverse for hop in hops], np.bool_)[subgraph.links]
    heads = np.where(turned, subgraph.tails, subgraph.heads)
    tails = np.where(turned, subgraph.heads, subgraph.tails)
    size = max(len(subgraph.nodes), 1)
    return (links * size + heads) * size + tails
