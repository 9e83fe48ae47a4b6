"""What prompts of several methods share."""

from collections.abc import Sequence


def numbered(options: Sequence[str]) -> str:
    r"""Write options one a line, numbered from 1, so that a reply may name them by number.

    >>> numbered(["Paris", "Nice"]), numbered([])
    ('1. Paris\n2. Nice', '(none)')
    """
    return "\n".join(f"{at}. {option}" for at, option in enumerate(options, 1)) or "(none)"
