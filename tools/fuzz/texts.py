"""Fuzz what reads texts: paths, SPARQL, formulas, questions."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pyoxigraph

from kbqa.engine.engine import Engine
from kbqa.kb.open import open_graph
from kbqa.sparql.compile import compile_crp, compile_skeleton
from kbqa.sparql.convert.from_sparql import crp_from_sparql, sparql_from_s_expression
from kbqa.sparql.crp import Crp
from kbqa.sparql.dialect import check_read_only, repair_query
from kbqa.sparql.english import describe_crp
from kbqa.sparql.errors import KbqaError
from kbqa.sparql.forms import (
    parse_crp,
    parse_routerkgqa,
    read_crp,
    render_crp,
    render_extended,
    render_routerkgqa,
)
from kbqa.sparql.relax import relaxations
from tools.fuzz.mutation import HOSTILE, mutated_text
from tools.fuzz.seeds import (
    FORMULAS,
    PATHS,
    QUERIES,
    QUESTIONS,
    WRITTEN,
    ScriptedWriter,
    small_store,
)
from tools.fuzz.trying import Try, Wrong, reported

_QUERY_TIMEOUT_S = 5.0
_ROWS = 20


@contextmanager
def paths(_: Path) -> Iterator[Try]:
    """Texts of paths, in all forms: read, written in each form and read back, compiled."""

    def try_one(random: Random) -> None:
        text = mutated_text(random, PATHS)
        with reported(text):
            crp = read_crp(text).crp
            _check_forms(crp)
            _check_query(crp)

    yield try_one


def _check_forms(crp: Crp) -> None:
    describe_crp(crp)
    own = render_crp(crp)
    if parse_crp(own) != (crp, ()):
        raise Wrong(f"kbqa's form {own!r} is read as {parse_crp(own)}, not as {crp}")
    for render in (render_routerkgqa, render_extended):
        # It has no place for the ids of entities with a name.
        if (written := render(crp)) is None:
            continue
        again = render(parse_routerkgqa(written).crp) or ""
        if sorted(again.splitlines()) != sorted(written.splitlines()):
            raise Wrong(f"{written!r} becomes {again!r}; from {crp}")


def _check_query(crp: Crp) -> None:
    for each in (crp, *(step.crp for step in relaxations(crp))):
        try:
            queries = [compile_crp(each), compile_skeleton(each)]
        except KbqaError:
            continue  # a name has no id
        for query in queries:
            check_read_only(query)
            pyoxigraph.Store().query(query)


@contextmanager
def sparql(folder: Path) -> Iterator[Try]:
    """SPARQL: repaired, guarded, converted, and run if the guard lets it pass."""
    store = small_store(folder)
    with closing(open_graph(store)) as graph:
        before = graph.select("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }").rows

        def try_one(random: Random) -> None:
            query = mutated_text(random, QUERIES)
            with reported(query):
                repair_query(query)
            with reported(query):
                crp = crp_from_sparql(query)
                _check_forms(crp)
            with reported(query):
                form = check_read_only(query)
                if form == "select":
                    graph.select(query, timeout_s=_QUERY_TIMEOUT_S, limit=_ROWS)
                elif form == "ask":
                    graph.ask(query, timeout_s=_QUERY_TIMEOUT_S)
            with reported(query):
                sparql_from_s_expression(mutated_text(random, FORMULAS))

        yield try_one
        if graph.select("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }").rows != before:
            raise Wrong("a query changed the store")


@contextmanager
def questions(folder: Path) -> Iterator[Try]:
    """Questions without a model, and with what a model wrote: linked, grounded, answered."""
    writer = ScriptedWriter()
    with closing(open_graph(small_store(folder))) as graph:
        settings = {"judge": "confidence"}
        with (
            Engine(graph, settings=settings) as alone,
            Engine(graph, writer, settings=settings) as written,
        ):

            def try_one(random: Random) -> None:
                question = mutated_text(random, (*QUESTIONS, *HOSTILE))
                writer.texts = [mutated_text(random, WRITTEN) for _ in range(random.randint(0, 5))]
                engine = written if random.random() < 0.8 else alone
                with reported((question, writer.texts)):
                    answer = engine.ask(question, deadline_s=30)
                    answer.trace.to_dict()
                    answer.trace.describe()
                    if not (answer.is_answered or answer.problem):
                        raise Wrong("no answer, and no reason")

            yield try_one
