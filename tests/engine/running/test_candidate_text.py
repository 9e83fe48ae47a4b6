"""What a judge reads of a candidate."""

import pytest

from kbqa.engine.running.candidate_text import candidate_text, path_words
from kbqa.kb.graph import Graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.forms import read_crp


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Kenya -> location.country.capital", "Kenya: country capital"),
        (
            "Kenya <- location.country.continent -> location.country.capital",
            "Kenya: country continent of > country capital",
        ),
        (
            "Kenya -> a.b.adjoins\n?x -> c.d.currency = Shilling (m.1)\n?x -> e.f.area > 1000",
            "Kenya: b adjoins; d currency Shilling; f area > 1000",
        ),
        (
            "Kenya -> a.b.members -> a.b.member\n?1 -> a.b.title = President",
            "Kenya: b members > b member; step 1 b title President",
        ),
    ],
)
def test_a_path_in_few_words(text: str, words: str) -> None:
    assert path_words(read_crp(text).crp) == words


def test_what_was_found_is_told(demo: Graph) -> None:
    crp = read_crp("Kenya -> location.country.capital").crp
    text = candidate_text(crp, "1", ["Nairobi"], GraphSchema(demo))
    assert text.startswith("Kenya: country capital = 1")
    assert text.endswith(": Nairobi")
