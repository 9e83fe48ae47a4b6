"""What several tools that score share, and their pictures."""
