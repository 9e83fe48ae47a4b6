"""GRPO, by which the writer is tuned on its own answers."""
