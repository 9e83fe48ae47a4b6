"""Questions with what is around their topics, labelled, each in a file.

Looking up thousands of subgraphs takes most of the time of a run. So each is kept as soon as it is
made, and a run that is resumed, or one with other settings of the training, reads it again.
"""

import hashlib
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbqa.engine.retrieval.subgraph import Subgraph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.errors import TrainingError
from kbqa.training.data.training_set import Example
from kbqa.training.retriever.gold import Gold
from kbqa.training.retriever.labels import canonical_triples, find_facts, on_shortest_paths

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Places = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """A question's subgraph and what is right in it.

    A fact is what a triple states, whichever of a relation and its reverse it is written with.

    Attributes:
        question: As the retriever gets it.
        relations: Of the subgraph.
        nodes: How many nodes it has.
        topics: How many of the first nodes are topics.
        heads: The subject of each triple.
        links: The relation of each triple.
        tails: The object of each triple.
        stated: For each triple the gold fact that it states, or -1.
        facts: How many gold facts there are, those outside of the subgraph included.
        matches: The facts of each way in which the gold query matches, padded with -1; shape
            (ways, facts of the longest).
        answers: The place of each answer among the nodes, or -1.
        shortest: For each triple whether it is on a shortest path between a topic and an answer.
        names: The text of each node, None for a node without one; None if they were not looked up
            or not read.
    """

    question: str
    relations: tuple[str, ...]
    nodes: int
    topics: int
    heads: "Places"
    links: "Places"
    tails: "Places"
    stated: "Places"
    facts: int
    matches: "Places"
    answers: "Places"
    shortest: "NDArray[np.bool_]"
    names: tuple[str | None, ...] | None = None


def label(question: str, subgraph: Subgraph, gold: Gold, schema: GraphSchema) -> Labelled:
    """Label the triples of a question's subgraph.

    Raises:
        GraphError: The graph does not answer.
    """
    import numpy as np

    ways = [canonical_triples(match, schema) for match in gold.matches]
    facts = list(dict.fromkeys(triple for way in ways for triple in way))
    place = {fact: at for at, fact in enumerate(facts)}
    matches = np.full((len(ways), max(map(len, ways))), -1, dtype=np.int32)
    for at, way in enumerate(ways):
        matches[at, : len(way)] = [place[fact] for fact in way]
    nodes = {node: at for at, node in enumerate(subgraph.nodes)}
    return Labelled(
        question=question,
        relations=subgraph.relations,
        nodes=len(subgraph.nodes),
        topics=subgraph.topics,
        heads=subgraph.heads,
        links=subgraph.links,
        tails=subgraph.tails,
        stated=find_facts(subgraph, facts, schema),
        facts=len(facts),
        matches=np.unique(matches, axis=0),
        answers=np.array([nodes.get(answer, -1) for answer in gold.answers], dtype=np.int32),
        shortest=on_shortest_paths(subgraph, gold.answers),
    )


def labelled_path(folder: Path, example: Example) -> Path:
    """Return the file of an example; another question or query has another file."""
    key = json.dumps([example.source, example.id, example.question, example.target])
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.npz"


def save_labelled(path: Path, labelled: Labelled) -> None:
    """Write an example; a file is there as a whole or not at all."""
    import numpy as np

    about = {
        "question": labelled.question,
        "relations": labelled.relations,
        "nodes": labelled.nodes,
        "topics": labelled.topics,
        "facts": labelled.facts,
    }
    arrays = {name: getattr(labelled, name) for name in _ARRAYS}
    if labelled.names is not None:
        arrays[_NAMES] = np.frombuffer(json.dumps(labelled.names).encode(), dtype=np.uint8)
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)
    unfinished.replace(path)


def load_labelled(path: Path) -> Labelled:
    """Read an example that `save_labelled` wrote, without the names of its nodes.

    Raises:
        TrainingError: The file is damaged.
    """
    with _arrays(path) as arrays:
        about = json.loads(str(arrays["about"]))
        about["relations"] = tuple(about["relations"])
        return Labelled(**about, **{name: arrays[name] for name in _ARRAYS})


def load_names(path: Path) -> tuple[str | None, ...] | None:
    """Read the names of an example's nodes; None if they were not looked up.

    Raises:
        TrainingError: The file is damaged.
    """
    with _arrays(path) as arrays:
        return tuple(json.loads(arrays[_NAMES].tobytes())) if _NAMES in arrays else None


def has_names(path: Path) -> bool:
    """Check whether the file of an example has the names of its nodes.

    Raises:
        TrainingError: The file is damaged.
    """
    with _arrays(path) as arrays:
        return _NAMES in arrays


@contextmanager
def _arrays(path: Path) -> Iterator[Mapping[str, Any]]:
    import numpy as np

    try:
        with path.open("rb") as file, np.load(file) as arrays:  # by name, it would stay open
            yield arrays
    except _UNREADABLE as error:
        raise TrainingError(
            f"{path} cannot be read ({error}). Delete it, and the same command makes it again."
        ) from error


# What numpy raises on damaged files.
_UNREADABLE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, struct.error),
)
_NAMES = "names"
_ARRAYS = ("heads", "links", "tails", "stated", "matches", "answers", "shortest")
