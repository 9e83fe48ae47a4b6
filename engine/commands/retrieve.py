"""The command `kbqa retrieve`: triples for each question of a set, a row each, for any reader.

A run is as one of `kbqa.engine.evaluation.evaluate`: a question that fails becomes a row with its
error, and a run can be resumed. Triples that another retriever scored are only pooled.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from kbqa.engine.asked import Clock
from kbqa.engine.commands.options import (
    RunChoice,
    check_answers,
    questions_option_of,
    run_options,
    watched,
)
from kbqa.engine.files import discard
from kbqa.engine.linking.linker import Linker, starting_topics
from kbqa.engine.methods import read_settings, split_settings
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.retrieval.retrieval import (
    Mechanism,
    PoolingSettings,
    Retrieved,
    Shown,
    describe_scorer,
    make_scorer,
    pool_triples,
    retrieve,
)
from kbqa.engine.retrieval.retriever import Caps, ScorerName
from kbqa.engine.writing.checkpoint import require_embedding_packages
from kbqa.kb.commands.options import (
    GraphChoice,
    graph_options,
    is_given,
    options_of,
    print_note,
)
from kbqa.kb.graph import Graph, name_terms
from kbqa.kb.names import Names
from kbqa.kb.option import Option
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    from kbqa.engine.evaluation.evaluate import Recorded
    from kbqa.engine.evaluation.rows import RetrievalRow, ScoredQuestion

_NOT_WITH_SCORED = ("scorer", "scorer_file", "shown", "names", "gold_entities")


@dataclass(frozen=True, slots=True)
class RetrievalChoice:
    """How the user wants triples retrieved."""

    triples: Annotated[int, Option("Triples of a question, at most.", metavar="K", at_least=1)] = (
        100
    )
    mechanism: Annotated[
        Mechanism,
        Option("Path pooling: nothing, order the best triples, or choose them among more."),
    ] = PoolingSettings().mechanism
    scorer: Annotated[
        ScorerName,
        Option(
            "What scores triples: a scorer that was trained, or the similarity of the question and "
            "the relation alone."
        ),
    ] = "trained"
    scorer_file: Annotated[
        Path | None,
        Option(
            "The retriever.json that `kbqa train-retriever` wrote; by default the one that ships "
            "with kbqa.",
            metavar="FILE",
            path="input file",
        ),
    ] = None
    shown: Annotated[
        Shown,
        Option("Whether a fact that a relation and its reverse state is there once or twice."),
    ] = "once"
    settings: Annotated[
        tuple[str, ...],
        Option(
            "Setting of pooling, see `kbqa methods path-pooling`; repeatable.",
            "--set",
            metavar="NAME=VALUE",
            repeatable=True,
        ),
    ] = ()
    names: Annotated[bool, Option("Add subject_name and object_name to triples.")] = False
    scored: Annotated[
        Path | None,
        Option(
            "Pool the triples of this file, which another retriever scored, instead. JSON Lines "
            'with "id", "question", "topics" and "triples", each [subject, relation, object, '
            "score]; no graph is read.",
            metavar="FILE",
            path="input file",
        ),
    ] = None

    def pooling(self) -> PoolingSettings:
        """Read the settings of pooling, and check them."""
        given = split_settings(self.settings)
        if "mechanism" in given:
            raise InputError("--set mechanism=VALUE: write it as --mechanism VALUE")
        given["mechanism"] = self.mechanism
        pooling = read_settings(PoolingSettings, given, "path-pooling")
        pooling.check_count(self.triples)
        return pooling


@click.command("retrieve")
@questions_option_of(is_required=False)
@run_options
@graph_options
@options_of(RetrievalChoice, "choice")
def retrieve_set(
    file: Path | None, run: RunChoice, graph: GraphChoice, choice: RetrievalChoice
) -> None:
    """Write the triples that are likeliest to help to answer each question.

    Looks up what is around the question's topics, scores it, and pools the scores along paths. A
    row has "id", "topics", "triples", "seen", "truncated", "cut", "seconds" and "error". Triples
    come best first, each with "subject", "relation", "object", "score" and "pooled"; "is_literal"
    says that its object is a text.
    """
    from kbqa.engine.evaluation import evaluate as runs

    pooling = choice.pooling()
    if (file is None) == (choice.scored is None):
        raise click.UsageError("give --questions FILE or --scored FILE")
    if choice.scored is not None:
        _pool_file(choice.scored, run, choice, pooling)
        return
    assert file is not None
    questions = run.read(file)
    output = run.checked_output()
    require_embedding_packages("retrieving triples")
    with closing(graph.open()) as opened, closing(opened.names(graph.timeout_s)) as names:
        check_answers(opened, graph.timeout_s)
        retrieval = QuestionRetrieval(opened, names, graph.timeout_s, choice, pooling, run)
        recorded = (
            runs.Recorded(retrieval.settings(), {})
            | runs.record_questions(file, run.sample, run.seed)
            | runs.record_graph(opened, graph.timeout_s)
        )
        _write(questions, output, recorded, run, retrieval.row)


def _pool_file(
    file: Path, run: RunChoice, choice: RetrievalChoice, pooling: PoolingSettings
) -> None:
    """Pool the triples of a file that another retriever scored."""
    from kbqa.engine.evaluation import evaluate as runs
    from kbqa.engine.evaluation.rows import read_scored

    if beside := [name for name in _NOT_WITH_SCORED if is_given(name)]:
        option = f"--{beside[0].replace('_', '-')}"
        raise click.UsageError(f"{option} has no use with --scored: leave it out")
    scored = read_scored(file)
    output = run.checked_output()
    questions = run.sampled([Question(id_, each.question, (), ()) for id_, each in scored.items()])
    settings = {"triples": choice.triples, **asdict(pooling)}
    recorded = runs.Recorded(
        {"retrieval": settings, "timings": run.timings}, {}
    ) | runs.record_questions(file, run.sample, run.seed)
    _write(
        questions,
        output,
        recorded,
        run,
        lambda question: _pooled_row(question, scored[question.id], choice, pooling, run),
    )


def _pooled_row(
    question: Question,
    scored: "ScoredQuestion",
    choice: RetrievalChoice,
    pooling: PoolingSettings,
    run: RunChoice,
) -> "RetrievalRow":
    """Make the row of a question whose triples are only pooled."""
    clock = Clock()
    with clock.stage("pool"):
        pooled = pool_triples(scored.triples, scored.topics, choice.triples, pooling, question.text)
    found = {"triples": [each.to_dict() for each in pooled], "seen": len(scored.triples)}
    return _row(question, {"topics": scored.topics, **found}, clock, run)


def _write(
    questions: Sequence[Question],
    output: Path,
    recorded: "Recorded",
    run: RunChoice,
    make_row: "Callable[[Question], RetrievalRow]",
) -> None:
    """Write a row for each question, and say how many failed."""
    from kbqa.engine.evaluation import evaluate as runs
    from kbqa.engine.evaluation.rows import read_retrieval_row

    if run.overwrite:
        discard(output)
    progress = runs.RunProgress(len(questions))
    with watched(progress) as report:
        runs.run_set(
            questions,
            output,
            recorded,
            read_retrieval_row,
            lambda rows: (partial(make_row, each) for each in questions if each.id not in rows),
            concurrency=run.concurrency,
            report=report,
        )
    if progress.failed:
        print_note(
            f"{progress.failed} of {len(questions)} questions failed; their rows say why. "
            "Use --resume to try them again."
        )


def _row(
    question: Question,
    found: Mapping[str, object],
    clock: Clock,
    run: RunChoice,
    error: str | None = None,
) -> "RetrievalRow":
    """Make a row of what was found for a question."""
    from kbqa.engine.evaluation.rows import RETRIEVAL_VERSION, RetrievalRow

    row: dict[str, object] = {
        "schema_version": RETRIEVAL_VERSION,
        "id": question.id,
        "question": question.text,
        "topics": (),
        "triples": (),
        "seen": None,
        "truncated": None,
        "cut": None,
        **found,
    }
    if run.timings:
        row["seconds"] = {stage: round(s, 4) for stage, s in clock.seconds.items()}
    return RetrievalRow.model_validate({**row, "error": error})


class QuestionRetrieval:
    """Retrieves triples for questions over one graph. Any number of threads may use one."""

    def __init__(
        self,
        graph: Graph,
        names: Names,
        timeout_s: float,
        choice: RetrievalChoice,
        pooling: PoolingSettings,
        run: RunChoice,
    ) -> None:
        self._graph, self._choice, self._pooling, self._run = graph, choice, pooling, run
        self._linker = Linker(graph, names)
        self._schema = GraphSchema(graph, timeout_s)
        from kbqa.engine.embedding.embedder import Embedder

        self._embedder = Embedder.load()
        self._score = make_scorer(choice.scorer, self._embedder, choice.scorer_file, graph.labels)

    def settings(self) -> dict[str, object]:
        """Return all that decides the rows except the questions and the graph, for manifests."""
        choice = self._choice
        return {
            "retrieval": {
                "triples": choice.triples,
                **describe_scorer(choice.scorer, self._embedder, choice.scorer_file),
                "shown": choice.shown,
                **asdict(self._pooling),
                "caps": asdict(Caps()),
            },
            "gold_entities": self._run.gold_entities,
            "names": choice.names,
            "timings": self._run.timings,
        }

    def row(self, question: Question) -> "RetrievalRow":
        """Retrieve for a question; any error becomes its row."""
        from kbqa.engine.evaluation.evaluate import log_failure

        clock = Clock()
        found: dict[str, object] = {}
        error = None
        try:
            found["topics"] = topics = self._topics(question, clock)
            retrieved = retrieve(
                self._graph,
                self._schema,
                self._score,
                " ".join(question.text.split()),
                topics,
                self._choice.triples,
                self._pooling,
                shown=self._choice.shown,
                clock=clock,
            )
            found |= {
                "triples": list(self._triples(retrieved, clock)),
                "seen": retrieved.seen,
                "truncated": retrieved.truncated,
                "cut": asdict(retrieved.subgraph.cut),
            }
        except Exception as failure:  # noqa: BLE001 – one question's failure never ends a run
            log_failure(question, failure)
            error = f"{type(failure).__name__}: {failure}"
        return _row(question, found, clock, self._run, error)

    def _topics(self, question: Question, clock: Clock) -> tuple[str, ...]:
        """Return where to start: the entities that methods start from."""
        if not question.text.strip():
            raise InputError("the question is empty; ask something in words")
        given = question.topics if self._run.gold_entities else ()
        with clock.stage("link"):
            linked = () if given else self._linker.link(question.text)
            starts = starting_topics(given, linked)
        return tuple(dict.fromkeys(each.mid for each in starts if each.mid))

    def _triples(self, retrieved: Retrieved, clock: Clock) -> Iterator[Mapping[str, object]]:
        """Yield the triples, with names if these are wanted."""
        triples = list(retrieved.triples())
        if not self._choice.names:
            yield from (each.to_dict() for each in triples)
            return
        with clock.stage("name"):
            ends = dict.fromkeys(end for each in triples for end in (each.subject, each.object))
            names = name_terms(self._graph, ends)
        for each in triples:
            named = {"subject_name": names[each.subject], "object_name": names[each.object]}
            yield {**each.to_dict(), **named}
