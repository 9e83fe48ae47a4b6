"""Write CRPs with a causal language model and a LoRA adapter under transformers, on CPU or GPU."""

from pathlib import Path

from kbqa.engine.writing.backends.beam_search_generator import BeamSearchGenerator
from kbqa.engine.writing.backends.next_token_logits import NextTokenLogits
from kbqa.engine.writing.constraints.decoding import Decoding, check_form
from kbqa.engine.writing.generate import DEFAULT_ADAPTER
from kbqa.engine.writing.models.adapter_files import adapter_base, adapter_revision
from kbqa.engine.writing.models.base_models import base_model, require_lm_extra
from kbqa.engine.writing.models.merged_checkpoint import load_merged
from kbqa.engine.writing.models.precision import fastest_precision
from kbqa.engine.writing.prompt import load_prompt_format
from kbqa.engine.writing.tokenizer import Tokenizer


class TransformersGenerator(BeamSearchGenerator):
    """A causal language model with a LoRA adapter, merged, under transformers."""

    @classmethod
    def load(
        cls,
        adapter: Path = DEFAULT_ADAPTER,
        base: str | None = None,
        decoding: Decoding | None = None,
        threads: int | None = None,
    ) -> "TransformersGenerator":
        """Load an adapter and the base model that it names.

        Args:
            adapter: Folder that `kbqa train-crp` wrote, an adapter's or a whole model's; the
                shipped one by default.
            base: Base model to use instead of the one that the adapter names.
            decoding: How far its texts are constrained; not at all by default.
            threads: Threads that torch computes with, in the whole process; None for torch's own
                choice, one for each core.

        Raises:
            ModelError: The `lm` extra, the base model or the adapter is missing or broken.
        """
        require_lm_extra()
        base = base or adapter_base(adapter)
        prompt, revision = load_prompt_format(adapter), adapter_revision(adapter)
        decoding = decoding or Decoding()
        if decoding.level != "none":
            check_form(prompt)
        model, tokenizer = load_transformers(adapter, base, threads)
        name = f"{base} + {adapter.resolve().name} {revision}, decoding {decoding.level}"
        return cls(model, tokenizer, prompt, name, decoding)


def load_transformers(
    adapter: Path, base: str | None = None, threads: int | None = None
) -> tuple[NextTokenLogits, Tokenizer]:
    """Load an adapter, merged into its base model, and the tokenizer.

    Args:
        adapter: Folder that `kbqa train-crp` wrote.
        base: Base model to use instead of the one that the adapter names.
        threads: Threads that torch computes with, in the whole process; None for torch's own
            choice.

    Raises:
        ModelError: The `lm` extra, the base model or the adapter is missing or broken.
    """
    require_lm_extra()
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    base = base_model(base or adapter_base(adapter))
    model, tokenizer = load_merged(base, adapter, fastest_precision(device), device)
    return NextTokenLogits.of(model.eval()), tokenizer
