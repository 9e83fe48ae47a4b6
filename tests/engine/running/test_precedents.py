"""Training questions vote for the paths that answered them."""

from pathlib import Path

import pytest

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.running.judge import PRECEDENTS_FILE, Precedents, last_relation, without_names
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import ModelError
from kbqa.sparql.forms import read_crp

CAPITAL = "Kenya -> location.country.capital"
MONEY = "Kenya -> location.country.currency_used"
ANSWERED = [
    ("what is the capital of Peru?", "Peru -> location.country.capital"),
    ("which city is Chile's capital?", "Chile -> location.country.capital"),
    ("which money is used in Ghana?", "Ghana -> location.country.currency_used"),
]


def _crp(text: str) -> Crp:
    return read_crp(text).crp


@pytest.fixture
def schema(demo: Graph) -> GraphSchema:
    return GraphSchema(demo)


@pytest.fixture
def precedents(schema: GraphSchema) -> Precedents:
    answered = [(question, _crp(text)) for question, text in ANSWERED]
    return Precedents.of(Embedder.load(), schema, answered)


def test_similar_questions_vote_for_their_last_relation(
    precedents: Precedents, schema: GraphSchema
) -> None:
    longer = "Kenya -> location.location.adjoin_s -> location.adjoining_relationship.adjoins"
    crps = [CAPITAL, MONEY, f"{longer} -> location.country.capital", longer]
    capital, money, of_neighbours, neighbours = precedents.votes(
        "what is the capital of Kenya?", list(map(_crp, crps)), schema
    )
    assert capital == of_neighbours > 0.9 > 0.1 > money > 0 == neighbours
    assert capital + money == pytest.approx(1)


def test_nothing_to_vote_for(precedents: Precedents, schema: GraphSchema) -> None:
    assert precedents.votes("what is the capital of Kenya?", [], schema) == []
    nobody = Precedents.of(Embedder.load(), schema, [])
    assert nobody.votes("what is the capital of Kenya?", [_crp(CAPITAL)], schema) == [0]


def test_both_names_of_an_edge_are_one_relation(schema: GraphSchema) -> None:
    within, back = (
        _crp(f"Nairobi {hop}")
        for hop in ("-> location.location.containedby", "<- location.location.contains")
    )
    assert last_relation(within, schema) == last_relation(back, schema)
    capital_of = _crp("Nairobi <- location.country.capital")
    assert last_relation(capital_of, schema) == "^location.country.capital"


@pytest.mark.parametrize(
    ("question", "crp", "expected"),
    [
        ("who leads KENYA now?", "Kenya -> people.person.profession", "who leads it now?"),
        ("what is in Kenyatta?", "Kenya -> people.person.profession", "what is in Kenyatta?"),
        (
            "which country borders Kenya?",
            "Kenya -> location.location.adjoins\n?x -> common.topic.notable_types = country",
            "which country borders it?",
        ),
    ],
)
def test_names_are_left_out(question: str, crp: str, expected: str) -> None:
    assert without_names(question, [_crp(crp)]) == expected


def test_precedents_are_saved(precedents: Precedents, schema: GraphSchema, tmp_path: Path) -> None:
    precedents.save(tmp_path)
    loaded = Precedents.load(Embedder.load(), tmp_path)
    question, crps = "what is the capital of Kenya?", [_crp(CAPITAL), _crp(MONEY)]
    assert loaded.votes(question, crps, schema) == precedents.votes(question, crps, schema)
    assert len(loaded.revision) == 8


@pytest.mark.parametrize("content", [None, b"", b"{}" * 20])
def test_a_file_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / PRECEDENTS_FILE).write_bytes(content)
    with pytest.raises(ModelError, match=r"no precedents .*kbqa train-judge"):
        Precedents.load(Embedder.load(), tmp_path)
