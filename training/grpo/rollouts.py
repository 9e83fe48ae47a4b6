"""Draw the paths of a step with a vLLM server, which is handed the adapter in training.

The server's logits processor lets through the tokens that the sampler of this process would draw
from, too. What comes back is walked again along the graph, for the choices that a text had. In free
text these are the allowed ones among the tokens that the server says the model held likeliest.

vLLM's sums depend on what it computes at the same time. So draws with equal seeds may differ, and
the probabilities that were drawn from may differ a little from those of the model in training.
"""

import hashlib
import logging
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kbqa.engine.writing.beam_search import State
from kbqa.engine.writing.checkpoint import adapter_sha256
from kbqa.engine.writing.ebnf import Steered
from kbqa.engine.writing.vllm import dead_end_token
from kbqa.sparql.errors import EndpointDown, GraphError, ModelError
from kbqa.training.config import TrainingConfig
from kbqa.training.grpo.rollout_server import (
    Asked,
    Draw,
    Drawn,
    RolloutServer,
    Sampling,
    ServerText,
    TokenChoice,
    allowed_tokens,
)
from kbqa.training.trained_model import TrainedModel

_CONCURRENT = 64  # requests: vLLM computes them together
_NAME_DIGITS = 16

logger = logging.getLogger(__name__)


def check_rollouts(url: str, config: TrainingConfig) -> None:
    """Check that a server can draw paths with the adapter that a run starts from.

    Raises:
        InputError: The URL or the key is not valid.
        ModelError: The server cannot, or there is none. The message says how to start it.
    """
    server = RolloutServer(url)
    server.check()
    start = Path(config.start)
    name = _name(start)
    if name not in server.served():
        server.load(name, start, config.lora_rank)
    server.unload(name)


@dataclass(frozen=True, slots=True)
class ServerSampler:
    """A vLLM server that draws with the adapter of a model in training.

    Attributes:
        server: The server.
        model: The model in training.
        crp_format: The text form that it writes.
        rank: The rank of its adapter.
        folder: Where adapters are handed over. It holds those that the server may have loaded, each
            in a folder of its name.
    """

    server: RolloutServer
    model: TrainedModel
    crp_format: str
    rank: int
    folder: Path

    def draw(self, asked: Sequence[Asked], sampling: Sampling) -> list[list[Drawn]]:
        """Draw texts for each question; see `Sampler.draw`.

        Raises:
            GraphError: The graph failed for a question, here or in the server.
            ModelError: The server failed, or it follows another graph: the graph failed for all
                of several questions, or does not allow what was drawn.
        """
        adapter = self._hand_over()
        dead_end = dead_end_token(self.model.tokenizer)
        draws = [
            Draw(
                prompt=each.prompt,
                steered=Steered(each.topics, self.crp_format, "all"),
                texts=sampling.texts,
                temperature=sampling.temperature,
                seed=random.Random(each.seed).getrandbits(32),
                max_new_tokens=sampling.max_new_tokens,
                dead_end=dead_end,
            )
            for each in asked
        ]
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            drawn = list(pool.map(lambda draw: self.server.draw(adapter, draw), draws))
        groups, failures = list[list[Drawn]](), list[GraphError]()
        for each, texts in zip(asked, drawn, strict=True):
            try:
                groups.append(self._group(texts, each.start, sampling.end, dead_end))
            except EndpointDown:
                raise
            except GraphError as error:
                failures.append(error)
        if len(failures) == len(asked) > 1:
            raise ModelError(f"nothing that {self.server.url} drew can be used: {failures[0]}")
        if failures:
            raise failures[0]
        return groups

    def close(self) -> None:
        """Have the server forget the adapters that it was handed, and delete their folders."""
        try:
            self._take_back(())
        except ModelError as error:
            logger.warning("%s still has an adapter of this run: %s", self.server.url, error)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _hand_over(self) -> str:
        """Let the server load the adapter as it is now, and forget others; return its name."""
        partial = self.folder / "adapter.tmp"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        self.model.save(partial, exactly=True)
        # vLLM remembers what it computed by the adapter's name, so the name is that of the weights.
        name = _name(partial, self.folder)
        handed = self.folder / name
        if handed.exists():
            shutil.rmtree(partial)
        else:
            partial.rename(handed)
        if name not in self.server.served():
            self.server.load(name, handed, self.rank)
        self._take_back((name,))
        return name

    def _take_back(self, kept: Sequence[str]) -> None:
        """Have the server forget all adapters of this run but some, and delete their folders."""
        for folder in sorted(self.folder.glob("*")):
            if folder.name not in kept:
                self.server.unload(folder.name)
                shutil.rmtree(folder)

    def _group(
        self, texts: Sequence[ServerText], start: State, end: int, dead_end: int
    ) -> list[Drawn]:
        """Walk the texts that were drawn for a question."""
        times = Counter(text.tokens for text in texts)
        different = {text.tokens: text for text in texts}
        walked = [
            self._walk(text, start, end, dead_end)._replace(times=times[tokens])
            for tokens, text in different.items()
        ]
        return sorted(walked)

    def _walk(self, text: ServerText, start: State, end: int, dead_end: int) -> Drawn:
        """Find the choices that a text had."""
        state: State | None = start
        choices: list[TokenChoice] = []
        for at, (token, likeliest) in enumerate(zip(text.tokens, text.likeliest, strict=True)):
            allowed = () if state is None else allowed_tokens(state, likeliest)
            if token == dead_end:
                if allowed:
                    raise GraphError(
                        f"{self.server.url} gave up a path that may go on after "
                        f"{self._shown(text.tokens[:at])}. Its log says whether a query failed; "
                        "otherwise it has opened another graph."
                    )
                return Drawn(text.tokens[:at], tuple(choices), 1, is_finished=False)
            if token not in allowed:
                raise ModelError(
                    f"{self.server.url} wrote {self._shown((token,))} after "
                    f"{self._shown(text.tokens[:at])}, where the graph does not allow it. It must "
                    "open the same graph, and run the same version of kbqa."
                )
            if len(allowed) > 1:
                choices.append(TokenChoice(at, allowed))
            assert state is not None  # since a token is allowed
            state = state.follow(token)
        is_finished = text.tokens[-1:] == (end,)
        return Drawn(text.tokens, tuple(choices), 1, is_finished)

    def _shown(self, tokens: Sequence[int]) -> str:
        return repr(self.model.tokenizer.decode(tokens))


def _name(adapter: Path, run: Path = Path()) -> str:
    """Name an adapter by its files, so that another one has another name, and by its run."""
    digest = hashlib.sha256(f"{run.resolve()} {adapter_sha256(adapter)}".encode()).hexdigest()
    return f"kbqa-{digest[:_NAME_DIGITS]}"
