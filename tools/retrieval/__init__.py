"""Retrieval of triples."""
