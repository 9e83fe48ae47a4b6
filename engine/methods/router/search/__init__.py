"""Searching the graph for paths: as further candidates, and to repair what was written."""
