"""From the words of a question to entities."""
