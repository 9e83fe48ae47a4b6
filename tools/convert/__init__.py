"""Quality of SPARQL → CRP → SPARQL."""
