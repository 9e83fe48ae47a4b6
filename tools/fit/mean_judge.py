"""Average the cross-encoders of judges, one of which goes on from the other.

    python -m tools.fit.mean_judge --output mean judge-2 judge-3
    kbqa train-judge … --epochs 0 --start mean --output judge

The mean of their weights, and what the first of them remembers; the second command fits a
confidence model to it.

Source: Wortsman et al. 2022, Model soups.
"""

from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING

import click

from kbqa.engine.running.cross_encoder import ADAPTER_FILE, SETTINGS_FILE
from kbqa.engine.running.precedents import PRECEDENTS_FILE
from kbqa.engine.running.reading import READER_FOLDER
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def average_judges(judges: Sequence[Path], output: Path) -> None:
    """Write the mean of the cross-encoders of judges, with the precedents of the first.

    Raises:
        InputError: A file is missing, or the cross-encoders are not of one shape and scale.
    """
    import numpy as np
    from safetensors.numpy import load_file, save_file

    first, reader = judges[0], output / READER_FOLDER
    try:
        settings = [(judge / READER_FOLDER / SETTINGS_FILE).read_text() for judge in judges]
        weights = [load_file(judge / READER_FOLDER / ADAPTER_FILE) for judge in judges]
        if len(set(settings)) > 1 or len({_shapes(each) for each in weights}) > 1:
            raise InputError("these judges have cross-encoders of different shapes or scales")
        reader.mkdir(parents=True, exist_ok=True)
        means = {name: np.mean([each[name] for each in weights], axis=0) for name in weights[0]}
        save_file(means, reader / ADAPTER_FILE)
        copyfile(first / READER_FOLDER / SETTINGS_FILE, reader / SETTINGS_FILE)
        copyfile(first / PRECEDENTS_FILE, output / PRECEDENTS_FILE)
    except OSError as error:
        raise InputError(f"cannot average the judges: {error}") from error


def _shapes(weights: "dict[str, NDArray[np.float32]]") -> frozenset[tuple[str, tuple[int, ...]]]:
    return frozenset((name, each.shape) for name, each in weights.items())


@click.command(help=__doc__)
@click.argument(
    "judges",
    metavar="JUDGE…",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
@click.option("--output", required=True, metavar="DIR", type=click.Path(path_type=Path))
def main(judges: Sequence[Path], output: Path) -> None:
    """Write the mean."""
    average_judges(judges, output)


if __name__ == "__main__":
    main()
