"""Look up what is around the topics of training questions, label it, and keep it in a folder.

Half of the questions get their gold topics and half those that the linker finds, as drawn by their
ids: otherwise the scorer would trust topics more than it may when entities are linked.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from kbqa.engine.linking.linker import Linker
from kbqa.engine.linking.starts import starting_topics
from kbqa.engine.retrieval.extraction import Caps, extract
from kbqa.engine.retrieval.retriever import node_texts
from kbqa.kb.durable import write_safely
from kbqa.kb.graph import Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Entity
from kbqa.sparql.forms import read_crp
from kbqa.training.data.training_set import Example
from kbqa.training.retriever.gold import NoGold, find_gold
from kbqa.training.retriever.labelled import (
    Labelled,
    has_names,
    label,
    labelled_path,
    save_labelled,
)
from kbqa.training.retriever.queries import Queries

TopicKind: TypeAlias = Literal["gold", "linked"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Looks up and labels what is around the topics of questions.

    Attributes:
        graph: The graph.
        schema: Of that graph.
        linker: Links questions to entities of the graph.
        caps: How much is looked up.
        with_names: Whether to look up the names of the nodes, too.
    """

    graph: Graph
    schema: GraphSchema
    linker: Linker
    caps: Caps
    with_names: bool = False

    def label(self, example: Example, gold_topics: tuple[Entity, ...], kind: TopicKind) -> Labelled:
        """Label the subgraph of a question; without a linked entity, that of its gold topics.

        Raises:
            NoGold: The question's query finds nothing.
            GraphError: The graph does not answer.
        """
        gold = find_gold(self.graph, read_crp(example.target).crp)
        topics = gold_topics
        if kind == "linked":
            linked = self.linker.link(example.question)
            topics = starting_topics((), linked) or gold_topics
        mids = list(dict.fromkeys(each.mid for each in topics if each.mid))
        if not mids:
            raise NoGold("it has no topic")
        subgraph = extract(self.graph, self.schema, mids, self.caps)
        labelled = label(example.question, subgraph, gold, self.schema)
        if not self.with_names:
            return labelled
        return replace(labelled, names=node_texts(subgraph.nodes, self.graph.labels))


class Kept(NamedTuple):
    """An example whose labelled subgraph is in a file."""

    example: Example
    path: Path


def keep_labelled(
    queries: Queries,
    surroundings: Surroundings,
    folder: Path,
    kind_of: Callable[[Example], TopicKind],
    report: Callable[[int, int], None] = lambda done, of: None,
) -> Iterator[Kept]:
    """Label each question that is not yet in a folder; those without gold are left out.

    If names are wanted, a question that is there without them is labelled again.

    Args:
        queries: The questions; those that are left out are counted there.
        surroundings: Of the questions.
        folder: Where each question has a file: its labelled subgraph, or why it is left out.
        kind_of: Chooses where the topics of a question come from.
        report: Called after each question with how many are done, and of how many.

    Raises:
        GraphError: The graph does not answer.
    """
    examples = list(queries.gathered.examples)
    for done, example in enumerate(examples, 1):
        path = labelled_path(folder, example)
        left_out = path.with_suffix(".txt")
        is_done = path.is_file() and (not surroundings.with_names or has_names(path))
        if not is_done and not left_out.is_file():
            topics = queries.topics[example.source, example.id]
            try:
                save_labelled(path, surroundings.label(example, topics, kind_of(example)))
            except NoGold as error:
                write_safely(left_out, str(error))
        if path.is_file():
            yield Kept(example, path)
        else:
            reason = left_out.read_text(encoding="utf-8")
            queries.gathered.skip(example.source, example.id, reason)
        report(done, len(examples))


def drawn_topics(seed: int, example: Example) -> TopicKind:
    """Draw where the topics of a question come from."""
    key = f"{seed}\0{example.source}\0{example.id}"
    return "linked" if hashlib.sha256(key.encode()).digest()[0] % 2 else "gold"
