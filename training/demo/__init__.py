"""Questions about the demo graph."""
