import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.kb.commands.load import entities, load_freebase
from kbqa.kb.layout import read_manifest
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import FREEBASE_NS

DUMP = "".join(
    f"<{FREEBASE_NS}{subject}>\t<{FREEBASE_NS}{predicate}>\t{object_}\t.\n"
    for subject, predicate, object_ in [
        ("m.0k", "type.object.name", '"Kenya"@en'),
        ("m.0k", "common.topic.alias", '"Republic of Kenya"@en'),
        ("m.0k", "type.object.type", f"<{FREEBASE_NS}location.country>"),
        ("m.0k", "location.country.capital", f"<{FREEBASE_NS}m.0n>"),
        ("m.0n", "type.object.name", '"Nairobi"@en'),
    ]
)


def run(*arguments: str | Path, stdin: str | None = None, fails: bool = False) -> Result:
    command = load_freebase if arguments[0] == "load-freebase" else entities
    result = CliRunner().invoke(command, [str(a) for a in arguments[1:]], input=stdin)
    assert (result.exit_code != 0) == fails, result.output
    return result


@pytest.fixture
def store(tmp_path: Path) -> Path:
    run("load-freebase", "-", "--store", tmp_path / "store", stdin=DUMP)
    return tmp_path / "store"


def test_loading_ends_with_a_summary(tmp_path: Path) -> None:
    dump = tmp_path / "dump.nt"
    dump.write_text(DUMP + "nonsense\n")
    result = run("load-freebase", dump, "--store", tmp_path / "store")
    first, *rest = result.stdout.splitlines()
    assert first == f"{tmp_path / 'store'}: 5 triples from 6 lines"
    assert rest[0].startswith("  rejected 1: ")
    assert rest[1] == f"  the rejected lines are in {tmp_path / 'store' / 'rejects.tsv'}"
    assert rest[2].startswith("  2 entities, 3 names and aliases, 0 properties")
    assert result.stderr == ""


def test_a_store_s_folder_may_have_any_name(tmp_path: Path) -> None:
    run("load-freebase", "-", "--store", tmp_path / "a[2]*?", stdin=DUMP)
    assert (tmp_path / "a[2]*?" / "manifest.json").exists()


def test_the_summary_as_json_is_the_manifest_s(tmp_path: Path) -> None:
    result = run("load-freebase", "-", "--store", tmp_path / "store", "--json", stdin=DUMP)
    fields = json.loads(result.stdout)
    assert fields["directory"] == str(tmp_path / "store")
    assert fields["kept"] == read_manifest(tmp_path / "store").summary.kept == 5


def test_progress_goes_to_stderr(tmp_path: Path) -> None:
    dump = tmp_path / "dump.nt"
    dump.write_text(DUMP)
    result = run("load-freebase", dump, "--store", tmp_path / "store", "--progress", "--json")
    assert "writing names, schema and statistics: 100%" in result.stderr
    json.loads(result.stdout)


def test_a_finished_store_needs_overwrite(store: Path) -> None:
    result = run("load-freebase", "-", "--store", store, stdin=DUMP, fails=True)
    assert isinstance(result.exception, InputError)
    run("load-freebase", "-", "--store", store, "--overwrite", stdin=DUMP)


def test_entities_are_listed_best_first(store: Path) -> None:
    result = run("entities", "republic of kenya", "--store", store)
    assert result.stdout == (
        "m.0k         Kenya (as 'Republic of Kenya')  [location.country]  4 triples\n"
    )


def test_entities_as_json(store: Path) -> None:
    assert json.loads(run("entities", "kenia", "--store", store, "--json").stdout) == [
        {
            "mid": "m.0k",
            "name": "Kenya",
            "matched": "Kenya",
            "is_alias": False,
            "popularity": 4,
            "score": 0.8,
            "types": ["location.country"],
        }
    ]


def test_an_unknown_name_lists_nothing(store: Path) -> None:
    result = run("entities", "Zanzibar", "--store", store)
    assert result.stdout == ""
    assert "no entity in the graph has a name like 'Zanzibar'" in result.stderr
    assert run("entities", "Zanzibar", "--store", store, "--json").stdout == "[]\n"


def test_an_unknown_name_at_an_endpoint_says_that_typing_errors_need_a_store(
    small_endpoint: str,
) -> None:
    result = run("entities", "Jamaeca", "--endpoint", small_endpoint)
    assert "To search with typing errors, load a store." in result.stderr
