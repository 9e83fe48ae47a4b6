"""Base models and adapters on disk."""
