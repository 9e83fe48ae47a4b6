"""The levels of decoding; `kbqa.engine.decoding` says what they mean."""

from typing import Literal as Choice

Level = Choice["none", "grammar", "schema", "graph"]

LEVELS: tuple[Level, ...] = ("none", "grammar", "schema", "graph")
GRAPH_LEVELS: tuple[Level, ...] = ("schema", "graph")
DEFAULT_LEVEL: Level = "graph"
