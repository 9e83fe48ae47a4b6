"""Options of the commands that write a row for each question of a set, and their progress."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import click

from kbqa.kb.commands.text import print_note
from kbqa.sparql.errors import InputError, OutputError, SpendingLimitReached

if TYPE_CHECKING:
    from kbqa.engine.questions.question_sets import Question

Command = Callable[..., None]

_R = TypeVar("_R", contravariant=True)


class Progress(Protocol[_R]):
    """How far a run is."""

    def add(self, row: _R) -> None:
        """Count a row."""

    @property
    def left(self) -> int:
        """Questions that a resumed run would ask: those to come, and those that failed."""

    def figures(self) -> Mapping[str, str]:
        """Return what is shown of the rows so far, by name."""


@dataclass(frozen=True, slots=True)
class RunChoice:
    """How the user wants the questions of a set taken, and where the rows go.

    Attributes:
        output: The file of rows, if the user named one.
        gold_entities: The gold topics are given; only a question without any is linked.
        resume: Continue the run in `output`.
        overwrite: Replace it.
        concurrency: Questions to work on at once.
        sample: How many questions to draw; None for all.
        seed: What they are drawn by.
        timings: Rows include what differs from run to run.
    """

    output: Path | None
    gold_entities: bool
    resume: bool
    overwrite: bool
    concurrency: int
    sample: int | None
    seed: int
    timings: bool

    def read(self, file: Path) -> "Sequence[Question]":
        """Read the questions of a file, or the sample of them.

        Raises:
            InputError: See `kbqa.engine.questions.question_sets.read_questions`.
        """
        from kbqa.engine.questions.question_sets import read_questions, sample_questions

        questions = read_questions(file)
        if self.sample is None:
            return questions
        return sample_questions(questions, self.sample, self.seed)

    def checked_output(self) -> Path:
        """Check that rows can be written, and that none are overwritten or resumed unasked.

        Raises:
            InputError: They cannot be written, or an input or a run is there.
        """
        output = self.output
        if output is None:
            raise click.UsageError("Missing option '--output'.")
        if self.resume and self.overwrite:
            raise InputError("choose one: --resume or --overwrite")
        if not output.parent.is_dir():
            raise InputError(f"there is no folder {output.parent} to write {output.name} to")
        check_output(output)
        if output.exists() and not (self.resume or self.overwrite):
            raise InputError(
                f"{output} exists. Add --resume to continue it, or --overwrite to replace it."
            )
        return output


def check_output(output: Path) -> None:
    """Check that the command that runs reads nothing from what it writes, by any path or link.

    Raises:
        InputError: An input is the output, its manifest, or a file in it.
    """
    from kbqa.engine.files.manifest import manifest_path

    context = click.get_current_context()
    for parameter in context.command.params:
        if isinstance(parameter.type, click.Path) and parameter.type.exists:
            value = context.params[str(parameter.name)]
            for path in value if isinstance(value, tuple) else (value,):
                written = (output, manifest_path(output))
                if path is not None and any(_is_within(path, each) for each in written):
                    name = parameter.opts[0]
                    raise InputError(
                        f"--output {output} would overwrite {path}, which is read ({name}). "
                        "Choose another --output."
                    )


def _is_within(path: Path, output: Path) -> bool:
    found, written = path.resolve(), output.resolve()
    is_same = found.exists() and written.exists() and found.samefile(written)
    return is_same or written in found.parents


def run_options(command: Command) -> Command:
    """Add what says how a question set is taken; the command takes it as `run: RunChoice`."""

    @click.option(
        "--output",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="RUN.jsonl",
        help="Where the rows go, one a question, with a manifest beside.",
    )
    @click.option(
        "--gold-entities",
        is_flag=True,
        help="Give the gold topic entities; link only without any.",
    )
    @click.option(
        "--resume", is_flag=True, help="Resume the run in --output, and ask again what failed."
    )
    @click.option("--overwrite", is_flag=True, help="Replace the run in --output.")
    @click.option(
        "--concurrency",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Questions to work on at once; trust times only with 1.",
    )
    @click.option(
        "--sample", type=click.IntRange(1), metavar="N", help="Take only N questions of the set."
    )
    @click.option("--seed", default=42, show_default=True, help="Seed of --sample.")
    @click.option(
        "--timings/--no-timings",
        default=True,
        show_default=True,
        help="Write in rows what differs from run to run, such as seconds.",
    )
    @functools.wraps(command)
    def with_run(
        *args: object,
        output: Path | None,
        gold_entities: bool,
        resume: bool,
        overwrite: bool,
        concurrency: int,
        sample: int | None,
        seed: int,
        timings: bool,
        **rest: object,
    ) -> None:
        run = RunChoice(
            output, gold_entities, resume, overwrite, concurrency, sample, seed, timings
        )
        command(*args, run=run, **rest)

    return with_run


@contextmanager
def watched(progress: Progress[_R], total: int) -> Iterator[Callable[[_R], None]]:
    """Show the progress of a run; if it is stopped, say how to resume.

    Args:
        progress: Counts the rows.
        total: The questions of the run.

    Yields:
        What is to be called with each row.
    """
    from tqdm import tqdm

    from kbqa.engine.evaluation.signals import Stopped, stop_on_signals

    try:
        with stop_on_signals(), tqdm(total=total, unit="question", disable=None) as bar:

            def advance(row: _R) -> None:
                progress.add(row)
                bar.set_postfix(progress.figures(), refresh=False)
                bar.update()

            yield advance
    except (Stopped, SpendingLimitReached, OutputError) as stop:
        print_note(f"Error: {stop}")
        print_note(f"{progress.left} of {total} questions are left. Use --resume.")
        raise SystemExit(stop.exit_code if isinstance(stop, Stopped) else 1) from stop
