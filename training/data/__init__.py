"""Question sets as training examples."""
