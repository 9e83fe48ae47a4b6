"""False facts leave what is true as it is."""

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.make.distractors import main

_NS = "http://rdf.freebase.com/ns/"
_SCHEMA = """
place.capital type.property.schema place
place.capital type.property.expected_type town
place.capital type.property.reverse_property town.capital_of
town.capital_of type.property.schema town
town.capital_of type.property.expected_type place
town.capital_of type.property.reverse_property place.capital
place.ruled type.property.schema place
place.ruled type.property.expected_type rule
rule freebase.type_hints.mediator "true"
rule.ruler type.property.schema rule
rule.ruler type.property.expected_type person
place.area type.property.schema place
place.area type.property.expected_type type.float
"""


def _facts() -> list[str]:
    yields = [line for line in _SCHEMA.splitlines() if line]
    for at in range(20):
        yields += [f"m.0p{at} type.object.type place", f"m.0t{at} type.object.type town"]
        yields += [f"m.0q{at} type.object.type person"]
    yields += ["m.0p0 place.capital m.0t0", "m.0t0 town.capital_of m.0p0"]
    yields += ["m.0p1 place.ruled m.0r1", "m.0r1 rule.ruler m.0q1", 'm.0p1 place.area "12.5"']
    return yields


def _write(path: Path, facts: list[str]) -> Path:
    def end(text: str) -> str:
        return text if text.startswith('"') else f"<{_NS}{text}>"

    lines = ("\t".join((*map(end, fact.split()), ".")) + "\n" for fact in facts)
    path.write_bytes(gzip.compress("".join(lines).encode()))
    return path


def _read(path: Path) -> list[list[str]]:
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return [[part.strip("<>").removeprefix(_NS) for part in line.split("\t")[:3]] for line in lines]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return _write(tmp_path / "graph.nt.gz", _facts())


def _make(graph: Path, name: str, *options: str) -> Path:
    output = graph.with_name(name)
    result = CliRunner().invoke(main, [str(graph), str(output), *options])
    assert result.exit_code == 0, result.output
    assert "60 typed entities" in result.output
    return output


def test_false_facts_touch_nothing_that_is_there(graph: Path) -> None:
    made = _read(_make(graph, "all.nt.gz", "--share", "1"))
    assert {property_ for _, property_, _ in made} == {
        "place.capital",
        "town.capital_of",
        "place.ruled",
        "rule.ruler",
        "place.area",
    }
    assert not any(s == "m.0p0" and p == "place.capital" for s, p, _ in made)
    assert not any(o == "m.0t0" and p == "place.capital" for _, p, o in made)
    assert not any(s == "m.0p1" and p in ("place.ruled", "place.area") for s, p, _ in made)
    assert not any(o == "m.0q1" for _, p, o in made if p == "rule.ruler")
    forwards = {(s, o) for s, p, o in made if p == "place.capital"}
    assert forwards == {(o, s) for s, p, o in made if p == "town.capital_of"}


def test_a_mediator_gets_the_properties_of_one(graph: Path) -> None:
    made = _read(_make(graph, "all.nt.gz", "--share", "1"))
    nodes = [o for _, p, o in made if p == "place.ruled"]
    assert len(nodes) == len(set(nodes)) == 19
    assert all(node.startswith("m.y") for node in nodes)
    assert {s for s, p, _ in made if p == "rule.ruler"} <= set(nodes)


def test_equal_seeds_give_equal_bytes(graph: Path) -> None:
    one, two = (_make(graph, f"{n}.nt.gz", "--share", "0.5") for n in (1, 2))
    assert one.read_bytes() == two.read_bytes()
    other = _make(graph, "3.nt.gz", "--share", "0.5", "--seed", "8")
    assert other.read_bytes() != one.read_bytes()
    assert 0 < len(_read(one)) < len(_read(_make(graph, "4.nt.gz", "--share", "1")))
