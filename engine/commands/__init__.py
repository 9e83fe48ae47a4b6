"""The commands that answer questions, evaluate and report."""
