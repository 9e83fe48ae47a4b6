"""Compare the CRPs made from gold SPARQL with RouterKGQA's published ones.

    python -m tools.convert.published cwq.test-half.jsonl.gz --differences differences.jsonl

Two CRPs agree when topic, main path and entity constraints are the same: at the same position,
over the same hops, the same entity. Published texts name entities; converted CRPs hold ids, whose
names come from the question set, or else from the store. An id without a known name agrees with any
name.

What the published form cannot express is not compared: it holds only the first of several
alternatives, and has neither `!=` nor negation. Numbers, dates, texts and orderings are not
compared either. If a question has several parses, the published text follows the first.

Rows without a published text do not count. Rows whose SPARQL is refused, or whose text cannot be
read, count as differences.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import click
from tqdm import tqdm

from kbqa.engine.files import read_rows
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.crp import AnyOf, Constraint, Crp, Entity, Fork, Hop, IsEntity, Step
from kbqa.sparql.errors import CrpConversionError, CrpSyntaxError, InputError
from kbqa.sparql.forms import parse_routerkgqa, render_crp
from kbqa.sparql.terms import is_mid
from tools.score.shared.shares import share_with_interval


class EntityConstraint(NamedTuple):
    """A chain of hops that leads from a node of the main path to an entity."""

    at: int | str
    hops: tuple[Hop, ...]
    entity: Entity


class Outline(NamedTuple):
    """What is compared of a CRP: the first of its alternatives, and its branches as chains."""

    topic: Entity
    path: tuple[Hop, ...]
    constraints: tuple[EntityConstraint, ...]


class Comparison(NamedTuple):
    """How a converted CRP and a published one compare.

    Attributes:
        difference: The class of the difference; None if they agree.
        unnamed: Ids that count as equal to a published name because theirs is not known.
    """

    difference: str | None
    unnamed: frozenset[str] = frozenset()


def outline(crp: Crp) -> Outline:
    """Reduce a CRP to what is compared."""
    path, constraints = _flatten(crp.path, crp.constraints, 0)
    return Outline(crp.topic, path, tuple(dict.fromkeys(constraints)))


def compare(converted: Outline, published: Outline, names: Mapping[str, str]) -> Comparison:
    """Compare two CRPs.

    Args:
        converted: Holds ids.
        published: Holds names.
        names: Names of ids; an id that is missing agrees with any name.
    """
    if converted.path != published.path:
        is_prefix = converted.path[: len(published.path)] == published.path
        return Comparison("published path stops short" if is_prefix else "main path")
    # A topic is an entity without hops at position 0.
    extra, missing, unnamed = _unmatched(
        (EntityConstraint(0, (), converted.topic), *converted.constraints),
        (EntityConstraint(0, (), published.topic), *published.constraints),
        names,
    )
    if not extra and not missing:
        return Comparison(None, unnamed)
    if Counter(c[:2] for c in extra) == Counter(c[:2] for c in missing):
        return Comparison("name of an entity")
    if missing:
        return Comparison("entity constraints" if extra else "converted lacks a constraint")
    # RouterKGQA's form has no place for `?x type.object.type award.hall_of_fame_induction`.
    is_type = all(c.entity.mid is not None and not is_mid(c.entity.mid) for c in extra)
    return Comparison("published lacks a type" if is_type else "published lacks a constraint")


@click.command(help=__doc__)
@click.argument(
    "files", type=click.Path(path_type=Path, exists=True, dir_okay=False), nargs=-1, required=True
)
@click.option(
    "--store", type=click.Path(path_type=Path), metavar="DIR", help="Where to look up more names."
)
@click.option(
    "--differences",
    type=click.File("w", encoding="utf-8", lazy=False),
    metavar="OUT.jsonl",
    help="Where to list each question whose CRPs differ.",
)
def main(files: Sequence[Path], store: Path | None, differences: TextIO | None) -> None:
    """Run the comparison and print it."""
    with nullcontext() if store is None else closing(open_graph(store)) as graph:
        for file in files:
            _compare_file(file, graph, differences)


def _compare_file(file: Path, graph: Graph | None, differences: TextIO | None) -> None:
    rows = [row for _, row in read_rows(file) if row.get("crp_routerkgqa")]
    classes: Counter[str] = Counter()
    unnamed: set[str] = set()
    for row in tqdm(rows, unit="question", disable=None):
        converted = None
        try:
            converted = crp_from_sparql(row["sparql"])
            published = parse_routerkgqa(row["crp_routerkgqa"]).crp
        except CrpConversionError as error:
            comparison = Comparison(f"refused: {error.reason}")
        except CrpSyntaxError:
            comparison = Comparison("published cannot be read")
        except InputError as error:
            comparison = Comparison(f"refused: {type(error).__name__}")
        else:
            names = _names(row, converted, graph)
            comparison = compare(outline(converted), outline(published), names)
        unnamed |= comparison.unnamed
        if comparison.difference is None:
            continue
        classes[comparison.difference] += 1
        if differences is not None:
            record = {
                "set": file.name,
                "id": row["id"],
                "class": comparison.difference,
                "question": row["question"],
                "sparql": row["sparql"],
                "published": row["crp_routerkgqa"],
                "converted": None if converted is None else render_crp(converted),
            }
            differences.write(json.dumps(record, ensure_ascii=False) + "\n")
    agreeing = len(rows) - classes.total()
    click.echo(
        f"{file.name}: {share_with_interval(agreeing, len(rows))}, {agreeing} of {len(rows)}"
    )
    for name, count in classes.most_common():
        click.echo(f"  {count:4}  {name}")
    if unnamed:
        click.echo(f"  agreeing on ids without a known name: {', '.join(sorted(unnamed))}")


def _names(row: Mapping[str, Any], crp: Crp, graph: Graph | None) -> dict[str, str]:
    """Collect the names in a question record, and from the store those that it lacks."""
    entities = [*(row.get("topic_entities") or ()), *(row.get("entities_in_sparql") or ())]
    names = {entity["mid"]: entity["name"] for entity in entities if entity["name"]}
    for parse in row.get("parses", ()):
        names.setdefault(parse["TopicEntityMid"], parse["TopicEntityName"])
        for constraint in parse["Constraints"]:
            if constraint["ArgumentType"] == "Entity":
                names.setdefault(constraint["Argument"], constraint["EntityName"])
    if graph is not None:
        unknown = {entity.mid for entity in crp.entities() if entity.mid} - names.keys()
        names |= graph.labels(sorted(unknown))
    return names


def _flatten(
    path: Sequence[Step], constraints: Sequence[Constraint], start: int
) -> tuple[tuple[Hop, ...], list[EntityConstraint]]:
    """Join a path's first ways into one, and count its constraints' positions along it."""
    hops: list[Hop] = []
    chains: list[EntityConstraint] = []
    positions = [start]
    for step in path:
        if isinstance(step, Fork):
            way = step.ways[0]
            way_hops, way_chains = _flatten(way.path, way.constraints, start + len(hops))
            hops += way_hops
            chains += way_chains
        else:
            hops.append(step)
        positions.append(start + len(hops))
    for constraint in constraints:
        at = positions[constraint.at] if isinstance(constraint.at, int) else str(constraint.at)
        chains += _chains(constraint, at, ())
    return tuple(hops), chains


def _chains(
    constraint: Constraint, at: int | str, hops: tuple[Hop, ...]
) -> Iterator[EntityConstraint]:
    if constraint.negated:
        return
    hops = (*hops, *constraint.hops)
    match constraint.test:
        case IsEntity(entity):
            yield EntityConstraint(at, hops, entity)
        case AnyOf(alternatives):
            for inner in alternatives[0]:
                yield from _chains(inner, at, hops)
    for branch in constraint.branches:
        yield from _chains(branch, at, hops)


def _unmatched(
    converted: Sequence[EntityConstraint],
    published: Sequence[EntityConstraint],
    names: Mapping[str, str],
) -> tuple[list[EntityConstraint], list[EntityConstraint], frozenset[str]]:
    """Pair what is the same; return what is left of both sides, and the ids without a name."""
    missing, extra, unnamed = list(published), [], set()
    # Those without a name come last, because they match whatever is left.
    for constraint in sorted(converted, key=lambda c: not _name(c.entity, names)):
        at, hops, entity = constraint
        name = _name(entity, names)
        same = [
            c
            for c in missing
            if c[:2] == (at, hops) and (not name or str(c.entity) in (name, entity.mid))
        ]
        if not same:
            extra.append(constraint)
            continue
        missing.remove(same[0])
        if not name:
            unnamed.add(str(entity))
    return extra, missing, frozenset(unnamed)


def _name(entity: Entity, names: Mapping[str, str]) -> str | None:
    return entity.name or names.get(entity.mid or "")


if __name__ == "__main__":
    main()
