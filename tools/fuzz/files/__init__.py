"""Fuzz every file that kbqa writes and reads again: cut at any place, and with bytes changed."""
