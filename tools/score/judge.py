"""Measure a judge: what it chooses from written and searched candidates, and how sure it is.

    python -m tools.score.judge --store slice --questions webqsp.test-half.jsonl.gz \
        --features judge/features.jsonl \
        --before before.jsonl beams.jsonl

BEAMS is a file of `kbqa crp generate`. The questions are those that it has and that have gold. Each
line of the tables is a way to choose, with the F1 of the answers given and of the best candidate
that the way could have chosen:

- *before*: the confidence model, among the written candidates of --before, by default BEAMS;
- *confidence model*: the same, among those of BEAMS;
- *judge*: among all candidates;
- *judge, written* and *judge, searched*: among those of one source;
- *judge, not narrowed*: without paths to which the search added something;
- *without GROUP*: the judge with a confidence model that lacks a group of features, fitted to the
  files of --features.

Differences are from the first line, and paired. Below is how well the confidences of the judge and
of the way before hold: calibration error, Brier score, and AUROC of an F1 of at least 0.5. Two more
lines are about the single answers of lists, the first ten of each question: whether they are right,
against the confidence of the question, and against their own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import click
from tqdm import tqdm

from kbqa.engine.evaluation import statistics
from kbqa.engine.evaluation.scores import candidate_f1, match_values, normalise_answer
from kbqa.engine.methods import Resources
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.running.judge import SHIPPED_JUDGE
from kbqa.engine.running.tried import ASKED_LEAD, ConfidenceModel, Tried, answer_confidences
from kbqa.engine.writing.generate import read_beams
from kbqa.kb.open import open_graph
from kbqa.sparql.terms import term_text
from kbqa.training.judge.learning import Judged, fit_confidence, read_judged
from tools.options import FILE, FOLDER, GOLD_ENTITIES, QUESTIONS, STORE
from tools.score.best_of import question_groups
from tools.score.shared import (
    BeamRunner,
    Scores,
    gold_in_common,
    print_tables,
    rank_by_confidence,
)

Keep: TypeAlias = Callable[[Sequence[Tried]], Sequence[Tried]]
"""Returns those of a question's candidates that count."""

_FIRST_ANSWERS = 10

_GROUPS: Mapping[str, Set[str]] = {
    "what was read": {"fit", "fit support", "fit lead"},
    "similar questions": {"votes"},
    "asker": {ASKED_LEAD},
    "what was written": {"logprob", "token_logprob", "share", "support"},
    "source and rank": {"searched", "rank", "narrows"},
    "path and topic": {"hops", "constraints", "topic", "mentioned", "replaced"},
    "relaxation": {"dropped", "level"},
    "number of answers": {"answers", "many answers"},
}


@dataclass(frozen=True, slots=True)
class Way:
    """A way to choose."""

    name: str  # in the tables
    model: ConfidenceModel  # says how sure candidates are
    keep: Keep = lambda tried: tried  # those that it chooses from

    def choose(self, tried: Sequence[Tried]) -> Tried | None:
        """Return the surest candidate, with its confidence."""
        return next(iter(rank_by_confidence(self.keep(tried), self.model)), None)

    def score(self, tried: Sequence[Tried], question: Question) -> Scores:
        """Score the chosen candidate, and the best that could be chosen."""
        return {
            "given": candidate_f1(self.choose(tried), question),
            "best": max(
                (candidate_f1(each, question) for each in self.keep(tried)),
                default=candidate_f1(None, question),
            ),
        }


def _written(tried: Sequence[Tried]) -> list[Tried]:
    return [each for each in tried if not each.candidate.is_searched]


def _searched(tried: Sequence[Tried]) -> list[Tried]:
    return [each for each in tried if each.candidate.is_searched]


def _not_narrowed(tried: Sequence[Tried]) -> list[Tried]:
    return [each for each in tried if not each.candidate.narrows]


def judge_ways(judge: ConfidenceModel, judged: Sequence[Judged]) -> Iterator[Way]:
    """Yield the judge, and what it is without each of its parts."""
    yield Way("judge", judge)
    yield Way("judge, written", judge, _written)
    yield Way("judge, searched", judge, _searched)
    yield Way("judge, not narrowed", judge, _not_narrowed)
    for name, group in _GROUPS.items() if judged else ():
        yield Way(f"without {name}", fit_confidence([_without(each, group) for each in judged], ""))


def _without(judged: Judged, group: Set[str]) -> Judged:
    """Leave features out, ``level`` with all its values."""
    kept = [
        {name: each[name] for name in each if group.isdisjoint({name, name.split()[0]})}
        for each in judged.features
    ]
    return Judged(kept, judged.f1)


