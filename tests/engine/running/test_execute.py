import itertools
import time
from contextlib import closing
from pathlib import Path

import pytest

from kbqa.engine.linking.ground import Grounder
from kbqa.engine.linking.linker import LinkedEntity
from kbqa.engine.method import Clock
from kbqa.engine.running.confidence import ConfidenceModel
from kbqa.engine.running.execute import DEFAULT_POLICY, Executor, Policy
from kbqa.engine.running.outcome import Outcome, PathRunner
from kbqa.engine.running.reach import find_break
from kbqa.engine.running.tried import Execution, Tried
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Graph, Table
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.kb.names.search import open_names
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Crp, Entity, Kind
from kbqa.sparql.errors import GraphError
from kbqa.sparql.relax import Relaxation

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
    graph: Graph, *texts: str, timeout_s: float = 5, policy: Policy = DEFAULT_POLICY
) -> Execution:
    names = open_names(graph)
    grounder = Grounder(graph, names, ())
    candidates = [Candidate(text, -float(rank), 9) for rank, text in enumerate(texts)]
    try:
        return Executor(graph, grounder, Clock(), timeout_s, policy).execute(candidates)
    finally:
        names.close()


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
    with open_graph(tmp_path / "store") as graph, closing(open_names(graph)) as names:
        executor = Executor(graph, Grounder(graph, names, linked), Clock(), 5)
        tried = executor.run_all([Candidate(text, -1.0, 9) for text in texts])
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
    with closing(open_graph(demo_store)) as graph, closing(open_names(graph)) as names:
        [kenya] = names.lookup("Kenya", 1)
        grounder = Grounder(graph, names, [LinkedEntity(kenya.mid, "Kenya", "kenya", 0.9)])
        text = f"Paris -> location.location.containedby\n?x = {place}"
        execution = Executor(graph, grounder, Clock(), 5).execute([Candidate(text, 0.0, 9)])
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
    clock, names = Clock(), open_names(graph)
    Executor(graph, Grounder(graph, names, ()), clock, 5).execute([Candidate(MONEY, 0.0, 9)])
    names.close()
    assert set(clock.seconds) == {"ground", "reach", "execute"}
    assert all(seconds > 0 for seconds in clock.seconds.values())


CONFIDENT = ConfidenceModel(0.0, {"level full": 1.0, "share": 1.0, "answers": -1.0})


def _choose(graph: Graph, *pairs: tuple[str, float], relax: bool = True) -> Execution:
    candidates = [Candidate(text, logprob, 9) for text, logprob in pairs]
    with closing(open_names(graph)) as names:
        grounder = Grounder(graph, names, [LinkedEntity("m.03_r3", "Jamaica", "jamaica", 0.8)])
        executor = Executor(graph, grounder, Clock(), 5, Policy(CONFIDENT))
        return executor.execute(candidates, relax=relax)


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
    beam_first = _execute(graph, nobody, SIBLINGS, policy=Policy(order="beam-first"))
    assert (full_first.best, relaxed(full_first).level) == (1, "full")
    assert (beam_first.best, relaxed(beam_first).level) == (0, "main_path")


@pytest.mark.parametrize(
    ("without", "answers"),
    [((), [JAXON]), (("string", "numeric"), [JAXON]), (("entity",), [JAZMYN, JAXON])],
)
def test_classes_of_constraints_can_be_left_out(
    graph: Graph, without: tuple[Kind, ...], answers: list[str]
) -> None:
    execution = _execute(graph, _lines(SIBLINGS, MALE), policy=Policy(without=frozenset(without)))
    assert sorted(_answers(execution)) == sorted(answers)
    assert relaxed(execution).level == "full"


def test_without_answers_there_is_no_result_and_the_break_is_told(graph: Graph) -> None:
    execution = _choose(graph, (MONEY.replace("currency used", "moneys"), -0.1))
    assert execution.best is None
    assert "breaks at hop 1" in str(execution.tried[0].problem)
    assert execution.tried[0].confidence == 0.0


def test_classes_are_relaxed_at_once_where_that_is_asked_for(graph: Graph) -> None:
    text = _lines(
        SIBLINGS, NAMED.format("nobody"), NAMED.replace("?n", "?m").format("Jaxon Bieber")
    )
    with closing(open_names(graph)) as names:
        levels = {}
        for at_once, policy in ((False, Policy()), (True, Policy(by_class=True))):
            grounder = Grounder(graph, names, ())
            executor = Executor(graph, grounder, Clock(), 5, policy)
            [tried] = executor.run_all([Candidate(text, -1.0, 9)])
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

    monkeypatch.setattr("kbqa.engine.running.execute.find_break", find)
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


def test_the_default_policy_is_the_documented_one() -> None:
    plain = Policy(confidence=None, order="full-first", by_class=False, without=frozenset())
    assert Policy() == plain == DEFAULT_POLICY


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
