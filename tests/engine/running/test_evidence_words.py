"""Tests of the words of a question that the path of its answer says nothing about."""

import gzip
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.linking.linker import Linker
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.questions.operators import find_unaccounted
from kbqa.engine.running.evidence import WordCoverage
from kbqa.kb.graph import Graph, name_terms
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.kb.open import open_graph
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.errors import KbqaError
from kbqa.sparql.forms import parse_crp

_TODAY = "2015-08-10"
"""The day that filters of CWQ take for today; no question names it."""


@pytest.fixture(scope="module")
def coverage(embedder: Embedder) -> WordCoverage:
    return WordCoverage(embedder, LinkingModel.load())


@pytest.mark.parametrize(
    ("question", "path", "left"),
    [
        (
            "which landlocked countries are in Africa?",
            "Africa <- base.locations.countries.continent",
            ("landlocked",),
        ),
        ("what is the capital of Kenya?", "Kenya -> location.country.capital", ()),
        ("tell me the captial of Kenya pls", "Kenya -> location.country.capital", ()),
        ("what money do they use in Kenya", "Kenya -> location.country.currency_used", ()),
        (
            "what dangerous languages are spoken in Kenya",
            "Kenya -> location.country.languages_spoken",
            ("dangerous",),
        ),
        # Nothing is known of the words of other languages.
        ("was ist die Hauptstadt von Kenya und wo ist sie", "Kenya -> location.country.area", ()),
    ],
)
def test_a_word_that_the_path_passes_over_is_left_over(
    coverage: WordCoverage, question: str, path: str, left: tuple[str, ...]
) -> None:
    assert coverage.left_over(question, parse_crp(path).crp, {}) == left


def test_an_alias_in_the_question_accounts_for_its_words(coverage: WordCoverage) -> None:
    crp = Crp(Entity("United States of America", "m.us"), parse_crp("x -> a.b.capital").crp.path)
    assert coverage.left_over("capital of the Yankees?", crp, {"m.us": "Yankees"}) == ()


def test_few_right_answers_to_everyday_questions_leave_a_word_over(
    coverage: WordCoverage, demo: Graph, shared: Path
) -> None:
    rows = _rows(shared / "data" / "qa" / "everyday.dev.jsonl")
    linker = Linker(demo, demo.names())
    read = [(row["question"], *found) for row in rows if (found := _read(row, demo, linker))]
    left = [text for text, crp, mentions in read if coverage.left_over(text, crp, mentions)]
    print(f"{len(left)} of {len(read)} questions of everyday.dev have a word left over")
    assert len(read) > 50
    assert len(left) <= 0.15 * len(read), left


@pytest.mark.slow
def test_a_condition_that_is_left_out_of_a_path_leaves_its_words_over(
    coverage: WordCoverage, shared: Path, tmp_path: Path
) -> None:
    load_freebase(
        [shared / "data" / "freebase-slice.nt.gz"], tmp_path / "slice", rules=profile("full")
    )
    graph, chance = open_graph(tmp_path / "slice"), random.Random(7)
    linker = Linker(graph, graph.names())
    rows = list(_rows(shared / "data" / "qa" / "cwq.dev.jsonl.gz"))
    chance.shuffle(rows)
    noticed = []
    for row in rows:
        found = _read(row, graph, linker)
        if found is None or not (lesser := list(_with_less(found[0]))):
            continue
        question, (crp, mentions), less = row["question"], found, chance.choice(lesser)

        def words(path: Crp, question: str = question, mentions: Any = mentions) -> set[str]:
            left = coverage.left_over(question, path, mentions)
            return {*left, *find_unaccounted(question, path, mentions)}

        noticed.append(bool(words(less) - words(crp)))
        if len(noticed) == 400:
            break
    graph.close()
    share = sum(noticed) / len(noticed)
    print(f"{share:.3f} of {len(noticed)} conditions left out of paths of cwq.dev are noticed")
    assert share > 0.68


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    yield from map(json.loads, text.splitlines())


def _read(row: dict[str, Any], graph: Graph, linker: Linker) -> tuple[Crp, dict[str, str]] | None:
    """Return the gold path of a question with its names and mentions; None if there is none."""
    query = row.get("sparql") or ""
    for number in range(6):  # a/b is a way over a node
        way = rf"\1 \2 ?way{number} . ?way{number} \3 \4"
        query = re.sub(r"(\S+) (\^?ns:[\w.]+)/(\^?ns:[\w./^:]+) (\S+)", way, query, count=1)
    try:
        crp = crp_from_sparql(query)
    except KbqaError:
        return None
    names = name_terms(graph, [each.mid for each in crp.entities() if each.mid is not None])
    crp = crp.with_entities(lambda each: Entity(names.get(each.mid or "", each.name), each.mid))
    return crp, {each.mid: each.mention for each in linker.link(row["question"])}


def _with_less(crp: Crp) -> Iterator[Crp]:
    """Yield a path without each of its conditions, but for those of today's date."""
    for at, condition in enumerate(crp.constraints):
        if _TODAY not in str(condition):
            yield replace(crp, constraints=(*crp.constraints[:at], *crp.constraints[at + 1 :]))
    if crp.order is not None:
        yield replace(crp, order=None)
