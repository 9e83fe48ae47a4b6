"""What the graph holds around entities."""
