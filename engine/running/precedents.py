"""What answered the training questions that are most like a question.

A writer and a cross-encoder generalise from the questions that they are trained on. Here these are
kept, without the names in them, each with the relation that leads to its answers. The most similar
ones vote for theirs.

Source: Das et al. 2021, Case-based Reasoning for Natural Language Queries over Knowledge Bases.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files import file_sha256
from kbqa.engine.linking.mentions import named_entities
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp, Hop
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


PRECEDENTS_FILE = "precedents.safetensors"
"""In the folder of a judge."""

SCHEMA_VERSION = 1

_NEAREST = 20
_TEMPERATURE = 0.1
"""Of cosines. On held-out questions 0.05 and 0.2, or 10 and 50 questions, made no difference, nor
did it gain anything to count those with the same main path as well."""


class Precedents:
    """Questions with the last relations of their paths. Any number of threads may use one.

    Args:
        embedder: Embeds questions.
        vectors: Of the questions without names; integers of any scale, shape (questions,
            dimensions).
        places: The place in `relations` of the last relation of each.
        relations: As `last_relation` writes them.
        revision: Identifies the questions, for manifests.
    """

    def __init__(
        self,
        embedder: Embedder,
        vectors: "NDArray[np.int8]",
        places: "NDArray[np.int32]",
        relations: Sequence[str],
        revision: str = "",
    ) -> None:
        import numpy as np

        self._embedder, self._kept = embedder, vectors
        self._vectors = vectors.astype(np.float32)
        self._vectors /= np.linalg.norm(self._vectors, axis=1, keepdims=True)
        self._places, self._relations, self.revision = places, relations, revision

    @classmethod
    def of(
        cls, embedder: Embedder, schema: GraphSchema, answered: Sequence[tuple[str, Crp]]
    ) -> Self:
        """Keep questions.

        Args:
            embedder: Embeds them.
            schema: Of the graph.
            answered: Each with its CRP.

        Raises:
            GraphError: The graph does not answer.
        """
        import numpy as np

        vectors = embedder.embed([without_names(question, [crp]) for question, crp in answered])
        last = [last_relation(crp, schema) for _, crp in answered]
        relations = sorted(set(last))
        places = {relation: at for at, relation in enumerate(relations)}
        scale = 127 / np.abs(vectors).max(initial=1e-9)
        small = np.round(vectors * scale).astype(np.int8)
        return cls(embedder, small, np.array([places[each] for each in last], np.int32), relations)

    def __len__(self) -> int:
        """Count the questions."""
        return len(self._places)

    def votes(self, question: str, crps: Sequence[Crp], schema: GraphSchema) -> list[float]:
        """Count the votes for each CRP.

        Args:
            question: As asked.
            crps: What may answer it.
            schema: Of the graph.

        Returns:
            The share of the most similar questions, weighted by their cosines, whose path ends with
            the same relation, in [0, 1].

        Raises:
            GraphError: The graph does not answer.
        """
        import numpy as np

        if not crps or not len(self):
            return [0.0] * len(crps)
        cosines = self._vectors @ self._embedder.embed([without_names(question, crps)])[0]
        nearest = np.argsort(-cosines, kind="stable")[:_NEAREST]
        weights = np.exp((cosines[nearest] - cosines[nearest[0]]) / _TEMPERATURE)
        votes = defaultdict[str, float](float)
        for place, weight in zip(self._places[nearest], weights / weights.sum(), strict=True):
            votes[self._relations[place]] += float(weight)
        return [votes[last_relation(crp, schema)] for crp in crps]

    def save(self, folder: Path) -> None:
        """Write them into the folder of a judge."""
        from safetensors.numpy import save_file

        metadata = {
            "schema_version": str(SCHEMA_VERSION),
            "embedder": self._embedder.name,
            "relations": json.dumps(self._relations),
        }
        arrays = {"vectors": self._kept, "places": self._places}
        save_file(arrays, folder / PRECEDENTS_FILE, metadata)

    @classmethod
    def load(cls, embedder: Embedder, folder: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            ModelError: The file is missing or broken, or was written with another embedder.
        """
        from safetensors import SafetensorError, safe_open

        file = folder / PRECEDENTS_FILE
        try:
            with safe_open(file, framework="np") as opened:
                stated = opened.metadata() or {}
                vectors, places = (opened.get_tensor(name) for name in ("vectors", "places"))
            if stated.get("schema_version") != str(SCHEMA_VERSION):
                raise ValueError(f"its schema_version is not {SCHEMA_VERSION}")
            if stated["embedder"] != embedder.name:
                raise ValueError(f"its embedder is {stated['embedder']}, not {embedder.name}")
            relations = [str(each) for each in json.loads(stated["relations"])]
            return cls(embedder, vectors, places, relations, file_sha256(file)[:8])
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            raise ModelError(
                f"the judge in {folder} has no precedents that can be read: {error!r}. "
                "Train it again: kbqa train-judge."
            ) from error


def last_relation(crp: Crp, schema: GraphSchema) -> str:
    """Return the last relation of a main path, the same for both names of an edge.

    It begins with ``^`` if it is followed backwards, and is empty if the path forks there.

    Raises:
        GraphError: The graph does not answer.
    """
    last = crp.path[-1]
    if not isinstance(last, Hop):
        return ""
    [hop] = schema.canonical([last])
    return f"{'^' if hop.inverse else ''}{hop.relation}"


def without_names(question: str, crps: Iterable[Crp]) -> str:
    """Put *it* for the names in a question of the entities of CRPs.

    >>> from kbqa.sparql.crp import Entity
    >>> crp = Crp(Entity("Kenya"), (Hop("location.country.capital"),))
    >>> without_names("what is the capital of Kenya?", [crp])
    'what is the capital of it?'
    """
    names = {each.name for crp in crps for each in named_entities(crp) if each.name}
    for name in sorted(names, key=lambda each: (-len(each), each)):
        pattern = rf"(?<!\w){re.escape(name)}(?!\w)"
        question = re.sub(pattern, "it", question, flags=re.IGNORECASE)
    return question
