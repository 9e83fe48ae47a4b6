"""Scripts that measure, score, fit and make."""
