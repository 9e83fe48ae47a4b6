from random import Random

import pytest
from click.testing import CliRunner

from kbqa.engine.retrieval.retrieval import KernelName, PoolingSettings, pool
from tools.methods.time_pooling import PAPER_MS, made_triples, main, pool_with_networkx


@pytest.mark.parametrize("kernel", ["dijkstra", "bfs"])
def test_the_baseline_pools_alike(kernel: KernelName) -> None:
    settings = PoolingSettings(kernel=kernel, weight="neg-log", position=2.0, smoothing="full")
    for count in (1, 25, 200):
        made = made_triples(count, 2, Random(count))
        assert len(made.scores) == count
        assert pool(made, settings).tolist() == pytest.approx(pool_with_networkx(made, settings))


def test_a_row_for_each_kernel_and_size() -> None:
    told = CliRunner().invoke(main, ["--questions", "1", "--rounds", "1"])
    assert told.exit_code == 0, told.output
    rows = [line.strip("| ").split(" | ") for line in told.output.splitlines()[7:]]
    assert [(row[0], int(row[1]), float(row[-1])) for row in rows] == [
        (kernel, count, paper_ms)
        for kernel, of_kernel in PAPER_MS.items()
        for count, paper_ms in of_kernel.items()
    ]
    assert all(float(row[4]) > 0 for row in rows)
