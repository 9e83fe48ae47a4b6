"""From a dump to a store."""
