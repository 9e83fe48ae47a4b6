"""Training the scorer of triples."""
