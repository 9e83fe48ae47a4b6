"""Looking around in the graph over HTTP: entities, SPARQL, TEXT2SPARQL."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

JAMAICA = "m.03_r3"
CAPITAL = "SELECT ?x WHERE { ns:m.03_r3 ns:location.country.capital ?x }"


def get(server, path: str, headers=None, **parameters):
    return server.client.get(path, params=parameters, headers=headers)


def test_an_entity_is_found_and_described(server) -> None:
    [found, *_] = get(server, "/api/v1/entities", q="jamaca").json()
    assert (found["mid"], found["name"]) == (JAMAICA, "Jamaica")
    entity = get(server, f"/api/v1/entities/{JAMAICA}").json()
    assert entity == {
        "mid": JAMAICA,
        "name": "Jamaica",
        "types": ["location.country", "location.location"],
        "outgoing": 8,
        "incoming": 2,
    }


def test_relations_have_counts(server) -> None:
    found = get(server, f"/api/v1/entities/{JAMAICA}/relations", direction="out").json()
    counts = {each["relation"]: each["count"] for each in found["relations"]}
    assert counts["location.statistical_region.population"] == 2
    assert not found["truncated"]
    [money] = get(server, f"/api/v1/entities/{JAMAICA}/relations", contains="Currency_used").json()[
        "relations"
    ]
    assert (money["name"], money["direction"]) == ("Currency Used", "out")
    cut = get(server, f"/api/v1/entities/{JAMAICA}/relations", limit=1).json()
    assert (len(cut["relations"]), cut["truncated"]) == (1, True)


def test_neighbours_come_page_by_page(server) -> None:
    path = f"/api/v1/entities/{JAMAICA}/neighbours"
    relation = "location.statistical_region.population"
    first = get(server, path, relation=relation, limit=1).json()
    second = get(server, path, relation=relation, limit=1, offset=1).json()
    assert (first["truncated"], second["truncated"]) == (True, False)
    mids = {each["mid"] for page in (first, second) for each in page["neighbours"]}
    assert mids == {"m.0pop1", "m.0pop2"}
    [name] = get(server, path, relation="type.object.name", limit=1).json()["neighbours"]
    assert name["mid"] is None
    assert name["value"] == name["name"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/entities/m.0nothing", 404),
        ("/api/v1/entities/Jamaica", 422),
        ("/api/v1/entities/m.0%3E%20%3Fp%20%3Fo%20%7D%20%23/relations", 422),
        ("/api/v1/entities/m.03_r3/neighbours?relation=a%3E%20b.c", 422),
        ("/api/v1/entities/m.03_r3/neighbours?relation=a.b&limit=0", 422),
        ("/api/v1/entities?q=", 422),
    ],
)
def test_bad_ids_are_problems(server, path, status) -> None:
    response = server.client.get(path)
    assert response.status_code == status
    assert response.json()["detail"]


@pytest.mark.parametrize(
    ("accept", "kind", "text"),
    [
        ("*/*", "application/sparql-results+json", '{"head": {"vars": ["x"]}'),
        ("text/csv", "text/csv; charset=utf-8", "x\nhttp://rdf.freebase.com/ns/m.03yl7"),
        (
            "application/xml, text/tab-separated-values;q=0.5",
            "text/tab-separated-values; charset=utf-8",
            "?x\n<http://rdf.freebase.com/ns/m.03yl7>",
        ),
    ],
)
def test_select_is_sent_in_the_formats_of_the_w3c(server, accept, kind, text) -> None:
    response = server.client.get("/sparql", params={"query": CAPITAL}, headers={"Accept": accept})
    assert response.headers["content-type"] == kind
    assert response.text.startswith(text)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/csv;q=0.1, application/sparql-results+json;q=0.9", "sparql-results+json"),
        ("*/*;q=0.1, text/csv", "csv"),
        (
            "application/n-triples;q=0.9, text/tab-separated-values;q=0.5, text/csv;q=0.5, "
            "application/sparql-results+json;q=0.6",
            "sparql-results+json",
        ),
        ("text/boolean, application/xml;q=0.8, application/json;q=0.8", "sparql-results+json"),
        ("text/csv;q=0.5, application/json;q=0.5", "csv"),
        ("*/*, application/json;q=0, application/sparql-results+json;q=0.0", "csv"),
        ("TEXT/CSV; Q=1.0", "csv"),
        ("", "sparql-results+json"),
        ("text/csv;q=0.0", None),
        ("application/json;q=0", None),
    ],
)
def test_the_weights_of_accept_decide(server, accept, kind) -> None:
    response = get(server, "/sparql", query=CAPITAL, headers={"Accept": accept})
    assert response.status_code == (406 if kind is None else 200)
    assert kind is None or kind in response.headers["content-type"]


def test_a_client_may_send_several_accept_headers(server) -> None:
    headers = [("Accept", "application/xml"), ("Accept", "text/csv")]
    response = get(server, "/sparql", query=CAPITAL, headers=headers)
    assert response.headers["content-type"].startswith("text/csv")


def test_two_queries_in_a_request_are_refused(server) -> None:
    ask, typed = "ASK { ?s ?p ?o }", {"Content-Type": "application/sparql-query"}
    for response in (
        server.client.get("/sparql", params={"query": [ask, CAPITAL]}),
        server.client.post("/sparql", data={"query": [ask, ask]}),
        server.client.post("/sparql", params={"query": ask}, content=ask, headers=typed),
    ):
        assert response.status_code == 400
        assert "more than one query" in response.json()["detail"]


def test_queries_come_in_three_ways(server) -> None:
    query = "ASK { ns:m.03_r3 ?p ?o }"
    plain = {"Content-Type": "application/sparql-query"}
    written = {"Content-Type": "Application/SPARQL-Query; charset=UTF-8"}
    answers = [
        server.client.post("/sparql", content=query, headers=written),
        server.client.get("/sparql", params={"query": query}),
        server.client.post("/sparql", data={"query": query}),
        server.client.post("/sparql", content=query, headers=plain),
    ]
    assert [each.json()["boolean"] for each in answers] == [True] * 4


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "query-syntax"),
        ("SELECT ?x WHERE {\n ?x ", 400, "query-syntax"),
        ("INSERT DATA { <a:b> <a:c> <a:d> }", 403, "query-refused"),
        ("DELETE WHERE { ?s ?p ?o }", 403, "query-refused"),
        ("SELECT ?x WHERE { SERVICE <http://evil.example/> { ?x ?y ?z } }", 403, "query-refused"),
        ("SELECT ?x FROM <file:///etc/passwd> WHERE { ?x ?y ?z }", 403, "query-refused"),
        ("CONSTRUCT WHERE { ?s ?p ?o }", 403, "query-refused"),
        ("SELECT ?x WHERE { ?x ?y " + "?z . ?x ?y " * 2000 + "?z }", 422, "input"),
    ],
)
def test_bad_queries_are_problems(server, query, status, code) -> None:
    response = server.client.post("/sparql", data={"query": query})
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert str(server.service.graph.description) not in response.text
    if "\n" in query:
        assert response.json()["line"] == 2


def test_other_formats_and_graphs_are_refused(server) -> None:
    parameters = {"query": CAPITAL}
    xml = {"Accept": "application/sparql-results+xml"}
    assert server.client.get("/sparql", params=parameters, headers=xml).status_code == 406
    parameters["default-graph-uri"] = "http://other.example/"
    assert server.client.get("/sparql", params=parameters).status_code == 403


def test_a_long_result_is_cut_and_says_so(server) -> None:
    query = "SELECT * WHERE { " + " ".join(f"?s{n} ?p{n} ?o{n} ." for n in range(3)) + " }"
    response = server.client.get("/sparql", params={"query": query}, headers={"Accept": "text/csv"})
    assert response.headers["x-kbqa-truncated"] == "true"
    assert 1_000_000 < len(response.content) <= 5_000_000


def test_rows_of_megabytes_do_not_hold_up_the_server(server) -> None:
    steps = " ".join(f"BIND (CONCAT(?x{n}, ?x{n}) AS ?x{n + 1})" for n in range(18))
    row = f"BIND ('aaaaaaaaaaaaaaaa' AS ?x0) {steps} ?s ?p ?o"
    response = get(server, "/sparql", query=f"SELECT ?s ?x18 {{ {row} }} LIMIT 200")
    assert response.headers["x-kbqa-truncated"] == "true"
    assert len(response.json()["results"]["bindings"]) == 1
    for count in (2, 4):  # more than is sent, and more than comes from the query's process
        columns = " ".join(f"(CONCAT(?x18, '{n}') AS ?y{n})" for n in range(count))
        refused = get(server, "/sparql", query=f"SELECT {columns} {{ {row} }} LIMIT 200")
        assert (refused.status_code, refused.json()["code"]) == (502, "query-memory")
        assert "its result is larger" in refused.json()["detail"]


ENDLESS = "SELECT (COUNT(*) AS ?n) WHERE { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n2 ?o }"


def test_an_endless_query_is_stopped(running, small_store) -> None:
    from kbqa.engine.serve.served import Settings

    with running(small_store, Settings(query_timeout_s=1.5)) as started:
        began = time.monotonic()
        answers = []
        run = threading.Thread(
            target=lambda: answers.append(get(started, "/sparql", query=ENDLESS))
        )
        run.start()
        time.sleep(0.5)
        second = get(started, "/sparql", query=CAPITAL)
        assert (second.status_code, second.json()["code"]) == (429, "too-fast")
        run.join()
        assert (answers[0].status_code, answers[0].json()["code"]) == (504, "query-timeout")
        assert time.monotonic() - began < 10
        # On a busy machine the next process takes a while to start.
        later = (get(started, "/sparql", query=CAPITAL).status_code for _ in range(20))
        assert 200 in later


ROUND_TRIPS = "Kenya" + " -> type.object.type <- type.object.type" * 3


def test_a_slow_path_is_stopped_as_a_query_is_and_holds_up_no_question(running, demo_store) -> None:
    from kbqa.engine.serve.served import Settings

    with running(demo_store, Settings(query_timeout_s=6, answer_threads=1)) as started:
        answers = []

        def run_path() -> None:
            body = {"path": f"{ROUND_TRIPS}\ncount"}
            answers.append(started.client.post("/api/v1/paths/run", json=body))

        run = threading.Thread(target=run_path)
        run.start()
        time.sleep(0.5)
        for path, body in (
            ("/api/v1/paths/run", {"path": "Kenya -> location.country.capital"}),
            ("/api/v1/paths/from-sparql", {"query": CAPITAL}),
        ):
            second = started.client.post(path, json=body)
            assert (second.status_code, second.json()["code"]) == (429, "too-fast")
        assert get(started, "/api/v1/ask", q="what is jamaican money called?").status_code == 200
        assert not answers  # the question did not wait for the path
        run.join()
        assert (answers[0].status_code, answers[0].json()["code"]) == (504, "query-timeout")
        assert "longer than 6 s" in answers[0].json()["detail"]


@pytest.mark.parametrize("hops", [21, 990])
def test_a_path_of_hundreds_of_hops_is_refused(server, hops) -> None:
    path = "m.03_r3 -> location.country.capital" + " -> a.b" * (hops - 1)
    for route in ("/api/v1/paths/run", "/api/v1/paths/check", "/page/path", "/page/relations"):
        more = " -> " if route == "/page/relations" else ""
        refused = server.client.post(route, json={"path": path + more})
        if route == "/page/path":
            assert f"the path has {hops} hops" in refused.text
        else:
            assert (refused.status_code, refused.json()["code"]) == (422, "input"), route
            assert f"the path has {hops} hops" in refused.json()["detail"]
    page = server.client.get("/", params={"path": path})
    assert (page.status_code, f"the path has {hops} hops" in page.text) == (422, True)


def test_a_query_that_takes_long_to_read_becomes_no_path(server) -> None:
    query = f"SELECT ?x {{ ?x ns:a.b ?y FILTER({'?y||' * 1000}?y) }}"
    refused = server.client.post("/api/v1/paths/from-sparql", json={"query": query})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")


def query_processes() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parent = stat.read_text().rpartition(")")[2].split()[1]
            command = (stat.parent / "cmdline").read_bytes()
            if int(parent) == os.getpid() and b"kb/worker_process.py" in command:
                found.append(int(stat.parent.name))
    return found


def test_a_killed_query_process_costs_no_answer(server) -> None:
    assert get(server, "/sparql", query=CAPITAL).status_code == 200
    workers = query_processes()
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    assert get(server, "/sparql", query=CAPITAL).status_code == 200
    record = get(server, "/api/v1/ask", q="jamaica has what money?").json()
    assert record["status"] == "answered"


def test_text2sparql_returns_a_query_even_without_an_answer(server) -> None:
    dataset = "urn:kbqa:freebase"
    money = "what is jamaican money called?"
    found = get(server, "/text2sparql", dataset=dataset, question=money).json()
    assert (found["dataset"], found["question"]) == (dataset, money)
    rows = get(server, "/sparql", query=found["query"]).json()["results"]["bindings"]
    assert rows[0]["x"]["value"].endswith("m.04xc2m")
    nothing = get(server, "/text2sparql", dataset=dataset, question="what is the area of jamaica?")
    empty = get(server, "/sparql", query=nothing.json()["query"]).json()
    assert empty["results"]["bindings"] == []
    both = "how large is jamaica? And what is jamaican money called?"
    found = get(server, "/text2sparql", dataset=dataset, question=both).json()
    assert found["query"].count("currency_used") == 1, "of the first part with an answer"
    assert get(server, "/text2sparql", dataset="other", question=money).status_code == 404
    assert get(server, "/text2sparql", question=money).status_code == 422


NASTY = [
    "\x00",
    "\n\r\t",
    "<img src=x onerror=alert(1)>",
    "' OR 1=1 --",
    '"*" NEAR(a b) AND (',
    "../../../etc/passwd",
    "m.0> ?p ?o } #",
    "\u202eevil\u2066",
    "🦜" * 50,
    "x" * 190,
    "m." + "0" * 190,
    "%",
]


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_no_text_breaks_the_server(server, text) -> None:
    client, quoted = server.client, quote(text, safe="")
    responses = [
        get(server, "/api/v1/ask", q=text),
        get(server, "/api/v1/ask", q="who?", topic=text),
        get(server, "/api/v1/entities", q=text),
        client.get(f"/api/v1/entities/{quoted}"),
        client.get(f"/api/v1/entities/{quoted}/relations"),
        get(server, f"/api/v1/entities/{JAMAICA}/relations", contains=text),
        get(server, f"/api/v1/entities/{JAMAICA}/neighbours", relation=text),
        get(server, "/sparql", query=text),
        get(server, "/text2sparql", dataset=text, question=text),
        client.post("/api/v1/link", json={"text": text}),
        client.post("/api/v1/paths/check", json={"path": text}),
        client.post("/api/v1/paths/run", json={"path": text, "question": text}),
        client.post("/api/v1/paths/from-sparql", json={"query": text}),
        client.get(f"/{quoted}"),
    ]
    assert [each.status_code for each in responses if each.status_code >= 500] == []
