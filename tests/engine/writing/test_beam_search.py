"""Beam search against transformers' own, on a tiny random model."""

import pytest

torch = pytest.importorskip("torch", reason="needs the lm extra")

from kbqa.engine.writing.beam_search import beam_search  # noqa: E402
from kbqa.engine.writing.transformers import NextTokenLogits  # noqa: E402

_END, _PAD, _VOCABULARY = 2, 0, 13


_SHAPE = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": _PAD,
    "bos_token_id": 1,
    "eos_token_id": _END,
    "initializer_range": 0.6,
}


@pytest.fixture(scope="module")
def model():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    return LlamaForCausalLM(LlamaConfig(**_SHAPE)).eval()


@pytest.fixture(scope="module")
def scaling_model():
    """A model that divides its logits by a number."""
    from transformers import GraniteConfig, GraniteForCausalLM

    torch.manual_seed(5)
    return GraniteForCausalLM(GraniteConfig(logits_scaling=4.0, **_SHAPE)).eval()


@pytest.fixture(scope="module")
def prompts():
    """Three prompts of different lengths."""
    return [[1, 5, 6, 7, 8], [1, 9, 10, 4], [1, 11]]


@pytest.fixture(scope="module")
def padded(prompts):
    """The prompts as transformers takes them."""
    width = max(map(len, prompts))
    ids = torch.tensor([[_PAD] * (width - len(prompt)) + prompt for prompt in prompts])
    return {"input_ids": ids, "attention_mask": (ids != _PAD).long()}


def _logprob(model, prompt, text):
    """Score a text, its end included, in one forward pass without a cache."""
    ids = torch.tensor([[*prompt, *text, _END]])
    with torch.inference_mode():
        logprobs = model(input_ids=ids).logits.log_softmax(-1)[0]
    start = len(prompt) - 1
    return sum(float(logprobs[start + at, token]) for at, token in enumerate((*text, _END)))


@pytest.mark.parametrize("n", [1, 3, 5])
@pytest.mark.parametrize("kind", ["model", "scaling_model"])
def test_each_text_has_the_logprob_that_it_claims(request, kind, prompts, n):
    model = request.getfixturevalue(kind)
    found = beam_search(NextTokenLogits.of(model), prompts, n=n, end=_END, max_new_tokens=12)
    for row, texts in enumerate(found):
        for text in texts:
            assert text.logprob == pytest.approx(
                _logprob(model, prompts[row], text.tokens), abs=1e-3
            )


@pytest.mark.parametrize("n", [3, 5])
def test_finds_texts_no_less_likely_than_transformers(model, prompts, padded, n):
    theirs = model.generate(
        **padded,
        num_beams=n,
        num_return_sequences=1,
        do_sample=False,
        max_new_tokens=12,
        length_penalty=0.0,
        early_stopping="never",
        return_dict_in_generate=True,
        output_scores=True,
    )
    ours = beam_search(NextTokenLogits.of(model), prompts, n=n, end=_END, max_new_tokens=12)
    ended = [
        row
        for row, found in enumerate(theirs.sequences[:, padded["input_ids"].shape[1] :])
        if _END in found
    ]
    assert ended
    for row in ended:
        assert ours[row][0].logprob >= float(theirs.sequences_scores[row]) - 1e-3


def test_one_beam_is_greedy(model, prompts, padded):
    theirs = model.generate(**padded, do_sample=False, max_new_tokens=12)
    ours = beam_search(NextTokenLogits.of(model), prompts, n=1, end=_END, max_new_tokens=12)
    sequences = [row[padded["input_ids"].shape[1] :].tolist() for row in theirs]
    ended = [row for row, sequence in enumerate(sequences) if _END in sequence]
    assert ended
    for row in ended:
        greedy = tuple(sequences[row][: sequences[row].index(_END)])
        assert [text.tokens for text in ours[row]] == [greedy]


def test_a_question_is_searched_alike_alone_and_in_a_batch(model, prompts):
    together = beam_search(NextTokenLogits.of(model), prompts, n=4, end=_END, max_new_tokens=12)
    for prompt, texts in zip(prompts, together, strict=True):
        [alone] = beam_search(NextTokenLogits.of(model), [prompt], n=4, end=_END, max_new_tokens=12)
        assert [text.tokens for text in alone] == [text.tokens for text in texts]


def test_texts_come_best_first_and_without_their_end(model, prompts):
    for texts in beam_search(NextTokenLogits.of(model), prompts, n=5, end=_END, max_new_tokens=12):
        logprobs = [text.logprob for text in texts]
        assert logprobs == sorted(logprobs, reverse=True)
        assert all(_END not in text.tokens for text in texts)
        assert len({text.tokens for text in texts}) == len(texts)


def test_an_unfinished_text_is_given_up(model, prompts):
    for texts in beam_search(NextTokenLogits.of(model), prompts, n=2, end=_END, max_new_tokens=1):
        assert all(text.tokens == () for text in texts)


class _OneOf:
    """The state of a text that must be one of some."""

    def __init__(self, texts):
        self._texts = texts
        self.tokens = tuple(dict.fromkeys(text[0] if text else _END for text in texts))

    def follow(self, token):
        if token == _END:
            return self if () in self._texts else None
        rest = [text[1:] for text in self._texts if text[:1] == (token,)]
        return _OneOf(rest) if rest else None


