"""What the scorer learns from: labelled questions, what it sees of them, and how it is measured.

What is around the topics of a question is looked up and labelled, and kept in a folder. Half of the
questions get their gold topics and half those that the linker finds, as drawn by their ids:
otherwise the scorer would trust topics more than it may when entities are linked.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files import TextCache
from kbqa.engine.linking.linker import Linker, starting_topics
from kbqa.engine.retrieval.retriever import (
    EntityText,
    RelationInput,
    Weights,
    node_columns,
    node_texts,
    text_columns,
)
from kbqa.engine.retrieval.subgraphs import DISTANCE_ROUNDS as ROUNDS
from kbqa.engine.retrieval.subgraphs import Caps, encode_distances, extract
from kbqa.kb.graph import Graph
from kbqa.kb.layout import write_safely
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Entity
from kbqa.sparql.english import relation_words
from kbqa.sparql.forms import read_crp
from kbqa.training.data.training_set import Example
from kbqa.training.retriever.labels import (
    LabelKind,
    Labelled,
    NoGold,
    Queries,
    find_gold,
    has_names,
    label,
    labelled_path,
    load_labelled,
    load_names,
    save_labelled,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


CHOSEN_BY = 50
"""The weights with the best recall of gold facts among this many triples are kept."""

CUTOFFS = (10, 25, 50, 100, 200)
"""How many triples are read."""

TopicKind: TypeAlias = Literal["gold", "linked"]

_QUESTIONS_A_BATCH = 256
_NAMES_A_BATCH = 4096
_ALL = slice(None)


@dataclass(frozen=True, slots=True)
class RetrieverConfig:
    """Everything except the examples that decides the result of a training run.

    The options of `kbqa train-retriever` say what most settings mean. Of the wrong triples, half
    are those whose relation is most similar to the question, and half are drawn by chance.
    """

    labels: LabelKind = "gold"
    rounds: int = ROUNDS
    relation_input: RelationInput = "agreement"
    entity_text: EntityText = "none"
    epochs: int = 60
    patience: int = 8
    negatives: int = 500
    batch_size: int = 4  # questions in a step
    learning_rate: float = 1e-3
    hidden: int = 128
    seed: int = 42


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Looks up and labels what is around the topics of questions."""

    graph: Graph
    schema: GraphSchema
    linker: Linker
    caps: Caps
    with_names: bool = False  # look up the names of the nodes, too

    def label(self, example: Example, gold_topics: tuple[Entity, ...], kind: TopicKind) -> Labelled:
        """Label the subgraph of a question; without a linked entity, that of its gold topics.

        `NoGold` is raised if the question's query finds nothing.
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
    """Label each question that is not yet in a folder; those without gold are left out and counted.

    Each question has a file: its labelled subgraph, or why it is left out. If names are wanted, a
    question that is there without them is labelled again. `report` is called after each with how
    many are done, and of how many.
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


