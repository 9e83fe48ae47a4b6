"""Draws from a tiny model, steered by the small graph and freely."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from kbqa.engine.writing.grammar import start as crp_start
from kbqa.engine.writing.steering import SteeredText
from kbqa.engine.writing.transformers import NextTokenLogits
from kbqa.training.config import GrpoConfig
from kbqa.training.grpo.drawing import Drawn, DrawRequest, Sampling, TokenChoice, draw_texts
from kbqa.training.grpo.train import WriterPolicy

torch = pytest.importorskip("torch", reason="needs the lm extra")
pytestmark = pytest.mark.usefixtures("one_thread", "float32")

END, LEFT, RIGHT, DEAD = 2, 3, 4, 5


class _Fork:
    """A grammar of four texts: END, LEFT LEFT END, LEFT RIGHT END and DEAD, which cannot end."""

    def __init__(self, written: tuple[int, ...] = ()) -> None:
        self.written = written

    @property
    def tokens(self) -> Sequence[int] | None:
        match self.written:
            case ():
                return (LEFT, END, DEAD)
            case (3,):
                return (RIGHT, LEFT)
            case (3, _):
                return (END,)
            case _:
                return ()

    def follow(self, token: int) -> "_Fork | None":
        allowed = self.tokens
        return _Fork((*self.written, token)) if allowed and token in allowed else None


class _Free(_Fork):
    """The same, which says only of single tokens whether they may follow."""

    @property
    def tokens(self) -> Sequence[int] | None:
        return None

    def follow(self, token: int) -> "_Free | None":
        followed = _Fork(self.written).follow(token)
        return followed and _Free(followed.written)


@pytest.fixture(scope="module")
def logits() -> NextTokenLogits:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=13,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=END,
        initializer_range=0.6,
    )
    return NextTokenLogits.of(LlamaForCausalLM(config).eval())


def _draw(logits, prompts, seeds, start=_Fork, texts=8, temperature=1.0, longest=9):
    asked = [DrawRequest(one, (), start(), seed) for one, seed in zip(prompts, seeds, strict=True)]
    return draw_texts(logits, asked, Sampling(texts, temperature, END, longest))


@pytest.mark.parametrize("temperature", [2.0, 5.0])
def test_texts_are_drawn_as_often_as_the_renormalised_probabilities_say(logits, temperature):
    prompt, texts = [1, 5, 6], 4000
    [drawn] = _draw(logits, [prompt], ["seed"], texts=texts, temperature=temperature)

    def shares(tokens, allowed):
        with torch.no_grad():
            scores = logits.causal(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, -1]
        return dict(zip(allowed, (scores[allowed] / temperature).softmax(0).tolist(), strict=True))

    first, second = shares([], [END, LEFT, DEAD]), shares([LEFT], [LEFT, RIGHT])
    expected = {
        (END,): first[END],
        (LEFT, LEFT, END): first[LEFT] * second[LEFT],
        (LEFT, RIGHT, END): first[LEFT] * second[RIGHT],
        (DEAD,): first[DEAD],
    }
    found = {text.tokens: text.times / texts for text in drawn}
    assert found == pytest.approx(expected, abs=0.03)
    assert [text.tokens for text in drawn if not text.is_finished] == [(DEAD,)]


def test_only_choices_are_kept(logits):
    [drawn] = _draw(logits, [[1, 5, 6]], ["seed"], texts=200, temperature=5.0)
    choices = {text.tokens: text.choices for text in drawn}
    first, second = TokenChoice(0, (END, LEFT, DEAD)), TokenChoice(1, (LEFT, RIGHT))
    assert choices[END,] == (first,)
    assert choices[LEFT, RIGHT, END] == (first, second)  # its end had to follow


def test_free_text_is_drawn_from_the_allowed_tokens(logits):
    listed = _draw(logits, [[1, 5, 6], [1, 7]], ["a", "b"], texts=50)
    assert _draw(logits, [[1, 5, 6], [1, 7]], ["a", "b"], _Free, texts=50) == listed


def test_a_text_that_is_too_long_is_not_finished(logits):
    [drawn] = _draw(logits, [[1, 5, 6]], ["seed"], texts=200, longest=2)
    finished = {text.tokens for text in drawn if text.is_finished}
    assert finished == {(END,)}
    assert sum(text.times for text in drawn) == 200


def test_a_question_is_drawn_for_alike_alone_and_in_a_batch(logits):
    prompts, seeds = [[1, 5, 6], [1, 9, 10, 4, 3], [1, 11]], ["a", "b", "c"]
    together = _draw(logits, prompts, seeds)
    alone = [_draw(logits, [one], [seed])[0] for one, seed in zip(prompts, seeds, strict=True)]
    assert together == alone


def test_another_seed_gives_other_draws(logits):
    draws = {tuple(_draw(logits, [[1, 5, 6]], [str(seed)])[0]) for seed in range(20)}
    assert len(draws) > 1


@pytest.fixture(scope="module")
def policy(start_config, small_graph) -> WriterPolicy:
    config = GrpoConfig(group=16)
    return WriterPolicy(
        start_config, config, small_graph.decoding, torch.device("cpu"), Path("unused")
    )


def test_every_path_that_is_drawn_keeps_to_the_graph(policy, asked_questions) -> None:
    groups = policy.draw(asked_questions, "seed")
    assert [group.question for group in groups] == asked_questions
    for group in groups:
        assert sum(text.times for text in group.texts) == 16
        for drawn, candidate in zip(group.texts, group.candidates, strict=True):
            _assert_kept_to(policy, group.question, drawn)
            assert (candidate is not None) == drawn.is_finished
            if candidate is not None:
                assert candidate.text.startswith("Main Path:")
                assert candidate.topics
    counts = Counter(text.is_finished for group in groups for text in group.texts)
    assert counts[True] > 0


def _assert_kept_to(policy: WriterPolicy, question, drawn: Drawn) -> None:
    """Walk along a text: each token is allowed, and those without a choice are forced."""
    steps = policy.decoding.steps(question.topics, policy.prompt.crp_format)
    assert steps is not None
    state = SteeredText.begin(policy.pieces, crp_start(steps))
    choices = {choice.at: choice.allowed for choice in drawn.choices}
    for at, token in enumerate(drawn.tokens):
        if at not in choices:
            assert state.tokens is None or tuple(state.tokens) == (token,)
        elif state.tokens is not None:
            assert choices[at] == tuple(sorted(state.tokens))
        following = state.follow(token)
        if following is None:
            assert not drawn.is_finished
            return
        state = following
