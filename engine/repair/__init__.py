"""Stage 2 of RouterKGQA: find another path when none that the small model wrote will do."""
