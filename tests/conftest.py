"""Fixtures for tests of several folders: a small real graph, served in both ways."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pyoxigraph import Store

from kbqa.engine.chat.model import DEFAULT_MAX_TOKENS, Message, Reply, Usage
from kbqa.engine.writing.generate import Candidate, Progress, Request
from kbqa.kb.graph import Graph
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.kb.open import demo_store_directory, open_graph
from tools.graph_servers import MissingServer, oxigraph_server, virtuoso_server

# A busy machine is not a failure.
settings.register_profile("kbqa", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("kbqa"), max_examples=25)
settings.load_profile("kbqa")

# A script's background process ignores Ctrl-C, and so would every process that a test stops by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests that import OpenVINO themselves do not report to its makers either.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, so that two processes end together."""
    items.sort(key=lambda item: "training" not in item.path.parts)


NS = "http://rdf.freebase.com/ns/"

# subject, relation, object; an object that starts with a quote is a literal.
SMALL_GRAPH = """
m.03_r3 type.object.name "Jamaica"@en
m.03_r3 type.object.name "Jamaika"@de
m.03_r3 type.object.type location.country
m.03_r3 type.object.type location.location
m.03_r3 location.country.currency_used m.04xc2m
m.03_r3 location.country.capital m.03yl7
m.03_r3 location.statistical_region.population m.0pop1
m.03_r3 location.statistical_region.population m.0pop2
m.0pop1 type.object.type measurement_unit.dated_integer
m.0pop1 measurement_unit.dated_integer.number "2695867"
m.0pop1 measurement_unit.dated_integer.year "2009"^^<http://www.w3.org/2001/XMLSchema#gYear>
m.0pop2 type.object.type measurement_unit.dated_integer
m.0pop2 measurement_unit.dated_integer.number "2741052"
m.0pop2 measurement_unit.dated_integer.year "2011-04"^^<http://www.w3.org/2001/XMLSchema#gYearMonth>
m.04xc2m type.object.name "Jamaican dollar"@en
m.04xc2m type.object.type finance.currency
m.04xc2m finance.currency.countries_used m.03_r3
m.04xc2m finance.currency.currency_code "JMD"
m.03yl7 type.object.name "Kingston"@en
m.03yl7 type.object.type location.citytown
m.03yl7 location.location.containedby m.03_r3
m.03yl7 location.location.area "480"
m.06w2sn5 type.object.name "Justin Bieber"@en
m.06w2sn5 common.topic.alias "J. \\"Biebs\\" Bieber"@en
m.06w2sn5 type.object.type people.person
m.06w2sn5 people.person.gender m.05zppz
m.06w2sn5 people.person.date_of_birth "1994-03-01"^^<http://www.w3.org/2001/XMLSchema#date>
m.06w2sn5 people.person.sibling_s m.0gxnnwp
m.06w2sn5 people.person.sibling_s m.0gxnnwc
m.0gxnnwp type.object.type people.sibling_relationship
m.0gxnnwp people.sibling_relationship.sibling m.0gxnnwq
m.0gxnnwc type.object.type people.sibling_relationship
m.0gxnnwc people.sibling_relationship.sibling m.0gxnnwd
m.0gxnnwq type.object.name "Jaxon Bieber"
m.0gxnnwq people.person.gender m.05zppz
m.0gxnnwd type.object.name "Jazmyn Bieber"@en
m.0gxnnwd people.person.gender m.02zsn
m.05zppz type.object.name "Male"@en
m.05zppz type.object.name "Männlich"@de
m.02zsn type.object.name "Weiblich"@de
location.country.currency_used type.object.name "Currency Used"@en
location.country.currency_used type.property.schema location.country
location.country.currency_used type.property.expected_type finance.currency
location.country.currency_used type.property.reverse_property finance.currency.countries_used
people.sibling_relationship freebase.type_hints.mediator "true"
m.0odd1 type.object.name "Oddville"@en
m.0odd1 common.topic.image en.not|an^iri
"""


