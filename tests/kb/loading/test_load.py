import gzip
import hashlib
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyoxigraph import Store
from recorded_progress import RecordedProgress

from kbqa.kb.graph import Schema
from kbqa.kb.layout import SCHEMA_VERSION, DumpFile, StoreLayout, read_manifest
from kbqa.kb.loading.job import LoadSettings, cores
from kbqa.kb.loading.load import emit_shards, load_freebase
from kbqa.kb.loading.rules import FilterRules, profile
from kbqa.kb.names import NameIndex
from kbqa.sparql.errors import DumpError, InputError, StoreError
from kbqa.sparql.terms import FREEBASE_NS

TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"


def triple(subject: str, predicate: str, object_: str) -> str:
    return (
        "\t".join(
            term if term[0] in '<"' else f"<{FREEBASE_NS}{term}>"
            for term in (subject, predicate, object_)
        )
        + "\t.\n"
    )


DUMP = "".join(
    triple(*terms)
    for terms in [
        ("location.country.capital", "type.property.schema", "location.country"),
        ("location.country.capital", "type.object.name", '"Capital"@en'),
        ("location.country.capital", "type.object.name", '"Hauptstadt"@de'),
        ("location.country.capital", "type.property.unique", '"true"'),
        ("people.marriage", "freebase.type_hints.mediator", '"true"'),
        ("location.country", "type.type.instance", "m.019rg5"),
        ("m.019rg5", TYPE, "location.country"),
        ("m.019rg5", "type.object.type", "location.country"),
        ("m.019rg5", LABEL, '"Kenya"@en'),
        ("m.019rg5", "type.object.name", '"Kenya"@en'),
        ("m.019rg5", "type.object.name", '"Kenia"@de'),
        ("m.019rg5", "common.topic.alias", '"Republic of Kenya"@en-GB'),
        ("m.019rg5", "common.topic.alias", r'"\"Home\""'),
        ("m.019rg5", "location.country.capital", "m.05d49"),
        ("m.019rg5", "location.dated_location.date_founded", '"1963-12"^^<http://www.w3.org/2001/XMLSchema#gYearMonth>'),
        ("m.019rg5", "topic_server.population_number", '"047564296"'),
        ("m.05d49", "type.object.name", '"Nairobi"@en'),
    ]
)  # fmt: skip


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.gz"
    path.write_bytes(gzip.compress(DUMP.encode()))
    return path


def triples_of(directory: Path) -> list[str]:
    store = Store.read_only(str(StoreLayout(directory).graph))
    return sorted(str(quad.triple) for quad in store)


def test_a_dump_becomes_a_store_with_names_and_schema(dump: Path, tmp_path: Path) -> None:
    summary = load_freebase([dump], tmp_path / "store")

    assert summary.read == 17
    assert summary.kept == 12 == len(triples_of(tmp_path / "store"))
    assert summary.filtered == {
        "a literal in another language": 2,
        "rdf:type repeats type.object.type": 1,
        "rdfs:label repeats type.object.name": 1,
        "type.type.instance repeats type.object.type": 1,
    }
    assert summary.rejected == {}
    assert (summary.entities, summary.names) == (2, 4)
    assert (summary.properties, summary.hubs) == (1, 0)

    layout = StoreLayout(tmp_path / "store")
    assert summary.size_bytes <= sum(
        path.stat().st_size for path in layout.directory.rglob("*") if path.is_file()
    )
    index = NameIndex.open(layout.names)
    kenya = index.lookup("kenya")[0]
    assert (kenya.mid, kenya.name, kenya.popularity) == ("m.019rg5", "Kenya", 7)
    assert index.lookup("republic of kenya")[0].is_alias
    assert index.lookup("home")[0].matched == '"Home"'
    assert index.lookup("kenia") == []
    schema = Schema.open(layout.schema)
    assert schema.is_mediator("people.marriage")
    capital = schema.property("location.country.capital")
    assert capital is not None
    assert (capital.name, capital.is_unique) == ("Capital", True)


def test_the_store_keeps_lexical_forms(dump: Path, tmp_path: Path) -> None:
    load_freebase([dump], tmp_path / "store")
    text = "\n".join(triples_of(tmp_path / "store"))
    assert '"1963-12"^^<http://www.w3.org/2001/XMLSchema#gYearMonth>' in text
    assert '"047564296"' in text


def test_languages_can_be_chosen(dump: Path, tmp_path: Path) -> None:
    rules = FilterRules("both", languages=("de", "en"))
    summary = load_freebase([dump], tmp_path / "store", rules=rules)
    assert (summary.kept, summary.filtered) == (17, {})
    index = NameIndex.open(StoreLayout(tmp_path / "store").names)
    assert index.lookup("kenia")[0].name == "Kenya"
    assert read_manifest(tmp_path / "store").languages == ("de", "en")


