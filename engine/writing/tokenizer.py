"""The tokenizer of a language model, of which writing needs little."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kbqa.sparql.errors import ModelError


class Tokenizer(Protocol):
    """A tokenizer under the names that transformers gives its own."""

    @property
    def eos_token_id(self) -> int:
        """The token that ends a text."""

    @property
    def all_special_ids(self) -> Sequence[int]:
        """The tokens that have no text."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text."""

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of tokens."""


class SavedTokenizer:
    """A `Tokenizer` from the folder of a model, without transformers.

    Args:
        folder: It has ``tokenizer.json`` and ``tokenizer_config.json``.

    Raises:
        ModelError: A file is missing or broken.
    """

    def __init__(self, folder: Path) -> None:
        import tokenizers

        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
            config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
            end = config["eos_token"]
            token = self._tokenizer.token_to_id(end if isinstance(end, str) else end["content"])
        except Exception as error:  # tokenizers raises no narrower one
            raise ModelError(f"the tokenizer in {folder} cannot be read: {error!r}") from error
        if token is None:
            raise ModelError(f"the tokenizer in {folder} has no token {end!r}, which ends texts")
        self.eos_token_id: int = token
        added = self._tokenizer.get_added_tokens_decoder()
        self.all_special_ids = [number for number, token in added.items() if token.special]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text."""
        return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of tokens."""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens)
