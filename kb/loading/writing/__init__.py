"""Writing shards, the store and its indexes."""
