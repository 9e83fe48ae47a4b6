"""Load ready shards, plain N-Triples, into a new store with the loader's writer process alone.

    python tools/load_shards.py STORE LOADERS SHARD...

`bench_load.py` measures it. What it leaves is no finished store.
"""

import sys
from pathlib import Path

from kbqa.kb.store_writer import StoreWriter


def main() -> None:
    """Load the shards that the command line names."""
    graph, loaders, *shards = sys.argv[1:]
    with StoreWriter(Path(graph), int(loaders)) as writer:
        for shard in shards:
            writer.submit(Path(shard))
        while writer.take(wait=True) is not None:
            pass
        writer.finish()


if __name__ == "__main__":
    main()
