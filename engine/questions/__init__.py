"""Question sets."""
