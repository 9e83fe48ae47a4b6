"""Check a store, a load that has not finished, or an endpoint, and report what is wrong with it.

The checks change nothing and read a sample, by small queries of an endpoint, so that they take a
second on a graph of any size.
"""

import fcntl
import shlex
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode, urlsplit, urlunsplit

import pyoxigraph

from kbqa.kb.connections import hide_secrets, through_proxy
from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph, Schema
from kbqa.kb.layout import LoadSummary, Manifest, StoreLayout, read_manifest
from kbqa.kb.loading.checkpoint import Checkpoint, read_checkpoint
from kbqa.kb.names import NameIndex
from kbqa.kb.protocol import HttpStatus
from kbqa.kb.store import OxigraphStore, Statistics
from kbqa.sparql.errors import (
    DumpError,
    EndpointDown,
    GraphError,
    InputError,
    KbqaError,
    MalformedResult,
    PartialResult,
    QueryTimeout,
    QueryTooCostly,
    ResultTruncated,
    StoreError,
)
from kbqa.sparql.terms import FREEBASE_NS, NAME, full_iri, has_scheme, iri, is_mid, resource_id

Status = Literal["ok", "warning", "problem"]

# Of freebase-rdf-2015-08-09-00-01.gz, the last dump that Google made; the hash is as reported by
# others who hold it.
FINAL_DUMP_BYTES = 32_191_685_487
FINAL_DUMP_SHA256 = "b3d21c80dc512c8ed3c37279516340ef7a77027d593932c7c3fb22d40dfd47f4"

_OFFICIAL_NAME = "freebase-rdf"
_MANY_REJECTED = 0.01
_SAMPLE_TRIPLES = 2000
_SAMPLE_ENTITIES = 20
_SLOW_STORE_S = 1.0
_SQLITE_HEADER_BYTES = 100

_ANY = "ASK { ?s ?p ?o }"
_NAMED = f"ASK {{ ?s {iri(NAME)} ?name }}"
_ROWS_WANTED = 20_000  # more than Virtuoso's default limit of 10,000; still a small answer

# Virtuoso expects this to take for ever, but answers at once if allowed; other servers take long.
_SEEMS_LONG = "SELECT ?a { ?a ?p ?b . ?c ?q ?d . ?e ?r ?f FILTER (1 = 2) }"
_SLOW_ENDPOINT_S = 0.5
# Virtuoso mixes its own triples into the data unless a default graph is named.
_VIRTUOSO_OWN = "ASK { ?s a <http://www.openlinksw.com/schemas/virtrdf#QuadMap> }"

