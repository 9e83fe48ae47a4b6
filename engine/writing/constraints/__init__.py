"""What may be written next."""
