import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kbqa.engine.files import read_rows
from tools.convert.published import main

NAMES = {"m.0a": "Alpha", "m.0b": "Beta", "m.0c": None, "m.0d": "Delta"}
PATH = "Main Path:\n Alpha -[a , b]-> ?y\n ?y -[c , d]-> ?x"


def run(folder: Path, rows: Sequence[Mapping[str, object]]) -> tuple[str, list[dict[str, Any]]]:
    """Run the tool on these rows; return what it prints and the differences."""
    file, differences = folder / "some.jsonl", folder / "differences.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    done = CliRunner().invoke(main, [str(file), "--differences", str(differences)])
    assert done.exit_code == 0, done.output
    return done.stdout, [row for _, row in read_rows(differences)]


def row(where: str, published: str | None) -> dict[str, object]:
    return {
        "id": "1",
        "question": "what?",
        "sparql": f"SELECT DISTINCT ?x {{ ns:m.0a ns:a.b ?y . ?y ns:c.d ?x . {where} }}",
        "entities_in_sparql": [{"mid": mid, "name": name} for mid, name in NAMES.items()],
        "crp_routerkgqa": published,
    }


@pytest.mark.parametrize(
    ("where", "published", "difference"),
    [
        pytest.param("", PATH, None, id="same"),
        pytest.param(
            "?y ns:e.f ns:m.0b . ?x ns:g.h ?c . ?c ns:i.j ns:m.0d",
            f"{PATH}\nEntity Restrictions:\n ?x -[g , h]-> ?c\n ?c -[i , j]-> Delta\n"
            " ?y -[e , f]-> Beta",
            None,
            id="constraints in any order",
        ),
        pytest.param(
            "?x ns:g.h ns:m.0c",
            f"{PATH}\nEntity Restrictions:\n ?x -[g , h]-> Gamma",
            None,
            id="unknown name",
        ),
        pytest.param(
            "{ ?x ns:g.h ns:m.0b } UNION { ?x ns:i.j ns:m.0d }",
            f"{PATH}\nEntity Restrictions:\n ?x -[g , h]-> Beta",
            None,
            id="the first of alternatives",
        ),
        pytest.param(
            "?x ns:g.h ns:m.0b",
            f"{PATH}\nEntity Restrictions:\n ?x -[g , h]-> Delta",
            "name of an entity",
            id="name",
        ),
        pytest.param("", PATH.replace("Alpha", "Beta"), "name of an entity", id="topic"),
        pytest.param("", PATH[: PATH.rindex("\n")], "published path stops short", id="short"),
        pytest.param("", PATH.replace("[c , d]", "[R[c , d]]"), "main path", id="direction"),
        pytest.param(
            "?x ns:type.object.type ns:people.person", PATH, "published lacks a type", id="type"
        ),
        pytest.param("?x ns:g.h ns:m.0b", PATH, "published lacks a constraint", id="lacking"),
        pytest.param(
            "",
            f"{PATH}\nEntity Restrictions:\n ?x -[g , h]-> Beta",
            "converted lacks a constraint",
            id="one too many",
        ),
        pytest.param(
            "?x ns:g.h ns:m.0b",
            f"{PATH}\nEntity Restrictions:\n ?y -[g , h]-> Beta",
            "entity constraints",
            id="other position",
        ),
        pytest.param("{ SELECT ?y { ?y ns:e.f ?z } }", PATH, "refused: sub-select", id="refused"),
        pytest.param("FILTER (", PATH, "refused: QuerySyntaxError", id="no query"),
        pytest.param("", "Main Path:", "published cannot be read", id="unreadable"),
    ],
)
def test_classes_of_differences(
    where: str, published: str, difference: str | None, tmp_path: Path
) -> None:
    printed, differences = run(tmp_path, [row(where, published), row("", None)])
    assert [found["class"] for found in differences] == ([difference] if difference else [])
    assert f"{int(difference is None)} of 1\n" in printed
    assert ("agreeing on ids without a known name: m.0c" in printed) == ("m.0c" in where)


def test_alternatives_on_the_way_count_by_the_first(tmp_path: Path) -> None:
    union = (
        "SELECT ?x { { ns:m.0a ns:a.b ?y . ?y ns:c.d ?x } UNION { ns:m.0a ns:q.r ?x } "
        "?x ns:g.h ns:m.0b }"
    )
    published = f"{PATH}\nEntity Restrictions:\n ?x -[g , h]-> Beta"
    printed, _ = run(tmp_path, [{**row("", published), "sparql": union}])
    assert "1 of 1\n" in printed


def test_the_shared_data_agrees(shared: Path, tmp_path: Path) -> None:
    rows = [
        found
        for name, step in (("cwq.test-half", 100), ("webqsp.test-half", 200))
        for _, found in islice(read_rows(shared / f"data/qa/{name}.jsonl.gz"), 1, None, step)
    ]
    assert len(rows) >= 20
    _, differences = run(tmp_path, rows)
    assert differences == []
