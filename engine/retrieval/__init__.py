"""The triples around a question's topics, and which of them to read."""
