"""Draw the curves of a training run."""

from pathlib import Path

from kbqa.training.training_log import read_log

CURVES_FILE = "training_curves.png"


def draw_curves(output: Path) -> Path:
    """Draw losses and validations of a run by step into its folder.

    Args:
        output: Folder of the run, with its log.

    Returns:
        The picture.

    Raises:
        ImportError: matplotlib, of the `plots` extra, is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    log = read_log(output)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    losses = figure.add_subplot()
    losses.set(xlabel="step", ylabel="loss per target token, nats", yscale="log")
    losses.plot([row.step for row in log], [row.loss for row in log], "C0", label="training loss")
    valid = [(row.step, row.valid_loss) for row in log if row.valid_loss is not None]
    if valid:
        losses.plot(*zip(*valid, strict=True), "C1o-", label="loss on held-out examples")
    paths = [(row.step, row.valid_main_path) for row in log if row.valid_main_path is not None]
    if paths:
        shares = losses.twinx()
        shares.set(ylabel="main paths written exactly", ylim=(0, 1))
        shares.plot(*zip(*paths, strict=True), "C2s--", label="main paths of held-out questions")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    picture = output / CURVES_FILE
    figure.savefig(picture, dpi=150)
    return picture
