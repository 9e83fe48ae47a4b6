"""Paths from vLLM: what is told without it, and, where it is installed, the shipped adapter on it.

`pytest -m vllm tests/engine/writing/backends/test_vllm_generator.py`, in an environment that has
vLLM.
"""

import importlib.util
from collections.abc import Sequence
from contextlib import closing
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from kbqa.engine.writing.backends.vllm_generator import VllmGenerator
from kbqa.engine.writing.constraints.decoding import Decoding
from kbqa.engine.writing.generate import DEFAULT_ADAPTER, Candidate, Request
from kbqa.kb.open import open_graph
from kbqa.kb.store.oxigraph import OxigraphStore
from kbqa.sparql.errors import ModelError
from kbqa.sparql.forms import parse_routerkgqa

QUESTIONS = (
    "what is the capital of Kenya?",
    "who is Justin Bieber's brother?",
    "which languages are spoken in Switzerland?",
    "where was Barack Obama born?",
)


def test_a_missing_vllm_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"vLLM is not installed.*kbqa\[vllm\]"):
        VllmGenerator.load()


@pytest.mark.parametrize("merge", [True, False], ids=["merged", "at run time"])
def test_a_missing_adapter_is_told_before_vllm_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: bool
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None))
    with pytest.raises(ModelError, match="there is no adapter at"):
        VllmGenerator.load(tmp_path / "none", merge=merge)


def test_the_graph_is_for_transformers(small_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None))
    with closing(OxigraphStore.open(small_store)) as graph:
        decoding = Decoding("graph", graph)
        with pytest.raises(ModelError, match="only --backend transformers offers --decoding graph"):
            VllmGenerator.load(decoding=decoding)


@pytest.fixture(scope="module")
def generator() -> VllmGenerator:
    """The shipped adapter, merged."""
    return VllmGenerator.load(DEFAULT_ADAPTER)


def _texts(found: Sequence[Sequence[Candidate]]) -> list[list[str]]:
    return [[candidate.text for candidate in candidates] for candidates in found]


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore")  # of vLLM's own
class TestWithVllm:
    def test_the_best_texts_are_those_of_transformers(self, generator: VllmGenerator) -> None:
        from kbqa.engine.writing.backends.transformers_generator import TransformersGenerator

        requests = [Request(question) for question in QUESTIONS]
        ours = generator.generate(requests, 1)
        theirs = TransformersGenerator.load(DEFAULT_ADAPTER).generate(requests, 1)
        assert _texts(ours) == _texts(theirs)
        for [one], [other] in zip(ours, theirs, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=0.01)
            assert one.tokens == other.tokens

    def test_samples_repeat_with_the_seed_and_hold_the_greedy_text(
        self, generator: VllmGenerator
    ) -> None:
        requests = [Request(question) for question in QUESTIONS]
        found = _texts(generator.generate(requests, 5))
        assert found == _texts(generator.generate(requests, 5))
        for texts in found:
            assert 1 <= len(texts) <= 5
            assert len(set(texts)) == len(texts)

    def test_nothing_is_written_for_no_questions(self, generator: VllmGenerator) -> None:
        assert generator.generate([]) == []

    def test_an_endless_question_is_cut(self, generator: VllmGenerator) -> None:
        [candidates] = generator.generate([Request("東京?" * 100_000)], 1)
        assert len(candidates) <= 1

    def test_constrained_texts_are_paths_with_the_logprobs_of_the_model(
        self, generator: VllmGenerator, demo_store: Path
    ) -> None:
        from kbqa.engine.writing.backends.transformers_generator import TransformersGenerator

        with closing(open_graph(demo_store)) as graph:
            schema = Decoding("schema", graph)
        constrained = VllmGenerator.load(DEFAULT_ADAPTER, decoding=schema)
        requests = [Request(question) for question in QUESTIONS]
        theirs = TransformersGenerator.load(DEFAULT_ADAPTER, None, schema)
        ours = constrained.generate(requests, 1)
        assert _texts(ours) == _texts(theirs.generate(requests, 1))
        for [one], [other] in zip(ours, generator.generate(requests, 1), strict=True):
            if one.text == other.text:
                assert one.logprob == pytest.approx(other.logprob, abs=0.01)
        for texts in _texts(constrained.generate(requests, 5)):
            assert [parse_routerkgqa(text).problems for text in texts] == [()] * len(texts)
