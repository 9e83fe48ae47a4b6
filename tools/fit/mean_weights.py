"""Average the weights of adapters, one of which goes on from the other.

    python -m tools.fit.mean_weights --output mean stage-3 stage-4

FOLDER is the adapter of a writer, or the folder `reader` of a judge. They must have the same
settings, and the same prompt.

Source: Wortsman et al. 2022, Model soups.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from kbqa.engine.writing.generate import PROMPT_FILE
from kbqa.sparql.errors import InputError


def average_weights(folders: Sequence[Path], output: Path) -> None:
    """Write the mean of the weights of adapters, each in its own type of number."""
    import torch
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file, save_file

    try:
        files = [_weights_file(folder) for folder in folders]
        with safe_open(files[0], framework="pt") as opened:
            metadata = opened.metadata()
        adapters = [load_file(file) for file in files]
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read an adapter: {error}") from error
    shapes = [{name: each.shape for name, each in adapter.items()} for adapter in adapters]
    settings = [_settings(folder) for folder in folders]
    if any(each != shapes[0] for each in shapes) or any(each != settings[0] for each in settings):
        raise InputError(
            "the shapes, settings or prompts of these adapters differ. "
            "Average adapters that go on from each other."
        )
    output.mkdir(parents=True, exist_ok=True)
    for name, text in settings[0].items():
        (output / name).write_text(text, encoding="utf-8")
    means = {
        name: torch.stack([adapter[name].float() for adapter in adapters]).mean(0).to(first.dtype)
        for name, first in adapters[0].items()
    }
    save_file(means, output / files[0].name, metadata)


def _weights_file(folder: Path) -> Path:
    """Find the file that has the weights."""
    files = list(folder.glob("*.safetensors"))
    if len(files) != 1:
        raise InputError(f"{folder} has {len(files)} files of weights (*.safetensors), not one")
    return files[0]


def _settings(folder: Path) -> dict[str, str]:
    """Read the files that say how the weights are used, by their names."""
    files = [*folder.glob("adapter*.json"), *folder.glob(PROMPT_FILE)]
    return {file.name: file.read_text(encoding="utf-8") for file in files}


@click.command(help=__doc__)
@click.argument(
    "folders",
    metavar="FOLDER…",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
@click.option("--output", required=True, metavar="DIR", type=click.Path(path_type=Path))
def main(folders: Sequence[Path], output: Path) -> None:
    """Write the mean."""
    average_weights(folders, output)


if __name__ == "__main__":
    main()