def test_the_full_profile_keeps_everything(dump: Path, tmp_path: Path) -> None:
    summary = load_freebase([dump], tmp_path / "store", rules=profile("full"))
    assert (summary.read, summary.kept) == (17, 17)
    assert read_manifest(tmp_path / "store").languages == ("en",)


def test_the_manifest_tells_what_was_loaded(dump: Path, tmp_path: Path) -> None:
    summary = load_freebase([str(dump)], tmp_path / "store")
    manifest = read_manifest(tmp_path / "store")
    assert manifest.summary == summary
    content = dump.read_bytes()
    assert manifest.dumps == (
        DumpFile(str(dump), len(content), hashlib.sha256(content).hexdigest()),
    )
    assert manifest.rules == profile("qa").to_toml()


DEFECTS = [
    b"\n",
    b"# a note\n",
    b'<a:s>\t<a:p>\t"\xff"\t.\n',
    b"<a:s>\t<a:p>\t\t.\n",
    b'<a:s>\t<a:p>\t"mended"\n',
    b"<a:s>\t<a:p>\t<a:o",
]


@pytest.fixture
def defective(tmp_path: Path) -> Path:
    path = tmp_path / "defective.nt"
    path.write_bytes(DUMP.encode() + b"".join(DEFECTS))
    return path


def test_every_line_is_accounted_for(defective: Path, tmp_path: Path) -> None:
    summary = load_freebase([defective], tmp_path / "store")
    assert (summary.read, summary.kept) == (23, 13)
    assert summary.filtered["blank line"] == summary.filtered["comment"] == 1
    assert summary.mended == {"missing final dot": 1}
    assert sum(summary.rejected.values()) == 3
    assert summary.read == summary.kept + sum(summary.filtered.values()) + 3


def test_rejected_lines_are_set_aside_with_number_and_reason(
    defective: Path, tmp_path: Path
) -> None:
    summary = load_freebase([defective], tmp_path / "store")
    header, *rows = StoreLayout(tmp_path / "store").rejects.read_bytes().splitlines()
    assert header == b"dump\tline\treason\ttext"
    fields = [row.split(b"\t", 3) for row in rows]
    assert [int(number) for _, number, _, _ in fields] == [20, 21, 23]
    assert {dump.decode() for dump, _, _, _ in fields} == {str(defective)}
    assert sorted(reason.decode() for _, _, reason, _ in fields) == sorted(summary.rejected)
    assert [text for _, _, _, text in fields] == [
        DEFECTS[at].removesuffix(b"\n") for at in (2, 3, 5)
    ]


@pytest.mark.parametrize(
    ("defect", "message"),
    [
        pytest.param(DEFECTS[3], r"line 18: empty object\. Without --strict", id="rejected"),
        pytest.param(DEFECTS[4], r"line 18: missing final dot\. Without --strict", id="mended"),
    ],
)
def test_a_strict_load_stops_at_the_first_defect(
    defect: bytes, message: str, tmp_path: Path
) -> None:
    dump = tmp_path / "dump.nt"
    dump.write_bytes(DUMP.encode() + defect + DEFECTS[5])
    with pytest.raises(DumpError, match=message):
        load_freebase([dump], tmp_path / "store", settings=LoadSettings(strict=True))


def test_shards_and_several_dumps_make_one_store(dump: Path, tmp_path: Path) -> None:
    load_freebase([dump], tmp_path / "one")
    lines = DUMP.splitlines(keepends=True)
    random.Random(7).shuffle(lines)
    parts = [tmp_path / "part1", tmp_path / "part2", tmp_path / "part3"]
    for number, part in enumerate(parts):
        part.write_text("".join(lines[number::3]))
    progress = RecordedProgress()
    load_freebase(
        parts, tmp_path / "many", settings=LoadSettings(shard_triples=3), progress=progress
    )

    assert triples_of(tmp_path / "many") == triples_of(tmp_path / "one")
    # A store that keeps up with the reading leaves nothing to load after it.
    waited = ["loading"] if "loading" in progress.stages else []
    assert progress.stages == ["reading", *waited, "compacting", "indexing"]
    _, read, loaded = progress.steps[-1]
    assert (read, loaded) == (sum(part.stat().st_size for part in parts), 12)
    assert progress.expected is not None
    assert (progress.expected.lines, progress.expected.triples) == (17, 12)


