"""The commands that serve others: `kbqa serve` over HTTP, `kbqa mcp` for language models."""
