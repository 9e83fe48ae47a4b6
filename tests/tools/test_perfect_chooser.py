import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kbqa.engine.chat.openai import OpenAIChat
from kbqa.engine.graph_walk import RelationPath
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.running.repair import (
    blueprint_prompt,
    choice_prompt,
    judge_prompt,
    read_blueprint,
    read_choice,
    written_path,
)
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity, Hop
from tools.methods.perfect_chooser import MODEL, PerfectChooser, gold_paths, make_server

QUESTION = "which currency code\nis used in Jamaica?"
CURRENCY, CODE = Hop("location.country.currency_used"), Hop("finance.currency.currency_code")
JAMAICA = RelationPath(Entity("Jamaica", "m.03_r3"))
CAPITAL = JAMAICA.then(Hop("location.country.capital"))
USED = JAMAICA.then(Hop("finance.currency.countries_used", inverse=True))  # its other name


@pytest.fixture(scope="module")
def chooser(small_store: Path) -> Iterator[PerfectChooser]:
    query = f"SELECT ?x {{ ns:m.03_r3 ns:{CURRENCY.relation} ?y . ?y ns:{CODE.relation} ?x }}"
    with open_graph(small_store) as graph:
        yield PerfectChooser([Question("1", QUESTION, (), (), sparql=query)], graph)


def _written(*paths: RelationPath) -> list[str]:
    """Write paths as a repair does: with what they lead to."""
    return [written_path(path, ["Jamaica", "J -> a.b"]) for path in paths]


def test_it_chooses_what_is_or_begins_the_gold_path(chooser: PerfectChooser) -> None:
    offered = _written(CAPITAL, USED, USED.then(CODE))
    [choice] = choice_prompt(QUESTION, offered, 3)
    assert read_choice(chooser.reply(choice.content), 3, 3) == [2, 1]
    elsewhere = RelationPath(Entity("Kenya", "m.019rg5"), USED.hops)
    [no_choice] = choice_prompt(QUESTION, _written(CAPITAL, CAPITAL.then(CODE), elsewhere), 1)
    assert read_choice(chooser.reply(no_choice.content), 3, 1) == []
    [no_whole_path] = choice_prompt(QUESTION, _written(CAPITAL, USED), 1)
    assert read_choice(chooser.reply(no_whole_path.content), 2, 1) == []


def test_it_judges_and_plans(chooser: PerfectChooser) -> None:
    replies = [
        chooser.reply(judge_prompt(QUESTION, _written(path))[0].content)
        for path in (USED, CAPITAL, USED.then(CODE))
    ]
    assert replies == ["no", "no", "yes"]
    steps = read_blueprint(chooser.reply(blueprint_prompt(QUESTION)[0].content))
    assert steps == ("which currency code is used in Jamaica?",) * 2


def test_gold_paths_come_from_the_queries(small_store: Path) -> None:
    query = "SELECT ?x { ns:m.03_r3 ns:location.country.capital ?x }"
    asked = [Question("1", "capital?", (), (), sparql=query), Question("2", "no query", (), ())]
    with closing(open_graph(small_store)) as graph:
        assert gold_paths(asked, graph) == {"capital?": CAPITAL}


def test_it_is_served_as_any_general_model(chooser: PerfectChooser) -> None:
    server = make_server(chooser.reply, 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        chat = OpenAIChat(f"http://127.0.0.1:{server.server_port}/v1")
        reply = chat.complete(choice_prompt(QUESTION, _written(CAPITAL, USED), 3))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert MODEL in chat.name
    assert reply.text == "2"
    assert reply.usage.input_tokens > 10
