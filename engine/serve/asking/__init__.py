"""A question on its way through the server: queue, batches, threads, cache."""
