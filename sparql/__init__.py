"""The language of reasoning paths, and everything about SPARQL that is pure text."""
