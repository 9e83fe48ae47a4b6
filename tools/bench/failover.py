"""Kill servers during a run, and compare its rows with those of a run that nothing disturbs.

    python -m tools.bench.failover STORE --questions FILE --beams FILE [--count 1000] [--balancer]

Three oxigraph servers serve the store. `kbqa eval` answers questions from paths that were written
before, first in peace. In the second run the server in use is killed after a quarter, a half and
three quarters of the questions; the one killed before is started again. The servers are listed as
copies, or HAProxy stands before them (`--balancer`). Question sets and beams may be repeated.
"""

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click

from kbqa.kb.layout import StoreLayout
from tools.bench.measured_run import cpu_seconds
from tools.graph_servers import OxigraphServer, haproxy, mortal_oxigraph_servers

_COPIES = 3
_KILLS = 3
_LOOK_S = 0.01


class Run(NamedTuple):
    """A run of `kbqa eval`.

    Attributes:
        rows: Its output.
        seconds: Of the whole process.
        killed: The servers that were killed, by number, in order.
    """

    rows: bytes
    seconds: float
    killed: list[int]

    @property
    def failed(self) -> int:
        """The number of questions that ended with an error."""
        return sum(json.loads(line).get("error") is not None for line in self.rows.splitlines())


@click.command(help=__doc__)
@click.argument("store", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--questions", type=click.Path(exists=True, path_type=Path), required=True, multiple=True
)
@click.option("--beams", type=click.Path(exists=True, path_type=Path), required=True, multiple=True)
@click.option("--count", default=1000, show_default=True, type=click.IntRange(min=8))
@click.option("--balancer", is_flag=True, help="Put HAProxy before the servers.")
def main(
    store: Path, questions: Sequence[Path], beams: Sequence[Path], count: int, balancer: bool
) -> None:
    """Run twice, and print what differs."""
    with TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        count = _write_inputs(folder, questions, beams, count)
        servers = stack.enter_context(
            mortal_oxigraph_servers(StoreLayout(store).graph, _COPIES, timeout_s=60)
        )
        urls = [server.url for server in servers]
        if balancer:
            urls = [stack.enter_context(haproxy(servers))]
        peaceful = _run(folder, "peaceful", urls, [], count)
        disturbed = _run(folder, "disturbed", urls, servers, count)
    same = peaceful.rows == disturbed.rows
    click.echo(f"{count} questions, {_COPIES} servers{', HAProxy before them' * balancer}")
    click.echo(f"undisturbed: {peaceful.failed} failed, {peaceful.seconds:.0f} s")
    click.echo(
        f"killed {', '.join(str(each) for each in disturbed.killed)}: "
        f"{disturbed.failed} failed, {disturbed.seconds:.0f} s"
    )
    click.echo(f"rows byte-equal: {'yes' if same else 'no'}")
    if not same or len(disturbed.killed) < _KILLS:
        raise SystemExit(1)


def _write_inputs(
    folder: Path, questions: Sequence[Path], beams: Sequence[Path], count: int
) -> int:
    """Write the first questions that have beams, and their beams; return how many there are."""
    written = {str(row["id"]): row for file in beams for row in _rows(file)}
    asked = [row for file in questions for row in _rows(file) if str(row["id"]) in written][:count]
    ids = [str(row["id"]) for row in asked]
    for name, rows in (("questions", asked), ("beams", [written[each] for each in ids])):
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return len(ids)


def _rows(file: Path) -> Iterator[Mapping[str, object]]:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _run(
    folder: Path, name: str, urls: Sequence[str], servers: Sequence[OxigraphServer], count: int
) -> Run:
    """Run `kbqa eval`; kill the busiest of the servers after each quarter but the last."""
    output = folder / f"{name}.jsonl"
    command = [sys.executable, "-m", "kbqa.engine.cli", "eval", "--no-timings", "--gold-entities"]
    command += ["--set", "judge=confidence", "--questions", str(folder / "questions.jsonl")]
    command += ["--beams", str(folder / "beams.jsonl"), "--output", str(output)]
    for url in urls:
        command += ["--endpoint", url]
    begun = time.monotonic()
    with (folder / f"{name}.log").open("w+", encoding="utf-8") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            killed = list(_kill_in_turn(run, servers, output, count)) if servers else []
            run.wait()
        finally:
            run.kill()
            run.wait()
        if run.returncode != 0:
            log.seek(0)
            raise click.ClickException(f"the run {name} failed: {log.read()[-2000:]}")
    return Run(output.read_bytes(), time.monotonic() - begun, killed)


def _kill_in_turn(
    run: "subprocess.Popen[bytes]", servers: Sequence[OxigraphServer], output: Path, count: int
) -> Iterator[int]:
    dead: OxigraphServer | None = None
    for nth in range(1, _KILLS + 1):
        before = {server.port: _cpu_s(server) for server in servers}
        while run.poll() is None and _lines(output) < count * nth // (_KILLS + 1):
            time.sleep(_LOOK_S)
        if run.poll() is not None:
            return
        if dead is not None:
            dead.start()
        alive = [server for server in servers if server is not dead]
        dead = max(alive, key=lambda server: _cpu_s(server) - before[server.port])
        dead.kill()
        yield 1 + servers.index(dead)


def _cpu_s(server: OxigraphServer) -> float:
    return cpu_seconds(server.process.pid) if server.process.poll() is None else 0.0


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


if __name__ == "__main__":
    main()
