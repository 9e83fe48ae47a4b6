"""From a question to its answer, and the command line."""
