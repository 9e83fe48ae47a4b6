"""What paths say that count, ask for yes or no, or compare, run as candidates of a question."""

import http.server
import itertools
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kbqa.engine.asked import Asked, Clock
from kbqa.engine.linking.linker import LinkedEntity
from kbqa.engine.running.evidence import find_evidence
from kbqa.engine.running.judge import Judge
from kbqa.engine.running.path_runner import Outcome, PathRunner, find_break
from kbqa.engine.running.run import Runner, TrustOrder
from kbqa.engine.running.tried import ConfidenceModel, Execution, Tried
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.kb.graph import Graph, Table
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp, Entity, Kind
from kbqa.sparql.errors import GraphError, MalformedResult
from kbqa.sparql.forms import read_crp
from kbqa.sparql.relax import Relaxation
from kbqa.sparql.terms import XSD_NS, LiteralTerm

MONEY = "Main Path:\n Jamaica -[location , country , currency used]-> ?x"
SIBLINGS = """Main Path:
 Justin Bieber -[people , person , sibling s]-> ?y
 ?y -[people , sibling relationship , sibling]-> ?x"""
POPULATION = """Main Path:
 Jamaica -[location , statistical region , population]-> ?y
 ?y -[measurement unit , dated integer , number]-> ?x"""
MALE = "Entity Restrictions:\n ?x -[people , person , gender]-> Male"
JAMAICAN = " ?x -[people , person , gender]-> Jamaica"
NAMED = 'String Restrictions:\n ?x -[type , object , name]-> ?n\n FILTER(str(?n) = "{}")'
BORN = 'Numeric Restrictions:\n ?x -[people , person , date of birth]-> ?d\n FILTER(?d < "1900")'
LATE = "Numeric Restrictions:\n ?y -[measurement unit , dated integer , year]-> ?d\n FILTER(?d {})"
MOST = "Numeric Restrictions:\n ORDER BY {}(?x)\n LIMIT {}"

JAXON, JAZMYN = "m.0gxnnwq", "m.0gxnnwd"


def _execute(
    graph: Graph,
    *texts: str,
    timeout_s: float = 5,
    order: TrustOrder = "full-first",
    without: Sequence[Kind] = (),
) -> Execution:
    candidates = [Candidate(text, -float(rank), 9) for rank, text in enumerate(texts)]
    with closing(graph.names()) as names:
        runner = Runner(Asked(""), graph, names, timeout_s, without=without)
        return runner.run_first(candidates, order)


def answering(execution: Execution) -> Tried:
    assert execution.answering is not None
    return execution.answering


def relaxed(execution: Execution) -> Relaxation:
    relaxation = answering(execution).relaxation
    assert relaxation is not None
    return relaxation


def topic(execution: Execution) -> Entity:
    return relaxed(execution).crp.topic


def _lines(*parts: str) -> str:
    return "\n".join(parts)


def _answers(execution: Execution) -> list[str]:
    return [str(getattr(term, "text", term)) for term in answering(execution).terms]


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        (MONEY, ["m.04xc2m"]),
        (_lines(SIBLINGS, MALE), [JAXON]),
        (_lines(SIBLINGS, NAMED.format("Jazmyn Bieber")), [JAZMYN]),
        (_lines(POPULATION, LATE.format('> "2010"')), ["2741052"]),
        (_lines(POPULATION, LATE.format('< "2010"')), ["2695867"]),
        (_lines(POPULATION, MOST.format("DESC", 1)), ["2741052"]),
        (_lines(POPULATION, MOST.format("ASC", 1)), ["2695867"]),
        (_lines(POPULATION, MOST.format("DESC", 2)), ["2741052", "2695867"]),
        ("Main Path:\n Male -[R [people , person , gender]]-> ?x", ["m.06w2sn5", JAXON]),
    ],
    ids=[
        "path",
        "entity",
        "string",
        "after a year",
        "before a year",
        "largest",
        "smallest",
        "two largest in order",
        "backwards",
    ],
)
def test_a_crp_is_executed_in_full(graph: Graph, text: str, answers: list[str]) -> None:
    execution = _execute(graph, text)
    found = _answers(execution)
    assert (found if "ORDER" in text else sorted(found)) == answers
    assert (relaxed(execution).level, relaxed(execution).dropped) == ("full", ())
    assert [(beam.fate, beam.problem) for beam in execution.tried] == [("reachable", None)]


