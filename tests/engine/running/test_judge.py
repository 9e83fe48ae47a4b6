"""The cross-encoder in numpy computes what transformers computes.

The asker that comes with kbqa, and when the judge asks it.

What a judge reads of a candidate.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from kbqa.engine.embedding.embedder import minilm_folder
from kbqa.engine.engine import Engine
from kbqa.engine.running.evidence import PathTrace
from kbqa.engine.running.judge import (
    ADAPTER_FILE,
    ASKER_FILES,
    ASKER_FOLDER,
    MAX_TOKENS,
    READER_VERSION,
    SETTINGS_FILE,
    SHIPPED_JUDGE,
    Asker,
    CrossEncoder,
    candidate_text,
    merge_adapter,
    reader_revision,
)
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.english import path_words
from kbqa.sparql.errors import ModelError
from kbqa.sparql.forms import read_crp

pytest.importorskip("torch", reason="needs the lm extra")

QUESTION = "what did Ada Lovelace study?"
TEXTS = [
    "Ada Lovelace: person profession = 1 profession: Mathematician",
    "Ada Lovelace: student = 2 field of study: Mathematics, French",
    "Ada Lovelace: " + "person parents > " * 60 + "person place of birth = 0",
]
ADAPTED = "encoder.layer.0.attention.self.query"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of one layer and an output, both drawn at random."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(1)

    def drawn(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32) / 10

    folder = tmp_path_factory.mktemp("judge")
    tensors = {
        f"{ADAPTED}.lora_A": drawn(4, 384),
        f"{ADAPTED}.lora_B": drawn(384, 4),
        "head.weight": drawn(1, 384),
        "head.bias": drawn(1),
    }
    save_file(tensors, folder / ADAPTER_FILE)
    (folder / SETTINGS_FILE).write_text(
        json.dumps({"schema_version": READER_VERSION, "scale": 2.0})
    )
    return folder


def _by_transformers(folder: Path) -> list[float]:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModel, AutoTokenizer

    base = str(minilm_folder())
    tokenizer, adapter = AutoTokenizer.from_pretrained(base), load_file(folder / ADAPTER_FILE)
    model = AutoModel.from_pretrained(base, hidden_act="gelu_new").eval()
    update = adapter[f"{ADAPTED}.lora_B"] @ adapter[f"{ADAPTED}.lora_A"]
    with torch.no_grad():
        model.get_submodule(ADAPTED).weight += 2.0 * update
        inputs = tokenizer(
            [QUESTION] * len(TEXTS),
            TEXTS,
            padding=True,
            truncation="longest_first",
            max_length=MAX_TOKENS,
            return_tensors="pt",
        )
        assert inputs["input_ids"].shape[1] == MAX_TOKENS
        hidden, mask = model(**inputs).last_hidden_state, inputs["attention_mask"].unsqueeze(-1)
        mean = (hidden * mask).sum(1) / mask.sum(1)
        scores: list[float] = (mean @ adapter["head.weight"].T + adapter["head.bias"])[
            :, 0
        ].tolist()
    return scores


def test_the_scores_are_those_of_transformers(folder: Path) -> None:
    scores = CrossEncoder.load(folder).score(QUESTION, TEXTS)
    assert scores == pytest.approx(_by_transformers(folder), abs=1e-4)
    assert len({round(score, 3) for score in scores}) == 3


def test_a_question_of_any_length_is_read(folder: Path) -> None:
    encoder, question = CrossEncoder.load(folder), QUESTION + " and why?" * 200
    assert len(encoder.score(question, TEXTS)) == len(TEXTS)


def test_a_text_has_the_same_score_alone(folder: Path) -> None:
    encoder = CrossEncoder.load(folder)
    together = encoder.score(QUESTION, TEXTS)
    assert [encoder.score(QUESTION, [text])[0] for text in TEXTS] == pytest.approx(
        together, abs=1e-4
    )
    assert encoder.score(QUESTION, []) == []


def test_what_is_not_adapted_is_added() -> None:
    one, two = np.ones((2, 2), np.float32), np.full((2, 2), 2, np.float32)
    weights = {"a.weight": one, "b.weight": one}
    adapter = {"a.lora_A": one, "a.lora_B": two, "head.weight": two}
    merged = merge_adapter(weights, adapter, 0.5)
    assert {name: each[0, 0] for name, each in merged.items()} == {
        "a.weight": 3.0,
        "b.weight": 1.0,
        "head.weight": 2.0,
    }


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        ({"a.lora_A": (1, 2)}, "only one of the two matrices of a"),
        ({"a.lora_A.default": (1, 2)}, "a tensor too many, a.lora_A.default"),
        ({"c.lora_A": (1, 2), "c.lora_B": (2, 1)}, "is for c.weight, which the model does not"),
        ({"a.lora_A": (1, 3), "a.lora_B": (2, 1)}, r"matrices of a, \(1, 3\) and \(2, 1\), do not"),
        ({"a.bias": (2,)}, "a tensor too many, a.bias"),
    ],
)
def test_a_tensor_that_nobody_can_place_is_refused(
    adapter: dict[str, tuple[int, ...]], message: str
) -> None:
    tensors = {name: np.ones(shape, np.float32) for name, shape in adapter.items()}
    with pytest.raises(ValueError, match=message):
        merge_adapter({"a.weight": np.ones((2, 2), np.float32)}, tensors, 1.0)


def test_another_scale_is_another_revision(folder: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    assert reader_revision(other) == reader_revision(folder)
    settings = {"schema_version": READER_VERSION, "scale": 1.0}
    (other / SETTINGS_FILE).write_text(json.dumps(settings))
    assert reader_revision(other) != reader_revision(folder)


def test_a_broken_adapter_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"the judge in .* cannot be loaded"):
        CrossEncoder.load(tmp_path)
    (tmp_path / ADAPTER_FILE).write_bytes((folder / ADAPTER_FILE).read_bytes()[:100])
    (tmp_path / SETTINGS_FILE).write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded"):
        CrossEncoder.load(tmp_path)


pytest.importorskip("openvino", reason="needs the cpu extra")


@pytest.fixture(scope="module")
def asker() -> Asker:
    asker = Asker.of(SHIPPED_JUDGE)
    assert asker is not None
    return asker


def test_a_question_is_likelier_given_its_path(asker: Asker) -> None:
    right, other_relation, other_topic = asker.logprobs(
        "what is the capital of kenya?",
        ["Kenya: country capital", "Kenya: country currency used", "Uganda: country capital"],
    )
    assert 0 > right > max(other_relation, other_topic)


def test_a_missing_condition_costs(asker: Asker) -> None:
    whole, part = asker.logprobs(
        "which films with adam sandler were directed by frank coraci?",
        [
            "Adam Sandler: actor film > performance film; film directed by Frank Coraci",
            "Adam Sandler: actor film > performance film",
        ],
    )
    assert whole > part


def test_paths_do_not_change_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBQA_PRECISION", "float32")
    asker = Asker.of(SHIPPED_JUDGE)
    assert asker is not None
    question, paths = "who is it?", ["Kenya: country capital", "a: b", "Jamaica: person place"]
    apart = [asker.logprobs(question, [path])[0] for path in paths]
    assert asker.logprobs(question, paths) == pytest.approx(apart, rel=1e-3)
    assert asker.logprobs(question, []) == []


def test_a_very_long_question_is_cut(asker: Asker) -> None:
    long = "what is the capital of kenya " * 60
    [cut] = asker.logprobs(long, ["Kenya: country capital"])
    assert [cut] == asker.logprobs(long + "and so on", ["Kenya: country capital"])


def test_a_judge_may_have_none_but_not_half_of_one(tmp_path: Path) -> None:
    assert Asker.of(tmp_path) is None
    folder = shutil.copytree(SHIPPED_JUDGE / ASKER_FOLDER, tmp_path / ASKER_FOLDER)
    (folder / ASKER_FILES[-1]).unlink()
    with pytest.raises(ModelError, match=r"adapter_config.json is missing. Run `kbqa train-judge`"):
        Asker.of(tmp_path)


def _asked(graph: Graph, scripted, question: str, *written: str, **settings: object) -> list:
    texts = [(text, -0.5 - rank) for rank, text in enumerate(written)]
    with Engine(graph, scripted(texts), settings=settings) as engine:
        answer = engine.ask(question)
    assert isinstance(answer.trace, PathTrace)
    return [each.question_logprob for each in answer.trace.tried]


def test_it_is_asked_about_the_best_paths_if_the_judge_is_in_doubt(demo: Graph, scripted) -> None:
    written = [
        f"Kenya -> location.country.{relation}"
        for relation in ("capital", "currency_used", "official_language")
    ]
    doubtful = _asked(demo, scripted, "what of Kenya?", *written)
    assert 2 <= len({each for each in doubtful if each is not None}) <= 3
    off = _asked(demo, scripted, "what of Kenya?", *written, asker=False)
    assert set(off) == {None}
    clear = _asked(demo, scripted, "what is the capital of Kenya?", *written)
    assert set(clear) == {None}


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
