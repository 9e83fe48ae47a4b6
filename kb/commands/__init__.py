"""The commands that work on graphs."""
