"""What whoever knows the gold path can do: ceilings of methods, and a chooser that reaches them."""
