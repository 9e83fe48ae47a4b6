"""From SPARQL to reasoning paths."""
