"""Score what a small model wrote: the paths, and the answers that they lead to.

    python -m tools.score.beams --questions webqsp.test-half.jsonl.gz --store slice \
        --gold-entities beams.none.jsonl beams.graph.jsonl

BEAMS are files of `kbqa crp generate`, each scored on those questions of the independent and
annotated tiers that all of them hold and that have a published path. A line of the table has, with
95 % bootstrap intervals:

- exact, skeleton, main path, depth: whether the first path is the published one (by meaning:
  neither the order of constraints nor the names of variables count), and whether any of the paths
  has its main path ("in n");
- reachable: whether the first main path exists in the graph;
- F1 of the answers: of the path that the confidence model chooses ("kbqa"), and of the first path
  that has answers in full, else relaxed, strings and numbers all at once ("paper", as RouterKGQA);
- tokens of all paths, and seconds to write them, per question.

"First" is the path of the highest confidence; for the line marked "paper" it is the model's own.
The first file's F1 as in the paper is the baseline of the paired differences. These come with the
questions won and lost, and the p-value of the sign test.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TextIO

import click

from kbqa.engine.evaluation.scores import bootstrap_mean, candidate_f1
from kbqa.engine.files import read_rows
from kbqa.engine.methods import Resources
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.running.tried import ConfidenceModel, Tried
from kbqa.engine.writing.generate import Candidate, read_beams
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import CrpSyntaxError, InputError
from kbqa.sparql.forms import read_crp
from tools.crp_match import NO_MATCH, CrpMatch, match_crps
from tools.score.shared import (
    BeamRunner,
    beam_options,
    first_answers,
    paired_difference,
    rank_by_confidence,
    several_beams,
)

_TIERS = ("independent", "annotated")
_COLUMNS = ("exact", "skeleton", "main_path", "in_n", "depth", "reachable", "f1")


@dataclass(frozen=True, slots=True)
class Judged:
    """How good one question's candidates are, for one way of choosing among them.

    Attributes:
        id: The question.
        exact: Whether the first CRP is the gold one; the next fields are for its parts.
        in_n: Whether any candidate's main path is the gold one.
        reachable: Whether the first main path exists.
        f1: F1 of the answers.
        tier: The tier of the question's evidence.
        confidence: That of the chosen candidate; None if it was not chosen by confidence.
    """

    id: str
    exact: float
    skeleton: float
    main_path: float
    in_n: float
    depth: float
    reachable: float
    f1: float
    tier: str | None
    confidence: float | None


@dataclass(frozen=True, slots=True)
class GoldQuestion:
    """A question that counts, with its gold CRP."""

    question: Question
    gold: Crp


def read_asked(path: Path) -> list[GoldQuestion]:
    """Read the questions that have a published path, and evidence in the slice."""
    golds = {str(row["id"]): _read(row.get("crp_routerkgqa") or "") for _, row in read_rows(path)}
    return [
        GoldQuestion(question, gold)
        for question in read_questions(path)
        if question.tier in _TIERS and (gold := golds[question.id]) is not None
    ]


def judge(
    asked: GoldQuestion,
    outcomes: Sequence[Tried],
    order: Sequence[int],
    chosen: int | None,
    confidence: float | None = None,
) -> Judged:
    """Judge the candidates of a question in one order, and one of them for its answers."""
    matches = [_match(outcomes[at].candidate.text, asked.gold) for at in order]
    first = matches[0] if matches else NO_MATCH
    return Judged(
        id=asked.question.id,
        exact=float(first.exact),
        skeleton=float(first.skeleton),
        main_path=float(first.main_path),
        in_n=float(any(match.main_path for match in matches)),
        depth=float(first.depth),
        reachable=float(bool(order) and outcomes[order[0]].fate == "reachable"),
        f1=0.0 if chosen is None else candidate_f1(outcomes[chosen], asked.question),
        tier=asked.question.tier,
        confidence=confidence,
    )


def judge_by_confidence(
    asked: GoldQuestion, outcomes: Sequence[Tried], model: ConfidenceModel
) -> Judged:
    """Judge the candidates in the order of kbqa's confidence."""
    ranked = rank_by_confidence(outcomes, model)
    chosen = 0 if ranked and ranked[0].terms else None
    confidence = ranked[0].confidence if ranked else 0.0
    return judge(asked, ranked, range(len(ranked)), chosen, confidence)


def _match(text: str, gold: Crp) -> CrpMatch:
    crp = _read(text)
    return NO_MATCH if crp is None else match_crps(crp, gold)


