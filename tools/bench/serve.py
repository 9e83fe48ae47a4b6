"""Measure `kbqa serve` under load, on the demo graph, against `Engine.ask` alone.

    python -m tools.bench.serve [--only closed,overload] [--questions 40] [--minutes 10]

The server is a process of its own on loopback, and every check stops by itself. Questions are demo
questions that no adapter is trained on, the same for every row of a table; each time another
question mark follows, so that no answer is remembered. The checks:

- `closed`: clients that each ask again once they are answered. The baseline is `Engine.ask` in a
  process without a server. Who is refused tries again later; the time counts from the last try.
- `steady`: questions come at 80 % of what the server answers, for some minutes.
- `overload`: they come at twice of it.
- `thousand`: 1,000 clients ask 1,000 questions at once; each is answered or refused.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import NamedTuple

from kbqa.training.demo import demo_examples
from tools.bench.measured_run import memory_bytes

CLIENTS = (1, 2, 4, 8, 16, 32, 64)
CROWD = 1000
_TIMEOUT_S = 120.0


class Response(NamedTuple):
    """What a client got: the status, or why there is none; and how long that took."""

    status: int | str
    seconds: float
    retry_after_s: float = 0.0


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    process: asyncio.subprocess.Process
    host: str
    port: int

    async def send(self, method: str, path: str, body: object = None) -> Response:
        """Send a request on a connection of its own, as 1,000 clients would."""
        began = time.perf_counter()
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
            "Connection: close\r\n\r\n"
        )
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                try:
                    writer.write(head.encode() + content)
                    received = await reader.read(-1)
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            return Response(type(error).__name__, time.perf_counter() - began)
        seconds = time.perf_counter() - began
        top = received.partition(b"\r\n\r\n")[0]
        if not top.startswith(b"HTTP/1.1 "):
            return Response("nothing", seconds)
        found = re.search(rb"(?im)^retry-after: (\d+)", top)
        return Response(int(top.split()[1]), seconds, float(found[1]) if found else 0.0)

    async def ask(self, question: str) -> Response:
        """Ask a question."""
        return await self.send("POST", "/api/v1/ask", {"question": question})

    def memory_mb(self) -> float:
        """Return the memory of the server's own process."""
        return memory_bytes(self.process.pid) / 1e6