def test_a_finished_store_is_replaced_only_when_asked(dump: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    load_freebase([dump], store)
    before = triples_of(store)
    other = tmp_path / "other"
    other.write_text(triple("m.0a", "type.object.name", '"Other"@en'))

    with pytest.raises(InputError, match="--overwrite"):
        load_freebase([other], store)
    assert triples_of(store) == before

    load_freebase([other], store, overwrite=True)
    assert len(triples_of(store)) == 1
    assert NameIndex.open(StoreLayout(store).names).lookup("Kenya") == []


def test_a_failed_load_leaves_the_old_store_and_nothing_of_itself(
    dump: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    load_freebase([dump], store)
    before = sorted(path.name for path in store.iterdir())
    page = tmp_path / "page"
    page.write_text("<!DOCTYPE html>\n")

    with pytest.raises(DumpError, match="web page"):
        load_freebase([dump, page], store, overwrite=True)
    assert sorted(path.name for path in store.iterdir()) == before
    assert len(triples_of(store)) == 12


def test_a_load_interrupted_at_once_leaves_nothing(dump: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_freebase([dump], tmp_path / "store", progress=RecordedProgress(stop_at=0))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"<!DOCTYPE html>\n", id="refused"),
        pytest.param(DUMP.encode().split(b"\n")[5] + b"\n", id="nothing-to-keep"),
        pytest.param(DUMP.encode() + b"<cut\n", id="strict"),
    ],
)
@pytest.mark.parametrize("writes", [load_freebase, emit_shards])
def test_a_failed_load_leaves_no_empty_or_half_folder(
    content: bytes, writes: Callable[..., object], tmp_path: Path
) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(content)
    target = tmp_path / "new" / "folder"
    settings = LoadSettings(strict=True)
    with pytest.raises(DumpError):
        writes([dump], target, settings=settings)
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]

    target.mkdir(parents=True)
    with pytest.raises(DumpError):
        writes([dump], target, settings=settings)
    assert list(target.iterdir()) == []


