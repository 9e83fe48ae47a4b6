from pathlib import Path

from kbqa.kb.graph import name_terms
from kbqa.kb.open import open_graph
from kbqa.sparql.terms import LiteralTerm


def test_terms_are_named_by_label_text_or_id(small_store: Path) -> None:
    graph = open_graph(small_store)
    terms = ["m.03_r3", "m.0pop1", LiteralTerm("480"), LiteralTerm("m.03_r3"), "en.not|an^iri"]
    assert name_terms(graph, terms) == {
        "m.03_r3": "Jamaica",
        "m.0pop1": "m.0pop1",
        LiteralTerm("480"): "480",
        LiteralTerm("m.03_r3"): "m.03_r3",
        "en.not|an^iri": "en.not|an^iri",
    }
    graph.close()