class ScriptedGenerator:
    """The only fake of the small model: each question gets the next reply of a queue.

    A reply is a list of candidates, best first, each a text and its log-probability, or an error
    that is raised instead.
    """

    name = "scripted"
    suggested_relations = 0

    def __init__(self, *replies: Sequence[tuple[str, float]] | BaseException) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []

    @property
    def questions(self) -> list[str]:
        """The questions that were written for, in order."""
        return [request.question for request in self.requests]

    def generate(
        self,
        requests: Sequence[Request],
        n: int = 5,
        *,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        self.requests += requests
        return [self._reply()[:n] for _ in requests]

    def over(self, graph: Graph) -> "ScriptedGenerator":
        return self

    def _reply(self) -> list[Candidate]:
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return [Candidate(text, logprob, len(text.split())) for text, logprob in reply]


@pytest.fixture(scope="session")
def scripted() -> type[ScriptedGenerator]:
    """The class of scripted models."""
    return ScriptedGenerator


class ScriptedChat:
    """The only fake of the general model: each call gets the next reply of a queue.

    A reply is a text, whose tokens are its words, a whole `Reply`, or an error that is raised.
    Alternatively `reply_to` makes each reply from its conversation, for calls that threads make.
    """

    name = "scripted chat"

    def __init__(
        self,
        *replies: str | Reply | Exception,
        reply_to: Callable[[Sequence[Message]], str | Reply | Exception] | None = None,
    ) -> None:
        self.replies, self._reply_to = list(replies), reply_to
        self.conversations: list[list[Message]] = []
        self.sampling: list[tuple[float, int | None]] = []
        """The temperature and seed of each call, in order."""

    @property
    def prompts(self) -> list[str]:
        """The last message of each conversation, in order."""
        return [messages[-1].content for messages in self.conversations]

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Reply:
        self.conversations.append(list(messages))
        self.sampling.append((temperature, seed))
        reply = self.replies.pop(0) if self._reply_to is None else self._reply_to(messages)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Reply):
            return reply
        asked = sum(len(message.content.split()) for message in messages)
        return Reply(reply, Usage(calls=1, input_tokens=asked, output_tokens=len(reply.split())))


@pytest.fixture(scope="session")
def scripted_chat() -> type[ScriptedChat]:
    """The class of scripted general models."""
    return ScriptedChat


@pytest.fixture(scope="session", autouse=True)
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ignore the user's settings, and use one cache for what is made once, as the demo store is."""
    with pytest.MonkeyPatch.context() as patch:
        # KBQA_PRECISION stays, so that the whole suite can be run in either format.
        for name in [one for one in os.environ if one.startswith("KBQA_")]:
            if name != "KBQA_PRECISION":
                patch.delenv(name)
        patch.setenv("KBQA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def float32() -> Iterator[None]:
    """Compute in float32, for exact results: processors differ in whether bf16 is faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KBQA_PRECISION", "float32")
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data beside the checkout; without it, tests that need it are skipped."""
    directory = Path(__file__).parents[2] / "shared"
    if not directory.is_dir():
        pytest.skip(f"needs the shared data in {directory}")
    return directory


@pytest.fixture(scope="session")
def small_dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`SMALL_GRAPH` as a dump in Freebase's format."""
    path = tmp_path_factory.mktemp("dump") / "small.nt"
    lines = []
    for line in SMALL_GRAPH.strip().splitlines():
        subject, relation, value = line.split(" ", 2)
        end = value if value.startswith('"') else f"<{NS}{value}>"
        lines.append(f"<{NS}{subject}>\t<{NS}{relation}>\t{end}\t.\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def small_store(small_dump: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished store of `SMALL_GRAPH`; no test writes to it."""
    directory = tmp_path_factory.mktemp("stores") / "small"
    load_freebase([small_dump], directory, rules=profile("full"))
    return directory


@pytest.fixture(scope="session")
def demo_store() -> Path:
    """The store of the demo graph, in the cache of this run."""
    return demo_store_directory()


@pytest.fixture(scope="session")
def small_endpoint(small_store: Path) -> Iterator[str]:
    """The URL of a real oxigraph server over `small_store`."""
    with _or_skip(oxigraph_server(small_store / "graph", timeout_s=5)) as url:
        yield url


@pytest.fixture(scope="module", params=["store", "endpoint"])
def graph(
    request: pytest.FixtureRequest, small_store: Path, small_endpoint: str
) -> Iterator[Graph]:
    """`SMALL_GRAPH`, as a store and as an endpoint."""
    is_store = request.param == "store"
    opened = open_graph(small_store) if is_store else open_graph(endpoint=small_endpoint)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def virtuoso_endpoint(small_dump: Path) -> Iterator[str]:
    """The URL of a real Virtuoso over `SMALL_GRAPH`."""
    with _or_skip(virtuoso_server([small_dump])) as url:
        yield url


@pytest.fixture
def empty_endpoint(tmp_path: Path) -> Iterator[str]:
    """The URL of a real oxigraph server that holds nothing."""
    Store(tmp_path / "empty")
    with _or_skip(oxigraph_server(tmp_path / "empty", timeout_s=5)) as url:
        yield url


@contextmanager
def _or_skip(server: AbstractContextManager[str]) -> Iterator[str]:
    with ExitStack() as stack:
        try:
            url = stack.enter_context(server)
        except MissingServer as error:
            pytest.skip(str(error))
        yield url
