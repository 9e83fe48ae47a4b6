"""What is wrong with a store or an endpoint."""
