"""Write questions with the answers that their gold queries find on a graph, to score runs.

    python -m tools.fit.answered_questions --store slice --output valid.jsonl \
        webqsp.train.jsonl.gz=valid.webqsp.jsonl cwq.dev.jsonl.gz=valid.cwq.jsonl

Each argument is a question set and a file of rows with ids, such as beams. Questions with these ids
are written if their gold query has answers on the graph, which become their gold answers. (The
training sets give their answers without mids, and a slice of Freebase does not have all of them.)
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import click

from kbqa.engine.files import read_rows
from kbqa.engine.questions.question_sets import Question, read_question_rows, topic_entities
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.errors import GraphError, InputError
from kbqa.sparql.terms import term_text
from kbqa.training.data.targets import row_query
from kbqa.training.data.training_set import row_id
from tools.options import FILE, STORE


class FilePair(click.ParamType[tuple[Path, Path]]):
    """Two files that exist, as ``FIRST=SECOND``."""

    name = "FIRST=SECOND"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Path, Path]:
        """Split an argument at its first equals sign."""
        first, equals, second = value.partition("=")
        if not equals:
            self.fail(f"{value!r}: expected two files, as {self.name}", param, ctx)
        return FILE.convert(first, param, ctx), FILE.convert(second, param, ctx)


def read_answered(path: Path, ids: set[str], graph: Graph) -> Iterator[Question]:
    """Read the questions with these ids whose gold query has answers on the graph."""
    for number, row in read_question_rows(path):
        id_, query = row_id(row, number), row_query(row)
        if id_ not in ids or not query:
            continue
        try:
            table = graph.select(compile_crp(crp_from_sparql(query)))
        except (GraphError, InputError):
            continue
        gold = frozenset(term_text(cells[0]) for cells in table.rows if cells[0] is not None)
        if gold:
            topics = tuple(topic_entities(row))
            yield Question(id_, row["question"], topics, (gold,), sparql=query)


@click.command(help=__doc__)
@click.argument("pairs", metavar="QUESTIONS=ROWS…", type=FilePair(), nargs=-1, required=True)
@STORE
@click.option("--output", type=click.File("w", encoding="utf-8"), required=True, metavar="FILE")
def main(pairs: Sequence[tuple[Path, Path]], store: Path, output: "click.utils.LazyFile") -> None:
    """Write the questions."""
    with closing(open_graph(store)) as graph:
        for questions, rows in pairs:
            ids = {str(row["id"]) for _, row in read_rows(rows)}
            for question in read_answered(questions, ids, graph):
                topics = [{"mid": each.mid, "name": each.name} for each in question.topics]
                record = {"id": question.id, "question": question.text, "sparql": question.sparql}
                answers = [{"arg": answer} for gold in question.golds for answer in sorted(gold)]
                record |= {"topic_entities": topics, "answers": answers}
                output.write(json.dumps(record, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
