"""Training the writer by reward from the graph, with GRPO."""
