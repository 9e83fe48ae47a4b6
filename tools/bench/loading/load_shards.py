"""Load plain N-Triples shards into a new store with the loader's writer process alone.

    python -m tools.bench.loading.load_shards STORE LOADERS SHARD...

`tools.bench.loading.load` measures it. The result is not a finished store.
"""

import sys
from pathlib import Path

from kbqa.kb.loading.store_writer import StoreWriter


def main() -> None:
    """Load the shards given on the command line."""
    graph, loaders, *shards = sys.argv[1:]
    with StoreWriter(Path(graph), int(loaders)) as writer:
        for shard in shards:
            writer.submit(Path(shard))
        while writer.take(wait=True) is not None:
            pass
        writer.finish()


if __name__ == "__main__":
    main()
