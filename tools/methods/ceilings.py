"""Compute how well a walker that follows the gold path can do within the limits of each method.

    python -m tools.methods.ceilings --questions webqsp.test-half.jsonl.gz --store slice \
        --output ceilings.jsonl

The walker starts from the gold topic and takes the relations of the gold query's main path, without
its constraints. It looks ahead: of the nodes that a method is shown, it keeps those that lead to
gold answers, and of the nodes at the end it names exactly the gold ones. What is missing, the
limits of the method hide. So this is an upper bound for every chooser that follows the gold path,
and no score. Only questions of the independent and annotated tiers count.

- bpc: outgoing relations only, 50 of them shown; the first 3 nodes of a relation; 16 paths after
  each hop, of which the answer prompt shows 8. Paths that end early stand behind the others.
- knowpath: 40 nodes of each relation are shown; 7 are kept a round, in 3 rounds. With
  `mediators=drop` a node counts only if it has a name and its id begins with `m.`, as in the
  released code.
- tog: 3 triples are kept a round, in 3 rounds. Of 20 or more nodes of a relation, 5 are drawn.
  Where none of a relation's nodes has a name, their scores are equal and the first 3 are kept; with
  `nameless=scored` they are chosen like others.
- pog: 70 nodes of a relation are shown, in 4 rounds: those whose names are most similar to the
  question, if any has a name. If none has, 10 are drawn. With `nameless=1000` all are shown.
- trace: all nodes but the topic at the end of a path of at most 4 relations, gold or not. A reason
  that begins with "exception" says why TRACE may not follow the path.

`--set width=5` changes a limit; their names are in `tools/methods/perfect/limits.py`. By default
the nodes that are kept are those that lead to the most answers together. With `keeps=first` they
are the first that lead to any answer, and some may lead to the same one.

What the methods and this tool agree on, without sharing code:

- Bookkeeping relations are left out: those without a dot, and those listed at the top of
  `tools/methods/perfect/reach.py`. The others are sorted by name, outgoing before incoming, and
  then capped. If a node has both names of an edge (a relation, and its reverse backwards), only the
  outgoing one is shown.
- Nodes are sorted by id, literals among them by their text. Only the first 1,000 of a relation are
  looked at.
- ToG and PoG sort the nodes by the SHA-256 of "seed|question|node|relation|direction|text" in
  hexadecimal and draw the first. The seed is 42, the words of the question have single spaces
  between them, node is the id of the entity that is expanded, the direction "in" or "out", and text
  the id or text of the node that is drawn.
- PoG compares names with the question by the cosine of their vectors, of all-MiniLM-L6-v2, to six
  decimals. Of equal ones the first by name is shown, then by id or text. If there are only
  literals, all are shown.
- ToG and PoG do not offer the relation of the last hop in the opposite direction. They do offer its
  reverse, which has another name.

Source: Bounded Path Context §3; KnowPath §2; the released code of Think-on-Graph and Plan-on-Graph;
TRACE §3.
"""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TextIO

import click
from pydantic import TypeAdapter, ValidationError
from tqdm import tqdm

from kbqa.engine.evaluation.scores import bootstrap_mean
from kbqa.engine.questions.question_sets import read_questions
from kbqa.kb.open import open_graph
from kbqa.sparql.errors import InputError
from tools.methods.perfect.limits import METHODS, Ceiling, Limits, find_ceiling
from tools.methods.perfect.reach import GoldPath, Surroundings, gold_paths

_TIERS = ("independent", "annotated")


def change_limits(limits: Limits, texts: Sequence[str]) -> Limits:
    """Change limits by texts of the form ``name=value``.

    Raises:
        InputError: A text is of another form, or no limit of the method has its name or value.
    """
    values = asdict(limits)
    for text in texts:
        name, _, value = text.partition("=")
        if name not in values:
            raise InputError(f"--set {text}: write name=value; the names are {', '.join(values)}")
        values[name] = value
    try:
        return TypeAdapter(type(limits)).validate_python(values)
    except ValidationError as error:
        problem = error.errors()[0]
        raise InputError(
            f"--set {problem['loc'][0]}={problem['input']}: {problem['msg']}"
        ) from None


@click.command(help=__doc__)
@click.option(
    "--questions",
    "question_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    metavar="FILE",
)
@click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Use N of the questions.")
@click.option("--seed", default=1, show_default=True, help="Seed of --sample.")
@click.option("--method", type=click.Choice([*METHODS]), help="Only this method.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Change a limit.")
@click.option(
    "--output",
    type=click.File("w", encoding="utf-8", lazy=False),
    metavar="OUT.jsonl",
    help="Where to write a row for each question, with a ceiling for each method.",
)
def main(
    question_file: Path,
    store: Path,
    sample: int | None,
    seed: int,
    method: str | None,
    changes: Sequence[str],
    output: TextIO | None,
) -> None:
    """Print the table."""
    if changes and method is None:
        raise InputError("--set changes a limit of one method. Add --method.")
    limits = METHODS if method is None else {method: change_limits(METHODS[method], changes)}
    questions = [each for each in read_questions(question_file) if each.tier in _TIERS]
    if sample is not None and sample < len(questions):
        questions = random.Random(seed).sample(questions, sample)
    if not questions:
        raise InputError(f"{question_file} has no question of the tiers {' and '.join(_TIERS)}")
    rows: list[dict[str, Ceiling]] = []
    with closing(open_graph(store)) as graph:
        around = Surroundings(graph)
        golds = gold_paths(questions, around.schema)
        for question, gold in zip(tqdm(questions, disable=None), golds, strict=True):
            row = {name: find_ceiling(gold, around, each) for name, each in limits.items()}
            rows.append(row)
            if output is not None:
                hops = len(gold.hops) if isinstance(gold, GoldPath) else None
                record = {"id": question.id, "question": question.text, "tier": question.tier}
                ceilings = {name: found._asdict() for name, found in row.items()}
                output.write(json.dumps(record | {"hops": hops, "ceilings": ceilings}) + "\n")
    tiers = [question.tier for question in questions]
    _print_table({name: [row[name] for row in rows] for name in limits}, tiers)


def _print_table(ceilings: Mapping[str, Sequence[Ceiling]], tiers: Sequence[str | None]) -> None:
    click.echo(f"| method | n | F1 | {' | '.join(f'F1, {tier}' for tier in _TIERS)} | below 1 |")
    click.echo("|" + "---|" * (4 + len(_TIERS)))
    for name, found in ceilings.items():
        by_tier = [
            [each.f1 for each, own in zip(found, tiers, strict=True) if own == tier]
            for tier in _TIERS
        ]
        means = [f"{fmean(values):.3f} ({len(values)})" if values else "–" for values in by_tier]
        reasons = Counter(each.reason for each in found if each.reason is not None)
        why = ", ".join(f"{reason}: {n}" for reason, n in reasons.most_common())
        f1 = bootstrap_mean([each.f1 for each in found])
        click.echo(f"| {name} | {len(found)} | {f1} | {' | '.join(means)} | {why} |")


if __name__ == "__main__":
    main()
