"""A tiny random model to train, and a few examples that it can learn."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from kbqa.training import demo
from kbqa.training.data.training_set import Example

COUNTRIES = ("Kenya", "Peru", "Chile", "Ghana", "Nepal", "Oman")
QUESTIONS = (
    ("what is the capital of {}?", "location , country , capital"),
    ("which money is used in {}?", "location , country , currency used"),
    ("who lives in {}?", "location , location , people born here"),
    ("what do they speak in {}?", "location , country , languages spoken"),
)


@pytest.fixture(scope="session")
def examples() -> tuple[Example, ...]:
    """Twenty-four examples."""
    return tuple(
        Example(
            f"{country}-{number}",
            question.format(country),
            f"Main Path:\n {country} -[{relation}]-> ?x",
            "small",
        )
        for country in COUNTRIES
        for number, (question, relation) in enumerate(QUESTIONS)
    )


@pytest.fixture(scope="module")
def few_intents() -> Iterator[None]:
    """Of demo questions, those of one intent in eleven: to write all takes two minutes."""
    intents = dict(islice(demo.read_intents().items(), 0, None, 11))
    demo._all_examples.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "read_intents", lambda: intents)
        yield
    demo._all_examples.cache_clear()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Compute on one thread: more cost a tiny model time, and change its sums by a millionth."""
    torch = pytest.importorskip("torch", reason="needs the lm extra")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_base(examples: Sequence[Example], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random Llama of some ten thousand weights, with a tokenizer of its own."""
    torch = pytest.importorskip("torch", reason="needs the lm extra")
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(BPE())
    words.pre_tokenizer = ByteLevel(add_prefix_space=False)
    words.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    words.train_from_iterator((f"{one.question}\n{one.target}" for one in examples), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=0,
        pad_token_id=0,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.3,
    )
    directory = tmp_path_factory.mktemp("models") / "tiny"
    LlamaForCausalLM(config).save_pretrained(str(directory))
    tokenizer.save_pretrained(str(directory))
    return directory
