"""The graph: dumps, embedded stores, endpoints, schema, names and entity search.

Here stands only what is cheap to import; `kbqa.kb.load` loads dumps, `kbqa.kb.entity_search` finds
entities by name.
"""

from kbqa.kb.graph import Direction, Graph, Table
from kbqa.kb.schema import Property, Schema
from kbqa.kb.select_graph import open_graph

__all__ = ["Direction", "Graph", "Property", "Schema", "Table", "open_graph"]
