"""SPARQL text: what may be run, templates, and limits on rows."""
