"""Remote SPARQL endpoints."""
