"""The methods that walk the graph: ceilings, the perfect chooser, runs of all of them."""
