"""Paths from vLLM: what is told without it, and, where it is installed, the shipped adapter on it.

`pytest -m vllm tests/engine/writing/backends/test_vllm_generator.py`, in an environment that has
vLLM.
"""

import importlib.util
import time
from collections.abc import Sequence
from contextlib import closing
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbqa.engine.linking.linker import Linker
from kbqa.engine.writing.backends.steering_arguments import Steered, write_steered
from kbqa.engine.writing.backends.vllm_generator import VllmGenerator
from kbqa.engine.writing.constraints.decoding import Decoding
from kbqa.engine.writing.generate import DEFAULT_ADAPTER, Candidate, DecodingLevel, Request
from kbqa.engine.writing.models.base_models import SMOLLM2, base_model
from kbqa.engine.writing.tokenizer import SavedTokenizer
from kbqa.kb.names.search import open_names
from kbqa.kb.open import open_graph
from kbqa.kb.store.oxigraph import OxigraphStore
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import DeadlineExceeded, ModelError
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


@pytest.mark.parametrize("level", ["schema", "graph"])
def test_beams_that_cannot_be_constrained_are_told(
    small_store: Path, monkeypatch: pytest.MonkeyPatch, level: DecodingLevel
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None))
    with closing(OxigraphStore.open(small_store)) as graph:
        decoding = Decoding(level, graph)
        with pytest.raises(ModelError, match="vLLM's beam search cannot be constrained here"):
            VllmGenerator.load(decoding=decoding, search="beam")


@pytest.fixture(scope="module")
def generator() -> VllmGenerator:
    """The shipped adapter, merged."""
    return VllmGenerator.load(DEFAULT_ADAPTER)


def _texts(found: Sequence[Sequence[Candidate]]) -> list[list[str]]:
    return [[candidate.text for candidate in candidates] for candidates in found]


def _told(found: Sequence[Sequence[Candidate]]) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(one.text, one.tokens, one.topics) for candidates in found for one in candidates]


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

    def test_the_graph_leads_to_the_texts_of_transformers(self, demo_store: Path) -> None:
        from kbqa.engine.writing.backends.transformers_generator import TransformersGenerator

        with closing(open_graph(demo_store)) as graph, closing(open_names(graph)) as names:
            linker = Linker(graph, names)
            requests = [
                Request(question, tuple(Entity(one.name, one.mid) for one in linker.link(question)))
                for question in QUESTIONS
            ]
            assert any(request.topics for request in requests)
            follows = Decoding("graph", graph)
            steered = VllmGenerator.load(DEFAULT_ADAPTER, decoding=follows)
            theirs = TransformersGenerator.load(DEFAULT_ADAPTER, None, follows)
            greedy = steered.generate(requests, 1)
            assert sum(map(len, greedy)) > 1
            for ours, others in zip(greedy, theirs.generate(requests, 1), strict=True):
                assert _told([ours]) == _told([others])
                for one, other in zip(ours, others, strict=True):
                    assert one.logprob == pytest.approx(other.logprob, abs=0.01)
            found = _texts(steered.generate(requests, 5))
            for texts, best in zip(found, _texts(greedy), strict=True):
                assert set(best) <= set(texts)
                assert [parse_routerkgqa(text).problems for text in texts] == [()] * len(texts)
            with pytest.raises(DeadlineExceeded):
                steered.generate(requests, 1, ends_at=time.monotonic() + 0.2)
            assert _texts(steered.generate(requests, 1)) == _texts(greedy)

    def test_the_logits_processor_of_a_server_follows_its_own_graph(
        self, demo_store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import torch
        from vllm import SamplingParams
        from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

        from kbqa.engine.writing.backends.vllm_steering import GraphProcessor

        tokenizer = Path(base_model(SMOLLM2))
        monkeypatch.setenv("KBQA_STORE", str(demo_store))
        config = SimpleNamespace(model_config=SimpleNamespace(tokenizer=str(tokenizer)))
        processor = GraphProcessor(config, torch.device("cpu"), False)
        with pytest.raises(ValueError, match="kbqa_topics must be a list"):
            processor.validate_params(SamplingParams(extra_args={"kbqa_topics": "wrong"}))

        words, vocabulary = SavedTokenizer(tokenizer), 49152

        def allowed() -> list[str]:
            rows = processor.apply(torch.zeros(2, vocabulary)).isfinite()
            return [words.decode(row.nonzero().flatten().tolist()) for row in rows]

        written = words.encode("Main Path:")
        steered = SamplingParams(temperature=0, extra_args=write_steered(Steered((), "extended")))
        added = [(0, steered, None, list[int]()), (1, SamplingParams(), None, list[int]())]
        processor.update_state(BatchUpdate(2, [], added, []))
        assert allowed()[0] == words.decode(written[:1])
        added[0][3].extend(written[:1])
        processor.update_state(BatchUpdate(2, [], [], [(0, 1, MoveDirectionality.SWAP)]))
        assert allowed()[1] == words.decode(written[1:2])
        processor.update_state(None)
        assert len(allowed()[0]) > len(allowed()[1])
