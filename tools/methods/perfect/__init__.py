"""What a chooser that knows the gold path can do: the ceilings of methods, and the chooser."""