@pytest.mark.parametrize(
    ("text", "level", "dropped", "answers"),
    [
        (_lines(SIBLINGS, MALE, NAMED.format("X")), "string", 1, [JAXON]),
        (_lines(SIBLINGS, MALE, BORN), "numeric", 1, [JAXON]),
        (_lines(SIBLINGS, MALE, BORN, NAMED.format("X")), "numeric", 2, [JAXON]),
        (_lines(SIBLINGS, MALE, JAMAICAN), "entity", 1, [JAXON]),
        (_lines(SIBLINGS, MALE.replace("Male", "Jamaica")), "main_path", 1, [JAZMYN, JAXON]),
        (_lines(SIBLINGS, MALE.replace("Male", "Zorblax")), "main_path", 1, [JAZMYN, JAXON]),
        (_lines(SIBLINGS, MALE, JAMAICAN.replace("Jamaica", "Zorblax")), "entity", 1, [JAXON]),
    ],
    ids=["string", "numeric", "both", "one entity", "every entity", "no such name", "one unknown"],
)
def test_constraints_are_relaxed_in_the_papers_order(
    graph: Graph, text: str, level: str, dropped: int, answers: list[str]
) -> None:
    execution = _execute(graph, text)
    assert sorted(_answers(execution)) == answers
    assert (relaxed(execution).level, len(relaxed(execution).dropped)) == (level, dropped)
    for constraint in relaxed(execution).dropped:
        assert constraint not in relaxed(execution).crp.constraints


def test_a_topic_is_as_likely_as_the_linker_says_unless_it_is_a_class(tmp_path: Path) -> None:
    """A foreign IRI is an entity as well."""
    ns, dump = "http://rdf.freebase.com/ns", tmp_path / "dump.nt"
    subjects = ("urn:x:kenya", f"{ns}/m.0k")
    dump.write_text(
        "".join(
            f"<{subject}>\t<{ns}/location.country.capital>\t<{ns}/m.0n>\t.\n"
            f"<{subject}>\t<{ns}/type.object.type>\t<{ns}/location.country>\t.\n"
            for subject in subjects
        )
    )
    load_freebase([dump], tmp_path / "store", rules=profile("full"))
    texts = {
        "<urn:x:kenya> -> location.country.capital": 0.3,
        "m.0k -> location.country.capital": 0.2,
        "ns:location.country <- type.object.type": 1.0,
    }
    linked = [
        LinkedEntity(m, "Kenya", "kenya", s) for m, s in (("urn:x:kenya", 0.3), ("m.0k", 0.2))
    ]
    with open_graph(tmp_path / "store") as graph, closing(graph.names()) as names:
        runner = Runner(Asked("", linked=tuple(linked)), graph, names, 5)
        tried = runner.run([Candidate(text, -1.0, 9) for text in texts])
    assert [each.problem for each in tried] == [None] * 3
    assert [each.topic_score for each in tried] == list(texts.values())


def test_the_constraint_with_the_least_likely_name_is_relaxed_first(graph: Graph) -> None:
    female = " ?x -[people , person , gender]-> m.02zsn"
    for misspelt, kept in (("Malee", JAZMYN), ("Male", JAXON)):
        execution = _execute(graph, _lines(SIBLINGS, MALE.replace("Male", misspelt), female))
        assert _answers(execution) == [kept]


def test_a_name_that_nobody_bears_is_told(graph: Graph) -> None:
    [beam] = _execute(graph, _lines(SIBLINGS, MALE.replace("Male", "Zorblax"))).tried
    assert (beam.fate, beam.problem) == ("reachable", "no entity is called 'Zorblax'")


def test_a_name_that_is_taken_for_another_is_told(graph: Graph) -> None:
    [beam] = _execute(graph, _lines(SIBLINGS, MALE.replace("Male", "Male sex"))).tried
    told = "no entity is called 'Male sex'; took Male, which is spelled like it"
    assert (beam.fate, beam.problem) == ("reachable", told)


def test_a_line_that_cannot_be_read_is_told(graph: Graph) -> None:
    [beam] = _execute(graph, _lines(SIBLINGS, MALE, " so that he is tall")).tried
    assert beam.fate == "reachable"
    assert "so that he is tall" in (beam.problem or "")


@pytest.mark.parametrize(
    ("text", "fate"),
    [
        ("", "unreadable"),
        ("I do not know.", "unreadable"),
        ("Main Path:\n ?y -[people , person , gender]-> ?x", "unreadable"),
        (MONEY.replace("Jamaica", "Zorblax"), "unlinked"),
        (MONEY.replace("currency used", "anthem"), "unreachable"),
        (SIBLINGS.replace("sibling]", "anthem]"), "unreachable"),
        (MONEY.replace("Jamaica", "m.0nobody"), "unreachable"),
    ],
    ids=["empty", "prose", "no topic", "no such name", "no such edge", "no second hop", "no mid"],
)
def test_the_next_beam_is_tried_where_one_leads_nowhere(graph: Graph, text: str, fate: str) -> None:
    execution = _execute(graph, text, MONEY, SIBLINGS)
    assert [beam.fate for beam in execution.tried] == [fate, "reachable"]
    assert execution.best == 1
    assert _answers(execution) == ["m.04xc2m"]


