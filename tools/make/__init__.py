"""Synthetic dumps, the demo graph, generated docs."""
