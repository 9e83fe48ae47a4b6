"""Fit the confidence model and write it to a file.

    python -m tools.fit.confidence --store slice --output engine/running/confidence_model.json \
        webqsp.train.jsonl.gz=valid.webqsp.jsonl cwq.dev.jsonl.gz=valid.cwq.jsonl

Each argument is a question set, and the beams that `kbqa crp generate` wrote for questions of it
that the path model was not trained on. `kbqa train-crp` writes its held-out questions to
`held_out.SET.jsonl`. The gold answers are those that the gold queries find on the graph; questions
without any do not count.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from kbqa.engine.evaluation.scores import candidate_f1
from kbqa.engine.methods import Resources
from kbqa.engine.running.tried import describe_tried
from kbqa.engine.writing.generate import read_beams
from kbqa.kb.open import open_graph
from kbqa.training.judge.learning import Judged, fit_confidence
from tools.fit.answered_questions import FilePair, read_answered
from tools.options import GOLD_ENTITIES, NEW_FILE, STORE
from tools.score.shared import BeamRunner


@click.command(help=__doc__)
@click.argument("pairs", metavar="QUESTIONS=BEAMS…", type=FilePair(), nargs=-1, required=True)
@STORE
@GOLD_ENTITIES
@click.option(
    "--output",
    type=NEW_FILE,
    required=True,
    help="File to write the model to; an existing file is replaced.",
)
def main(
    pairs: Sequence[tuple[Path, Path]], store: Path, gold_entities: bool, output: Path
) -> None:
    """Fit, write, and print the weights and the calibration."""
    judged: list[Judged] = []
    fitted_on = []
    with closing(open_graph(store)) as graph, closing(Resources(graph)) as resources:
        runner = BeamRunner(resources, gold_entities)
        for questions, beams_file in pairs:
            beams = read_beams(beams_file)
            answered = list(read_answered(questions, set(beams), graph))
            for question in answered:
                outcomes = runner.run(question, beams[question.id])
                features = describe_tried(outcomes)
                of_answers = [at for at, each in enumerate(outcomes) if each.terms]
                judged.append(
                    Judged(
                        [features[at] for at in of_answers],
                        [candidate_f1(outcomes[at], question) for at in of_answers],
                    )
                )
            fitted_on.append(f"{len(answered)} of {questions.name.split('.jsonl')[0]}")
    model = fit_confidence(
        judged, f"{', '.join(fitted_on)}; {'gold' if gold_entities else 'linked'}"
    )
    model.save(output)
    click.echo(f"fitted on {model.fitted_on}, {sum(len(one.f1) for one in judged)} candidates")
    for name, weight in sorted(model.weights.items(), key=lambda item: -abs(item[1])):
        click.echo(f"  {weight:+.3f}  {name}")
    click.echo("\n| mean confidence | mean F1 | candidates |\n|---|---|---|")
    for confidence, f1, n in model.calibration:
        click.echo(f"| {confidence:.3f} | {f1:.3f} | {n} |")


if __name__ == "__main__":
    main()
