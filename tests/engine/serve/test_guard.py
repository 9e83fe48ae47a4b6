"""What must not reach the routes is turned away."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx", reason="needs the serve extra")

from kbqa.engine.serve.guard import (  # noqa: E402
    Access,
    ApiKeys,
    Guard,
    Metrics,
    RateLimiter,
)
from kbqa.sparql.errors import InputError  # noqa: E402

KEY = "correct horse battery staple"
KEYS = f"""
[alice]
sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"
requests_a_minute = 2
"""


async def echo(scope, receive, send) -> None:
    """Answer with who asks, how much came, and whether another site led here."""
    message = await receive()
    visit = scope["state"]["visit"]
    text = (
        f"{visit.client} {len(message['body'])} known={visit.is_known} foreign={visit.is_foreign}"
    )
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text.encode()})


class Client:
    """Sends requests to a guarded application."""

    def __init__(self, access: Access) -> None:
        self._guard = Guard(echo, access, Metrics())

    def send(
        self,
        method: str,
        path: str,
        host: str = "localhost",
        address: str = "127.0.0.1",
        **options,
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self._guard, client=(address, 1))
        headers = {"Host": host, **options.pop("headers", {})}

        async def sent() -> httpx.Response:
            url = "http://localhost"
            async with httpx.AsyncClient(transport=transport, base_url=url) as client:
                return await client.request(method, path, headers=headers, **options)

        return asyncio.run(sent())


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8080", 200),
        ("kbqa.example.org", 200),
        ("KBQA.example.org:443", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:8080", 421),
        ("192.168.1.5", 421),
        ("[::1].evil.example", 421),
        ("[::1", 421),
        ("[::1]:80:evil.example", 421),
        ("localhost:evil", 421),
        ("", 421),
    ],
)
def test_only_own_names_are_answered(host, status) -> None:
    client = Client(Access(hosts=frozenset({"kbqa.example.org"})))
    assert client.send("GET", "/healthz", host).status_code == status


def test_an_open_server_is_called_by_its_address() -> None:
    client = Client(Access(allows_addresses=True))
    assert client.send("GET", "/healthz", "192.168.1.5:8080").status_code == 200
    assert client.send("GET", "/healthz", "evil.example").status_code == 421


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/api/v1/ask?q=x", {}, 200),
        ("/api/v1/ask?q=x", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("/api/v1/ask?q=x", {"Sec-Fetch-Site": "none"}, 200),
        ("/api/v1/ask?q=x", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("/api/v1/ask?q=x", {"Sec-Fetch-Site": "same-site"}, 403),
        ("/api/v1/ask?q=x", {"Origin": "https://evil.example"}, 403),
        ("/api/v1/ask?q=x", {"Origin": "null"}, 403),
        ("/api/v1/ask?q=x", {"Origin": "http://localhost"}, 200),
        ("/api/v1/ask?q=x", {"Origin": "http://localhost:3000"}, 403),
        ("/sparql?query=x", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("/?q=x", {"Sec-Fetch-Site": "cross-site"}, 200),
    ],
)
def test_other_sites_are_refused(path, headers, status) -> None:
    response = Client(Access()).send("GET", path, headers=headers)
    assert response.status_code == status
    if path == "/?q=x":
        assert "foreign=True" in response.text


TEXT2SPARQL = "/?dataset=urn:kbqa:freebase&question=who%3F"


@pytest.mark.parametrize("path", [TEXT2SPARQL, "/?d%61taset=&question=who"])
def test_a_question_at_the_root_does_not_pass_as_a_page(keyed, path) -> None:
    assert keyed.send("GET", path).status_code == 401
    own = {"Authorization": f"Bearer {KEY}"}
    assert keyed.send("GET", path, headers=own).status_code == 200
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert Client(Access()).send("GET", path, headers=foreign).status_code == 403
    assert keyed.send("GET", "/?dataset=x").status_code == 200  # asks nothing


@pytest.mark.parametrize("path", ["/?q=x", "/entity/m.03_r3"])
@pytest.mark.parametrize(("wanted", "status"), [("document", 200), ("image", 403), ("iframe", 403)])
def test_another_site_may_link_to_a_page_but_not_embed_it(path, wanted, status) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": wanted}
    assert Client(Access()).send("GET", path, headers=headers).status_code == status


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        ("/api/v1/ask", "application/json", 200),
        ("/api/v1/ask", "application/json; charset=utf-8", 200),
        ("/api/v1/ask", "text/plain", 415),
        ("/api/v1/ask", "application/x-www-form-urlencoded", 415),
        ("/api/v1/ask", "", 415),
        ("/sparql", "application/x-www-form-urlencoded", 200),
        ("/sparql", "application/sparql-query", 200),
        ("/sparql", "application/sparql-update", 415),
    ],
)
def test_bodies_have_their_type(path, kind, status) -> None:
    response = Client(Access()).send("POST", path, content=b"{}", headers={"Content-Type": kind})
    assert response.status_code == status
    if status == 415:
        allowed = "application/json"
        if path == "/sparql":
            allowed = "application/sparql-query or application/x-www-form-urlencoded"
        assert response.json()["detail"] == f"Send the body as {allowed}."


async def _endless():
    for _ in range(100):
        yield b"x" * 1000


@pytest.mark.parametrize("body", [b"x" * 64_001, _endless])
def test_large_bodies_are_refused(body) -> None:
    content = body if isinstance(body, bytes) else body()
    headers = {"Content-Type": "application/json"}
    response = Client(Access()).send("POST", "/api/v1/ask", content=content, headers=headers)
    assert (response.status_code, response.json()["code"]) == (413, "too-large")


@pytest.mark.parametrize(("size", "status"), [(64_000, 200), (64_001, 413)])
@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "in pieces"])
def test_a_body_may_have_64_000_bytes(size, status, is_declared) -> None:
    async def pieces():
        yield b"x" * 1000
        yield b"x" * (size - 1000)

    content = b"x" * size if is_declared else pieces()
    headers = {"Content-Type": "application/json"}
    response = Client(Access()).send("POST", "/api/v1/ask", content=content, headers=headers)
    assert response.status_code == status
    assert status == 413 or response.text == f"127.0.0.1 {size} known=True foreign=False"


@pytest.mark.parametrize("host", ["localhost", "evil.example"])
def test_every_response_is_secured(host) -> None:
    headers = Client(Access()).send("GET", "/api/v1/info", host).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


@pytest.fixture
def keyed(tmp_path: Path) -> Client:
    file = tmp_path / "keys.toml"
    file.write_text(KEYS, encoding="utf-8")
    return Client(Access(keys=ApiKeys.read(file)))


@pytest.mark.parametrize(
    "sent",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"}],
)
def test_without_a_key_nobody_asks(keyed, sent) -> None:
    response = keyed.send("GET", "/api/v1/ask?q=x", headers=sent)
    assert (response.status_code, response.json()["code"]) == (401, "no-key")
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert keyed.send("GET", "/metrics", headers=sent).status_code == 401
    assert keyed.send("GET", "/healthz", headers=sent).status_code == 200
    assert "known=False" in keyed.send("GET", "/?q=x", headers=sent).text


def test_a_key_has_its_own_rate(keyed) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    responses = [keyed.send("GET", "/api/v1/ask?q=x", headers=headers) for _ in range(3)]
    assert [each.status_code for each in responses] == [200, 200, 429]
    assert responses[0].text.startswith("alice ")
    assert 1 <= int(responses[2].headers["retry-after"]) <= 30
    assert keyed.send("GET", "/healthz", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "text",
    ["", "alice = 3", '[alice]\nsha256 = "abc"', "[alice", '[a]\nsha256 = "' + "0" * 64 + '"\nx=1'],
)
def test_a_bad_file_of_keys_is_refused(tmp_path, text) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="keys"):
        ApiKeys.read(file)


def test_a_bucket_fills_by_and_by() -> None:
    now = 0.0
    rates = RateLimiter(lambda: now)
    assert [rates.take("a", 2) for _ in range(3)] == [0, 0, 30]
    assert rates.take("b", 2) == 0
    now = 29.0
    assert rates.take("a", 2) == pytest.approx(1)
    now = 30.5
    assert rates.take("a", 2) == 0


@pytest.fixture
def still(monkeypatch) -> None:
    """Let no time pass for the limits on rates."""
    made = "kbqa.engine.serve.guard.RateLimiter"
    monkeypatch.setattr(made, lambda: RateLimiter(lambda: 0.0))


@pytest.mark.usefixtures("still")
def test_more_than_one_request_a_second_is_limited_too() -> None:
    client = Client(Access(rate=120))
    statuses = [client.send("GET", "/api/v1/ask?q=x").status_code for _ in range(130)]
    assert statuses == [200] * 120 + [429] * 10


@pytest.mark.usefixtures("still")
def test_one_address_does_not_use_up_the_allowance_of_another() -> None:
    client = Client(Access(rate=2))

    def ask(address: str) -> int:
        return client.send("GET", "/api/v1/ask?q=x", address=address).status_code

    assert [ask("10.0.0.1") for _ in range(3)] == [200, 200, 429]
    assert [ask("10.0.0.2") for _ in range(3)] == [200, 200, 429]
    assert [ask(f"2001:db8::{n}") for n in (0, 1, "ffff:ffff:ffff:ffff")] == [200, 200, 429]
    assert ask("2001:db8:0:1::1") == 200  # another network
    assert ask("::ffff:10.0.0.1") == 429


def test_the_table_of_clients_shrinks_and_forgets_nobody_who_is_limited(monkeypatch) -> None:
    monkeypatch.setattr("kbqa.engine.serve.guard._MOST_CLIENTS", 10)
    now = 0.0
    rates = RateLimiter(lambda: now)
    assert [rates.take("often", 2) for _ in range(3)] == [0, 0, 30]
    assert [rates.take("seldom", 0.1) for _ in range(2)] == [0, 600]
    for n in range(100):
        rates.take(f"once {n}", 2)
    assert rates.take("often", 2) == 30  # the table was cleaned meanwhile
    now = 61.0
    for n in range(200):
        rates.take(f"later {n}", 2)
    assert rates.take("seldom", 0.1) == pytest.approx(539)
    assert [rates.take("often", 2) for _ in range(3)] == [0, 0, 30]
    now = 3600.0
    for n in range(500):
        rates.take(f"much later {n}", 2)
    assert len(rates) == 500


def test_full_buckets_are_forgotten_when_the_table_has_doubled_and_no_others(monkeypatch) -> None:
    monkeypatch.setattr("kbqa.engine.serve.guard._MOST_CLIENTS", 10)
    now = 0.0
    rates = RateLimiter(lambda: now)

    def remembered_after(clients: range, a_minute: float = 2) -> list[int]:
        sizes = []
        for client in clients:
            assert rates.take(str(client), a_minute) == 0
            sizes.append(len(rates))
        return sizes

    assert remembered_after(range(9)) == list(range(1, 10))
    now = 29.75
    assert remembered_after(range(9, 22)) == list(range(10, 23))  # nobody was full when it had 11
    now = 30.0
    assert remembered_after(range(22, 23)) == [14]  # 23, of whom the first nine are full
    now = 60.0
    assert remembered_after(range(23, 37)) == list(range(15, 29))  # fourteen are full
    assert remembered_after(range(37, 38)) == [15]
    now = 3600.0
    assert remembered_after(range(38, 54)) == [*range(16, 31), 16]


def test_a_client_of_less_than_one_request_a_minute_is_forgotten_when_it_may_ask(
    monkeypatch,
) -> None:
    monkeypatch.setattr("kbqa.engine.serve.guard._MOST_CLIENTS", 0)
    now = 0.0
    rates = RateLimiter(lambda: now)
    assert [rates.take("seldom", 0.5) for _ in range(2)] == [0, 120]
    now = 119.5
    assert [rates.take(f"other {n}", 60) for n in range(2)] == [0, 0]
    assert len(rates) == 3
    assert rates.take("seldom", 0.5) == pytest.approx(0.5)
    now = 120.0
    assert [rates.take(f"third {n}", 60) for n in range(4)] == [0, 0, 0, 0]
    assert len(rates) == 6


async def _told(scope: dict[str, Any], coming: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a guarded application sends. It takes the coming messages; then none comes."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return coming.pop(0) if coming else await asyncio.Future()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async with asyncio.timeout(20):
        await Guard(echo, Access(), Metrics())(scope, receive, send)
    return sent


POST: dict[str, Any] = {
    "type": "http",
    "method": "POST",
    "path": "/api/v1/ask",
    "query_string": b"",
    "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
}


def test_there_are_no_websockets() -> None:
    scope = {"type": "websocket", "path": "/", "headers": [(b"host", b"localhost")]}
    [closed] = asyncio.run(_told(scope, [{"type": "websocket.connect"}]))
    assert closed == {"type": "websocket.close", "code": 1008}


def test_a_message_that_does_not_say_so_is_the_last_of_its_body() -> None:
    begun, body = asyncio.run(_told(dict(POST), [{"type": "http.request", "body": b"{}"}]))
    assert begun["status"] == 200
    assert body["body"].startswith(b"local 2 ")


def test_an_application_gets_the_body_in_one_piece_and_then_hears_that_the_client_left() -> None:
    heard: list[dict[str, Any]] = []

    async def listen(scope, receive, send) -> None:
        heard.extend([await receive(), await receive()])

    pieces = [
        {"type": "http.request", "body": b"[1,", "more_body": True},
        {"type": "http.request", "body": b"2]", "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return pieces.pop(0)

    async def send(message: dict[str, Any]) -> None: ...

    asyncio.run(Guard(listen, Access(), Metrics())(dict(POST), receive, send))
    whole = {"type": "http.request", "body": b"[1,2]", "more_body": False}
    assert heard == [whole, {"type": "http.disconnect"}]


def test_a_connection_is_closed_where_the_rest_of_a_body_is_not_read(monkeypatch) -> None:
    monkeypatch.setattr("kbqa.engine.serve.guard.BODY_TIMEOUT_S", 0.01)
    unfinished = {"type": "http.request", "body": b"{", "more_body": True}
    begun, _ = asyncio.run(_told(dict(POST), [unfinished]))
    assert begun["status"] == 408
    assert (b"connection", b"close") in begun["headers"]
    typed = {"Content-Type": "application/json"}
    client = Client(Access(rate=2))
    large = client.send("POST", "/api/v1/ask", content=b"x" * 64_001, headers=typed)
    assert (large.status_code, large.headers["connection"]) == (413, "close")
    others = [
        client.send("GET", "/healthz", "evil.example"),
        client.send("GET", "/api/v1/ask", headers={"Sec-Fetch-Site": "cross-site"}),
        client.send("POST", "/api/v1/ask", content=b"{}"),
        *[client.send("GET", "/api/v1/ask?q=x") for _ in range(2)],
    ]
    assert [each.status_code for each in others] == [421, 403, 415, 200, 429]
    assert not any("connection" in each.headers for each in others)


@pytest.mark.parametrize("is_declared", [True, False])
def test_the_rest_of_a_large_body_is_read_so_that_its_sender_hears_why(is_declared) -> None:
    def body(pieces: int) -> list[dict[str, Any]]:
        piece = {"type": "http.request", "body": b"x" * 50_000, "more_body": True}
        return [*[piece] * (pieces - 1), {"type": "http.request", "body": b"x" * 50_000}]

    headers = [*POST["headers"], (b"content-length", b"150000")] if is_declared else POST["headers"]
    next_request = {"type": "http.request", "body": b"{}"}
    coming = [*body(3), next_request]
    begun, _ = asyncio.run(_told({**POST, "headers": headers}, coming))
    assert begun["status"] == 413
    assert coming == [next_request]
    coming = body(100)
    begun, _ = asyncio.run(_told({**POST, "headers": headers}, coming))
    assert begun["status"] == 413
    assert len(coming) == (80 if is_declared else 78)  # a megabyte was dropped, and not five
    begun, _ = asyncio.run(_told({**POST, "headers": headers}, body(100)[:3]))
    assert begun["status"] == 413  # the sender stopped


def test_the_first_fault_of_a_file_of_keys_is_told(tmp_path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('[alice]\nsha256 = "abc"\nother = 1\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"alice\.sha256: "):
        ApiKeys.read(file)


def test_each_of_several_keys_has_its_owner(tmp_path) -> None:
    def digest(key: str) -> str:
        return hashlib.sha256(key.encode()).hexdigest()

    file = tmp_path / "keys.toml"
    tables = (f'[{name}]\nsha256 = "{digest(name)}"' for name in ("ann", "bob", "cy"))
    file.write_text("\n".join(tables), encoding="utf-8")
    keys = ApiKeys.read(file)
    assert [keys.owner(each) for each in ("ann", "bob", "cy", "dee", "")] == [
        *("ann", "bob", "cy"),
        *(None, None),
    ]
