"""Steer a text token by token along a grammar of pieces (`crp_grammar`).

A text may be at several places of the grammar at once: within one of several fixed texts, and
within free text that may end after any of its tokens. Only the tokens that the tokenizer itself
would write are allowed, so there is one way to write each text. This needs a tokenizer that begins
a new token where a piece begins, as tokenizers do that split texts into words first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from weakref import WeakKeyDictionary

from kbqa.engine.writing.constraints.crp_grammar import OneOf, Options, Region, TextSet
from kbqa.engine.writing.tokenizer import Tokenizer
from kbqa.sparql.errors import ModelError

# What may come before a piece: nothing, a text, or a line break. Some tokenizers put a space before
# the first word of a text.
_START, _TEXT, _LINE = "", "a", "a\n"

_PIECES = (
    "Main Path:",
    "\n Señor O'Neil (film, 1990)",
    " -[R[film , performance , sort of]]->",
    " ?k2",
    "\n ?k2",
    " -[people , person , sibling s]->",
    " ?x",
    "\nNumeric Restrictions:",
    "\n ?x",
    " -[topic server , population number]->",
    " ?sk0",
    "\n  FILTER (xsd:integer(?sk0) <= 12)",
    "\n  ORDER BY DESC(?sk0)",
    "\n  LIMIT 10",
)


@dataclass(slots=True)
class TrieNode:
    """A place within some texts.

    Attributes:
        children: Where each token that may follow leads.
        text: The text that ends here, if one does.
        newline: Whether its last token includes the line break after it.
    """

    children: "dict[int, TrieNode]" = field(default_factory=dict)
    text: str | None = None
    newline: bool = False


class Pieces:
    """The pieces of a grammar in the tokens of one tokenizer.

    Some tokenizers, such as those of GPT-4, Llama 3 and Qwen, have tokens for a punctuation mark
    together with the line break after it. With these, a piece may end in such a token, and the next
    piece begins after its line break.

    Args:
        tokenizer: The tokenizer of the steered model.

    Raises:
        ModelError: The tokenizer does not begin a new token where a piece begins.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)
        self._tokens: dict[tuple[str, str], tuple[int, ...]] = {}
        self._tries: WeakKeyDictionary[TextSet, dict[str, TrieNode]] = WeakKeyDictionary()
        self.end: int = tokenizer.eos_token_id
        self.merges_newlines = self._merges(")")
        if not self._splits_at_pieces():
            raise ModelError(
                "the model's tokenizer does not split a reasoning path where its parts begin, so "
                "the model's texts cannot be constrained. Use --decoding none."
            )

    def open(self, options: Options, before: str = _TEXT) -> "Iterator[_InText | _InRegion]":
        """Yield the places where a text may be if it may continue in these ways.

        Args:
            options: What may follow.
            before: What comes before it; a line break is the one that the next piece begins with.
        """
        for choice in options.choices:
            yield _InText(self._trie(choice.texts, before), choice)
        if options.region is not None:
            yield _InRegion("\n" if before == _LINE else "", (), options.region)

    def text(self, tokens: Sequence[int]) -> str:
        """Write tokens as text, without tidying it; a space at its beginning is kept."""
        tokens = (*self._encode(_TEXT, _START), *tokens)
        return self._tokenizer.decode(tokens).removeprefix(_TEXT)

    def is_special(self, token: int) -> bool:
        """Return whether a token has no text."""
        return token in self._special

    def _trie(self, texts: TextSet, before: str) -> TrieNode:
        """Return the trie of some texts; it is built once."""
        tries = self._tries.setdefault(texts, {})
        if before not in tries:
            root = tries[before] = TrieNode()
            for text in texts.texts:
                if before == _LINE and not text.startswith("\n"):
                    continue
                body = text[1:] if before == _LINE else text
                newline = texts.ends_line and self._merges(text)
                node = root
                for token in self._encode(f"{body}\n" if newline else body, before):
                    node = node.children.setdefault(token, TrieNode())
                node.text, node.newline = text, newline
        return tries[before]

    def _merges(self, text: str) -> bool:
        """Return whether a text's last token includes the line break after it."""
        separate = (*self._encode(text), *self._encode("\n"))
        return self._encode(f"{text}\n") != separate

    def _splits_at_pieces(self) -> bool:
        text, split, before = "".join(_PIECES), list[int](), _START
        for piece, following in pairwise((*_PIECES, "")):
            body = piece[1:] if before == _LINE else piece
            merges = following.startswith("\n") and self._merges(piece)
            split += self._encode(f"{body}\n" if merges else body, before)
            before = _LINE if merges else _TEXT
        return tuple(split) == self._encode(text, _START) and self.text(split).strip() == text

    def _encode(self, text: str, before: str = _TEXT) -> tuple[int, ...]:
        """Return the tokens of a text when it follows another."""
        key = (text, before)
        if key not in self._tokens:
            start = self._tokenizer.encode(before, add_special_tokens=False) if before else []
            whole = self._tokenizer.encode(before + text, add_special_tokens=False)
            self._tokens[key] = tuple(whole[len(start) :])
        return self._tokens[key]


