"""Bounded Path Context: walk the graph while the model sees only the last hops of each path."""
