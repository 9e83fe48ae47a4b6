"""Write CRPs with a model behind a server of OpenAI's protocol: vLLM's, llama.cpp's, others.

The server gets the prompt that the adapter was trained with, byte for byte. Each candidate is a
request, since not every server supports ``n``; many are sent at once. vLLM's server can constrain
the texts by a grammar, and follow the graph if it was started with kbqa's logits processor.
"""

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Literal

from kbqa.engine.chat.openai_server import describe_offer
from kbqa.engine.writing.backends.completions_server import VLLM, CompletionsServer, Prompt
from kbqa.engine.writing.backends.steering_arguments import (
    GRAPH_PROCESSOR,
    TOPICS,
    Steered,
    write_steered,
)
from kbqa.engine.writing.constraints.crp_ebnf import decoding_grammar
from kbqa.engine.writing.constraints.decoding import Decoding, walked_topics
from kbqa.engine.writing.generate import (
    DEFAULT_BEAMS,
    DEFAULT_SEED,
    TEMPERATURE,
    Candidate,
    Progress,
    Request,
    best_distinct,
)
from kbqa.engine.writing.prompt import PromptFormat
from kbqa.sparql.errors import KbqaError, ModelError

Search = Literal["sample", "beam"]

_CONCURRENT = 16  # requests: vLLM computes them together, llama.cpp one after the other

VLLM_AS_IT_IS = {"add_special_tokens": False, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Else vLLM would begin the prompt with the tokenizer's own special token, and sample by the
settings that the model's makers recommend for chat."""
# vLLM counts the end of text among a beam's tokens only if it is asked to.
_VLLM_BEAMS = {"use_beam_search": True, "include_stop_str_in_output": True}


class ServerGenerator:
    """A model behind an OpenAI-compatible server.

    Args:
        url: The API's root, such as ``http://127.0.0.1:8000/v1``.
        prompt: The format that the model was trained with; `load_prompt_format` reads an adapter's.
        model: Its name on the server; not needed if the server has only one.
        decoding: How far its texts are constrained; not at all by default. Only vLLM's server
            offers ``schema``, and ``graph`` only with kbqa's logits processor. It follows the graph
            that it has opened itself, which should be the same.
        search: ``sample``, which every server offers, or ``beam``, which only vLLM's does, slowly.
        seed: Seed of the samples.
        timeout_s: Seconds for one request.
        retries: Further tries of a failed request.

    The server's key is read from the environment variable KBQA_SERVER_API_KEY.

    Raises:
        InputError: The URL or the key is not valid.
        ModelError: The `llm` extra is missing, no server answers, it does not serve the model, or
            it cannot search or constrain as asked.
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
        self._decoding, self._grammar = decoding, decoding_grammar(decoding, prompt)
        if decoding.level != "none" and search == "beam":
            raise ModelError("vLLM's beam search cannot be constrained. Use --decoding none.")
        self._server = CompletionsServer(url, timeout_s, retries)
        served = self._server.models()
        self._model = _choose(url, served, model)
        self._prompt, self._search, self._seed = prompt, search, seed
        is_vllm = served[self._model] == VLLM
        if search == "beam" and not is_vllm:
            raise ModelError(
                f"{url} is not a vLLM server; only those offer beam search. Use search='sample'."
            )
        if decoding.level != "none" and not is_vllm:
            raise ModelError(
                f"{url} is not a vLLM server; only those can be constrained. Use --decoding none."
            )
        self._extra = VLLM_AS_IT_IS if is_vllm else {}
        if decoding.level == "graph":
            self._check_follows_graph()

    @property
    def name(self) -> str:
        """The model, its server and the level of decoding, for reports."""
        return f"{self._model} at {self._server.url}, decoding {self._decoding.level}"

    @property
    def suggested_relations(self) -> int:
        """How many relations its prompts suggest, at most."""
        return self._prompt.relations

    def generate(
        self,
        requests: Sequence[Request],
        n: int = DEFAULT_BEAMS,
        *,
        ends_at: float | None = None,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Write up to n candidates for each request; see `Generator.generate`.

        Sampling asks for the greedy text and, if n is above 1, for n samples.
        """
        prompts = [self._prompts(request, n) for request in requests]
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            asked = [
                [pool.submit(self._server.complete, self._model, one, ends_at) for one in some]
                for some in prompts
            ]
            try:
                found = [[one for call in calls for one in call.result()] for calls in asked]
            except KbqaError:
                pool.shutdown(cancel_futures=True)
                raise
        best = [best_distinct(candidates, n) for candidates in found]
        if self._decoding.level == "graph":
            return list(map(self._with_topics, requests, best))
        return best

    def _with_topics(self, request: Request, written: Sequence[Candidate]) -> list[Candidate]:
        steps = self._decoding.steps(request, self._prompt.crp_format) if written else None
        return [replace(one, topics=walked_topics(steps, one.text)) for one in written]

    def _prompts(self, request: Request, n: int) -> list[Prompt]:
        text = self._prompt.render(request.question, request.relations)
        if self._search == "beam":
            return [Prompt(text, 0.0, self._seed, n, {**self._extra, **_VLLM_BEAMS})]
        extra: dict[str, object] = dict(self._extra)
        if self._decoding.level == "graph":
            steered = Steered(request.topics, self._prompt.crp_format)
            extra["vllm_xargs"] = write_steered(steered)
        greedy = Prompt(text, 0.0, self._seed, extra=extra, grammar=self._grammar)
        samples = [
            greedy._replace(temperature=TEMPERATURE, seed=self._seed + number)
            for number in range(n if n > 1 else 0)
        ]
        return [greedy, *samples]

    def _check_follows_graph(self) -> None:
        """Check that the server has the logits processor: only this refuses topics like these."""
        wrong = Prompt("?", 0.0, self._seed, extra={"vllm_xargs": {TOPICS: "wrong"}})
        try:
            self._server.complete(self._model, wrong)
        except ModelError as error:
            if TOPICS not in str(error):
                raise
        else:
            raise ModelError(
                f"{self._server.url} cannot follow the graph. Start it with --logits-processors "
                f"{GRAPH_PROCESSOR}, or use --decoding schema."
            )


def _choose(url: str, served: Collection[str], model: str | None) -> str:
    if model is None and len(served) == 1:
        return next(iter(served))
    if not served:
        raise ModelError(f"{url} serves no model. Start it with one.")
    if model is None or model not in served:
        what = "several models" if model is None else f"no model {model!r}"
        raise ModelError(
            f"{url} serves {what}. {describe_offer(served, model or '')} "
            "Choose one with --served-model."
        )
    return model
