"""How a setting is given on the command line, and which values it may have.

Settings are the fields of a frozen dataclass, each ``Annotated[type, Option("help")]``. What the
type does not say of the option stands in the `Option`. `kbqa.kb.commands.options.options_of` makes
the options of a command; this module, which libraries use as well, does without click.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import click
    from annotated_types import BaseMetadata


@dataclass(frozen=True, slots=True)
class Option:
    """How one setting is given on the command line.

    A setting without a default must be given. One of several values is a tuple: it is repeatable,
    or else its texts stand in one value, with commas.
    """

    help: str
    name: str | None = None  # None for the field's name, with dashes
    metavar: str | None = None
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    repeatable: bool = False
    path: Literal["file", "folder", "input file", "input folder"] | None = None  # None for any
    envvar: str | None = None  # instead of the one that is named after command and option
    type: "click.ParamType[Any] | None" = None  # None for that of the field

    def __iter__(self) -> "Iterator[BaseMetadata]":
        """Yield the bounds for pydantic, which takes this for a `GroupedMetadata`."""
        from annotated_types import Ge, Gt, Le, Lt

        kinds = (Ge, Gt, Le, Lt)
        bounds = (self.at_least, self.above, self.at_most, self.below)
        return (kind(n) for kind, n in zip(kinds, bounds, strict=True) if n is not None)

    @property
    def __is_annotated_types_grouped_metadata__(self) -> Literal[True]:
        return True
