"""Counts, yes/no questions, ranks, negation and classes: the same on every engine."""

import shutil
from collections.abc import Iterator

import pytest

from kbqa.kb.graph import Graph
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.forms import parse_crp, render_crp
from kbqa.sparql.terms import FREEBASE_NS, LiteralTerm
from tools.convert.fidelity import ENGINES, open_engines
from tools.graph_servers import VIRTUOSO_IS_MISSING

# A continent with five countries, three of them with the same currency, two equally large.
FACTS = """
m.0land location.contains m.0a
m.0land location.contains m.0b
m.0land location.contains m.0c
m.0land location.contains m.0d
m.0land location.contains m.0e
m.0a type.object.type place.country
m.0b type.object.type place.country
m.0c type.object.type place.country
m.0d type.object.type place.country
m.0f type.object.type place.country
m.0a place.currency m.0euro
m.0b place.currency m.0euro
m.0c place.currency m.0euro
m.0d place.currency m.0pound
m.0d place.currency m.0euro
m.0e place.currency m.0pound
m.0a place.area "30"
m.0b place.area "500"
m.0c place.area "500.0"
m.0d place.area "7"
m.0d place.area "400"
m.0f place.area "9000"
m.0a place.borders m.0b
m.0a place.borders m.0c
m.0a place.borders m.0d
m.0b place.borders m.0a
m.0c place.borders m.0a
m.0c place.borders m.0b
m.0e place.capital m.0e1
m.0e place.capital m.0e2
m.0a place.founded "1990"
"""
LAND = "m.0land -> location.contains"
COUNTRY = "ns:place.country <- type.object.type"


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Graph]]:
    dump = tmp_path_factory.mktemp("questions") / "graph.nt"
    lines = []
    for line in FACTS.split("\n"):
        if line:
            subject, relation, object_ = line.split()
            end = object_ if object_.startswith('"') else f"<{FREEBASE_NS}{object_}>"
            lines.append(f"<{FREEBASE_NS}{subject}>\t<{FREEBASE_NS}{relation}>\t{end}\t.\n")
    dump.write_text("".join(lines))
    engines = [e for e in ENGINES if e != "virtuoso" or shutil.which("virtuoso-t")]
    with open_engines(engines, dump) as opened:
        yield opened


