"""Training the model that writes paths."""
