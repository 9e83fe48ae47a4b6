"""What `kbqa train-crp --stage grpo` does: from question sets and a graph to an adapter."""

from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import click

from kbqa.engine.linking.linker import Linker
from kbqa.engine.writing.constraints.decoding import CONSTRAINED_FORMS, Decoding
from kbqa.engine.writing.prompt import load_prompt_format
from kbqa.kb.commands.options import GraphChoice
from kbqa.kb.commands.text import print_json, print_note, print_result
from kbqa.kb.names.search import open_names
from kbqa.training.data.choice import DataChoice
from kbqa.training.data.training_set import Split, example_key
from kbqa.training.options import print_left_out, write_reports
from kbqa.training.writer.config import TrainingConfig
from kbqa.training.writer.grpo.config import GrpoConfig
from kbqa.training.writer.grpo.loop import RewardSplit
from kbqa.training.writer.grpo.questions import GoldFinder, find_questions
from kbqa.training.writer.grpo.reward import RewardFunction
from kbqa.training.writer.grpo.rollouts import check_rollouts
from kbqa.training.writer.grpo.train import check_processes, train_by_reward
from kbqa.training.writer.report.manifest import write_reward_manifest
from kbqa.training.writer.report.training_log import RewardProgress
from kbqa.training.writer.run_folder import RewardResult


def train_on_graph(
    data: DataChoice,
    output: Path,
    config: TrainingConfig,
    grpo: GrpoConfig,
    graph: GraphChoice,
    as_json: bool,
) -> None:
    """Train an adapter by reward and write its reports, or resume the run in the same folder."""
    check_processes()
    written = load_prompt_format(Path(config.start)).crp_format
    form = next((each for each in CONSTRAINED_FORMS if each == written), None)
    if form is None:
        raise click.UsageError(
            f"--start {config.start}: it writes paths in the form {written!r}, which cannot be "
            "constrained. Start from an adapter that was trained with another --format."
        )
    if grpo.rollouts:
        check_rollouts(grpo.rollouts, config)  # now, not after minutes of looking up questions
    config = replace(config, crp_format=form)
    data = replace(data, demo_questions=0)  # the demo graph is another graph
    with closing(graph.open()) as opened, closing(open_names(opened, graph.timeout_s)) as names:
        gathered = data.load(form, opened)
        # Split before the graph is asked, so that what supervised training held out is held out.
        split = data.split(gathered)
        decoding = Decoding("graph", opened)
        finder = GoldFinder(opened, decoding, form, graph.timeout_s)
        questions = find_questions(
            gathered.examples, data.files, finder, gathered, _print_looked_up
        )
        split = data.weigh(
            Split(*(tuple(e for e in part if example_key(e) in questions) for part in split)),
            gathered,
        )
        _print_counts(split)
        print_left_out(gathered)
        reward = RewardFunction(opened, names, Linker(opened, names), graph.timeout_s, grpo)
        result = train_by_reward(
            RewardSplit(
                *(
                    tuple(questions[example_key(e)] for e in part)
                    for part in (split.train, split.valid)
                )
            ),
            output,
            config,
            grpo,
            decoding,
            reward,
            _print_progress,
        )
        settings = {**asdict(grpo), "graph": opened.identity().settings}
    write_reward_manifest(output, settings, config, gathered, split, result)
    write_reports(output, split, "grpo")
    _print_result(result, as_json)


def _print_looked_up(done: int) -> None:
    print_note(f"{done:,} questions looked up")


def _print_counts(split: Split) -> None:
    train, valid = (len({example_key(e) for e in part}) for part in (split.train, split.valid))
    print_note(f"{train:,} questions to train on, {valid:,} held out")


def _print_progress(progress: RewardProgress) -> None:
    shares = {
        "reward": progress.reward,
        "with spread": progress.spread,
        "clipped": progress.clipped,
        "KL": progress.kl,
        "F1 held out": progress.valid_f1,
    }
    shown = "".join(f"  {name} {n:.3f}" for name, n in shares.items() if n is not None)
    print_note(f"step {progress.step:,}/{progress.steps:,}{shown}")


def _print_result(result: RewardResult, as_json: bool) -> None:
    if as_json:
        print_json({**result._asdict(), "adapter": str(result.adapter)})
        return
    if result.valid_f1 is not None and result.start_f1 is not None:
        print_note(f"F1 held out: {result.start_f1:.3f} → {result.valid_f1:.3f}")
    print_result(f"adapter in {result.adapter}: ask with `kbqa ask --adapter {result.adapter}`")