def test_a_later_beam_in_full_goes_before_an_earlier_one_relaxed(graph: Graph) -> None:
    execution = _execute(graph, _lines(SIBLINGS, MALE.replace("Male", "Jamaica")), MONEY)
    assert (execution.best, relaxed(execution).level) == (1, "full")


def test_without_a_path_there_is_no_result(graph: Graph) -> None:
    execution = _execute(graph, "nonsense", MONEY.replace("Jamaica", "Zorblax"))
    assert execution.best is None
    assert len(execution.tried) == 2


def test_without_candidates_there_is_no_result(graph: Graph) -> None:
    execution = _execute(graph)
    assert (execution.best, execution.tried) == (None, ())


def _execute_on_demo(demo_store: Path, *texts: str) -> Execution:
    graph = open_graph(demo_store)
    try:
        return _execute(graph, *texts)
    finally:
        graph.close()


WITHIN = "Springfield -> location.location.containedby"


def test_of_several_readings_the_one_whose_query_answers_is_taken(demo_store: Path) -> None:
    execution = _execute_on_demo(demo_store, f"{WITHIN}\n?x = Oregon", WITHIN)
    assert (execution.best, relaxed(execution).level) == (0, "full")
    [beam] = execution.tried
    assert (beam.fate, beam.readings) == ("reachable", 5)  # five towns, of which it is the last


def test_the_first_reading_is_the_one_that_is_relaxed(demo_store: Path) -> None:
    execution = _execute_on_demo(demo_store, f"{WITHIN}\n?x = Kenya")
    first = _execute_on_demo(demo_store, WITHIN)
    assert relaxed(execution).level == "main_path"
    assert topic(execution) == topic(first)
    assert (execution.tried[0].readings, first.tried[0].readings) == (5, 1)


def test_readings_that_cannot_be_run_in_full_are_not_tried(demo_store: Path) -> None:
    execution = _execute_on_demo(demo_store, f"{WITHIN}\n?x = Zorblax")
    assert relaxed(execution).level == "main_path"
    [beam] = execution.tried
    assert (beam.problem, beam.readings) == ("no entity is called 'Zorblax'", 1)


@pytest.mark.parametrize(
    ("place", "level", "problem"),
    [
        ("Africa", "full", "took Kenya, which the question is about, for 'Paris'"),
        ("France", "full", None),
        ("Oregon", "main_path", "took Kenya, which the question is about, for 'Paris'"),
    ],
    ids=["the first answers", "a later one answers", "the first is relaxed"],
)
def test_the_names_of_the_reading_that_counts_are_told(
    demo_store: Path, place: str, level: str, problem: str | None
) -> None:
    with closing(open_graph(demo_store)) as graph, closing(graph.names()) as names:
        [kenya] = names.lookup("Kenya", 1)
        linked = (LinkedEntity(kenya.mid, "Kenya", "kenya", 0.9),)
        text = f"Paris -> location.location.containedby\n?x = {place}"
        execution = Runner(Asked("", linked=linked), graph, names, 5).run_first(
            [Candidate(text, 0.0, 9)]
        )
    assert relaxed(execution).level == level
    assert execution.tried[0].problem == problem


# Two men share a gender, so that a walk to it and back doubles with each round.
_GENDER = ("R [people , person , gender]", "people , person , gender")
ENDLESS = "\n".join(
    [
        "Main Path:",
        " Justin Bieber -[people , person , gender]-> ?n0",
        *(f" ?n{n} -[{_GENDER[n % 2]}]-> ?n{n + 1}" for n in range(59)),
        " ?n59 -[R [people , person , gender]]-> ?x",
        "Entity Restrictions:",
        " ?x -[people , person , sibling s]-> Jamaica",
    ]
)


def test_a_query_that_takes_too_long_costs_its_beam_only(graph: Graph) -> None:
    execution = _execute(graph, ENDLESS, MONEY, timeout_s=1)
    assert [beam.fate for beam in execution.tried] == ["failed", "reachable"]
    assert "within 1 s" in (execution.tried[0].problem or "")
    assert (execution.best, _answers(execution)) == (1, ["m.04xc2m"])


def test_stages_are_timed(graph: Graph) -> None:
    clock, names = Clock(), graph.names()
    Runner(Asked("", clock=clock), graph, names, 5).run_first([Candidate(MONEY, 0.0, 9)])
    names.close()
    assert set(clock.seconds) == {"ground", "reach", "execute"}
    assert all(seconds > 0 for seconds in clock.seconds.values())


CONFIDENT = ConfidenceModel(0.0, {"level full": 1.0, "share": 1.0, "answers": -1.0})


