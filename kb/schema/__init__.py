"""Relations, types, and what the schema says of them."""