class Questions:
    """The same questions over and over, each time new to the server."""

    def __init__(self, n: int) -> None:
        every = [each.question for each in demo_examples(42) if each.split != "train"]
        self._all = every[:: max(len(every) // n, 1)][:n]
        self._numbers = count()

    def take(self, wanted: int) -> list[str]:
        """Return the next ones."""
        taken = []
        for number in islice(self._numbers, wanted):
            turn, place = divmod(number, len(self._all))
            # A question mark more makes it another question to the server, hardly to the model.
            taken.append(self._all[place].rstrip("?") + "?" * (turn + 1))
        return taken


def main() -> None:
    """Run the checks and print their tables."""
    checks = ("closed", "steady", "overload", "thousand")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(checks), help="checks, with commas")
    parser.add_argument(
        "--questions", type=int, default=40, help="different ones; each row asks them all"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of steady load")
    parser.add_argument("--serve", default="", help="options of kbqa serve, such as '--threads 1'")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        print(json.dumps(_alone(arguments.questions)))
        return
    chosen = arguments.only.split(",")
    if unknown := set(chosen) - set(checks):
        parser.error(f"no such checks: {', '.join(sorted(unknown))}")
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_run(chosen, arguments.questions, arguments.minutes, arguments.serve.split()))


async def _run(chosen: Sequence[str], n: int, minutes: float, options: Sequence[str]) -> None:
    alone = _measure_alone(n) if "closed" in chosen else []
    async with _serving(options) as server:
        questions = Questions(n)
        rate = await _closed(server, questions, n, alone, CLIENTS if alone else (8,))
        if "steady" in chosen:
            await _open(server, questions, "steady, 80 %", 0.8 * rate, 60 * minutes)
        if "overload" in chosen:
            await _open(server, questions, "overload, 200 %", 2 * rate, 60)
        if "thousand" in chosen:
            print(f"\nthousand: {CROWD} clients at once{_HEAD}")
            began = time.perf_counter()
            responses = await asyncio.gather(*map(server.ask, questions.take(CROWD)))
            _print_row("answered", responses, time.perf_counter() - began)
            await _closed(server, questions, n, [], (8,))


@asynccontextmanager
async def _serving(options: Sequence[str]) -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kbqa.engine.cli", "serve", "--port", "0", *options),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        line = (await process.stderr.readline()).decode()
        found = re.search(r"http://([^:]+):(\d+)/", line)
        if found is None:
            sys.exit(line + (await process.stderr.read()).decode())
        server = Server(process, found[1], int(found[2]))
        began = time.perf_counter()
        while (await server.send("GET", "/readyz")).status != 200:
            await asyncio.sleep(0.1)
        print(f"ready after {time.perf_counter() - began:.1f} s, {server.memory_mb():.0f} MB")
        yield server
        began = time.perf_counter()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    print(f"stopped after {time.perf_counter() - began:.1f} s, exit code {process.returncode}")


async def _closed(
    server: Server, questions: Questions, n: int, alone: Sequence[float], clients: Sequence[int]
) -> float:
    """Ask with some clients that wait for their answers; return the best rate."""
    print(f"\nclosed loop{_HEAD}   to alone")
    if alone:
        _print_row("Engine.ask alone", [Response(200, each) for each in alone], sum(alone))
    best = 0.0
    for many in clients:
        began = time.perf_counter()
        responses = await _answer_all(server, questions.take(max(n, 2 * many)), many)
        seconds = time.perf_counter() - began
        rate = sum(each.status == 200 for each in responses) / seconds
        best = max(best, rate)
        ratio = f"{rate * sum(alone) / len(alone):10.2f}" if alone else ""
        _print_row(f"{many} clients", responses, seconds, ratio)
    return best


async def _answer_all(server: Server, asked: Sequence[str], clients: int) -> list[Response]:
    """Ask with some clients; one that is refused tries again when it was told to."""
    left: Iterator[str] = iter(asked)
    responses: list[Response] = []

    async def client() -> None:
        for question in left:
            for _ in range(100):
                response = await server.ask(question)
                responses.append(response)
                if response.status != 503:
                    break
                await asyncio.sleep(response.retry_after_s)

    await asyncio.gather(*(client() for _ in range(clients)))
    return responses


async def _open(
    server: Server, questions: Questions, name: str, rate: float, seconds: float
) -> None:
    """Ask at a rate, whatever becomes of it."""
    print(f"\n{name}: {rate:.2f} questions a second for {seconds:.0f} s{_HEAD}")
    before, began = server.memory_mb(), time.perf_counter()
    asking: list[asyncio.Task[Response]] = []
    while (now := time.perf_counter() - began) < seconds:
        asking += [asyncio.create_task(server.ask(each)) for each in questions.take(1)]
        await asyncio.sleep(max(len(asking) / rate - now, 0))
    responses = await asyncio.gather(*asking)
    total = time.perf_counter() - began
    _print_row("answered", responses, total)
    if refused := [each for each in responses if each.status in (429, 503)]:
        _print_row("refused", refused, total, of=(429, 503))
        print(f"  refused with Retry-After: {sum(each.retry_after_s > 0 for each in refused)}")
    print(f"  memory: {before:.0f} → {server.memory_mb():.0f} MB")


def _measure_alone(n: int) -> list[float]:
    """Measure without a server, in a process of its own."""
    command = [sys.executable, "-m", "tools.bench.serve", "--alone", "--questions", str(n)]
    # As `kbqa` does: threads that wait sleep.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _alone(n: int) -> list[float]:
    """Return the seconds of each question."""
    from kbqa.engine.engine import Engine
    from kbqa.engine.writing.steering import Decoding
    from kbqa.engine.writing.transformers import TransformersGenerator
    from kbqa.kb.open import open_graph

    asked, seconds = Questions(n).take(n), []
    with open_graph(workers=2) as graph:
        model = TransformersGenerator.load(decoding=Decoding("graph", graph))
        with Engine(graph, model) as engine:
            engine.ask(asked[0])
            for question in asked:
                began = time.perf_counter()
                engine.ask(question)
                seconds.append(time.perf_counter() - began)
    return seconds


_HEAD = "\n" + " " * 22 + "    n     p50     p95     p99   a second  outcomes"


def _print_row(
    name: str,
    responses: Sequence[Response],
    total_s: float,
    more: str = "",
    of: Sequence[int] = (200,),
) -> list[float]:
    """Print how many have a status, percentiles in seconds, how many a second, and all outcomes."""
    answered = [each.seconds for each in responses if each.status in of]
    figures = f"{0:5}  {'':34}"
    if answered:
        p50, p95, p99 = (_percentile(answered, p) for p in (50, 95, 99))
        rate = len(answered) / total_s
        figures = f"{len(answered):5}{p50:8.3f}{p95:8.3f}{p99:8.3f}{rate:11.2f}"
    print(f"{name:22}{figures}  {_outcomes(responses)}{more}")
    return answered


def _outcomes(responses: Sequence[Response]) -> str:
    counts = Counter(str(each.status) for each in responses)
    return ", ".join(f"{status}: {many}" for status, many in sorted(counts.items()))


def _percentile(values: Sequence[float], percent: int) -> float:
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    main()