def _choose(graph: Graph, *pairs: tuple[str, float], relax: bool = True) -> Execution:
    candidates = [Candidate(text, logprob, 9) for text, logprob in pairs]
    with closing(graph.names()) as names:
        linked = (LinkedEntity("m.03_r3", "Jamaica", "jamaica", 0.8),)
        runner = Runner(Asked("", linked=linked), graph, names, 5)
        return _judged(runner, graph, candidates, CONFIDENT, relax=relax)


def _judged(
    runner: Runner,
    graph: Graph,
    candidates: Sequence[Candidate],
    model: ConfidenceModel,
    *,
    relax: bool = True,
) -> Execution:
    judge = Judge(GraphSchema(graph), model)
    return runner.explain(judge.choose(runner.check(runner.run(candidates, relax=relax))))


def test_the_candidate_of_the_highest_confidence_answers(graph: Graph) -> None:
    execution = _choose(graph, (SIBLINGS, -2.0), (MONEY, -1.5), ("nonsense", -0.1))
    assert _answers(execution) == ["m.04xc2m"]
    assert execution.best == 1
    siblings, money, nonsense = (beam.confidence for beam in execution.tried)
    assert money > siblings > nonsense == 0.0


def test_a_relaxed_candidate_may_win_over_a_less_likely_one_in_full(graph: Graph) -> None:
    nobody = _lines(MONEY, MALE)
    execution = _choose(graph, (nobody, -0.1), (SIBLINGS, -9.0))
    assert (execution.best, relaxed(execution).level) == (0, "main_path")
    execution = _choose(graph, (nobody, -0.1), (SIBLINGS, -9.0), relax=False)
    assert execution.best == 1


def test_answers_that_several_candidates_lead_to_come_first(graph: Graph) -> None:
    for constraint, first in ((MALE, "m.0gxnnwq"), (NAMED.format("Jazmyn Bieber"), "m.0gxnnwd")):
        execution = _choose(graph, (SIBLINGS, -0.1), (_lines(SIBLINGS, constraint), -3.0))
        assert execution.best == 0
        assert _answers(execution)[0] == first
        assert len(_answers(execution)) == 2


def test_a_better_path_relaxed_may_be_trusted_before_a_worse_one_in_full(graph: Graph) -> None:
    nobody = _lines(MONEY, MALE)
    full_first = _execute(graph, nobody, SIBLINGS)
    beam_first = _execute(graph, nobody, SIBLINGS, order="beam-first")
    assert (full_first.best, relaxed(full_first).level) == (1, "full")
    assert (beam_first.best, relaxed(beam_first).level) == (0, "main_path")


@pytest.mark.parametrize(
    ("without", "answers"),
    [((), [JAXON]), (("string", "numeric"), [JAXON]), (("entity",), [JAZMYN, JAXON])],
)
def test_classes_of_constraints_can_be_left_out(
    graph: Graph, without: tuple[Kind, ...], answers: list[str]
) -> None:
    execution = _execute(graph, _lines(SIBLINGS, MALE), without=without)
    assert sorted(_answers(execution)) == sorted(answers)
    assert relaxed(execution).level == "full"


def test_without_answers_there_is_no_result_and_the_break_is_told(graph: Graph) -> None:
    execution = _choose(graph, (MONEY.replace("currency used", "moneys"), -0.1))
    assert execution.best is None
    assert "breaks at hop 1" in str(execution.tried[0].problem)
    assert execution.tried[0].confidence == 0.0


def test_classes_are_relaxed_at_once_only_where_that_is_asked_for(graph: Graph) -> None:
    text = _lines(
        SIBLINGS, NAMED.format("nobody"), NAMED.replace("?n", "?m").format("Jaxon Bieber")
    )
    with closing(graph.names()) as names:
        levels = {}
        for at_once in (False, True):
            chosen = {"by_class": True} if at_once else {}
            runner = Runner(Asked(""), graph, names, 5, **chosen)
            [tried] = runner.run([Candidate(text, -1.0, 9)])
            assert tried.relaxation is not None
            levels[at_once] = (len(tried.relaxation.dropped), len(tried.terms))
    assert levels == {False: (1, 1), True: (2, 2)}


