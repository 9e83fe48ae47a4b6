"""The graph: dumps, embedded stores, endpoints, schema, names and entity search."""
