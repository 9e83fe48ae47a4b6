"""Fit the models that kbqa ships, and write the files that they are fitted to."""