@click.command(help=__doc__)
@click.argument("beam_file", metavar="BEAMS", type=FILE)
@QUESTIONS
@STORE
@GOLD_ENTITIES
@click.option(
    "--judge",
    "judge_folder",
    type=FOLDER,
    default=SHIPPED_JUDGE,
    metavar="DIR",
    help="Judge that kbqa train-judge wrote; by default the one that comes with kbqa.",
)
@click.option(
    "--features",
    "feature_files",
    type=FILE,
    multiple=True,
    help="Features of held-out questions, which kbqa train-judge wrote; repeatable.",
)
@click.option("--before", "before_file", type=FILE, help="What another adapter wrote before.")
def main(
    beam_file: Path,
    question_file: Path,
    store: Path,
    gold_entities: bool,
    judge_folder: Path,
    feature_files: Sequence[Path],
    before_file: Path | None,
) -> None:
    """Print the tables."""
    beams = read_beams(beam_file)
    before = read_beams(before_file) if before_file is not None else beams
    asked = gold_in_common(question_file, [beams, before])
    with closing(open_graph(store)) as graph, closing(Resources(graph)) as resources:
        confident = BeamRunner(resources, gold_entities)
        judging = BeamRunner(resources, gold_entities, judge_folder)
        pools: list[list[Tried]] = []
        former: list[list[Tried]] = []
        for question in tqdm(asked, unit="question", disable=None):
            pools.append(judging.run(question, beams[question.id]))
            former.append(confident.run(question, before[question.id]))
    groups = [question_groups(question, None) for question in asked]
    written = [_written(tried) for tried in pools]
    first = Way("before", confident.model)
    ways: list[tuple[Way, list[list[Tried]]]] = [
        (first, former),
        (Way("confidence model", confident.model), written),
    ]
    judged = [each for path in feature_files for each in read_judged(path)]
    ways += [(way, pools) for way in judge_ways(judging.model, judged)]
    lines = [
        (way.name, [way.score(*each) for each in zip(tried, asked, strict=True)])
        for way, tried in ways
    ]
    print_tables("gold entities" if gold_entities else "linked entities", groups, lines)
    click.echo("\n| confidence | n | calibration error | Brier | AUROC |\n|---|---|---|---|---|")
    for way, tried in (ways[0], ways[2]):
        click.echo(f"| {way.name} | {_calibration(_given(way, tried, asked))} |")
    for name, pairs in _of_answers(ways[2][0], pools, asked).items():
        click.echo(f"| {name} | {_calibration(pairs)} |")


def _given(
    way: Way, tried: Sequence[Sequence[Tried]], asked: Sequence[Question]
) -> list[tuple[float, float]]:
    """Pair the confidence in what is given with its F1, on the tiers that count."""
    return [
        (found.confidence or 0.0, candidate_f1(found, question))
        for each, question in zip(tried, asked, strict=True)
        if question.tier != "none" and (found := way.choose(each)) is not None and found.terms
    ]


def _of_answers(
    way: Way, tried: Sequence[Sequence[Tried]], asked: Sequence[Question]
) -> dict[str, list[tuple[float, float]]]:
    """Pair the confidences in single answers of lists with whether they are right."""
    of_question, own = list[tuple[float, float]](), list[tuple[float, float]]()
    for each, question in zip(tried, asked, strict=True):
        ranked = rank_by_confidence(each, way.model)
        if question.tier == "none" or not question.golds or not ranked or not ranked[0].terms:
            continue
        found, confidences = ranked[0], answer_confidences(ranked)
        gold = {normalise_answer(text) for golds in question.golds for text in golds}
        if found.boolean is None and found.count is None:
            terms = sorted(found.terms, key=lambda term: -confidences[term])[:_FIRST_ANSWERS]
            matched = match_values([term_text(term) for term in terms], gold)
            for term, text in zip(terms, matched, strict=True):
                of_question.append((found.confidence or 0.0, float(text in gold)))
                own.append((confidences[term], float(text in gold)))
    return {"answers, as sure as the question": of_question, "answers, by themselves": own}


def _calibration(pairs: Sequence[tuple[float, float]]) -> str:
    if not pairs:
        return "0 | – | – | –"
    auroc, brier = statistics.separate_right(pairs), statistics.brier_score(pairs)
    error = statistics.calibration_error(statistics.calibrate(pairs))
    return f"{len(pairs)} | {error:.3f} | {brier:.3f} | {'–' if auroc is None else f'{auroc:.3f}'}"


if __name__ == "__main__":
    main()
