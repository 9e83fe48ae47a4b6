"""Running candidate paths and choosing among them."""
