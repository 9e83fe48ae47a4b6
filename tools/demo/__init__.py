"""The parts of tools/make_demo.py: one module for each kind of thing in the demo graph."""
