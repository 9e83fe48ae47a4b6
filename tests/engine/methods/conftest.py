"""Ask one question of a method over the small graph, with a scripted model, embedder or chance.

What tests of TRACE stand on.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from trace_script import AskTrace

from kbqa.engine.answer import Answer
from kbqa.engine.asked import ChooserName
from kbqa.engine.chat.model import Message
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.engine import Engine
from kbqa.engine.methods import Resources, make_method
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity

BIEBER = Entity("Justin Bieber", "m.06w2sn5")


@pytest.fixture(scope="module")
def small_graph(small_store: Path) -> Iterator[Graph]:
    with open_graph(small_store) as opened:
        yield opened


@pytest.fixture
def ask_by(small_graph: Graph, scripted_chat: Any) -> Callable[..., tuple[Answer, Any]]:
    """Return the answer, and the model, whose replies are made from the last prompt."""

    def asking(
        method: str,
        reply: Callable[[str], str] | None,
        *,
        question: str = "who is justin bieber's brother?",
        topics: Sequence[Entity] = (BIEBER,),
        budget: int | None = None,
        chooser: ChooserName | None = None,
        **settings: object,
    ) -> tuple[Answer, Any]:
        def reply_to(messages: Sequence[Message]) -> str:
            assert reply is not None
            return reply(messages[-1].content)

        chat = scripted_chat(reply_to=reply_to)
        resources = Resources(
            small_graph,
            open_chat=lambda: None if reply is None else chat,
            chooser=chooser,
            call_budget=budget,
        )
        with Engine.over(resources, make_method(resources, method, settings)) as engine:
            return engine.ask(question, topics), chat

    return asking


@pytest.fixture(scope="session")
def ask_trace(embedder: Embedder, scripted_chat: Any) -> AskTrace:
    """Ask a question of TRACE, which cuts long lists of relations by the embedder."""
    return AskTrace(scripted_chat)


@pytest.fixture(scope="module")
def uganda(demo: Graph) -> Entity:
    """Its mid is minted, so it is looked up."""
    query = 'SELECT ?x { ?x ns:type.object.name "Uganda"@en . ?x ns:location.country.capital ?y }'
    [[mid]] = demo.select(query).rows
    assert isinstance(mid, str)
    return Entity("Uganda", mid)