_STATUS_ADVICE = {
    401: "Give the user and password in the URL: http://USER:PASSWORD@HOST/…",
    403: "The server does not let this machine read: change its rules of access.",
    404: "The URL of an endpoint often ends in /sparql or /query.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of a check. A warning lets kbqa work; a problem does not."""

    check: str  # what was checked, in a word
    status: Status
    finding: str
    advice: str = ""  # what to do about it, if anything


def ok(check: str, finding: str) -> Finding:
    """Build a finding that nothing is wrong."""
    return Finding(check, "ok", finding)


def warning(check: str, finding: str, advice: str) -> Finding:
    """Build a finding of something with which kbqa works, but not well."""
    return Finding(check, "warning", finding, advice)


def problem(check: str, finding: str, advice: str) -> Finding:
    """Build a finding of something that keeps kbqa from working."""
    return Finding(check, "problem", finding, advice)


def from_error(check: str, error: KbqaError, advice: str = "") -> Finding:
    """Turn an error into a problem; `advice` is used if the error gives none."""
    finding, _, last = str(error).rpartition(". ")
    return problem(check, finding, last) if finding else problem(check, last, advice)


def check_load(layout: StoreLayout) -> Finding | None:
    """Report an unfinished store, or a store that is being replaced."""
    directory = layout.directory
    command = f"kbqa load-freebase DUMP --store {shlex.quote(str(directory))}"
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        return problem("store", f"{directory} {what}", f"Create a store: `{command}`.")
    if layout.building.exists():
        return _unfinished(layout, command)
    if not layout.is_finished:
        what = "holds no finished store" if any(directory.iterdir()) else "is empty"
        return problem("store", f"{directory} {what}", f"Create a store: `{command}`.")
    return None


def is_held(path: Path, lock: Callable[[int, int], object]) -> bool:
    """Return whether another process has locked a file by `fcntl.flock`, or `fcntl.lockf`."""
    try:
        with path.open("rb") as file:
            lock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _unfinished(layout: StoreLayout, command: str) -> Finding:
    work = StoreLayout(layout.building)
    try:
        state = read_checkpoint(work.checkpoint) if work.checkpoint.exists() else None
        progress = "nothing is complete yet" if state is None else _progress(state)
    except DumpError as error:
        state, progress = None, str(error)
    if is_held(work.lock, fcntl.flock):
        advice = "Wait until it ends, or use another store meanwhile."
        if layout.is_finished:
            return warning("load", f"the store is being replaced: {progress}", advice)
        return problem("load", f"the store is being loaded: {progress}", advice)
    if state is not None:
        dumps = shlex.join(name for name, _ in state.plan.dumps)
        command = command.replace("DUMP", dumps)
    if layout.is_finished:
        return warning(
            "load",
            f"a load to replace the store has not finished: {progress}",
            f"Resume it: `{command} --overwrite`, with the options that it had. "
            f"Or discard it: delete {layout.building}.",
        )
    return problem(
        "load",
        f"the load has not finished: {progress}",
        f"Resume it with the command that started it: `{command}`, with the options that it had.",
    )


def _progress(state: Checkpoint) -> str:
    if state.is_built:
        return "all parts are built, but not all moved into place"
    read = "all" if state.is_read else f"{len(state.dumps)}"
    dumps = f"{read} of {len(state.plan.dumps)} dumps"
    return (
        f"{state.counts.read:,} lines are read, {dumps} to the end, "
        f"and {state.triples_loaded:,} triples are in the store"
    )


def check_store(directory: Path, timeout_s: float = DEFAULT_TIMEOUT_S) -> Iterator[Finding]:
    """Check a store. `timeout_s` is for a query that goes through the store's query process."""
    layout = StoreLayout(directory)
    unfinished = check_load(layout)
    if unfinished is not None:
        yield unfinished
    if not layout.is_finished:
        return
    try:
        manifest = read_manifest(directory)
        graph = OxigraphStore.open(directory)
    except StoreError as error:
        yield from_error("store", error, _reload(layout))
        return
    with closing(graph):
        summary = manifest.summary
        yield ok(
            "store",
            f"{graph.description}: {summary.kept:,} triples, {summary.entities:,} entities, "
            f"loaded by kbqa {manifest.versions['kbqa']}",
        )
        yield _check_files(layout, manifest)
        yield _check_dump(manifest)
        yield _check_lines(layout, summary)
        if is_held(layout.graph / "LOCK", fcntl.lockf):
            yield warning(
                "lock",
                "another process has the store open for writing",
                "Results may mix old and new data until it ends: wait.",
            )
        yield from _check_graph(layout, graph, timeout_s)
        yield _check_names(layout, manifest)
        yield _check_schema(layout)
        yield _check_statistics(layout)


def _check_files(layout: StoreLayout, manifest: Manifest) -> Finding:
    """Compare the files' size with what the load left."""
    size_bytes = sum(
        path.stat().st_size
        for path in layout.directory.rglob("*")
        if path.is_file() and layout.building not in path.parents
    )
    expected = manifest.summary.size_bytes
    finding = f"{size_bytes / 1e6:,.1f} MB on disk"
    if size_bytes < 0.9 * expected:
        return problem(
            "files",
            f"{finding}, where the load left {expected / 1e6:,.1f} MB: files are missing or cut",
            _reload(layout),
        )
    return ok("files", finding)


def _check_dump(manifest: Manifest) -> Finding:
    dumps = manifest.dumps
    if any(dump.sha256 == FINAL_DUMP_SHA256 for dump in dumps):
        return ok("dump", "loaded from the final dump of 2015-08-09")
    named = ", ".join(Path(dump.name).name for dump in dumps)
    if any(dump.size_bytes == FINAL_DUMP_BYTES for dump in dumps):
        return problem(
            "dump",
            f"{named} has the size of the final dump, but not its SHA-256",
            f"It is damaged: fetch it again; `sha256sum` should say {FINAL_DUMP_SHA256}.",
        )
    for dump in dumps:
        if Path(dump.name).name.startswith(_OFFICIAL_NAME):
            return warning(
                "dump",
                f"{named} has {dump.size_bytes:,} bytes, the final dump {FINAL_DUMP_BYTES:,}",
                "It is cut short, or of another date: the benchmarks were made on the final dump, "
                "freebase-rdf-2015-08-09-00-01.gz.",
            )
    return ok(
        "dump",
        f"loaded from {named}, not from the final dump: scores on it are no scores on Freebase",
    )


def _check_lines(layout: StoreLayout, summary: LoadSummary) -> Finding:
    rejected = sum(summary.rejected.values())
    finding = f"{summary.read:,} lines were read, {rejected:,} rejected"
    if rejected > _MANY_REJECTED * summary.read:
        return warning(
            "lines", finding, f"{layout.rejects} holds them with reasons: is the dump damaged?"
        )
    return ok("lines", finding)


def _check_graph(layout: StoreLayout, graph: Graph, timeout_s: float) -> Iterator[Finding]:
    """Read a sample of the triples, and ask about the entities in it."""
    try:
        store = pyoxigraph.Store.read_only(str(layout.graph))
        # Oxigraph orders nodes by a hash: the first triples are as good as drawn at random.
        triples = store.quads_for_pattern(None, None, None, pyoxigraph.DefaultGraph())
        subjects = [
            resource_id(quad.subject.value)
            for quad in islice(triples, _SAMPLE_TRIPLES)
            if isinstance(quad.subject, pyoxigraph.NamedNode)
        ]
        yield _check_vocabulary(layout, subjects)
        started = time.monotonic()
        mids = sorted(filter(is_mid, set(subjects)))[:_SAMPLE_ENTITIES]
        for mid in mids:
            if not graph.relations(mid, "out", 1):
                yield problem("queries", f"{mid} is in the store and is not found", _reload(layout))
                return
        graph.ask("ASK { ?s ?p ?o }", timeout_s=timeout_s)
        yield _speed(
            "queries",
            f"{len(mids) + 1} of a sample answer",
            time.monotonic() - started,
            _SLOW_STORE_S,
            "The disk may be slow, or the machine busy. A local SSD works best.",
        )
    except (OSError, RuntimeError) as error:  # pyoxigraph's for damage is the latter
        yield problem("queries", f"the triples cannot be read: {error}", _reload(layout))
    except GraphError as error:
        yield from_error("queries", error, _reload(layout))


def _speed(check: str, answered: str, seconds: float, slow_s: float, advice: str) -> Finding:
    finding = f"{answered} in {seconds:.2f} s"
    return warning(check, finding, advice) if seconds > slow_s else ok(check, finding)


def _check_vocabulary(layout: StoreLayout, subjects: list[str]) -> Finding:
    """Check that the triples are Freebase's, whose ids `resource_id` makes short."""
    foreign = [subject for subject in subjects if has_scheme(subject)]
    if 2 * len(foreign) > len(subjects):
        return problem(
            "vocabulary",
            f"{len(foreign)} of {len(subjects)} triples are not about Freebase's entities, "
            f"such as {foreign[0]}",
            f"The dump was not Freebase's, whose ids begin with {FREEBASE_NS}. {_reload(layout)}",
        )
    return ok("vocabulary", "the ids are Freebase's")


def _check_names(layout: StoreLayout, manifest: Manifest) -> Finding:
    """Look up in the index a sample of the names in the graph."""
    if not manifest.summary.names:
        return problem(
            "names",
            "the store holds no names, so no question can be linked",
            f"The dump states none in {', '.join(manifest.languages)}. {_reload(layout)}",
        )
    try:
        with layout.names.open("rb") as file:
            header = file.read(_SQLITE_HEADER_BYTES)
        # Offsets 16 and 28 of SQLite's file format: the page size, and the number of pages.
        page_bytes = int.from_bytes(header[16:18]) or 1
        pages = int.from_bytes(header[28:32])
        if layout.names.stat().st_size < pages * (65536 if page_bytes == 1 else page_bytes):
            return problem("names", f"{layout.names} is cut short", _reload(layout))
        with closing(NameIndex.open(layout.names)) as names:
            stated = _stated_names(layout, manifest)
            missing = [name for name in stated if not names.lookup(name, 1)]
    except StoreError as error:
        return from_error("names", error)
    except (OSError, sqlite3.Error) as error:
        return problem("names", f"the name index cannot be read: {error}", _reload(layout))
    if 2 * len(missing) > len(stated):
        return problem(
            "names",
            f"{len(missing)} of {len(stated)} names in the graph are not in the index, "
            f"such as {missing[0]!r}",
            f"The index belongs to another load. {_reload(layout)}",
        )
    return ok("names", f"{manifest.summary.names:,} names and aliases")


def _stated_names(layout: StoreLayout, manifest: Manifest) -> list[str]:
    store = pyoxigraph.Store.read_only(str(layout.graph))
    name = pyoxigraph.NamedNode(full_iri(NAME))
    return [
        quad.object.value
        for quad in islice(store.quads_for_pattern(None, name, None), _SAMPLE_TRIPLES)
        if isinstance(quad.object, pyoxigraph.Literal)
        and isinstance(quad.subject, pyoxigraph.NamedNode)
        and is_mid(resource_id(quad.subject.value))
        and (quad.object.language or "").partition("-")[0] in ("", *manifest.languages)
        and quad.object.value.strip()
    ][:_SAMPLE_ENTITIES]


def _check_schema(layout: StoreLayout) -> Finding:
    try:
        schema = Schema.open(layout.schema)
    except StoreError as error:
        return from_error("schema", error)
    if not schema.properties:
        return warning(
            "schema",
            "the store holds no schema",
            "The dump states no type.property.*: was it cut short, or filtered before?",
        )
    return ok("schema", f"{len(schema.properties):,} properties")


def _check_statistics(layout: StoreLayout) -> Finding:
    try:
        with closing(Statistics.open(layout.statistics)) as statistics:
            return ok("statistics", f"{len(statistics.relations()):,} relations are counted")
    except StoreError as error:
        return from_error("statistics", error)
    except sqlite3.Error as error:
        return problem("statistics", f"the counts cannot be read: {error}", _reload(layout))


def _reload(layout: StoreLayout) -> str:
    return f"Load again: `kbqa load-freebase DUMP --store {layout.directory} --overwrite`."


def check_endpoints(urls: Sequence[str], timeout_s: float = DEFAULT_TIMEOUT_S) -> Iterator[Finding]:
    """Check an endpoint, or each of several that hold copies of one graph.

    A copy that does not answer is a problem only if none does. `timeout_s` is for each query. A URL
    that is not an HTTP URL raises `InputError`.
    """
    if len(urls) == 1:
        yield from check_endpoint(urls[0], timeout_s)
        return
    copies = [list(check_endpoint(url, timeout_s)) for url in urls]
    is_any_up = any(findings[0].status != "problem" for findings in copies)
    for number, findings in enumerate(copies, 1):
        for found in findings:
            is_down = found.check == "endpoint" and found.status == "problem"
            status = "warning" if is_down and is_any_up else found.status
            yield replace(found, check=f"{found.check} {number}", status=status)


def check_endpoint(url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> Iterator[Finding]:
    """Check one endpoint."""
    graph = SparqlEndpoint(url, timeout_s)
    started = time.monotonic()
    try:
        holds_any = graph.ask(_ANY, timeout_s=timeout_s)
    except (GraphError, InputError) as error:
        yield _no_answer(error, through_proxy(url))
        return
    yield _speed(
        "endpoint",
        f"{graph.description} answers",
        time.monotonic() - started,
        _SLOW_ENDPOINT_S,
        "A question takes tens of queries: a server on this machine answers in a millisecond.",
    )
    try:
        if not holds_any:
            yield _without_data("empty", f"{graph.description} holds no triples", url, timeout_s)
            return
        if not graph.ask(_NAMED, timeout_s=timeout_s):
            finding = f"{graph.description} holds no names of Freebase ({NAME})"
            if example := _example(graph, timeout_s):
                finding += f", but triples such as {example}"
            yield _without_data("vocabulary", finding, url, timeout_s)
            return
        yield ok("vocabulary", "it holds names of Freebase's entities")
        yield from _check_default_graph(graph, url, timeout_s)
        yield _check_row_cap(graph, timeout_s)
        yield from _check_cost(graph, url, timeout_s)
    except (GraphError, InputError) as error:
        yield from_error("endpoint", error)


def _no_answer(error: KbqaError, through: str) -> Finding:
    """Report why an endpoint does not answer the simplest query; `through` names the proxy."""
    if through and isinstance(error, EndpointDown):
        return from_error("endpoint", error)  # the proxy may be down as well as the endpoint
    for cause in _causes(error):
        if isinstance(cause, HttpStatus) and cause.code in _STATUS_ADVICE:
            return problem("endpoint", str(error), _STATUS_ADVICE[cause.code])
        if isinstance(cause, ConnectionRefusedError):
            advice = "Nothing listens there: start the server, or correct the URL."
            return problem("endpoint", _first_sentence(error), advice)
        if isinstance(cause, socket.gaierror):
            return problem("endpoint", _first_sentence(error), "No host has that name: correct it.")
    if isinstance(error, QueryTimeout) and not isinstance(error, PartialResult | QueryTooCostly):
        return problem(
            "endpoint",
            f"it gives no answer{through} to {_ANY} within {error.timeout_s:g} s",
            "It may still be starting or loading. If not, raise --timeout.",
        )
    if isinstance(error, MalformedResult):
        advice = "Is it a SPARQL endpoint? Its URL often ends in /sparql or /query."
        return problem("endpoint", str(error), advice)
    return from_error("endpoint", error, "The message is the server's: look into its log.")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    left: BaseException | None = error
    while left is not None:
        yield left
        left = left.__cause__ or left.__context__


def _first_sentence(error: KbqaError) -> str:
    return str(error).partition(". ")[0]


def _without_data(check: str, finding: str, url: str, timeout_s: float) -> Finding:
    """Report that the default graph lacks the data, and the named graph that has them."""
    if (found := _graph_of_names(url, timeout_s)) is not None:
        return problem(
            check,
            f"{finding} in its default graph; its data are in the graph {found}",
            f"Name that: --endpoint '{hide_secrets(_with_default_graph(url, found))}'.",
        )
    advice = f"Load Freebase into it, with ids that begin with {FREEBASE_NS}; or correct the URL."
    return problem(check, finding, advice)


def _graph_of_names(url: str, timeout_s: float) -> str | None:
    """Find a named graph that holds names; None if the server names none."""
    query = f"SELECT ?g {{ GRAPH ?g {{ ?s {iri(NAME)} ?name }} }} LIMIT 1"
    try:
        rows = _whole_server(url, timeout_s).select(query, timeout_s=timeout_s).rows
    except (GraphError, InputError):
        return None
    return str(rows[0][0]) if rows else None


def _whole_server(url: str, timeout_s: float) -> SparqlEndpoint:
    """Open the endpoint without the choice of graphs in its URL."""
    return SparqlEndpoint(urlunsplit(urlsplit(url)._replace(query="")), timeout_s)


def _with_default_graph(url: str, graph: str) -> str:
    query = urlencode({"default-graph-uri": graph}, safe=":/")
    return urlunsplit(urlsplit(url)._replace(query=query))


def _example(graph: SparqlEndpoint, timeout_s: float) -> str:
    rows = graph.select("SELECT ?s ?p { ?s ?p ?o } LIMIT 1", timeout_s=timeout_s).rows
    return " ".join(str(term) for term in rows[0]) if rows else ""


def _check_default_graph(graph: SparqlEndpoint, url: str, timeout_s: float) -> Iterator[Finding]:
    if not graph.ask(_VIRTUOSO_OWN, timeout_s=timeout_s):
        return
    found = _graph_of_names(url, timeout_s) or "GRAPH"
    yield warning(
        "default graph",
        "Virtuoso's own triples are among the data, as no default graph is named",
        f"Name the data's: --endpoint '{hide_secrets(_with_default_graph(url, found))}'.",
    )


def _check_row_cap(graph: SparqlEndpoint, timeout_s: float) -> Finding:
    """Check whether the server cuts a result of many rows."""
    query = f"SELECT ?s {{ ?s ?p ?o }} LIMIT {_ROWS_WANTED}"
    try:
        n = len(graph.select(query, timeout_s=timeout_s).rows)
        rest = f"SELECT ?s {{ ?s ?p ?o }} OFFSET {n} LIMIT 1"
        is_capped = n < _ROWS_WANTED and bool(graph.select(rest, timeout_s=timeout_s).rows)
    except ResultTruncated as error:
        n, is_capped = error.max_rows, True
    if is_capped:
        return warning(
            "rows",
            f"the server cuts results at {n:,} rows",
            "Raise its limit: ResultSetMaxRows in the section [SPARQL] of virtuoso.ini.",
        )
    return ok("rows", f"{n:,} rows come in one answer")


def _check_cost(graph: SparqlEndpoint, url: str, timeout_s: float) -> Iterator[Finding]:
    """Check whether a Virtuoso refuses queries that it expects to be slow."""
    if not _whole_server(url, timeout_s).ask(_VIRTUOSO_OWN, timeout_s=timeout_s):
        return
    try:
        graph.select(_SEEMS_LONG, timeout_s=timeout_s)
    except QueryTooCostly as error:
        yield warning(
            "cost",
            f"the server refuses queries that it expects to take over {error.timeout_s:g} s",
            "Its estimates are often far off: set MaxQueryCostEstimationTime = 0 in virtuoso.ini.",
        )
