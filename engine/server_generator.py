"""Write CRPs with a model that a server serves over OpenAI's protocol: vLLM, llama.cpp, others.

The server gets the prompt that the adapter was trained with, byte for byte. Every candidate is a
request of its own, since not every server knows ``n``; many are under way at once. Where the server
is vLLM's, a grammar can constrain what the model writes; the graph cannot.
"""

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from kbqa.engine.completions_server import VLLM, CompletionsServer, Prompt
from kbqa.engine.crp_ebnf import decoding_grammar
from kbqa.engine.decoding import Decoding
from kbqa.engine.generate import DEFAULT_BEAMS, Candidate, Request, best_distinct
from kbqa.engine.prompt import PromptFormat
from kbqa.engine.sampling import DEFAULT_SEED, TEMPERATURE
from kbqa.sparql.errors import ModelError

Search = Literal["sample", "beam"]

_CONCURRENT = 16  # requests: vLLM computes them together, llama.cpp takes them in turn

# vLLM would begin the prompt with the tokenizer's own special token, and sample by the settings
# that the model's makers recommend for chat.
_VLLM_AS_IT_IS = {"add_special_tokens": False, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
# The end of text is counted among a beam's tokens only where it is asked for.
_VLLM_BEAMS = {"use_beam_search": True, "include_stop_str_in_output": True}


class ServerGenerator:
    """A model behind an OpenAI-compatible server.

    Args:
        url: The API's root, such as ``http://127.0.0.1:8000/v1``.
        prompt: What the model was trained with; `load_prompt_format` reads an adapter's.
        model: As the server calls it; may be left out where it serves only one.
        decoding: How far its texts are constrained; not at all by default. ``grammar`` and
            ``schema`` only vLLM's server offers, and ``graph`` none.
        search: ``sample``, which every server can; ``beam``, which only vLLM's can, and slowly.
        seed: Of the samples.
        timeout_s: Seconds for one request.
        retries: Further tries of a request that failed.

    The server's key is read from the environment variable KBQA_SERVER_API_KEY, where it is set.

    Raises:
        ModelError: The `llm` extra is missing, no such server answers, it does not serve the model,
            or it cannot search or constrain as asked.
    """

    def __init__(
        self,
        url: str,
        prompt: PromptFormat,
        model: str | None = None,
        decoding: Decoding | None = None,
        *,
        search: Search = "sample",
        seed: int = DEFAULT_SEED,
        timeout_s: float = 120.0,
        retries: int = 3,
    ) -> None:
        decoding = decoding or Decoding()
        self._level, self._grammar = decoding.level, decoding_grammar(decoding, prompt)
        if self._grammar is not None and search == "beam":
            raise ModelError("vLLM's beams are not constrained here: sample, or --decoding none")
        self._server = CompletionsServer(url, timeout_s, retries)
        served = self._server.models()
        self._model = _choose(url, served, model)
        self._prompt, self._search, self._seed = prompt, search, seed
        is_vllm = served[self._model] == VLLM
        if search == "beam" and not is_vllm:
            raise ModelError(f"only vLLM's server searches by beams, and {url} is none: sample")
        if self._grammar is not None and not is_vllm:
            raise ModelError(
                f"only vLLM's server takes the grammar of paths, and {url} is none. "
                "Use --decoding none."
            )
        self._extra = _VLLM_AS_IT_IS if is_vllm else {}

    @property
    def name(self) -> str:
        """The model, its server and the level of decoding, for reports."""
        return f"{self._model} at {self._server.url}, decoding {self._level}"

    def generate(
        self, requests: Sequence[Request], n: int = DEFAULT_BEAMS
    ) -> list[list[Candidate]]:
        """Write up to n candidates for each request; see `Generator.generate`.

        Sampling asks for the greedy text and, where n is above 1, for n samples.
        """
        prompts = [self._prompts(request, n) for request in requests]
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            asked = [[pool.submit(self._complete, one) for one in some] for some in prompts]
            try:
                found = [[one for call in calls for one in call.result()] for calls in asked]
            except ModelError:
                pool.shutdown(cancel_futures=True)
                raise
        return [best_distinct(candidates, n) for candidates in found]

    def _prompts(self, request: Request, n: int) -> list[Prompt]:
        text = self._prompt.render(request.question)
        if self._search == "beam":
            return [Prompt(text, 0.0, self._seed, n, {**self._extra, **_VLLM_BEAMS})]
        greedy = Prompt(text, 0.0, self._seed, extra=self._extra, grammar=self._grammar)
        samples = [
            greedy._replace(temperature=TEMPERATURE, seed=self._seed + number)
            for number in range(n if n > 1 else 0)
        ]
        return [greedy, *samples]

    def _complete(self, prompt: Prompt) -> list[Candidate]:
        return self._server.complete(self._model, prompt)


def _choose(url: str, served: Collection[str], model: str | None) -> str:
    if model is None and len(served) == 1:
        return next(iter(served))
    if not served:
        raise ModelError(f"{url} serves no model")
    if model is None or model not in served:
        what = "several models" if model is None else f"no model {model!r}"
        raise ModelError(f"{url} serves {what}. Choose from: {', '.join(sorted(served))}")
    return model
