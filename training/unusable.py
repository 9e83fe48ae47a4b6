"""Say why something cannot be trained on."""

from dataclasses import dataclass

UNNAMED = "an entity without a name"
"""The reason where neither a file nor a graph names an entity."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """Stands in the place of what a row should have given.

    Attributes:
        reason: Why, in a few words that are the same for each such row, so that they are counted.
    """

    reason: str
