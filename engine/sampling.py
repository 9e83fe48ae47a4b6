"""How candidates are gathered where a back end samples them instead of searching.

A question gets its greedy text and n samples; samples repeat one another, so what is left may be
fewer than n. A back end may draw them as it likes: equal seeds give equal texts on one back end,
not across them.
"""

TEMPERATURE = 1.0
"""Samples follow the model's own distribution: likely texts come, unlikely ones hardly do."""

DEFAULT_SEED = 42
