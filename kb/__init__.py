"""The graph: dumps, embedded stores, endpoints, schema, names and entity search.

Only what is cheap to import is here; `kbqa.kb.loading.load` loads dumps, `kbqa.kb.names`
finds entities by name.
"""

from kbqa.kb.graph import Direction, Graph, Property, Schema, Table
from kbqa.kb.open import open_graph

__all__ = ["Direction", "Graph", "Property", "Schema", "Table", "open_graph"]
