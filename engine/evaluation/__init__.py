"""Run question sets, score them, and compare runs."""
