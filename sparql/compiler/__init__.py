"""From reasoning paths to SPARQL."""
