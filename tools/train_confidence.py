"""Fit the confidence model and write it.

    python tools/train_confidence.py --store slice --output engine/confidence_model.json \
        webqsp.train.jsonl.gz=valid.webqsp.jsonl cwq.dev.jsonl.gz=valid.cwq.jsonl

Each argument is a question set and the beams that `kbqa crp generate` wrote for questions of it
that the small model was not trained on: `kbqa train-crp` leaves those that it held out in
`held_out.SET.jsonl`. Gold answers are what the
gold queries find on the graph; where they find none a question does not count.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click
from answered_questions import FilePair, read_answered
from run_beams import BeamRunner, f1_of

from kbqa.engine.beam_files import read_beams
from kbqa.engine.confidence import describe_outcomes
from kbqa.engine.linker import Linker
from kbqa.kb.entity_search import open_names
from kbqa.kb.select_graph import open_graph
from kbqa.training.confidence import Judged, fit_confidence


@click.command(help=__doc__)
@click.argument("pairs", metavar="QUESTIONS=BEAMS…", type=FilePair(), nargs=-1, required=True)
@click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option("--gold-entities", is_flag=True, help="Bind names to the questions' topics first.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="Where the model goes; what stands there is replaced.",
)
def main(
    pairs: Sequence[tuple[Path, Path]], store: Path, gold_entities: bool, output: Path
) -> None:
    """Fit, write, and print the weights and the calibration."""
    judged: list[Judged] = []
    told = []
    with closing(open_graph(store)) as graph, closing(open_names(graph)) as names:
        runner = BeamRunner(graph, names, Linker(graph, names), gold_entities)
        for questions, beams_file in pairs:
            beams = read_beams(beams_file)
            answered = list(read_answered(questions, set(beams), graph))
            for question in answered:
                outcomes = runner.run(question, beams[question.id])
                features = describe_outcomes(outcomes)
                of_answers = [at for at, outcome in enumerate(outcomes) if outcome.answers]
                judged.append(
                    Judged(
                        [features[at] for at in of_answers],
                        [f1_of(outcomes[at], question.golds) for at in of_answers],
                    )
                )
            told.append(f"{len(answered)} of {questions.name.split('.jsonl')[0]}")
    model = fit_confidence(judged, f"{', '.join(told)}; {'gold' if gold_entities else 'linked'}")
    model.save(output)
    click.echo(f"fitted on {model.fitted_on}, {sum(len(one.f1) for one in judged)} candidates")
    for name, weight in sorted(model.weights.items(), key=lambda item: -abs(item[1])):
        click.echo(f"  {weight:+.3f}  {name}")
    click.echo("\n| mean confidence | mean F1 | candidates |\n|---|---|---|")
    for confidence, f1, n in model.calibration:
        click.echo(f"| {confidence:.3f} | {f1:.3f} | {n} |")


if __name__ == "__main__":
    main()
