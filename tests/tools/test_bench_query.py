from pathlib import Path

from click.testing import CliRunner

from kbqa.kb.loading.load import load_freebase
from kbqa.kb.store import HUB_DEGREE
from kbqa.sparql.terms import NAME, iri
from tools.bench.query import main


def test_every_template_is_measured(tmp_path: Path, made_dump: Path) -> None:
    hub = tmp_path / "hub.nt"
    hub.write_text(
        "".join(
            f"{iri(f'm.0{at}')} {iri('a.b.c')} {iri('m.0hub')} .\n"
            f'{iri(f"m.0{at}")} {iri(NAME)} "{at}"@en .\n'
            for at in range(HUB_DEGREE)
        )
    )
    load_freebase([made_dump, hub], tmp_path / "store")
    told = CliRunner().invoke(main, [str(tmp_path / "store"), "--entities", "50"])
    assert told.exit_code == 0, told.output
    rows = {line[:42].strip(): line[42:].split() for line in told.output.splitlines()[4:]}
    assert {"T1 relations out", "T3 two hops over a mediator, name"} <= set(rows)
    assert float(rows["hub: names, neighbours capped, in"][1]) == HUB_DEGREE
    assert rows["hub: relations in"][1] == "1.0"
    assert [name for name, row in rows.items() if row[-1] not in ("ok", "over")] == []
