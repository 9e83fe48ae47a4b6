"""JSON Lines files and the manifests beside them."""
