"""Fitting what chooses among candidates."""
