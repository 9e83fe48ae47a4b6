"""The commands `kbqa crp …`: tools for reasoning paths, JSON Lines in and out.

Each row is answered with one. If something is wrong with a row, its answer has the error, and the
next row is answered. CRPs are read in both text forms; `problems` lists parts that were not read.

`kbqa crp run` runs given CRPs without a model, with the grounding, linking and relaxation of
`kbqa eval`. The question is linked only if an entity of a CRP has no mid.
"""

import gzip
import json
import logging
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbqa.engine.asked import Asked
from kbqa.engine.commands.options import (
    Command,
    check_answers,
    check_output,
    model_options,
    questions_option,
)
from kbqa.engine.writing.generate import Candidate, ModelChoice, written_text
from kbqa.kb.commands.options import GraphChoice, graph_options, print_json
from kbqa.kb.graph import Graph
from kbqa.kb.names import Names
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.crp import Entity
from kbqa.sparql.english import describe_crp, describe_dropped
from kbqa.sparql.errors import CrpSyntaxError, InputError, KbqaError
from kbqa.sparql.forms import read_crp, render_crp
from kbqa.sparql.terms import term_text

if TYPE_CHECKING:
    from kbqa.engine.engine import Engine
    from kbqa.engine.linking.linker import LinkedEntity, Linker
    from kbqa.engine.running.tried import Tried
    from kbqa.engine.writing.generate import Request


logger = logging.getLogger(__name__)

Row = Mapping[str, Any]

