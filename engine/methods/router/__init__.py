"""RouterKGQA."""
