"""The rows of a run, and what made them."""
