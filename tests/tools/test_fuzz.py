"""A short run of each fuzz target; `python -m tools.fuzz --minutes 30` is the long one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

for package in ("httpx", "fastapi", "openai", "torch"):
    pytest.importorskip(package, reason="needs the serve, llm and lm extras")

from tools.fuzz.__main__ import TARGETS  # noqa: E402
from tools.fuzz.trying import Try, Wrong, reported, try_inputs  # noqa: E402

# Each takes five seconds of a processor at most.
INPUTS = {
    "paths": 2000,
    "sparql": 300,
    "questions": 300,
    "dumps": 60,
    "endpoints": 600,
    "models": 80,
    "requests": 60,
    "files": 400,
}


def test_each_target_is_tried() -> None:
    assert INPUTS.keys() == TARGETS.keys()


@pytest.mark.parametrize("name", INPUTS)
def test_damaged_input_is_answered_or_refused(name: str, tmp_path: Path) -> None:
    outcome = try_inputs(
        name,
        TARGETS[name],
        tmp_path / "work",
        seed=1,
        first=0,
        inputs=INPUTS[name],
        seconds=300,
    )
    assert outcome.tried == INPUTS[name]
    assert not outcome.defects, "\n".join(outcome.defects.values())


def test_a_defect_is_kept_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    @contextmanager
    def target(_: Path) -> Iterator[Try]:
        def try_one(random: Random) -> None:
            number = random.randrange(10)
            with reported(number):
                if number == 3:
                    raise Wrong("three")

        yield try_one

    outcome = try_inputs("numbers", target, tmp_path / "a", seed=1, first=0, inputs=99, seconds=60)
    (told,) = outcome.defects.values()
    command, _, traceback = told.partition("\n")
    assert "tried 3" in traceback
    first = int(command.split("--first ")[1].split()[0])
    again = try_inputs("numbers", target, tmp_path / "b", seed=1, first=first, inputs=1, seconds=60)
    assert len(again.defects) == 1
