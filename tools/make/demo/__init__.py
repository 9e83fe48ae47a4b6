"""The parts of tools/make/demo_graph.py: one module for each kind of thing in the demo graph."""
