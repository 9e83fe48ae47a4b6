"""What runs the small language model."""
