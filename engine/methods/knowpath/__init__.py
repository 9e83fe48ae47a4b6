"""KnowPath: paths from the model's memory guide the exploration of a subgraph of each topic."""
