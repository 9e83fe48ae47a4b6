"""The index of names, and the search for entities by name."""