class EmbeddedNames(NamedTuple):
    """The names of the nodes of questions."""

    vectors: "NDArray[np.float16]"  # of each name; the first is zeros, for nodes without a name
    places: "dict[Path, NDArray[np.int32]]"  # of each file's nodes in `vectors`


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """A labelled question as the scorer sees it."""

    labelled: Labelled
    vector: "Floats"  # of the question
    vectors: "Floats"  # of the relations of all questions
    places: "NDArray[np.int64]"  # of its relations in `vectors`
    distances: "Floats"  # of each node
    right: "NDArray[np.bool_]"  # each triple
    names: "NDArray[np.float16] | None" = None  # of all questions, for a scorer that sees names
    name_places: "NDArray[np.int32] | None" = None  # of its nodes in `names`

    @property
    def words(self) -> "Floats":
        """The vector of each relation."""
        words: Floats = self.vectors[self.places]
        return words

    def node_columns(
        self, kind: RelationInput, nodes: "NDArray[np.int64] | slice" = _ALL
    ) -> "Floats":
        """Return what the scorer sees of some nodes."""
        import numpy as np

        names = None
        if self.names is not None and self.name_places is not None:
            names = self.names[self.name_places[nodes]].astype(np.float32)
        return node_columns(self.vector, self.distances[nodes], names, kind)

    def score(self, weights: Weights, config: RetrieverConfig) -> "NDArray[np.float64]":
        """Score all triples, as the retriever does."""
        return weights.score(
            self.vector,
            text_columns(self.vector, self.words, config.relation_input),
            self.node_columns(config.relation_input),
            self.labelled.heads,
            self.labelled.links,
            self.labelled.tails,
        )

    def cosines(self) -> "NDArray[np.float64]":
        """Compare the relation of each triple with the question."""
        scores: NDArray[np.float64] = (self.words @ self.vector).astype(float)[self.labelled.links]
        return scores

    def draw(self, negatives: int, seed: Sequence[int]) -> "NDArray[np.int64]":
        """Choose triples for a step: all right ones, the most similar wrong ones, and others."""
        import numpy as np

        right = np.flatnonzero(self.right)
        wrong = np.flatnonzero(~self.right)
        if len(wrong) > negatives:
            ranked = wrong[np.argsort(-self.cosines()[wrong], kind="stable")]
            near, others = ranked[: negatives // 2], ranked[negatives // 2 :]
            drawn = np.random.default_rng(seed).choice(
                others, negatives - len(near), replace=False, shuffle=False
            )
            wrong = np.concatenate([near, drawn])
        return np.concatenate([right, wrong])


def embed_names(
    paths: Sequence[Path],
    embedder: Embedder,
    cache: TextCache,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> EmbeddedNames:
    """Embed the names of the nodes of questions, each name once; embedding takes long.

    `report` is called after each part with how many names are embedded, and of how many.
    """
    import numpy as np

    place: dict[str | None, int] = {None: 0}
    places = {
        path: np.array(
            [place.setdefault(name, len(place)) for name in load_names(path) or ()], dtype=np.int32
        )
        for path in paths
    }
    names = [name for name in place if name is not None]
    vectors = np.zeros((len(place), embedder.embed(["a"]).shape[1]), dtype=np.float16)
    # Of similar length together, because a batch takes as long as its longest text.
    order = sorted(range(len(names)), key=lambda at: (len(names[at]), names[at]))
    for start in range(0, len(order), _NAMES_A_BATCH):
        batch = order[start : start + _NAMES_A_BATCH]
        texts = [names[at] for at in batch]
        kept = cache.read(texts)
        if new := [text for text in texts if text not in kept]:
            rows = embedder.embed(new).astype(np.float16)
            made = {text: row.tobytes() for text, row in zip(new, rows, strict=True)}
            cache.write(made)
            kept |= made
        for at, text in zip(batch, texts, strict=True):
            vectors[at + 1] = np.frombuffer(kept[text], dtype=np.float16)
        report(start + len(batch), len(order))
    return EmbeddedNames(vectors, places)


def make_inputs(
    paths: Sequence[Path],
    embedder: Embedder,
    config: RetrieverConfig,
    names: EmbeddedNames | None = None,
) -> list[Inputs]:
    """Read labelled questions, embed questions and relations, and encode distances."""
    import numpy as np

    examples = [load_labelled(path) for path in paths]
    relations = sorted({relation for each in examples for relation in each.relations})
    vectors = embedder.recall([relation_words(relation) for relation in relations])
    place = {relation: at for at, relation in enumerate(relations)}
    made = []
    for start in range(0, len(examples), _QUESTIONS_A_BATCH):
        batch = examples[start : start + _QUESTIONS_A_BATCH]
        questions = embedder.embed([each.question for each in batch])
        files = paths[start : start + _QUESTIONS_A_BATCH]
        for one, path, question in zip(batch, files, questions, strict=True):
            made.append(
                Inputs(
                    labelled=one,
                    vector=question,
                    vectors=vectors,
                    places=np.array([place[each] for each in one.relations], dtype=np.int64),
                    distances=encode_distances(
                        one.heads, one.tails, one.nodes, one.topics, config.rounds
                    ),
                    right=one.stated >= 0 if config.labels == "gold" else one.shortest,
                    names=names.vectors if names else None,
                    name_places=names.places[path] if names else None,
                )
            )
    return made


class Recalls(NamedTuple):
    """How much of what is right comes early, for each number of triples read; all in [0, 1]."""

    triples: tuple[float, ...]  # share of gold facts that these triples state
    path: tuple[float, ...]  # 1 if they state all facts of one match of the gold query, else 0
    answers: tuple[float, ...]  # share of answers that are an end of one of them


def measure_recall(
    scores: "NDArray[np.float64]", labelled: Labelled, cutoffs: tuple[int, ...] = CUTOFFS
) -> Recalls:
    """Measure a ranking of triples by their scores, the highest first; ties keep their order."""
    import numpy as np

    rank = np.empty(len(scores))
    rank[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    # One more place, which -1 finds: the padding of `matches`, and answers out of sight.
    of_fact = np.full(labelled.facts + 1, np.inf)
    is_gold = labelled.stated >= 0
    np.minimum.at(of_fact, labelled.stated[is_gold], rank[is_gold])
    of_fact[-1] = -1
    of_match = of_fact[labelled.matches].max(axis=1)
    of_node = np.full(labelled.nodes + 1, np.inf)
    np.minimum.at(of_node, labelled.heads, rank)
    np.minimum.at(of_node, labelled.tails, rank)
    of_answer = of_node[labelled.answers]
    return Recalls(
        tuple(float((of_fact[:-1] < cutoff).mean()) for cutoff in cutoffs),
        tuple(float(of_match.min() < cutoff) for cutoff in cutoffs),
        tuple(float((of_answer < cutoff).mean()) for cutoff in cutoffs),
    )
