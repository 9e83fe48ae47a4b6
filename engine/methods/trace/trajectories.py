"""Trajectories: paths of relations with the score of each hop, and how relevant they are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kbqa.engine.exploring.frontiers import RelationPath
from kbqa.engine.exploring.walks import arrow
from kbqa.engine.methods.trace.settings import PathScore
from kbqa.kb.escaping import prompt_line
from kbqa.sparql.crp import Hop

Ending = Literal["depth", "no relations", "none proposed", "none kept", "unreadable", "budget"]
"""Why a trajectory ended; `ENDINGS` says it in words."""

ENDINGS: Mapping[Ending, str] = {
    "depth": "it has as many relations as are allowed",
    "no relations": "no relation leads on from its end",
    "none proposed": "no relation from its end was likely to lead closer to the answer",
    "none kept": "no relation from its end fitted well enough",
    "unreadable": "no relation that leads on was named",
    "budget": "the calls were spent",
}


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A path of relations from a topic, and the score of each of its hops, from 0 to 1."""

    path: RelationPath
    scores: tuple[float, ...] = ()

    def then(self, hop: Hop, score: float) -> "Trajectory":
        """Append a hop."""
        return Trajectory(self.path.then(hop), (*self.scores, score))

    def relevance(self, by: PathScore) -> float:
        """Return how relevant it is, from its hops' scores; 1 at its topic.

        The mean is the default: the product always prefers short paths.
        """
        if not self.scores:
            return 1.0
        match by:
            case "mean":
                return sum(self.scores) / len(self.scores)
            case "product":
                return math.prod(self.scores)
            case "min":
                return min(self.scores)
            case "last":
                return self.scores[-1]

    def drawn(self) -> str:
        """Draw its path in a line."""
        return drawn_path(self.path)


@dataclass(frozen=True, slots=True)
class Ended:
    """A trajectory that ended, and why."""

    trajectory: Trajectory
    why: Ending

    def to_dict(self, by: PathScore) -> dict[str, Any]:
        """Return a JSON record, with the relevance by a path score."""
        path = self.trajectory.path
        return {
            "topic": path.topic.mid,
            "hops": [[hop.relation, hop.inverse] for hop in path.hops],
            "scores": [round(score, 4) for score in self.trajectory.scores],
            "relevance": round(self.trajectory.relevance(by), 4),
            "ended": self.why,
        }


def drawn_path(path: RelationPath) -> str:
    """Draw a path in a line; the topic's id tells topics of one name apart.

    >>> from kbqa.sparql.crp import Entity
    >>> drawn_path(RelationPath(Entity("Kenya", "m.k"), (Hop("a.b"), Hop("c.d", inverse=True))))
    'Kenya (m.k) -> a.b <- c.d'
    """
    hops = (f" {arrow(hop)} {hop.relation}" for hop in path.hops)
    return f"{prompt_line(str(path.topic))} ({path.topic.mid}){''.join(hops)}"
