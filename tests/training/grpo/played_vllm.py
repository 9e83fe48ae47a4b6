"""A real HTTP server that answers as vLLM's does with kbqa's logits processor.

It loads the adapters that it is handed, and draws from a real model, steered by a real graph.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from misbehaving_server import Answer, MisbehavingServer

from kbqa.engine.writing.checkpoint import quiet_transformers
from kbqa.engine.writing.ebnf import read_steered
from kbqa.engine.writing.grammar import start
from kbqa.engine.writing.steering import Decoding, Pieces, SteeredText
from kbqa.engine.writing.vllm import SteeredRows, dead_end_token
from kbqa.sparql.errors import InputError


def refusal(message: str, status: int = 400) -> Answer:
    return Answer({"error": {"message": message, "code": status}}, status)


class PlayedVllm:
    """Answers the requests that a server gets.

    Attributes:
        decoding: Constrains the texts; level ``graph``.
        used: The adapters that texts were drawn with, in order.
    """

    def __init__(self, server: MisbehavingServer, base: Path, decoding: Decoding) -> None:
        from transformers import AutoTokenizer

        self.decoding, self._server, self._base = decoding, server, base
        self._tokenizer = AutoTokenizer.from_pretrained(base)
        self._pieces = Pieces(self._tokenizer)
        self._dead_end = dead_end_token(self._tokenizer)
        self._adapters: dict[str, Any] = {}
        self.used: list[str] = []
        server.answer = self.answer
        self._list()

    @property
    def served(self) -> set[str]:
        return {"base", *self._adapters}

    def answer(self, asked: Mapping[str, Any]) -> Answer:
        if "lora_path" in asked:
            return self._load(asked["lora_name"], Path(asked["lora_path"]))
        if "lora_name" in asked:
            return self._unload(asked["lora_name"])
        try:
            steered = read_steered(asked["vllm_xargs"])
        except InputError as error:
            return refusal(str(error))
        if asked["model"] not in self._adapters:
            return refusal(f"The model `{asked['model']}` does not exist.", 404)
        assert steered is not None
        self.used.append(asked["model"])
        steps = self.decoding.steps(steered.topics, steered.crp_format)
        assert steps is not None
        begin = SteeredText.begin(self._pieces, start(steps))
        return Answer({"choices": self._draw(asked, begin, steered.keep)})

    def _load(self, name: str, folder: Path) -> Answer:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        if name in self._adapters:
            return refusal(f"The lora adapter '{name}' has already been loaded.")
        quiet_transformers()
        model = AutoModelForCausalLM.from_pretrained(self._base)
        self._adapters[name] = PeftModel.from_pretrained(model, str(folder)).eval()
        self._list()
        return Answer(b"Success: LoRA adapter added successfully.")

    def _unload(self, name: str) -> Answer:
        if name not in self._adapters:
            return refusal(f"The lora adapter '{name}' cannot be found.", 404)
        del self._adapters[name]
        self._list()
        return Answer(b"Success: LoRA adapter removed successfully.")

    def _list(self) -> None:
        self._server.offers(*sorted(self.served))

    def _draw(self, asked: Mapping[str, Any], begin: SteeredText, keep: Any) -> list[object]:
        import torch

        generator = torch.Generator().manual_seed(asked["seed"])
        rows = SteeredRows(self._pieces.end, self._dead_end)
        texts: list[list[int]] = [[] for _ in range(asked["n"])]
        tops: list[list[dict[str, float]]] = [[] for _ in texts]
        for at, tokens in enumerate(texts):
            rows.put(at, begin, tokens, keep)
        ids = torch.tensor([asked["prompt"]] * len(texts))
        going_on = set(range(len(texts)))
        while going_on and ids.shape[1] < len(asked["prompt"]) + asked["max_tokens"]:
            with torch.no_grad():
                logits = self._adapters[asked["model"]](input_ids=ids).logits[:, -1]
            likeliest = logits.log_softmax(1).topk(asked["logprobs"])
            rows.mask(logits)
            drawn = (logits / asked["temperature"]).softmax(1)
            following = torch.multinomial(drawn, 1, generator=generator)
            ids = torch.cat([ids, following], 1)
            for at in sorted(going_on):
                token = int(following[at])
                places = zip(
                    likeliest.indices[at].tolist(), likeliest.values[at].tolist(), strict=True
                )
                texts[at].append(token)
                tops[at].append({f"token_id:{one}": p for one, p in ((token, -9.0), *places)})
                if token in (self._pieces.end, *asked["stop_token_ids"]):
                    rows.drop(at)
                    going_on.remove(at)
        return [
            {"text": "", "token_ids": tokens, "logprobs": {"top_logprobs": top}}
            for tokens, top in zip(texts, tops, strict=True)
        ]
