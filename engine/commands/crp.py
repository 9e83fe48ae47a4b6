"""The commands `kbqa crp …`: tools for reasoning paths, JSON Lines in and out."""

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbqa.engine.commands.options import model_options, questions_option
from kbqa.engine.commands.run_options import check_output
from kbqa.engine.writing.model_choice import ModelChoice
from kbqa.kb.commands.options import GraphChoice, graph_options
from kbqa.kb.commands.text import print_json
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    from kbqa.engine.commands.crp_tools import RowTool
    from kbqa.engine.engine import Engine
    from kbqa.engine.writing.generate import Candidate, Request

_rows_argument: Callable[[Callable[..., None]], Callable[..., None]] = click.argument(
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    default="-",
)


@click.group()
def crp() -> None:
    """Convert, compile, run, explain and write reasoning paths (CRPs).

    CRPs are read in kbqa's text form or in RouterKGQA's. All commands except `generate` read JSON
    Lines from FILE, gzipped or not, or from standard input, and answer each row with one of their
    own, at once. If a row cannot be answered, its "error" says why, and the exit code is still 0.
    "problems" lists the parts of a CRP that could not be read.
    """


@crp.command("from-sparql")
@_rows_argument
def from_sparql(file: Path) -> None:
    """Convert SPARQL queries to reasoning paths.

    Reads {"id", "sparql"}, writes {"id", "crp", "sparql", "error"}: the path as text, and the query
    that it compiles to.
    """
    from kbqa.engine.commands.crp_tools import CONVERT

    _answer_rows(file, CONVERT)


@crp.command("compile")
@_rows_argument
def compile_(file: Path) -> None:
    """Compile reasoning paths to SPARQL queries.

    Reads {"id", "crp"}, writes {"id", "sparql", "problems", "error"}. The entities of a path must
    be given by their mids; `kbqa crp run` also looks up names.
    """
    from kbqa.engine.commands.crp_tools import COMPILE

    _answer_rows(file, COMPILE)


@crp.command()
@_rows_argument
def show(file: Path) -> None:
    """Explain reasoning paths in English.

    Reads {"id", "crp"}, writes {"id", "text", "problems", "error"}.
    """
    from kbqa.engine.commands.crp_tools import SHOW

    _answer_rows(file, SHOW)


@crp.command()
@_rows_argument
@graph_options
@click.option(
    "--gold-entities", is_flag=True, help='Match names to a row\'s "topic_entities" first.'
)
@click.option(
    "--no-relax", is_flag=True, help="Keep all constraints, even if nothing satisfies them."
)
def run(file: Path, graph: GraphChoice, gold_entities: bool, no_relax: bool) -> None:
    """Run reasoning paths on a graph.

    Reads {"id", "crp"}, or {"id", "crps"} with several paths, best first, such as the rows of `kbqa
    crp generate`; the first path with answers counts. Writes {"id", "answers", "boolean", "count",
    "truncated", "level", "dropped", "sparql", "beam", "problems", "error"}: "boolean" is the answer
    to a yes/no question, "count" a number whose list is "answers", "beam" the number, from 0, of
    the path that answered, "level" how far it was relaxed, "dropped" what was dropped. Names are
    looked up in the graph, and in the row's "question" if it has one.
    """
    from kbqa.engine.commands.crp_run import CrpRunner
    from kbqa.engine.commands.options import check_answers
    from kbqa.engine.linking.linker import Linker
    from kbqa.kb.names.search import open_names

    with closing(graph.open()) as opened, closing(open_names(opened, graph.timeout_s)) as names:
        check_answers(opened, graph.timeout_s)
        linker = Linker(opened, names)
        runner = CrpRunner(
            opened, names, linker, graph.timeout_s, gold_entities, relax=not no_relax
        )
        _answer_rows(file, runner.tool)


@crp.command()
@questions_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="BEAMS.jsonl",
    help="Where to write the rows, with a manifest next to it; questions in it are skipped.",
)
@graph_options
@model_options
@click.option(
    "--gold-entities",
    is_flag=True,
    help="Start paths from the gold topic entities instead of linked ones.",
)
@click.option("--batch-size", type=click.IntRange(1), default=16, show_default=True)
def generate(
    file: Path,
    output: Path,
    graph: GraphChoice,
    model: ModelChoice,
    gold_entities: bool,
    batch_size: int,
) -> None:
    """Write reasoning paths for a question set, for `kbqa eval --beams`.

    A row is {"id", "crps": [{"crp", "routerkgqa", "logprob", "tokens"}], "seconds"}, best path
    first; "routerkgqa" is what the model wrote, "crp" what could be read of it. To resume, run the
    same command again. A graph is only needed for --decoding schema and graph.
    """
    from tqdm import tqdm

    from kbqa.engine.engine import Engine
    from kbqa.engine.questions.question_sets import read_questions
    from kbqa.engine.writing.beam_files import Write, write_beams

    if not output.parent.is_dir():
        raise InputError(f"there is no folder {output.parent} for {output.name}")
    check_output(output)
    questions = read_questions(file)
    with ExitStack() as stack:
        opened = stack.enter_context(closing(graph.open())) if model.needs_graph else None
        generator = model.load(opened)
        write: Write = partial(generator.generate, n=model.n)
        if opened is not None:
            engine = Engine(opened, generator, n=model.n, timeout_s=graph.timeout_s)
            write = partial(_write_linked, stack.enter_context(engine))
        bar = stack.enter_context(tqdm(total=len(questions), unit="question", disable=None))
        write_beams(
            write,
            questions,
            output,
            source=file,
            settings={
                "model": generator.name,
                "n": model.n,
                "graph": opened.description if opened is not None else None,
            },
            gold_entities=gold_entities,
            batch_size=batch_size,
            report=bar.update,
        )


def _write_linked(engine: "Engine", requests: Sequence["Request"]) -> list[Sequence["Candidate"]]:
    """Write for requests from the topics given with them, or else from linked ones."""
    asked = [engine.prepare(request.question, request.topics) for request in requests]
    return [each.candidates or () for each in engine.write(asked)]


def _answer_rows(file: Path, tool: "RowTool") -> None:
    from kbqa.engine.commands.crp_tools import answer_rows

    for row in answer_rows(_lines(file), tool):
        print_json(row)


def _lines(file: Path) -> Iterator[bytes]:
    """Read lines as they come; `-` is standard input."""
    if str(file) == "-":
        yield from sys.stdin.buffer
        return
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
            yield from lines
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
