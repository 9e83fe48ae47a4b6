"""Training the linker."""
