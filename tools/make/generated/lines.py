"""Lines of a block, gathered column by column and written subject by subject."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

END = b"\t.\n"
_REPEATED = 0.0035


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a dump.

    Attributes:
        text: Its lines.
        lines: How many.
        defects: How many of them have a defect, by kind.
    """

    text: bytes
    lines: int
    defects: Counter[str]


class Lines:
    """The lines of some subjects, in any order at first.

    Args:
        subjects: Their terms, in the order they are to be written in.
        predicates: Terms of all predicates; lines name them by number.
    """

    def __init__(self, subjects: Sequence[bytes], predicates: Sequence[bytes]) -> None:
        self._subjects = subjects
        self._predicates = predicates
        self._of: list[Ints] = []
        self._relations: list[Ints] = []
        self._objects: list[bytes] = []

    def add(self, subjects: Ints, predicates: Ints | int, objects: Sequence[bytes]) -> None:
        """Add a line for each object; they end in `END` already."""
        self._of.append(subjects)
        self._relations.append(np.broadcast_to(predicates, subjects.shape))
        self._objects += objects

    def block(
        self,
        random: np.random.Generator,
        defects: Callable[[bytes], tuple[str, bytes]] | None = None,
        defect_rate: float = 0.0,
        limit: int | None = None,
    ) -> Block:
        """Write the lines.

        Args:
            random: Decides the order of a subject's lines, and which are repeated.
            defects: Makes a line with a defect for a subject, and returns its kind.
            defect_rate: Share of such lines.
            limit: Write only as many lines.
        """
        count = len(self._objects)
        subjects, relations = np.concatenate(self._of), np.concatenate(self._relations)
        repeated = random.integers(0, count, int(count * _REPEATED + random.random()))
        bad = random.integers(0, count, int(count * defect_rate + random.random()))
        chosen = np.concatenate([np.arange(count), repeated, bad])
        order = np.argsort(subjects[chosen] + random.random(len(chosen)))[:limit]
        picked = chosen[order]
        subject_terms, predicate_terms, objects = self._subjects, self._predicates, self._objects
        lines = [
            subject_terms[subject] + predicate_terms[relation] + objects[line]
            for subject, relation, line in zip(
                subjects[picked].tolist(), relations[picked].tolist(), picked.tolist(), strict=True
            )
        ]
        kinds: Counter[str] = Counter()
        if defects is not None:
            for place in np.flatnonzero(order >= count + len(repeated)).tolist():
                kind, lines[place] = defects(subject_terms[subjects[picked[place]]])
                kinds[kind] += 1
        return Block(b"".join(lines), len(lines), kinds)