@pytest.fixture(params=["read-only disk", "no such place"])
def unwritable(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder that even root cannot create."""
    if request.param == "no such place":
        yield Path("/proc/kbqa/store")
        return
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "kbqa-test", str(directory)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"may not mount a disk: {mounted.stderr.strip()}")
    yield directory / "store"
    subprocess.run(["umount", "-l", directory], check=True)


@pytest.mark.parametrize("writes", [load_freebase, emit_shards])
def test_a_store_on_a_read_only_disk_is_no_traceback(
    dump: Path, unwritable: Path, writes: Callable[..., object]
) -> None:
    with pytest.raises(
        DumpError, match=r"cannot be written \(/.*: .*\)\. Check that you may write"
    ):
        writes([dump], unwritable)


@pytest.mark.parametrize(
    ("dumps", "message"),
    [
        pytest.param([], "no dump", id="none"),
        pytest.param(["nowhere.gz"], "no dump at", id="missing"),
    ],
)
def test_bad_arguments_write_nothing(dumps: Sequence[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_freebase(dumps, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_foreign_folder_is_left_alone(dump: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=r"holds letter\.txt"):
        load_freebase([dump], tmp_path / "home", overwrite=True)
    with pytest.raises(InputError, match="is a file"):
        load_freebase([dump], dump)


Files = dict[str, bytes]


def files_below(folder: Path) -> Files:
    """Map each file below a folder to its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("building/thesis.txt", r"building is not .*an unfinished load \(it holds thesis\.txt\)"),
        ("building/lock", r"building is not .*an unfinished load \(it holds lock\)"),
        ("building", "building is not the folder of an unfinished load"),
        ("graph/thesis.txt", r"holds graph, and no manifest\.json that kbqa wrote"),
        ("schema.json", r"holds schema\.json, and no manifest\.json that kbqa wrote"),
        ("manifest.json", r"holds manifest\.json, and no manifest\.json that kbqa wrote"),
        ("rejects.tsv", r"holds rejects\.tsv"),
        ("part-00000.nt.gz", r"holds part-00000\.nt\.gz"),
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("writes", [load_freebase, emit_shards])
def test_a_load_deletes_no_file_of_the_user(
    dump: Path,
    tmp_path: Path,
    file: str,
    message: str,
    overwrite: bool,
    writes: Callable[..., object],
) -> None:
    if writes is emit_shards and file in ("graph/thesis.txt", "schema.json", "manifest.json"):
        message = f"holds {file.partition('/')[0]}. Choose an empty folder"
    project = tmp_path / "project"
    mine = project / file
    mine.parent.mkdir(parents=True)
    mine.write_text('{"name": "mine"}')
    with pytest.raises(InputError, match=message.replace("manifest", "(manifest|shards)")):
        writes([dump], project, overwrite=overwrite)
    assert files_below(project) == {file: b'{"name": "mine"}'}


def test_a_file_of_the_user_in_an_unfinished_load_stays(dump: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with pytest.raises(KeyboardInterrupt):
        progress = RecordedProgress(stop_at=3)
        load_freebase([dump], store, settings=LoadSettings(shard_triples=3), progress=progress)
    mine = StoreLayout(store).building / "thesis.txt"
    mine.write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(InputError, match=r"it holds thesis\.txt"):
            load_freebase([dump], store, overwrite=overwrite)
    assert mine.read_text() == "mine"
    mine.unlink()
    load_freebase([dump], store)
    assert len(triples_of(store)) == 12


@pytest.mark.parametrize("name", ["building", "graph", "names.sqlite", "manifest.json"])
@pytest.mark.parametrize("is_finished", [False, True])
def test_a_link_in_a_store_is_refused_at_once_and_not_followed(
    dump: Path, tmp_path: Path, name: str, is_finished: bool
) -> None:
    store, precious = tmp_path / "store", tmp_path / "precious"
    if is_finished:
        load_freebase([dump], store)
    store.mkdir(exist_ok=True)
    if (store / name).exists():
        (store / name).rename(precious)
    else:
        precious.mkdir()
        (precious / "lock").touch()
        (precious / "letter.txt").write_text("dear")
    (store / name).symlink_to(precious)
    before = files_below(tmp_path)
    with pytest.raises(InputError, match=rf"store/{name} is a link, .* Remove it\."):
        load_freebase([dump], store, overwrite=True)
    assert files_below(tmp_path) == before


def test_a_damaged_manifest_of_kbqa_can_be_replaced(dump: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    load_freebase([dump], store)
    manifest = StoreLayout(store).manifest
    manifest.write_text(manifest.read_text()[:100])
    load_freebase([dump], store, overwrite=True)
    assert len(triples_of(store)) == 12


@pytest.mark.parametrize("writes", [load_freebase, emit_shards])
def test_a_dump_in_the_folder_to_be_written_is_not_replaced(
    dump: Path, tmp_path: Path, writes: Callable[..., object]
) -> None:
    target = tmp_path / "target"
    writes([dump], target)
    (tmp_path / "link").symlink_to(target)
    before = files_below(target)
    rejects = tmp_path / "link" / "rejects.tsv"
    with pytest.raises(InputError, match=r"rejects\.tsv is in .*target, which is to be written"):
        writes([dump, rejects], target, overwrite=True)
    assert files_below(target) == before


def test_a_dump_with_nothing_to_keep_makes_no_store(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_text(triple("m.0a", TYPE, "location.country"))
    with pytest.raises(DumpError, match="none of the 1 lines"):
        load_freebase([dump], tmp_path / "store")
    assert not StoreLayout(tmp_path / "store").is_finished


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("{", "cannot be read", id="broken"),
        pytest.param('{"schema_version": 0}', "version 0", id="old"),
        pytest.param(f'{{"schema_version": {SCHEMA_VERSION}}}', "cannot be read", id="incomplete"),
    ],
)
def test_a_bad_manifest_is_named(tmp_path: Path, content: str, message: str) -> None:
    StoreLayout(tmp_path).manifest.write_text(content)
    with pytest.raises(StoreError, match=message):
        read_manifest(tmp_path)
    with pytest.raises(StoreError, match="there is no store at"):
        read_manifest(tmp_path / "nowhere")


def test_the_beginning_of_the_slice_loads(shared: Path, tmp_path: Path) -> None:
    with gzip.open(shared / "data/freebase-slice.nt.gz") as lines:
        part = tmp_path / "part.nt"
        part.write_bytes(b"".join(next(lines) for _ in range(20_000)))
    summary = load_freebase([part], tmp_path / "store")
    assert summary.read == 20_000
    assert summary.rejected == {}
    assert summary.properties > 800


@pytest.mark.slow
def test_the_whole_slice_loads(shared: Path, tmp_path: Path) -> None:
    data = shared / "data"
    summary = load_freebase(
        [data / "freebase-slice.nt.gz", data / "witness.nt.gz"], tmp_path / "store"
    )
    assert summary.read == 3_909_260
    assert summary.kept == 3_517_542
    assert summary.rejected == {}
    index = NameIndex.open(StoreLayout(tmp_path / "store").names)
    assert index.lookup("Jamaica")[0].mid == "m.03_r3"


def test_the_excerpts_of_real_dumps_load_whole(shared: Path, tmp_path: Path) -> None:
    excerpts = shared / "data/dump-excerpts.nt"
    summary = load_freebase([excerpts], tmp_path / "store", rules=profile("full"))
    # Every line is a triple; four are stated twice.
    assert (summary.read, summary.kept, summary.rejected) == (243, 243, {})
    assert summary.mended == {"Python escape": 2, "missing final dot": 2, "prefixed name": 1}
    assert len(triples_of(tmp_path / "store")) == 239

    filtered = load_freebase([excerpts], tmp_path / "filtered")
    assert filtered.read == filtered.kept + sum(filtered.filtered.values()) == 243


def test_cores_are_counted_where_processes_have_no_affinity(monkeypatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity")
    assert cores() >= 1
