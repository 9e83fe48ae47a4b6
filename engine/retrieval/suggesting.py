"""Suggest relations to the model that writes paths: the best of the triples around the topics.

The retriever scores these triples. So the model is shown relations that it was never trained on,
too. Only a model that was trained with suggestions gets them.

Source: TIARA (Shu et al. 2022), whose writer is shown the schema that was retrieved.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.retrieval.extraction import extract
from kbqa.engine.retrieval.retriever import Retriever
from kbqa.engine.retrieval.subgraph import Subgraph
from kbqa.kb.graph import Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Entity, Hop


class RelationSuggester:
    """Finds relations that may lead to the answers of a question.

    Args:
        graph: The graph.
        count: How many to find for a question, at most.

    Raises:
        ModelError: The scorer or its embedder is missing or broken.
        StoreError: The store's schema is missing or broken.
    """

    def __init__(self, graph: Graph, count: int) -> None:
        self._graph, self._schema, self._count = graph, GraphSchema(graph), count
        self._score = Retriever.load(Embedder.load(), read_labels=graph.labels).score

    def suggest(
        self, question: str, topics: Sequence[Entity], graph: Graph | None = None
    ) -> tuple[str, ...]:
        """Return relations, best first; none without topics.

        Args:
            question: In natural language.
            topics: What it is about, best first.
            graph: The graph until the question's deadline; None without one.

        Raises:
            GraphError: The graph does not answer.
            DeadlineExceeded: The question's deadline has passed.
        """
        mids = [each.mid for each in topics if each.mid]
        subgraph = extract(self._graph if graph is None else graph, self._schema, mids)
        scores = self._score(question, subgraph)
        return best_relations(subgraph, scores, self._schema)[: self._count]


def best_relations(
    subgraph: Subgraph, scores: NDArray[np.float64], schema: GraphSchema
) -> tuple[str, ...]:
    """Rank the relations of triples, each by its best triple.

    Of a relation and its reverse, which say the same, only the better one is kept.

    Args:
        subgraph: The triples.
        scores: Of each of them.
        schema: Of the graph.

    Raises:
        GraphError: The graph does not answer.
    """
    best = np.zeros(len(subgraph.relations))
    np.maximum.at(best, subgraph.links, scores)
    ranked = [subgraph.relations[at] for at in np.argsort(-best, kind="stable")]
    facts: dict[str, str] = {}
    for relation, hop in zip(ranked, schema.canonical(map(Hop, ranked)), strict=True):
        facts.setdefault(hop.relation, relation)
    return tuple(facts.values())
