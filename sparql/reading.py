"""What any reader of a CRP's text hands back."""

from typing import NamedTuple

from kbqa.sparql.crp import Crp


class CrpReading(NamedTuple):
    """What was read of a text, and what was not.

    Attributes:
        crp: All that could be read.
        problems: One line for each part of the text that is not in it.
    """

    crp: Crp
    problems: tuple[str, ...]