def found(graph: Graph, text: str) -> str:
    """Run a path; return its answers, its count, or yes or no."""
    reading = parse_crp(text)
    assert not reading.problems
    assert parse_crp(render_crp(reading.crp)).crp == reading.crp
    query = compile_crp(reading.crp)
    if reading.crp.form == "ask":
        return "yes" if graph.ask(query) else "no"
    terms = [row[0] for row in graph.select(query).rows]
    texts = [t.text if isinstance(t, LiteralTerm) else t for t in terms if t is not None]
    if reading.crp.value is not None:
        return f"{float(*texts):g}"
    return " ".join(sorted(text.removeprefix("m.0") for text in texts))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"{LAND}\ncount", "5", id="count"),
        pytest.param(f"{LAND} -> place.currency\ncount", "2", id="count of distinct nodes"),
        pytest.param(f"{LAND} -> place.currency\ncount bindings", "6", id="count of bindings"),
        pytest.param(f"{LAND}\n?x -> place.area > 9000\ncount", "0", id="count of none"),
        pytest.param(f"{LAND}\n?x no -> place.currency = m.0euro\ncount", "1", id="count of not"),
        pytest.param(f"{LAND}\n?x -> place.area ?a\nsum ?a", "1430", id="sum of the largest"),
        pytest.param(f"{LAND}\n?x -> place.area ?a\naverage ?a", "357.5", id="average of them"),
        pytest.param(f"{LAND}\n?x -> place.area ?a\ndifference ?a", "470", id="difference"),
        pytest.param(
            f"{LAND} -> place.area\naverage bindings ?x", "287.4", id="average of bindings"
        ),
        pytest.param(
            f"{LAND} (-> place.area | -> place.currency)\nsum bindings ?x", "1437", id="of numbers"
        ),
        pytest.param(
            f"{COUNTRY}\n?x {{= m.0a | = m.0b}}\n?x -> place.area ?a\nsum ?a", "530", id="of two"
        ),
        pytest.param("m.0e -> place.capital\n?x = m.0e2\nask", "yes", id="yes"),
        pytest.param("m.0e -> place.capital\n?x = m.0a\nask", "no", id="no"),
        pytest.param("m.0a -> place.founded\n?x < 1991\nask", "yes", id="yes, by a value"),
        pytest.param("m.0a -> place.founded\n?x < 1990\nask", "no", id="no, by a value"),
        pytest.param(
            "m.0b -> place.area\nm.0a -> place.area ?a\n?x > ?a\nask", "yes", id="larger than"
        ),
        pytest.param(
            "m.0a -> place.area\nm.0b -> place.area ?a\n?x > ?a\nask", "no", id="not larger than"
        ),
        pytest.param(f"{LAND}\n?x = m.0b\nlargest ?x -> place.area\nask", "yes", id="the largest?"),
        pytest.param(
            f"{LAND}\n?x = m.0c\nlargest ?x -> place.area\nask", "no", id="the largest? by id, no"
        ),
        pytest.param(
            f"{LAND}\n?x = m.0c\nlargest with ties ?x -> place.area\nask",
            "yes",
            id="the largest? with ties",
        ),
        pytest.param(f"{LAND}\nlargest ?x -> place.area", "b", id="the largest, by id"),
        pytest.param(f"{LAND}\nlargest with ties ?x -> place.area", "b c", id="all the largest"),
        pytest.param(
            f"{LAND}\nlargest 1 after 1 with ties ?x -> place.area", "d", id="the second largest"
        ),
        pytest.param(f"{LAND}\nlargest 1 after 1 ?x -> place.area", "c", id="second, by id"),
        pytest.param(f"{LAND}\nlargest 2 with ties ?x -> place.area", "b c d", id="two places"),
        pytest.param(f"{LAND}\nsmallest with ties ?x -> place.area", "d", id="the smallest"),
        pytest.param(f"{LAND}\nmost ?x -> place.borders", "a", id="the most"),
        pytest.param(f"{LAND}\nmost 1 after 1 ?x -> place.borders", "c", id="the second most"),
        pytest.param(f"{LAND}\nfewest with ties ?x -> place.borders", "b", id="the fewest"),
        pytest.param(f"{LAND}\nmost with ties ?x -> place.currency", "d", id="the most, with ties"),
        pytest.param(
            f"{LAND} -> place.currency\nlargest with ties ?1 -> place.area", "euro", id="inner node"
        ),
        pytest.param(
            f"{LAND} -> place.currency\nsmallest with ties ?1 -> place.area",
            "euro pound",
            id="of an inner node, with ties",
        ),
        pytest.param(f"{COUNTRY}\nlargest ?x -> place.area", "f", id="the largest of a class"),
        pytest.param(
            f"{COUNTRY}\n?x {{= m.0a | = m.0d}}\nlargest ?x -> place.area", "d", id="of two"
        ),
        pytest.param(f"{LAND}\n?x no -> place.borders", "d e", id="without any"),
        pytest.param(f"{LAND}\n?x != m.0a\n?x -> place.currency = m.0euro", "b c d", id="not this"),
        pytest.param(
            "m.0a <- place.borders\n?x <- place.borders = m.0a",
            "b c",
            id="of two topics, backwards",
        ),
        pytest.param(f"{COUNTRY}\n?x -> place.area = 500", "b c", id="a value as the end"),
        pytest.param(
            f"{LAND}\n?x -> type.object.type = ns:place.country\n?x -> place.currency = m.0pound",
            "d",
            id="a class as a constraint",
        ),
    ],
)
def test_found(graphs: dict[str, Graph], engine: str, text: str, expected: str) -> None:
    if engine not in graphs:
        pytest.skip(VIRTUOSO_IS_MISSING)
    assert found(graphs[engine], text) == expected
