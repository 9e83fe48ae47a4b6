"""The general language model: what asks it, counts it, keeps what it said and what it costs."""
