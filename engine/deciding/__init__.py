"""Decisions of walking methods: what is offered, who chooses, and how replies become answers."""
