"""Writing candidate reasoning paths with a small language model."""
