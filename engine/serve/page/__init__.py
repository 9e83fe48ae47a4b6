"""The page: everything that kbqa knows of an answer, to look at and to change."""
