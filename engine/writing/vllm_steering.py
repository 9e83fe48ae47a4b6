r"""Follow the graph under vLLM: logits processors, in this process and for vLLM's server.

This is the interface of vLLM's first model runner, which runs with ``VLLM_USE_V2_MODEL_RUNNER=0``
and wherever there is no Triton, so on every CPU. Import this module only where vLLM is installed. A
server opens the graph itself:

    KBQA_STORE=slice VLLM_USE_V2_MODEL_RUNNER=0 python -m vllm.entrypoints.openai.api_server … \
        --logits-processors kbqa.engine.writing.vllm_steering:GraphProcessor

Source: https://docs.vllm.ai/en/stable/features/custom_logitsprocs/
"""

import logging
import os
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

from kbqa.engine.writing.beam_search import State
from kbqa.engine.writing.ebnf import Steered, read_steered
from kbqa.engine.writing.grammar import start
from kbqa.engine.writing.steering import Decoding, Pieces, SteeredText
from kbqa.engine.writing.vllm import ROW, SteeredRows, dead_end_token
from kbqa.kb.open import open_graph
from kbqa.sparql.errors import GraphError, InputError

if TYPE_CHECKING:
    import torch
    from vllm import SamplingParams
    from vllm.config import VllmConfig
    from vllm.v1.sample.logits_processor import BatchUpdate


_KEPT = 64  # questions whose paths a server remembers: each comes in several requests

logger = logging.getLogger(__name__)


class _BatchSteering(LogitsProcessor):  # type: ignore[misc]  # mypy runs without vLLM
    """Steers the rows of vLLM's batch. Subclasses give the state in which a text begins."""

    _rows: SteeredRows

    @abstractmethod
    def _put(self, at: int, params: "SamplingParams", tokens: list[int]) -> bool:
        """Steer the text of a row if its request asks for it; return whether it does."""

    def is_argmax_invariant(self) -> bool:
        """Return False: the most likely token may be masked."""
        return False

    def update_state(self, batch_update: "BatchUpdate | None") -> None:
        """Follow what happened to the batch. New tokens are read later: they may not be there."""
        if batch_update is None:
            return
        for at in batch_update.removed:
            self._rows.drop(at)
        for at, params, _, tokens in batch_update.added:
            if not self._put(at, params, tokens):
                self._rows.drop(at)
        for source, target, way in batch_update.moved:
            self._rows.move(source, target, swap=way is MoveDirectionality.SWAP)

    def apply(self, logits: "torch.Tensor") -> "torch.Tensor":
        """Mask the logits, in place."""
        self._rows.mask(logits)
        return logits


def in_process(rows: SteeredRows, starts: Mapping[int, State]) -> type[LogitsProcessor]:
    """Return a logits processor for an engine of this process.

    Texts begin in the states `starts`, by the argument `ROW`.
    """

    class InProcess(_BatchSteering):
        def __init__(
            self, vllm_config: "VllmConfig", device: "torch.device", is_pin_memory: bool
        ) -> None:
            self._rows = rows

        def _put(self, at: int, params: "SamplingParams", tokens: list[int]) -> bool:
            row = (params.extra_args or {}).get(ROW)
            if row is None:
                return False
            rows.put(at, starts[row], tokens, "best" if params.temperature == 0 else "likely")
            return True

    return InProcess


class GraphProcessor(_BatchSteering):
    """The logits processor of a server, for ``--logits-processors``.

    It opens the graph that KBQA_STORE or KBQA_ENDPOINT names. A request that brings topics in
    ``vllm_xargs`` is steered; see `kbqa.engine.writing.ebnf`.
    """

    def __init__(
        self, vllm_config: "VllmConfig", device: "torch.device", is_pin_memory: bool
    ) -> None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(vllm_config.model_config.tokenizer)
        self._rows = SteeredRows(tokenizer.eos_token_id, dead_end_token(tokenizer))
        self._pieces = Pieces(tokenizer)
        endpoints = os.environ.get("KBQA_ENDPOINT", "").split()
        graph = open_graph(os.environ.get("KBQA_STORE") or None, endpoints or None)
        self._decoding = Decoding("graph", graph)
        self._starts: OrderedDict[Steered, SteeredText] = OrderedDict()

    @classmethod
    def validate_params(cls, sampling_params: "SamplingParams") -> None:
        """Raise `ValueError` if what steers a request cannot be read."""
        try:
            read_steered(sampling_params.extra_args or {})
        except InputError as error:
            raise ValueError(str(error)) from None

    def _put(self, at: int, params: "SamplingParams", tokens: list[int]) -> bool:
        steered = read_steered(params.extra_args or {})
        if steered is None:
            return False
        keep = "best" if params.temperature == 0 else steered.keep
        self._rows.put(at, self._start(steered), tokens, keep)
        return True

    def _start(self, steered: Steered) -> State | None:
        """Return the state in which a text begins; None if the graph failed."""
        try:
            if steered not in self._starts:
                steps = self._decoding.steps(steered.topics, steered.crp_format)
                assert steps is not None
                self._starts[steered] = SteeredText.begin(self._pieces, start(steps))
        except GraphError as error:  # raised, it would end the server
            logger.warning("A path is not begun, since the graph failed: %s", error)
            return None
        self._starts.move_to_end(steered)
        if len(self._starts) > _KEPT:
            self._starts.popitem(last=False)
        return self._starts[steered]
