"""Train the linker's model and write it to a file.

The shipped model was written by

    python -m tools.fit.linker --store slice --output engine/linking/linking_model.json FILES

with webqsp.train.jsonl.gz and cwq.dev.jsonl.gz as FILES.

Rows marked `test_parent` are left out: a test question was made from them, or they from one.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from kbqa.kb.open import open_graph
from tools.fit.linking import read_linking_examples, train_linking_model


@click.command(help=__doc__)
@click.argument(
    "files", type=click.Path(path_type=Path, exists=True, dir_okay=False), nargs=-1, required=True
)
@click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="Where to write the model; an existing file is replaced.",
)
def main(files: Sequence[Path], store: Path, seed: int, output: Path) -> None:
    """Train on the files and write the model."""
    examples = [example for file in files for example in read_linking_examples(file)]
    with closing(open_graph(store)) as graph, closing(graph.names()) as names:
        model = train_linking_model(examples, graph, names, seed)
    model.save(output)
    used = ", ".join(f"{count} of {name}" for name, count in model.trained_on.items())
    click.echo(f"{len(examples)} questions, of which {used} name their topic as the graph does")
    click.echo(f"{output}: {output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