def test_where_paths_break_is_told_of_all_within_the_time_of_one_query(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[float] = []

    def find(graph: Graph, crp: Crp, timeout_s: float) -> str:
        allowed.append(timeout_s)
        return find_break(graph, crp, 5)

    monkeypatch.setattr("kbqa.engine.running.run.find_break", find)
    moneys = [MONEY.replace("currency used", name) for name in ("moneys", "coins")]
    execution = _execute(graph, *moneys, timeout_s=0.9)
    assert all("breaks at hop 1" in str(each.problem) for each in execution.tried)
    assert 0.9 > allowed[0] > allowed[1] > 0


def test_a_relaxed_query_that_fails_is_told(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    run = PathRunner.run

    def fail(runner: PathRunner, crp: Crp, full: Crp | None = None) -> Outcome | None:
        if not crp.constraints:
            raise GraphError("the graph is tired")
        return run(runner, crp, full)

    monkeypatch.setattr(PathRunner, "run", fail)
    [tried] = _execute(graph, _lines(SIBLINGS, NAMED.format("X"))).tried
    assert (tried.fate, tried.problem, tried.table) == ("failed", "the graph is tired", None)


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        (MONEY, 1),
        (_lines(POPULATION, MOST.format("DESC", 1)), 1),
        (_lines(SIBLINGS, NAMED.format("X")), 2),
        (_lines(SIBLINGS, MALE, JAMAICAN), 2),
    ],
    ids=["in full", "ordered", "relaxed once", "with one of two"],
)
def test_no_query_is_run_twice_nor_in_vain(
    small_store: Path, monkeypatch: pytest.MonkeyPatch, text: str, queries: int
) -> None:
    ran: list[str] = []
    with closing(open_graph(small_store)) as graph:  # names are looked up beside it
        select = graph.select

        def selected(query: str, timeout_s: float, limit: int | None = None) -> Table:
            ran.append(query)
            return select(query, timeout_s=timeout_s, limit=limit)

        monkeypatch.setattr(graph, "select", selected)
        assert answering(_execute(graph, text)).terms
    assert len(ran) == len(set(ran)) == queries


