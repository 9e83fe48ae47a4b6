"""Methods that retrieve triples and have them read: `subgraph` and `path-pooling`."""
