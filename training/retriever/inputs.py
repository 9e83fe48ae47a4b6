"""What the scorer sees of labelled questions, and which of their triples a step takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.embedding.embedder import Embedder, relation_words
from kbqa.engine.files.text_cache import TextCache
from kbqa.engine.retrieval.distances import encode_distances
from kbqa.engine.retrieval.scorer import RelationInput, Weights, node_columns, text_columns
from kbqa.training.retriever.config import RetrieverConfig
from kbqa.training.retriever.labelled import Labelled, load_labelled, load_names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_QUESTIONS_A_BATCH = 256
_NAMES_A_BATCH = 4096
_ALL = slice(None)


class EmbeddedNames(NamedTuple):
    """The names of the nodes of questions.

    Attributes:
        vectors: Of all names, each once; the first is zeros, for nodes without a name.
        places: For the file of each question, the place of each of its nodes in `vectors`.
    """

    vectors: "NDArray[np.float16]"
    places: "dict[Path, NDArray[np.int32]]"


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """A labelled question as the scorer sees it.

    Attributes:
        labelled: The question.
        vector: Of the question.
        vectors: Of the relations of all questions.
        places: The place of each of its relations in `vectors`.
        distances: Of each node.
        right: For each triple whether it is right.
        names: The vectors of the names of all questions, in float16; the first is zeros. None for
            a scorer that sees no names.
        name_places: The place of each of its nodes in `names`.
    """

    labelled: Labelled
    vector: "Floats"
    vectors: "Floats"
    places: "NDArray[np.int64]"
    distances: "Floats"
    right: "NDArray[np.bool_]"
    names: "NDArray[np.float16] | None" = None
    name_places: "NDArray[np.int32] | None" = None

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
    """Embed the names of the nodes of questions, each name once.

    Args:
        paths: Files of labelled questions with names.
        embedder: Embeds names.
        cache: Where vectors are kept, in float16: embedding them takes long.
        report: Called after each part with how many names are embedded, and of how many.
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
    """Read labelled questions, embed questions and relations, and encode distances.

    Args:
        paths: The files of the questions.
        embedder: Embeds questions and relations.
        config: Of the run.
        names: Of their nodes, for a scorer that sees names.
    """
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
