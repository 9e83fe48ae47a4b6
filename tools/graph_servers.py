"""Temporary real SPARQL servers over a small graph, on loopback, for tests and measurements.

Oxigraph servers may be killed and started again. Each runs in a context, whose value is the URL:

    with virtuoso_server([Path("graph.nt.gz")]) as url:
        SparqlEndpoint(url).ask("ASK { ?s ?p ?o }")
"""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

VIRTUOSO_IS_MISSING = (
    "needs Virtuoso 7: apt-get install virtuoso-opensource-7 virtuoso-opensource-7-bin"
)

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_LOAD_TIMEOUT_S = 7200.0
_GRAPH = "http://rdf.freebase.com"

# Zeros lift limits: without them Virtuoso refuses queries that it guesses to be slow, and cuts
# results at 10,000 rows.
_INI = """
[Database]
DatabaseFile = virtuoso.db
ErrorLogFile = virtuoso.log
LockFile = virtuoso.lck
TransactionFile = virtuoso.trx
xa_persistent_file = virtuoso.pxa
[TempDatabase]
DatabaseFile = temp.db
TransactionFile = temp.trx
[Parameters]
ServerPort = 127.0.0.1:{sql_port}
DisableUnixSocket = 1
DirsAllowed = {folders}
NumberOfBuffers = 40000
MaxDirtyBuffers = 30000
CheckpointInterval = 0
[HTTPServer]
ServerPort = 127.0.0.1:{http_port}
ServerThreads = 8
MaxKeepAlives = 8
KeepAliveTimeout = 60
[SPARQL]
{limits}
"""
_NO_LIMITS = {
    "ResultSetMaxRows": 1_000_000,
    "MaxQueryCostEstimationTime": 0,
    "MaxQueryExecutionTime": 0,
}


class MissingServer(Exception):
    """A server's program is not installed; the message says how to install it."""


@contextmanager
def oxigraph_server(location: Path, timeout_s: int | None = None) -> Iterator[str]:
    """Serve a pyoxigraph store with the oxigraph server from PyPI, read-only."""
    with mortal_oxigraph_servers(location, 1, timeout_s) as [server]:
        yield server.url


class OxigraphServer:
    """An oxigraph server that can be killed, and started again at the same URL."""

    def __init__(self, location: Path, port: int, timeout_s: int | None = None) -> None:
        program = shutil.which("oxigraph", path=str(Path(sys.executable).parent))
        if program is None:
            raise MissingServer("needs the oxigraph server: pip install oxigraph")
        self.port, self.url = port, f"http://127.0.0.1:{port}/query"
        self._command = [program, "serve-read-only", "--location", str(location)]
        self._command += ["--bind", f"127.0.0.1:{port}"]
        if timeout_s is not None:
            self._command += ["--timeout-s", str(timeout_s)]
        self.start()

    def start(self) -> None:
        """Start it, and return when it listens."""
        self.process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        try:
            _wait_for(lambda: _listens(self.port), self.process, "oxigraph")
        except BaseException:
            _stop(self.process)
            raise

    def kill(self) -> None:
        """Kill it at once, whatever it is doing."""
        self.process.kill()
        self.process.wait()


@contextmanager
def mortal_oxigraph_servers(
    location: Path, count: int, timeout_s: int | None = None
) -> Iterator[list[OxigraphServer]]:
    """Serve one pyoxigraph store by several servers, which may be killed and started again."""
    servers: list[OxigraphServer] = []
    try:
        for port in _free_ports(count):
            servers.append(OxigraphServer(location, port, timeout_s))
        yield servers
    finally:
        for server in servers:
            _stop(server.process)


@contextmanager
def virtuoso_server(
    dumps: Sequence[Path], limits: Mapping[str, int] | None = None
) -> Iterator[str]:
    """Load N-Triples files, gzipped or not, into a new Virtuoso and serve them as one graph."""
    if shutil.which("virtuoso-t") is None or shutil.which("isql-vt") is None:
        raise MissingServer(VIRTUOSO_IS_MISSING)
    dumps = [dump.resolve() for dump in dumps]
    sql_port, http_port = _free_ports(2)
    with TemporaryDirectory(prefix="virtuoso-") as folder:
        lines = [f"{name} = {value}" for name, value in (_NO_LIMITS | dict(limits or {})).items()]
        ini = _INI.format(
            sql_port=sql_port,
            http_port=http_port,
            folders=", ".join(sorted({str(dump.parent) for dump in dumps})),
            limits="\n".join(lines),
        )
        Path(folder, "virtuoso.ini").write_text(ini, encoding="utf-8")
        log = Path(folder, "output.log")
        command = ["virtuoso-t", "+foreground", "+configfile", "virtuoso.ini"]
        with log.open("wb") as output:
            server = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        try:
            # Not by connecting, as Virtuoso once crashed while it was asked during its start.
            try:
                _wait_for(lambda: b"Server online at" in log.read_bytes(), server, "Virtuoso")
            except RuntimeError as error:
                words = log.read_text(encoding="utf-8", errors="replace")[-1000:]
                raise RuntimeError(f"{error}: {words}") from error
            _load(sql_port, dumps)
            # Virtuoso also holds its own graphs, which a query sees by default.
            yield f"http://127.0.0.1:{http_port}/sparql?default-graph-uri={_GRAPH}"
        finally:
            _stop(server)


def _load(sql_port: int, dumps: Sequence[Path]) -> None:
    """Load N-Triples files as one graph, and write a checkpoint."""
    for dump in dumps:
        words = (str(dump.parent), dump.name, _GRAPH)
        quoted = ", ".join("'" + word.replace("'", "''") + "'" for word in words)
        _isql(sql_port, f"ld_dir({quoted})")
    _isql(sql_port, "rdf_loader_run(); checkpoint")
    loaded = _isql(
        sql_port, "SELECT ll_file FROM load_list WHERE ll_state = 2 AND ll_error IS NULL"
    )
    if len(loaded.split()) < len(dumps):
        states = _isql(sql_port, "SELECT ll_file, ll_state, ll_error FROM load_list")
        raise RuntimeError(f"Virtuoso could not load everything: {states}")


def _isql(sql_port: int, statements: str) -> str:
    address = f"127.0.0.1:{sql_port}"
    settings = ["VERBOSE=OFF", "BANNER=OFF", "PROMPT=OFF", "ERRORS=STDOUT", "BLOBS=ON"]
    done = subprocess.run(
        ["isql-vt", address, "dba", "dba", *settings, f"exec={statements};"],
        capture_output=True,
        text=True,
        timeout=_LOAD_TIMEOUT_S,
    )
    if done.returncode != 0 or "*** Error" in done.stdout:
        raise RuntimeError(f"Virtuoso cannot run {statements!r}: {done.stdout}{done.stderr}")
    return done.stdout


def _stop(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    try:
        server.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        # All are held until the last is found: one at a time, the same may come twice.
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in held]


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _wait_for(is_ready: Callable[[], bool], server: "subprocess.Popen[bytes]", name: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not is_ready():
        if server.poll() is not None:
            raise RuntimeError(f"the {name} server ended at once, with code {server.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the {name} server does not answer within {_START_TIMEOUT_S:g} s")
        time.sleep(0.05)
