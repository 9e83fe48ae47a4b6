"""Open the graph that the user chose."""

import logging
from collections.abc import Sequence
from pathlib import Path

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, RESULT_BYTES, Graph
from kbqa.sparql.errors import InputError

logger = logging.getLogger(__name__)


def open_graph(
    store: str | Path | None = None,
    endpoint: str | Sequence[str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    *,
    workers: int = 1,
    low_priority: bool = False,
) -> Graph:
    """Open an embedded store or an endpoint; without either, the demo graph.

        with kbqa.open_graph() as graph:
            graph.relations("m.09c7w0", "out")

    Args:
        store: Directory that `kbqa load-freebase` wrote.
        endpoint: URL of a SPARQL 1.1 endpoint, or of several that hold copies of one graph; see
            `kbqa.kb.endpoint.copies`. Nothing is sent yet.
        timeout_s: Seconds for each search operation of an endpoint; a store's need no limit.
        workers: Queries that a store runs at once; an endpoint decides for itself.
        low_priority: For queries of other people, such as a server's clients: see
            `OxigraphStore.open`. An endpoint's results are then refused above `RESULT_BYTES`.

    Raises:
        InputError: Both are given, an endpoint is not an HTTP URL, or there is no worker.
        StoreError: The store is missing, unfinished, empty or unreadable.
    """
    if store is not None and endpoint is not None:
        raise InputError("choose one graph: --store or --endpoint, not both")
    if endpoint is not None:
        from kbqa.kb.endpoint.sparql_endpoint import SparqlEndpoint

        most = RESULT_BYTES if low_priority else None
        return _logged(SparqlEndpoint(endpoint, timeout_s, max_body_bytes=most))
    from kbqa.kb.demo_graph import demo_store_directory
    from kbqa.kb.store.oxigraph import OxigraphStore

    directory = demo_store_directory() if store is None else Path(store)
    return _logged(OxigraphStore.open(directory, workers, low_priority=low_priority))


def _logged(graph: Graph) -> Graph:
    logger.info("the graph is %s", graph.description)
    return graph
