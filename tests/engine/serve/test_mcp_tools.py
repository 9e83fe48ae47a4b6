"""The tools as the SDK's own client sees them, in one process."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the mcp extra")

from mcp import Client, MCPError
from mcp.types import CallToolResult

from kbqa.engine.engine import Engine
from kbqa.engine.serve.mcp import make_mcp_server
from kbqa.engine.serve.served import Observer, Settings
from kbqa.engine.serve.service import Service
from kbqa.kb.open import open_graph

MONEY = [("Main Path:\n Jamaica -[location , country , currency used]-> ?x", -0.5)]
SEAT = [("Main Path:\n Jamaica -[location , country , capital]-> ?x", -0.9)]
QUESTION = "what jamaican money called?"
BROTHERS = """\
Justin Bieber -> people.person.sibling_s -> people.sibling_relationship.sibling
?x -> people.person.gender = Male"""

Use = Callable[[Client], Awaitable[Any]]


@pytest.fixture
def connected(small_store: Path, scripted) -> Callable[..., Any]:
    """Use a client that is connected to a server over `SMALL_GRAPH`."""

    def connected(use: Use, *replies: object, mode: str = "auto") -> Any:
        @contextmanager
        def opened() -> Iterator[Engine]:
            model, settings = scripted(*replies), {"judge": "confidence"}
            with (
                open_graph(small_store) as graph,
                Engine(graph, model, settings=settings) as engine,
            ):
                yield engine

        async def run() -> Any:
            with open_graph(small_store) as aside:
                service = Service(opened, aside, Settings(), Observer())
                async with Client(make_mcp_server(service, is_local=True), mode=mode) as client:
                    return await use(client)

        return asyncio.run(run())

    return connected


@pytest.fixture
def call(connected) -> Callable[..., CallToolResult]:
    """Call one tool."""

    def call(tool: str, *replies: object, **arguments: object) -> CallToolResult:
        return connected(lambda client: client.call_tool(tool, arguments), *replies)

    return call


def _text(result: CallToolResult) -> str:
    [content] = result.content
    return content.text


def test_eight_tools_read_and_say_what_they_return(connected) -> None:
    tools = connected(lambda client: client.list_tools()).tools
    assert {tool.name: tool.input_schema.get("required", []) for tool in tools} == {
        "ask": ["question"],
        "link_entities": ["text"],
        "search_entities": ["name"],
        "describe_entity": ["mid"],
        "list_relations": ["mid"],
        "list_neighbours": ["mid", "relation"],
        "run_path": ["path"],
        "run_sparql": ["query"],
    }
    for tool in tools:
        assert tool.annotations.read_only_hint
        assert tool.annotations.idempotent_hint
        assert tool.annotations.open_world_hint is False
        assert tool.output_schema["type"] == "object"
        assert "truncated" in tool.output_schema["properties"]
        assert 20 < len(tool.description) < 400


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_answer_comes_with_its_proof(connected, mode: str) -> None:
    both = [*MONEY, *SEAT]
    result = connected(lambda c: c.call_tool("ask", {"question": QUESTION}), both, mode=mode)
    answer = result.structured_content
    assert json.loads(_text(result)) == answer
    assert answer["answers"] == [{"mid": "m.04xc2m", "value": None, "name": "Jamaican dollar"}]
    assert answer["status"] in ("answered", "unsure")
    assert 0 < answer["confidence"] < 1
    assert answer["path"] == "Jamaica (m.03_r3) -> location.country.currency_used"
    assert answer["path_words"] == [
        "From Jamaica, follow location.country.currency_used to the answers."
    ]
    assert answer["evidence"] == [
        "Jamaica (m.03_r3) location.country.currency_used Jamaican dollar (m.04xc2m)"
    ]
    [other] = answer["candidates"]
    assert other["path"].endswith("location.country.capital")
    assert answer["truncated"] is False


AREA = [("Main Path:\n Kingston -[location , location , area]-> ?x", -0.5)]
NO_AREA = [("Main Path:\n Jamaica -[location , location , area]-> ?x", -0.5)]


def test_a_follow_up_is_completed_from_the_questions_before(call) -> None:
    history = ["capital of jamaica?"]
    result = call("ask", SEAT, AREA, question="how large is it?", history=history)
    answer = result.structured_content
    assert answer["understood"] == "how large is Kingston?"
    assert [each["name"] for each in answer["answers"]] == ["480"]
    assert answer["parts"] == []


def test_each_of_two_questions_in_one_has_a_small_record(call) -> None:
    asked = "what is the capital of jamaica and how large is it?"
    answer = call("ask", SEAT, NO_AREA, question=asked).structured_content
    assert (answer["status"], answer["partial"], answer["answers"]) == ("answered", True, [])
    seat, size = answer["parts"]
    assert seat["question"] == "what is the capital of jamaica?"
    assert seat["answers"] == [{"mid": "m.03yl7", "value": None, "name": "Kingston"}]
    assert seat["path_words"] == ["From Jamaica, follow location.country.capital to the answers."]
    assert (size["question"], size["status"]) == ("how large is Jamaica?", "none")
    assert size["problem"] == answer["problem"]


def test_progress_rises_with_each_stage(connected) -> None:
    told: list[tuple[float, str | None]] = []

    async def ask(client: Client) -> None:
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            told.append((progress, message))

        await client.call_tool("ask", {"question": QUESTION}, progress_callback=hear)

    connected(ask, MONEY)
    assert [number for number, _ in told] == list(range(len(told)))
    messages = [message for _, message in told]
    assert messages[0] == "Loading the model"
    assert "Found 1 entities" in messages
    assert messages.index("Writing paths") < messages.index("Wrote 1 paths")
    assert messages.index("Wrote 1 paths") < messages.index("Running the paths")


def test_no_answer_says_why_and_is_no_error(call) -> None:
    result = call("ask", [("nonsense", -1.0)], question=QUESTION)
    assert not result.is_error
    assert result.structured_content["status"] == "none"
    assert result.structured_content["reason"] == "unreadable"
    assert result.structured_content["problem"]


def test_entities_are_linked_found_and_described(call) -> None:
    [linked] = call("link_entities", text=QUESTION).structured_content["entities"]
    assert (linked["mid"], linked["name"]) == ("m.03_r3", "Jamaica")
    [found] = call("search_entities", name="kingstn").structured_content["entities"]
    assert (found["mid"], found["types"]) == ("m.03yl7", ["location.citytown"])
    described = call("describe_entity", mid="m.03_r3").structured_content
    assert described["name"] == "Jamaica"
    assert described["types"] == ["location.country", "location.location"]


def test_relations_and_neighbours_are_listed_in_parts(call) -> None:
    listed = call("list_relations", mid="m.03_r3", direction="out", contains="country")
    assert [each["relation"] for each in listed.structured_content["relations"]] == [
        "location.country.capital",
        "location.country.currency_used",
    ]
    population = {"mid": "m.03_r3", "relation": "location.statistical_region.population"}
    first = call("list_neighbours", **population, limit=1).structured_content
    second = call("list_neighbours", **population, limit=1, offset=1).structured_content
    assert (first["truncated"], second["truncated"]) == (True, False)
    assert {first["neighbours"][0]["mid"], second["neighbours"][0]["mid"]} == {"m.0pop1", "m.0pop2"}


def test_a_path_is_run_or_only_read(call) -> None:
    run = call("run_path", path=BROTHERS).structured_content
    assert [each["name"] for each in run["answers"]] == ["Jaxon Bieber"]
    read = call("run_path", path=BROTHERS, dry_run=True).structured_content
    assert (read["status"], read["answers"], read["sparql"]) == ("checked", [], None)
    assert read["path_words"][1] == "Keep those where the answer has people.person.gender Male."


def test_queries_of_ones_own_are_run(call) -> None:
    query = "SELECT ?x ?y { ns:m.0pop1 ?x ?y } ORDER BY ?x"
    rows = call("run_sparql", query=query, limit=1).structured_content
    assert rows["columns"] == ["x", "y"]
    assert rows["rows"] == [["measurement_unit.dated_integer.number", "2695867"]]
    assert rows["truncated"]
    assert call("run_sparql", query="ASK { ?x ?y ?z }").structured_content["boolean"]


@pytest.mark.parametrize(
    ("tool", "arguments", "advice"),
    [
        ("ask", {"question": "  "}, "the question is empty"),
        ("ask", {"question": "x", "topics": ["Jamaica"]}, "is not a mid such as m.06w2sn5"),
        ("ask", {"question": "x" * 1001}, "at most 1000 characters"),
        ("describe_entity", {"mid": "Jamaica"}, "is not an id such as m.09c7w0"),
        ("describe_entity", {"mid": "m.0none"}, "Find the mid of an entity with search_entities."),
        ("run_path", {"path": "nonsense"}, "kbqa://guide/paths"),
        ("run_sparql", {"query": "INSERT DATA { <a:b> <a:b> <a:b> }"}, "kbqa only reads"),
        ("run_sparql", {"query": "SELECT * { SERVICE <http://x/> { ?s ?p ?o } }"}, "SERVICE would"),
        ("run_sparql", {"query": "SELECT * FROM <http://x/> { ?s ?p ?o }"}, "FROM would"),
        ("run_sparql", {"query": "SELECT * { ?s ?p }"}, "Prefixes ns:, xsd: and rdf:"),
    ],
)
def test_what_a_caller_can_mend_is_an_error_with_advice(
    call, tool: str, arguments: dict[str, Any], advice: str
) -> None:
    result = call(tool, **arguments)
    assert result.is_error
    assert advice in _text(result)


def test_an_unknown_entity_is_not_a_resource(connected) -> None:
    async def read(client: Client) -> str:
        with pytest.raises(MCPError) as raised:
            await client.read_resource("kbqa://entity/nothing")
        return str(raised.value)

    assert "'nothing' is not an id such as m.09c7w0" in connected(read)


def test_resources_explain_paths_the_graph_and_entities(connected) -> None:
    async def read(client: Client) -> list[str]:
        uris = ("kbqa://guide/paths", "kbqa://graph", "kbqa://entity/m.03_r3")
        found = [await client.read_resource(uri) for uri in uris]
        return [each.contents[0].text for each in found]

    guide, graph, entity = connected(read)
    assert "Justin Bieber -> people.person.sibling_s" in guide
    assert "Main Path:" not in guide
    assert json.loads(graph)
    assert json.loads(entity)["name"] == "Jamaica"
    assert "location.country.capital" in entity


def test_the_prompt_asks_with_proof(connected) -> None:
    arguments = {"question": QUESTION}
    prompt = connected(lambda client: client.get_prompt("answer_with_proof", arguments))
    assert QUESTION in prompt.messages[0].content.text


@pytest.mark.parametrize(
    ("relation", "direction", "nearest"),
    [
        ("location.country.captial", "out", "location.country.capital"),
        ("location.country.capital", "in", "location.country.capital (direction out)"),
        ("qwxz.qwxz.qwxz", "out", "See the list of its relations"),
    ],
)
def test_a_relation_that_an_entity_has_not_is_an_error_with_the_nearest(
    call, relation, direction, nearest
) -> None:
    result = call("list_neighbours", mid="m.03_r3", relation=relation, direction=direction)
    assert result.is_error
    assert f"no {relation} {'leaves' if direction == 'out' else 'enters'} m.03_r3" in _text(result)
    assert nearest in _text(result)


def test_beyond_the_last_neighbour_there_are_none(call) -> None:
    relation = "location.country.capital"
    result = call("list_neighbours", mid="m.03_r3", relation=relation, offset=5)
    assert not result.is_error
    assert result.structured_content["neighbours"] == []


def test_a_question_about_nothing_known_is_told_of_topics_and_no_option(call) -> None:
    zorblax = [("Main Path:\n Zorblax -[location , country , capital]-> ?x", -0.5)]
    problem = call("ask", zorblax, question="who is zorblax?").structured_content["problem"]
    assert problem.endswith("Find its mid with search_entities, and give it in `topics`.")
    assert "--" not in problem