_rows_argument: Callable[[Command], Command] = click.argument(
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
    _answer_rows(file, {"crp": None, "sparql": None}, _convert)


@crp.command("compile")
@_rows_argument
def compile_(file: Path) -> None:
    """Compile reasoning paths to SPARQL queries.

    Reads {"id", "crp"}, writes {"id", "sparql", "problems", "error"}. The entities of a path must
    be given by their mids; `kbqa crp run` also looks up names.
    """
    _answer_rows(file, {"sparql": None, "problems": ()}, _compile)


@crp.command()
@_rows_argument
def show(file: Path) -> None:
    """Explain reasoning paths in English.

    Reads {"id", "crp"}, writes {"id", "text", "problems", "error"}.
    """
    _answer_rows(file, {"text": None, "problems": ()}, _show)


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
    the path that answered, "level" how far it was relaxed, "dropped" what was dropped. A sum, an
    average or a difference is in "value", which other rows do not have. Names are looked up in the
    graph, and in the row's "question" if it has one.
    """
    from kbqa.engine.linking.linker import Linker

    with closing(graph.open()) as opened, closing(opened.names(graph.timeout_s)) as names:
        check_answers(opened, graph.timeout_s)
        linker = Linker(opened, names)
        runner = CrpRunner(
            opened, names, linker, graph.timeout_s, gold_entities, relax=not no_relax
        )
        _answer_rows(file, _NOT_RUN, runner.answer)


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
@click.option("--batch-size", type=click.IntRange(1), default=16)
def generate(
    file: Path,
    output: Path,
    graph: GraphChoice,
    model: ModelChoice,
    gold_entities: bool,
    batch_size: int,
) -> None:
    """Write reasoning paths for a question set, for `kbqa eval --beams`.

    A row is {"id", "crps": [{"crp", "routerkgqa", "logprob", "tokens"}], "input_tokens",
    "seconds"}, best path first; "routerkgqa" is what the model wrote, "crp" what could be read of
    it. To resume, run the same command again. A graph is only needed for --decoding schema and
    graph.
    """
    from tqdm import tqdm

    from kbqa.engine.engine import Engine
    from kbqa.engine.questions.question_sets import read_questions
    from kbqa.engine.writing.generate import Write, write_beams

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


def _answer_rows(file: Path, blank: Row, answer: Callable[[Row, dict[str, object]], None]) -> None:
    """Answer JSON Lines one by one, each as soon as it is read; empty lines are skipped.

    `blank` is the answer to a row that cannot be answered, and `answer` fills it in; what it raises
    is the answer's error. The id of a row is its line's number if it has none.
    """
    for number, line in enumerate(_lines(file), 1):
        if not line.strip():
            continue
        answered: dict[str, object] = {"id": None, **blank, "error": None}
        try:
            row = _read_row(line, number)
            answered["id"] = row.get("id", str(number))
            answer(row, answered)
        except Exception as error:  # whatever it is, the next row is answered
            if not isinstance(error, KbqaError):
                logger.warning("line %d failed", number, exc_info=True)
            answered["error"] = f"{type(error).__name__}: {error}"
        print_json(answered)


def _row_text(row: Row, key: str) -> str:
    if not isinstance(text := row.get(key), str):
        raise InputError(f'"{key}" is {json.dumps(text)}, but must be a text')
    return text


def _read_row(line: bytes, number: int) -> Row:
    def refuse(constant: str) -> None:
        raise ValueError(f"JSON has no {constant}")

    try:
        row = json.loads(line.decode("utf-8-sig"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {number}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise InputError(f"line {number}: not a JSON object")
    return row


def _convert(row: Row, answered: dict[str, object]) -> None:
    crp = crp_from_sparql(_row_text(row, "sparql"))
    answered["crp"] = render_crp(crp)
    answered["sparql"] = compile_crp(crp)


def _compile(row: Row, answered: dict[str, object]) -> None:
    crp, problems = read_crp(_row_text(row, "crp"))
    answered["problems"] = problems
    answered["sparql"] = compile_crp(crp)


def _show(row: Row, answered: dict[str, object]) -> None:
    crp, problems = read_crp(_row_text(row, "crp"))
    answered["problems"] = problems
    answered["text"] = "\n".join(describe_crp(crp))


_NOT_RUN: Row = {
    "answers": (),
    "boolean": None,
    "count": None,
    "truncated": False,
    "level": None,
    "dropped": (),
    "sparql": None,
    "beam": None,
    "problems": (),
}


@dataclass(frozen=True, slots=True)
class CrpRunner:
    """Runs the CRPs of rows on a graph."""

    graph: Graph
    names: Names
    linker: "Linker"
    timeout_s: float  # for each query
    gold_entities: bool = False  # match names to the row's topic entities first
    relax: bool = True  # drop constraints if nothing satisfies all of them

    def answer(self, row: Row, answered: dict[str, object]) -> None:
        """Answer a row by running its CRPs."""
        from kbqa.engine.linking.ground import name_topics
        from kbqa.engine.running.run import Runner  # too heavy for the commands' help

        texts = _texts(row)
        linked: list[LinkedEntity] = []
        if isinstance(question := row.get("question"), str) and any(map(_has_names, texts)):
            linked = self.linker.link(question)
        gold = name_topics(self.graph, _topics(row)) if self.gold_entities else []
        asked = Asked("", tuple(gold), tuple(linked))
        runner = Runner(asked, self.graph, self.names, self.timeout_s)
        # Given CRPs have no probabilities.
        candidates = [Candidate(text, logprob=0.0, tokens=0) for text in texts]
        execution = runner.run_first(candidates, relax=self.relax)
        answered["problems"] = [
            _problem(number, tried)
            for number, tried in enumerate(execution.tried, 1)
            if tried.problem is not None or tried.fate != "reachable"
        ]
        found = execution.answering
        if found is None or found.crp is None or found.relaxation is None or found.table is None:
            answered["error"] = _failure(execution.tried)
            return
        if found.boolean is None:
            answered["answers"] = [term_text(term) for term in found.terms]
            answered["truncated"] = found.table.truncated
        answered["boolean"] = found.boolean
        answered["count"] = found.count
        if found.value is not None:
            answered["value"] = found.value.number
        answered["level"] = found.relaxation.level
        answered["dropped"] = describe_dropped(found.relaxation.dropped, found.crp)
        answered["sparql"] = found.sparql
        answered["beam"] = execution.best


def _texts(row: Row) -> list[str]:
    """Return the CRPs of a row: texts, or records as `kbqa crp generate` writes them."""
    crps = row["crps"] if "crps" in row else [row.get("crp")]
    if isinstance(crps, list):
        with suppress(AttributeError, TypeError):
            return [crp if isinstance(crp, str) else written_text(crp) for crp in crps]
    raise InputError('the row needs a text "crp", or a list "crps" of texts or records')


def _topics(row: Row) -> Sequence[Entity]:
    from kbqa.engine.questions.question_sets import topic_entities

    try:
        return topic_entities(row)
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f'"topic_entities" is not a list of {{"mid", "name"}}: {error}') from None


def _has_names(text: str) -> bool:
    from kbqa.engine.linking.ground import ungrounded_entities

    try:
        return bool(ungrounded_entities(read_crp(text).crp))
    except CrpSyntaxError:
        return False


def _problem(number: int, tried: "Tried") -> str:
    return f"path {number}, {tried.fate}" + (f": {tried.problem}" if tried.problem else "")


def _failure(paths: "Sequence[Tried]") -> str | None:
    """Return why no CRP could be tried; None if one was, even if it had no answers."""
    fates = {tried.fate for tried in paths}
    if "failed" not in fates and not fates.isdisjoint({"reachable", "unreachable"}):
        return None
    problems = (
        _problem(number, tried)
        for number, tried in enumerate(paths, 1)
        if tried.fate == "failed" or "failed" not in fates
    )
    return next(problems, None)
