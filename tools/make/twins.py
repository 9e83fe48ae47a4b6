"""Take the gold facts of questions out of a graph, to test whether a missing fact is noticed.

    python -m tools.make.twins --store slice --questions webqsp.jsonl --output twins \
        freebase-slice.nt.gz witness.nt.gz
    kbqa eval --store twins/store --questions twins/questions.jsonl --output twins.jsonl …
    python -m tools.score.abstention answered.jsonl twins.jsonl

The twin of a question is the same question on a graph that lacks its gold fact, so it must not be
answered: all else that makes a question easy or hard stays. For each question whose gold query
finds exactly the gold answers on the store, the triples that lead to them are taken out, and those
that say the same by the reverse property. If a mediator leads to an answer, all of the query's
triples with the mediator go, for they are one fact.

The graph is the same for all questions of a file. It is loaded into the folder's `store`, and the
questions whose gold queries find nothing there are written to `questions.jsonl`, as unanswerable.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pyoxigraph
from tqdm import tqdm

from kbqa.engine.answer import MAX_ANSWERS, term_text
from kbqa.engine.evaluation.scores import score_best
from kbqa.engine.files import read_rows
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.running.evidence import Triple, find_matches
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import GraphError, InputError
from kbqa.sparql.terms import LiteralTerm, Term
from tools.convert.gold_crps import gold_queries
from tools.options import FILE, NEW_FOLDER, STORE

_NS = "http://rdf.freebase.com/ns/"
_LINE = re.compile(rf"<{re.escape(_NS)}([^>]+)>\s+<{re.escape(_NS)}([^>]+)>\s")
_MATCHES = 20_000

Fact = tuple[str, str, str]
"""Subject, relation, and the object's identifier or text."""


class _GoldFacts:
    """Finds what gold queries match on a graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._schema = graph, GraphSchema(graph)

    def of(self, crp: Crp, question: Question) -> set[Fact] | None:
        """Return the facts that lead to the gold answers; None if the query does not find them."""
        answers = self.answers(crp)
        if score_best(list(map(term_text, answers)), question.golds).f1 < 1:
            return None
        matches = find_matches(self._graph, crp, answers, DEFAULT_TIMEOUT_S, _MATCHES)
        triples = {triple for match in matches for triple in match}
        entities = {end for each in triples for end in _ends(each) if isinstance(end, str)}
        mediators = entities - set(answers) - self._graph.labels(entities).keys()
        facts = {each for each in triples if not set(answers).isdisjoint(_ends(each))}
        tying = mediators.intersection(end for each in facts for end in _ends(each))
        facts.update(each for each in triples if not tying.isdisjoint(_ends(each)))
        return {fact for triple in facts for fact in self._both(triple)}

    def answers(self, crp: Crp) -> list[Term]:
        """Run a query."""
        table = self._graph.select(compile_crp(crp), timeout_s=DEFAULT_TIMEOUT_S, limit=MAX_ANSWERS)
        return [row[0] for row in table.rows if row[0] is not None]

    def _both(self, triple: Triple) -> Iterator[Fact]:
        """Yield a fact in both directions."""
        subject, relation, object_ = triple
        yield str(subject), relation, _object_text(object_)
        stated = self._schema.of([relation]).property(relation)
        if stated is not None and stated.reverse is not None and isinstance(object_, str):
            yield object_, stated.reverse, str(subject)


def _ends(triple: Triple) -> tuple[Term, Term]:
    return triple[0], triple[2]


def _object_text(term: Term) -> str:
    return term.text if isinstance(term, LiteralTerm) else term


@click.command(help=__doc__)
@click.argument("dumps", metavar="GRAPH…", type=FILE, nargs=-1, required=True)
@STORE
@click.option("--questions", "question_file", type=FILE, required=True)
@click.option(
    "--output",
    type=NEW_FOLDER,
    required=True,
    metavar="DIR",
    help="Folder for the graph, its store and the questions.",
)
def main(dumps: Sequence[Path], store: Path, question_file: Path, output: Path) -> None:
    """Make the graph, load it, and write the questions."""
    asked = list(zip(read_questions(question_file), _rows(question_file), strict=True))
    removed: set[Fact] = set()
    taken: list[tuple[Mapping[str, Any], list[Crp]]] = []
    counts: Counter[str] = Counter()
    with closing(open_graph(store)) as graph:
        gold = _GoldFacts(graph)
        for question, row in tqdm(asked, unit="question", disable=None):
            try:
                crps = [crp_from_sparql(query) for query in gold_queries(row)]
                found = [gold.of(crp, question) for crp in crps]
            except (InputError, GraphError) as error:
                counts[type(error).__name__] += 1
                continue
            if not any(found):
                counts["gold query finds something else"] += 1
                continue
            removed.update(fact for facts in found for fact in facts or ())
            taken.append((row, crps))
    if not taken:
        raise InputError(f"no gold query of {question_file} finds its answers in {store}")

    output.mkdir(parents=True, exist_ok=True)
    left = output / "graph.nt.gz"
    click.echo(f"{_copy_without(dumps, removed, left):,} triples taken out", err=True)
    load_freebase([left], output / "store", overwrite=True)
    with closing(open_graph(output / "store")) as graph:
        gold = _GoldFacts(graph)
        twins = [row for row, crps in taken if not any(gold.answers(crp) for crp in crps)]
    counts["still answered otherwise"] = len(taken) - len(twins)
    with (output / "questions.jsonl").open("w", encoding="utf-8") as file:
        for row in twins:
            kept = {key: row[key] for key in ("id", "question", "topic_entities") if key in row}
            file.write(json.dumps({**kept, "unanswerable": True}, ensure_ascii=False) + "\n")
    left_out = ", ".join(f"{reason} {n}" for reason, n in counts.items() if n)
    click.echo(f"{len(twins)} twins of {len(asked)} questions" + (left_out and f"; {left_out}"))


def _rows(path: Path) -> list[Mapping[str, Any]]:
    return [row for _, row in read_rows(path)]


def _copy_without(dumps: Sequence[Path], removed: set[Fact], output: Path) -> int:
    """Copy N-Triples, gzipped, but for some facts; return how many triples were left out."""
    pairs = {fact[:2] for fact in removed}
    left_out = 0
    with gzip.open(output, "wb", compresslevel=1) as copy:
        for dump in dumps:
            with gzip.open(dump) if dump.suffix == ".gz" else dump.open("rb") as lines:
                for line in lines:
                    match = _LINE.match(line.decode())
                    if match and match.groups() in pairs and _fact(line) in removed:
                        left_out += 1
                    else:
                        copy.write(line)
    return left_out


def _fact(line: bytes) -> Fact:
    """Read a line of N-Triples."""
    triple = next(iter(pyoxigraph.parse(line, pyoxigraph.RdfFormat.N_TRIPLES)))
    values = (triple.subject.value, triple.predicate.value, triple.object.value)
    subject, relation, object_ = (value.removeprefix(_NS) for value in values)
    return subject, relation, object_


if __name__ == "__main__":
    main()