class _Unlisted(_OneOf):
    """The same, but it says what may follow only when it is asked."""

    def __init__(self, texts):
        super().__init__(texts)
        self.tokens = None

    def follow(self, token):
        state = super().follow(token)
        return _Unlisted(state._texts) if isinstance(state, _OneOf) and token != _END else state


TEXTS = [(3, 4, 5, 6, 7, 8), (3, 4, 5, 9), (3, 10), (11, 12, 3, 3, 3, 3, 3, 4), (11, 12), (6,)]


@pytest.mark.parametrize("state", [_OneOf, _Unlisted], ids=["listed", "unlisted"])
@pytest.mark.parametrize("n", [2, 6])
def test_steered_texts_are_the_likeliest_of_those_allowed(model, prompts, monkeypatch, state, n):
    monkeypatch.setattr("kbqa.engine.writing.beam_search.HOPELESS", 1000.0)
    found = beam_search(
        NextTokenLogits.of(model),
        prompts,
        n=n,
        end=_END,
        max_new_tokens=12,
        starts=[state(TEXTS)] * len(prompts),
    )
    for row, texts in enumerate(found):
        scores = {text: _logprob(model, prompts[row], text) for text in TEXTS}
        assert {text.tokens for text in texts} <= set(TEXTS)
        for text in texts:
            assert text.logprob == pytest.approx(scores[text.tokens], abs=1e-3)
        if n == len(TEXTS):
            expected = sorted(scores, key=lambda text: -scores[text])
            assert [text.tokens for text in texts] == expected


def test_tokens_without_an_alternative_are_read_in_blocks(model, prompts, monkeypatch):
    monkeypatch.setattr("kbqa.engine.writing.beam_search.HOPELESS", 1000.0)
    found = {}
    for block in (1, 2, 64):
        monkeypatch.setattr("kbqa.engine.writing.beam_search._BLOCK_TOKENS", block)
        found[block] = beam_search(
            NextTokenLogits.of(model),
            prompts,
            n=6,
            end=_END,
            max_new_tokens=12,
            starts=[_OneOf(TEXTS)] * len(prompts),
        )
    for texts in zip(*found.values(), strict=True):
        for same in zip(*texts, strict=True):
            assert len({text.tokens for text in same}) == 1
            assert same[0].logprob == pytest.approx(same[-1].logprob, abs=1e-3)


def test_a_way_that_leads_nowhere_is_given_up(model, prompts):
    class Nowhere:
        tokens = (3,)

        def follow(self, token):
            return None

    starts = [Nowhere(), _OneOf(TEXTS), Nowhere()]
    found = beam_search(
        NextTokenLogits.of(model), prompts, n=2, end=_END, max_new_tokens=12, starts=starts
    )
    assert [bool(texts) for texts in found] == [False, True, False]


class _Counting:
    """A model that counts the texts that it reads at each step."""

    def __init__(self, model):
        self._model, self.rows = model, []

    def begin(self):
        self._reading = self._model.begin()
        return self

    def read(self, rows, tokens, mask, positions, wanted):
        self.rows.append(len(tokens))
        return self._reading.read(rows, tokens, mask, positions, wanted)


@pytest.fixture
def search(model, prompts, monkeypatch):
    """Search for one short text, and for longer ones beside it."""
    monkeypatch.setattr("kbqa.engine.writing.beam_search.HOPELESS", 1000.0)
    starts = [_OneOf([(3,)]), _OneOf(TEXTS), _OneOf(TEXTS)]
    counting = _Counting(NextTokenLogits.of(model))

    def search(**follow):
        counting.rows.clear()
        found = beam_search(
            counting, prompts, n=6, end=_END, max_new_tokens=12, starts=starts, **follow
        )
        return found, list(counting.rows)

    return search


def test_a_text_that_is_done_is_told_before_longer_ones(search):
    events = []

    def is_wanted(row):
        events.append(("asked", row))
        return True

    found, rows = search(
        done=lambda row, texts: events.append((tuple(texts), row)), is_wanted=is_wanted
    )
    assert (found, rows) == search()
    done = [event for event in events if event[0] != "asked"]
    assert sorted(done, key=lambda event: event[1]) == [
        (tuple(texts), row) for row, texts in enumerate(found)
    ]
    assert done[0][1] == 0
    assert ("asked", 1) in events[events.index(done[0]) :]


def test_a_search_that_is_no_longer_wanted_leaves_the_batch_and_not_the_others(search):
    asked, done = [], []

    def is_wanted(row):
        asked.append(row)
        return row != 1 or asked.count(1) < 2

    found, rows = search(done=lambda row, _: done.append(row), is_wanted=is_wanted)
    whole, all_rows = search()
    assert (sorted(done), found[1], bool(whole[1])) == ([0, 2], [], True)
    assert sum(rows) < sum(all_rows)
    for row in (0, 2):
        assert [text.tokens for text in found[row]] == [text.tokens for text in whole[row]]
        assert [text.logprob for text in found[row]] == pytest.approx(
            [text.logprob for text in whole[row]], abs=1e-3
        )


def test_nothing_goes_on_when_nobody_wants_it(search):
    found, rows = search(is_wanted=lambda row: False)
    assert (found, len(rows)) == ([[], [], []], 1)