def _read(text: str) -> Crp | None:
    try:
        return read_crp(text).crp
    except CrpSyntaxError:
        return None


@click.command(help=__doc__)
@several_beams
@beam_options
@click.option(
    "--confidence",
    "model_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Confidence model instead of the shipped one.",
)
@click.option(
    "--output",
    type=click.File("w", encoding="utf-8", lazy=False),
    metavar="OUT.jsonl",
    help="Where to write a row for each question and line of the table.",
)
def main(
    files: Sequence[Path],
    question_file: Path,
    store: Path,
    gold_entities: bool,
    model_file: Path | None,
    output: TextIO | None,
) -> None:
    """Print the table."""
    beams = {file: read_beams(file) for file in files}
    asked = [
        a for a in read_asked(question_file) if all(a.question.id in b for b in beams.values())
    ]
    if not asked:
        raise InputError(f"the files have no question of {question_file} that counts in common")
    model = ConfidenceModel.load(model_file) if model_file else ConfidenceModel.load()
    lines: dict[str, list[Judged]] = {}
    with closing(open_graph(store)) as graph, closing(Resources(graph)) as resources:
        runner = BeamRunner(resources, gold_entities)
        for file, candidates in beams.items():
            outcomes = [runner.run(a.question, candidates[a.question.id]) for a in asked]
            if not lines:
                lines[f"{file.stem}, paper"] = _by_paper(runner, asked, candidates)
            pairs = zip(asked, outcomes, strict=True)
            lines[f"{file.stem}, kbqa"] = [judge_by_confidence(a, o, model) for a, o in pairs]
    costs = {file.stem: _costs(file, beams[file], asked) for file in files}
    _print_table(lines, costs, "gold" if gold_entities else "linked")
    _print_depth(asked)
    _print_differences(lines)
    if output is not None:
        for line, rows in lines.items():
            output.writelines(json.dumps({"line": line, **asdict(row)}) + "\n" for row in rows)


def _by_paper(
    runner: BeamRunner, asked: Sequence[GoldQuestion], beams: Mapping[str, Sequence[Candidate]]
) -> list[Judged]:
    judged = []
    for one in asked:
        outcomes = runner.run(one.question, beams[one.question.id], by_class=True)
        order = range(len(outcomes))
        judged.append(judge(one, outcomes, order, first_answers(outcomes)))
    return judged


def _costs(
    file: Path, beams: Mapping[str, Sequence[Candidate]], asked: Sequence[GoldQuestion]
) -> str:
    """Write the tokens and seconds per question, of those that count."""
    ids = {one.question.id for one in asked}
    seconds = [row.get("seconds", 0.0) for _, row in read_rows(file) if str(row["id"]) in ids]
    tokens = [sum(candidate.tokens for candidate in beams[id_]) for id_ in ids]
    return f"{sum(tokens) / len(ids):.0f} | {sum(seconds) / len(ids):.2f}"


def _print_table(lines: Mapping[str, Sequence[Judged]], costs: Mapping[str, str], how: str) -> None:
    click.echo(
        f"| beams, {how} entities | n | exact | skeleton | main path | main path in n | depth "
        f"| reachable | F1 | {' | '.join(f'F1, {tier}' for tier in _TIERS)} | tokens | seconds |"
    )
    click.echo("|" + "---|" * (11 + len(_TIERS)))
    for line, judged in lines.items():
        cells = [_interval([getattr(row, column) for row in judged]) for column in _COLUMNS]
        cells += [_mean([row.f1 for row in judged if row.tier == tier]) for tier in _TIERS]
        cost = costs[line.rpartition(", ")[0]]
        click.echo(f"| {line} | {len(judged)} | {' | '.join(cells)} | {cost} |")


def _print_depth(asked: Sequence[GoldQuestion]) -> None:
    depths = [len(one.gold.path) for one in asked]
    commonest = max(set(depths), key=depths.count)
    share = _interval([float(depth == commonest) for depth in depths])
    click.echo(f"\nAlways guessing {commonest} hops, the commonest depth: {share}")


def _print_differences(lines: Mapping[str, Sequence[Judged]]) -> None:
    baseline, *others = lines
    click.echo(f"\nF1 against {baseline}, paired:")
    theirs = [row.f1 for row in lines[baseline]]
    for line in others:
        ours = [row.f1 for row in lines[line]]
        click.echo(f"- {line}: {paired_difference(theirs, ours)}")


def _interval(values: Sequence[float]) -> str:
    return str(bootstrap_mean(values))


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f} ({len(values)})" if values else "–"


if __name__ == "__main__":
    main()