@dataclass(frozen=True, slots=True)
class _InText:
    """Within one of the texts of a choice."""

    node: TrieNode
    choice: OneOf


@dataclass(frozen=True, slots=True)
class _InRegion:
    """Within free text; `written` is a line break that an earlier token included, or empty."""

    written: str
    tokens: tuple[int, ...]
    region: Region


class SteeredText:
    """A `beam_search.State`: the places where a text may be in its grammar."""

    __slots__ = ("_may_end", "_pieces", "_places", "tokens")

    def __init__(
        self, pieces: Pieces, places: Sequence[_InText | _InRegion], may_end: bool
    ) -> None:
        self._pieces, self._places, self._may_end = pieces, places, may_end
        self.tokens = self._listed()

    @classmethod
    def begin(cls, pieces: Pieces, options: Options) -> "SteeredText":
        """Return the state before the first token of a text."""
        return cls(pieces, list(pieces.open(options, _START)), options.may_end)

    def follow(self, token: int) -> "SteeredText | None":
        """Return the state after a token; None if the token may not follow."""
        if token == self._pieces.end:
            return SteeredText(self._pieces, (), may_end=False) if self._may_end else None
        following = _Following(self._pieces)
        for place in self._places:
            if isinstance(place, _InText):
                following.go_on_in_text(place, token)
            elif not self._pieces.is_special(token):
                following.go_on_in_region(place, token)
        if not following.places and not following.may_end:
            return None
        return SteeredText(self._pieces, following.places, following.may_end)

    def _listed(self) -> Sequence[int] | None:
        """List the tokens that may follow; None if free text may follow."""
        tokens = dict.fromkeys([self._pieces.end] if self._may_end else [])
        for place in self._places:
            if isinstance(place, _InRegion):
                return None
            tokens.update(dict.fromkeys(place.node.children))
        return tuple(tokens)


@dataclass(slots=True)
class _Following:
    """Collects the places where a text may be after a token."""

    pieces: Pieces
    places: list[_InText | _InRegion] = field(default_factory=list)
    may_end: bool = False

    def go_on_in_text(self, place: _InText, token: int) -> None:
        node = place.node.children.get(token)
        if node is None:
            return
        if node.children:
            self.places.append(_InText(node, place.choice))
        if node.text is not None:
            self._open(place.choice.then(node.text), _LINE if node.newline else _TEXT)

    def go_on_in_region(self, place: _InRegion, token: int) -> None:
        tokens, region = (*place.tokens, token), place.region
        text = place.written + self.pieces.text(tokens)
        if region.goes_on(text):
            self.places.append(_InRegion(place.written, tokens, region))
        if region.is_done(text):
            self._open(region.then(text))
        elif self.pieces.merges_newlines and text.endswith("\n") and region.is_done(text[:-1]):
            self._open(region.then(text[:-1]), _LINE)

    def _open(self, options: Options, before: str = _TEXT) -> None:
        self.places += self.pieces.open(options, before)
        self.may_end = self.may_end or (options.may_end and before != _LINE)