def test_paths_are_not_looked_into_after_the_time_of_one_query(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock takes a tenth of a second, so that 9 s are soon over."""
    looks = itertools.count()
    start = time.monotonic()
    moneys = [MONEY.replace("currency used", f"money {at}") for at in range(60)]
    monkeypatch.setattr(time, "monotonic", lambda: start + next(looks) / 10)
    *_, last = tried = _execute(graph, *moneys, timeout_s=9).tried
    assert tried[0].problem is not None
    assert tried[0].problem.startswith("breaks at hop 1")
    assert (last.fate, last.problem) == ("unreachable", None)


SIBLING_PATHS = "Justin Bieber -> people.person.sibling_s -> people.sibling_relationship.sibling"
CAPITAL = "Jamaica -> location.country.capital"
BIRTHS = "Justin Bieber -> people.person.date_of_birth"
MALES = "Male <- people.person.gender"
POPULATIONS = "Jamaica -> location.statistical_region.population"
OLD = "?x -> people.person.date_of_birth < 1900"

# On the demo graph.
COUNTRIES = "ns:location.country <- type.object.type"
NEIGHBOURS = "Germany -> location.location.adjoin_s -> location.adjoining_relationship.adjoins"
AREA = "?x -> location.location.area"


def tried_all(
    graph: Graph,
    *texts: str,
    relax: bool = True,
    order: TrustOrder = "full-first",
    model: ConfidenceModel | None = None,
    schema: GraphSchema | None = None,
) -> Execution:
    candidates = [Candidate(text, -1.0 - at, 9) for at, text in enumerate(texts)]
    with closing(graph.names()) as names:
        runner = Runner(Asked(""), graph, names, 5, schema=schema)
        if model is not None:
            return _judged(runner, graph, candidates, model, relax=relax)
        return runner.run_first(candidates, order, relax=relax)


def said(graph: Graph, *texts: str, relax: bool = True) -> tuple[object, list[str]]:
    """Return yes, no, a count or None, and what was listed."""
    found = tried_all(graph, *texts, relax=relax).answering
    if found is None:
        return None, []
    listed = sorted(t.text if isinstance(t, LiteralTerm) else t for t in found.terms)
    return found.count if found.boolean is None else found.boolean, listed


@pytest.mark.parametrize(
    ("text", "count", "listed"),
    [
        (f"{SIBLING_PATHS}\ncount", 2, ["m.0gxnnwd", "m.0gxnnwq"]),
        (f"{SIBLING_PATHS}\n?x -> people.person.gender = Male\ncount", 1, ["m.0gxnnwq"]),
        (f"{SIBLING_PATHS} -> people.person.gender\ncount bindings", 2, ["m.02zsn", "m.05zppz"]),
        (f"{MALES} -> people.person.gender\ndistinct from none\ncount bindings", 2, ["m.05zppz"]),
        (f"{MALES} -> people.person.gender\ndistinct from none\ncount", 1, ["m.05zppz"]),
        (f"{SIBLING_PATHS}\n{OLD}\ncount", 0, []),
        (f"{SIBLING_PATHS}\n?x no -> people.person.gender\ncount", 0, []),
    ],
)
def test_how_many_is_a_number_with_what_was_counted(
    graph: Graph, text: str, count: int, listed: list[str]
) -> None:
    for relax in (True, False):
        assert said(graph, text, relax=relax) == (count, listed)


@pytest.mark.parametrize(
    "text",
    [
        "Jamaica -> people.person.sibling_s\ncount",
        f"{SIBLING_PATHS}\n?x = Zorblax\ncount",
        f"{SIBLING_PATHS}\n?x -> people.person.gender = Zorblax\ncount",
    ],
    ids=["no such path", "no such entity", "no such entity on a branch"],
)
def test_what_the_graph_does_not_know_is_not_counted_as_zero(graph: Graph, text: str) -> None:
    assert said(graph, text) == (None, [])


def test_more_is_counted_than_is_listed(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbqa.engine.running.path_runner.MAX_ANSWERS", 1)
    found = tried_all(graph, f"{SIBLING_PATHS}\ncount").answering
    assert found is not None
    assert found.table is not None
    assert (found.count, len(found.terms), found.table.truncated) == (2, 1, True)


@pytest.mark.parametrize(
    ("text", "boolean", "shown"),
    [
        (f"{CAPITAL}\n?x = Kingston\nask", True, ["m.03yl7"]),
        (f"{CAPITAL}\n?x = Jazmyn Bieber\nask", False, ["m.03yl7"]),
        (f"{CAPITAL}\n?x != Kingston\nask", False, ["m.03yl7"]),
        (f"{SIBLING_PATHS}\n?x = Jaxon Bieber\nask", True, ["m.0gxnnwq"]),
        (f"{SIBLING_PATHS}\n?x = Kingston\nask", False, ["m.0gxnnwd", "m.0gxnnwq"]),
        (f"{BIRTHS}\n?x < 2000\nask", True, ["1994-03-01"]),
        (f"{BIRTHS}\n?x > 2000\nask", False, ["1994-03-01"]),
        (f"{SIBLING_PATHS}\nask", True, ["m.0gxnnwd", "m.0gxnnwq"]),
        (f"{SIBLING_PATHS}\n?x -> people.person.gender = Male\nask", True, ["m.0gxnnwq"]),
        (f"{SIBLING_PATHS}\n{OLD}\nask", False, []),
    ],
)
def test_yes_and_no_come_with_what_shows_them(
    graph: Graph, text: str, boolean: bool, shown: list[str]
) -> None:
    assert said(graph, text) == (boolean, shown)


@pytest.mark.parametrize(
    "text",
    [
        "Kingston -> location.country.capital\n?x = Jamaica\nask",
        f"{CAPITAL}\n?x = Zorblax\nask",
        f"{BIRTHS}\n[Jaxon Bieber] -> people.person.date_of_birth ?other\n?x < ?other\nask",
        f"{SIBLING_PATHS}\n{OLD}\n?x = Jaxon Bieber\nask",
    ],
    ids=["no such path", "no such entity", "no value to compare with", "nothing presupposed"],
)
def test_what_the_graph_does_not_know_is_not_answered_with_no(graph: Graph, text: str) -> None:
    assert said(graph, text) == (None, [])


def test_the_query_that_is_shown_says_the_same(graph: Graph) -> None:
    asked = tried_all(graph, f"{CAPITAL}\n?x = Kingston\nask").answering
    counted = tried_all(graph, f"{SIBLING_PATHS}\ncount").answering
    assert asked is not None
    assert counted is not None
    assert graph.ask(asked.sparql or "")
    [[number]] = graph.select(counted.sparql or "").rows
    assert isinstance(number, LiteralTerm)
    assert number.text == "2"


def test_entities_are_compared_by_their_values(graph: Graph) -> None:
    both = f"{POPULATIONS}\n?x {{= m.0pop1 | = m.0pop2}}\n"
    number = "?x -> measurement_unit.dated_integer.number"
    assert said(graph, f"{both}largest {number}") == (None, ["m.0pop2"])
    assert said(graph, f"{both}smallest {number}") == (None, ["m.0pop1"])


def test_an_entity_is_not_the_oldest_of_two_if_the_other_has_no_date(graph: Graph) -> None:
    both = f"{MALES}\n?x {{= Justin Bieber | = Jaxon Bieber}}\n"
    execution = tried_all(graph, f"{both}smallest ?x -> people.person.date_of_birth")
    assert execution.best is None
    assert execution.tried[0].problem == (
        "the graph has no people.person.date_of_birth of Jaxon Bieber to compare"
    )
    [neither] = tried_all(graph, f"{both}largest ?x -> people.person.height_meters").tried
    assert "of Justin Bieber or Jaxon Bieber to compare" in str(neither.problem)


def test_zero_answers_only_if_no_other_candidate_has_answers(graph: Graph) -> None:
    none, two = f"{SIBLING_PATHS}\n{OLD}\ncount", f"{SIBLING_PATHS}\ncount"
    for how in ({}, {"order": "beam-first"}, {"model": ConfidenceModel.load()}):
        assert tried_all(graph, none, two, **how).best == 1
        execution = tried_all(graph, "nonsense", none, **how)
        assert (execution.best, execution.tried[1].count) == (1, 0)


def test_all_kinds_of_candidates_can_be_judged_together(graph: Graph) -> None:
    texts = [
        f"{CAPITAL}\n?x = Kingston\nask",
        f"{CAPITAL}\n?x = Jaxon Bieber\nask",
        f"{SIBLING_PATHS}\ncount",
        f"{SIBLING_PATHS}\n{OLD}\ncount",
        SIBLING_PATHS,
        "nonsense",
    ]
    execution = tried_all(graph, *texts, model=ConfidenceModel.load())
    assert execution.best == 0
    *judged, nonsense = (each.confidence for each in execution.tried)
    assert all(0 < confidence < 1 for confidence in judged)
    assert nonsense == 0


@pytest.fixture(scope="module")
def demo(demo_store: Path) -> Iterator[Graph]:
    with closing(open_graph(demo_store)) as graph:
        yield graph


def names(graph: Graph, text: str) -> set[str]:
    """Return the names of what proves an answer."""
    found: Tried | None = tried_all(graph, text).answering
    assert found is not None
    assert found.proven is not None
    triples = find_evidence(graph, found.proven, found.terms, 5)
    return {name for each in triples for name in (each.subject_name, each.object_name)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{COUNTRIES}\n?x -> location.country.currency_used = Euro\ncount", 36),
        (f"{NEIGHBOURS}\n?x no -> location.country.currency_used = Euro\ncount", 4),
        (f"{NEIGHBOURS}\n?x no -> location.country.currency_used = Euro\n?x = Denmark\nask", True),
        (f"{NEIGHBOURS}\n?x = Kenya\nask", False),
        (f"{COUNTRIES}\n?x = Russia\nlargest {AREA}\nask", True),
        (f"{COUNTRIES}\n?x = Kenya\nlargest {AREA}\nask", False),
        (f"{COUNTRIES}\n?x = Canada\nlargest 1 after 2 with ties {AREA}\nask", True),
    ],
)
def test_the_demo_graph_counts_and_says_yes_and_no(
    demo: Graph, text: str, expected: object
) -> None:
    assert said(demo, text)[0] == expected


def test_both_sides_of_a_comparison_are_shown(demo: Graph) -> None:
    text = f"{COUNTRIES}\n?x {{= Spain | = Germany}}\nlargest {AREA}"
    assert {"Spain", "504782.0", "Germany", "357021.0"} <= names(demo, text)
    gold = "Gold -> chemistry.chemical_element.melting_point"
    text = f"{gold}\n[Iron] -> chemistry.chemical_element.melting_point ?iron\n?x > ?iron\nask"
    assert names(demo, text) == {"Gold", "1064.18", "Iron", "1538.0"}


def test_no_is_shown_by_what_the_graph_says_instead(demo: Graph) -> None:
    assert {"Germany", "France", "Poland"} <= names(demo, f"{NEIGHBOURS}\n?x = Kenya\nask")
    largest = f"{COUNTRIES}\n?x = Kenya\nlargest {AREA}\nask"
    assert names(demo, largest) == {"Russia", "location.country", "17100000.0"}


OF_ITS_NEIGHBOURS = "-> location.location.adjoin_s -> location.adjoining_relationship.adjoins"


def listed(graph: Graph, text: str) -> set[str]:
    """Return the names of the answers, where no step over a mediator leads back."""
    found = tried_all(graph, text, schema=GraphSchema(graph)).answering
    return set() if found is None else set(graph.labels([str(t) for t in found.terms]).values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"Italy {OF_ITS_NEIGHBOURS}\n?x {OF_ITS_NEIGHBOURS} = Austria",
            {"Slovenia", "Switzerland"},
        ),
        (f"Peru {OF_ITS_NEIGHBOURS}\n?x {OF_ITS_NEIGHBOURS} = Bolivia", {"Brazil", "Chile"}),
        (f"Lisbon <- location.country.capital {OF_ITS_NEIGHBOURS}", {"Spain"}),
        (
            f"Portugal {OF_ITS_NEIGHBOURS} {OF_ITS_NEIGHBOURS}",
            {"Andorra", "France", "Gibraltar", "Morocco"},
        ),
    ],
)
def test_a_country_is_not_among_its_own_neighbours(
    demo: Graph, text: str, expected: set[str]
) -> None:
    assert listed(demo, text) == expected


def test_a_neighbour_whom_nobody_knows_is_left_out(demo: Graph) -> None:
    text = (
        f"Lisbon <- location.country.capital {OF_ITS_NEIGHBOURS}\n?x {OF_ITS_NEIGHBOURS} = Theaurt"
    )
    assert listed(demo, text) == {"Spain"}


def test_a_neighbour_is_not_asked_for_to_itself(demo: Graph) -> None:
    schema = GraphSchema(demo)
    for text, yes in (
        (f"Italy {OF_ITS_NEIGHBOURS}\n?x = Austria\nask", True),
        (f"Lisbon <- location.country.capital {OF_ITS_NEIGHBOURS}\n?x = Portugal\nask", False),
    ):
        found = tried_all(demo, text, schema=schema).answering
        assert found is not None
        assert found.boolean is yes


@pytest.mark.parametrize(("country", "is_capital"), [("Seychelles", True), ("Malta", False)])
def test_of_namesakes_the_capital_is_meant(demo: Graph, country: str, is_capital: bool) -> None:
    text = f"{country} -> location.country.capital\n?x = Victoria\nask"
    found = tried_all(demo, text, schema=GraphSchema(demo)).answering
    assert found is not None
    assert found.boolean is is_capital


def test_both_that_have_the_most_neighbours_are_first(demo: Graph) -> None:
    assert listed(demo, f"{COUNTRIES}\nmost ?x -> location.location.adjoin_s") == {
        "China",
        "Russia",
    }


def test_cities_are_compared_though_the_path_is_about_countries(demo: Graph) -> None:
    text = (
        f"{COUNTRIES}\n?x {{= Cape Town | = Melbourne}}\n"
        "smallest ?x -> location.location.geolocation -> location.geocode.latitude"
    )
    assert tried_all(demo, text).best is None
    assert listed(demo, text) == {"Melbourne"}


def test_no_country_borders_both_itself_and_another(demo: Graph) -> None:
    query = (
        "SELECT DISTINCT ?a ?b { ?a ns:location.location.adjoin_s ?m . "
        "?m ns:location.adjoining_relationship.adjoins ?b . ?a a ns:location.country . "
        "?b a ns:location.country FILTER (STR(?a) < STR(?b)) } ORDER BY ?a ?b LIMIT 200"
    ).replace(" a ns:", " ns:type.object.type ns:")
    pairs = demo.select(query).rows[::10]
    assert len(pairs) == 20
    for first, second in pairs:
        text = f"{first} {OF_ITS_NEIGHBOURS}\n?x {OF_ITS_NEIGHBOURS} = {second}"
        found = tried_all(demo, text, schema=GraphSchema(demo)).answering  # relaxed if need be
        assert found is None or not {first, second} & set(found.terms)


@contextmanager
def _repeating_endpoint(count: str) -> Iterator[SparqlEndpoint]:
    """Open an endpoint that repeats rows of floats, as Virtuoso's DISTINCT and groups do."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            (query,) = urllib.parse.parse_qs(body)["query"]
            name, texts = ("count", [count]) if "(COUNT(" in query else ("x", ["1.5", "2.5", "2.5"])
            value = {"type": "typed-literal", "datatype": f"{XSD_NS}float"}
            bindings = [{name: {**value, "value": text}} for text in texts]
            result = {"head": {"vars": [name]}, "results": {"bindings": bindings}}
            self.send_response(200)
            self.send_header("Content-Type", "application/sparql-results+json")
            self.end_headers()
            self.wfile.write(json.dumps(result).encode())

        def log_message(self, *args: object) -> None:
            """Keep quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            with SparqlEndpoint(f"http://127.0.0.1:{server.server_address[1]}/") as graph:
                yield graph
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("lines", ["", "\ncount", "\nlargest 3 ?x -> a.c", "\n?x > 1\nask"])
def test_answers_that_a_server_repeats_are_listed_and_counted_once(lines: str) -> None:
    crp, _ = read_crp(f"ns:m.0a -> a.b{lines}")
    with _repeating_endpoint("3") as graph:
        outcome = PathRunner(graph, 5.0).run(crp)
    assert outcome is not None
    assert [row[0] for row in outcome.table.rows] == [
        LiteralTerm("1.5", "float"),
        LiteralTerm("2.5", "float"),
    ]
    assert outcome.count == (2 if lines == "\ncount" else None)


@pytest.mark.parametrize("count", ["2.0", "", "-1", "many", "9" * 5000])
def test_a_count_that_is_no_number_is_a_malformed_result(
    count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbqa.engine.running.path_runner.MAX_ANSWERS", 1)
    crp, _ = read_crp("ns:m.0a -> a.b\ncount")
    with _repeating_endpoint(count) as graph, pytest.raises(MalformedResult, match="counted"):
        PathRunner(graph, 5.0).run(crp)
