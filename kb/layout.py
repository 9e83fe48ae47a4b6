"""Where the parts of an embedded store lie: the one contract between loading and opening.

    DIR/graph/         the triples, a pyoxigraph store
    DIR/names.sqlite   the name index
    DIR/schema.json    the schema
    DIR/manifest.json  what was loaded; written last, by rename, so that it marks a finished load
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The paths inside one store directory; none of them need exist.

    Attributes:
        directory: What the user calls the store.
    """

    directory: Path

    @property
    def graph(self) -> Path:
        """The directory of the triples."""
        return self.directory / "graph"

    @property
    def names(self) -> Path:
        """The file of the name index."""
        return self.directory / "names.sqlite"

    @property
    def schema(self) -> Path:
        """The file of the schema."""
        return self.directory / "schema.json"

    @property
    def manifest(self) -> Path:
        """The file whose presence marks a finished load."""
        return self.directory / "manifest.json"
