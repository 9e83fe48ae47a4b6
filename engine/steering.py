"""Steer a text token by token along a grammar of pieces (`kbqa.engine.crp_grammar`).

A text may stand in several places of the grammar at once: within one of some texts, and within
free text that may end at any of its tokens. Texts are taken in the tokens that the tokenizer itself
would write, so that there is one way to write each; that needs a tokenizer which begins a new token
where a piece begins, as those do that split texts into words first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from kbqa.engine.crp_grammar import Choice, Options, Region, TextSet
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
    """A place within some texts: what may follow, and which text ends here."""

    children: "dict[int, TrieNode]" = field(default_factory=dict)
    text: str | None = None


class Pieces:
    """The pieces of a grammar in the tokens of one tokenizer.

    Args:
        tokenizer: Of the model that is steered.

    Raises:
        ModelError: The tokenizer does not begin a new token where a piece begins.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)
        self._tokens: dict[str, tuple[int, ...]] = {}
        self._tries: WeakKeyDictionary[TextSet, TrieNode] = WeakKeyDictionary()
        self.end: int = tokenizer.eos_token_id
        split = [token for piece in _PIECES for token in self._encode(piece)]
        if split != list(self._encode("".join(_PIECES))) or self.text(split) != "".join(_PIECES):
            raise ModelError(
                "the tokenizer of the model does not split a reasoning path where its parts begin, "
                "so that it cannot be steered. Use --decoding none."
            )

    def trie(self, texts: TextSet) -> TrieNode:
        """Find the trie of some texts; it is made once."""
        root = self._tries.get(texts)
        if root is None:
            root = self._tries[texts] = TrieNode()
            for text in texts.texts:
                node = root
                for token in self._encode(text):
                    node = node.children.setdefault(token, TrieNode())
                node.text = text
        return root

    def text(self, tokens: Sequence[int]) -> str:
        """Write tokens as text, without tidying it."""
        return str(self._tokenizer.decode(tokens, clean_up_tokenization_spaces=False))

    def is_special(self, token: int) -> bool:
        """Tell whether a token stands for no text."""
        return token in self._special

    def _encode(self, text: str) -> tuple[int, ...]:
        tokens = self._tokens.get(text)
        if tokens is None:
            tokens = tuple(self._tokenizer.encode(text, add_special_tokens=False))
            self._tokens[text] = tokens
        return tokens


@dataclass(frozen=True, slots=True)
class _InText:
    """Within one of the texts of a choice."""

    node: TrieNode
    choice: Choice


@dataclass(frozen=True, slots=True)
class _InRegion:
    """Within free text."""

    tokens: tuple[int, ...]
    region: Region


class SteeredText:
    """A `kbqa.engine.beam_search.State`: the places where a text may stand in its grammar."""

    __slots__ = ("_may_end", "_pieces", "_places", "tokens")

    def __init__(
        self, pieces: Pieces, places: Sequence[_InText | _InRegion], may_end: bool
    ) -> None:
        self._pieces, self._places, self._may_end = pieces, places, may_end
        self.tokens = self._listed()

    @classmethod
    def begin(cls, pieces: Pieces, options: Options) -> "SteeredText":
        """Stand before the first token of a text."""
        return cls(pieces, list(_opened(pieces, options)), options.may_end)

    def follow(self, token: int) -> "SteeredText | None":
        """Go on by a token; None where it may not follow."""
        if token == self._pieces.end:
            return SteeredText(self._pieces, (), may_end=False) if self._may_end else None
        places: list[_InText | _InRegion] = []
        may_end = False
        for place in self._places:
            following = (
                self._in_text(place, token)
                if isinstance(place, _InText)
                else (self._in_region(place, token))
            )
            for item in following:
                if isinstance(item, Options):
                    places += _opened(self._pieces, item)
                    may_end = may_end or item.may_end
                else:
                    places.append(item)
        return SteeredText(self._pieces, places, may_end) if places or may_end else None

    def _listed(self) -> Sequence[int] | None:
        """List the tokens that may follow, unless there is free text among what may."""
        tokens = dict.fromkeys([self._pieces.end] if self._may_end else [])
        for place in self._places:
            if isinstance(place, _InRegion):
                return None
            tokens.update(dict.fromkeys(place.node.children))
        return tuple(tokens)

    def _in_text(self, place: _InText, token: int) -> Iterator[_InText | Options]:
        node = place.node.children.get(token)
        if node is not None:
            if node.children:
                yield _InText(node, place.choice)
            if node.text is not None:
                yield place.choice.then(node.text)

    def _in_region(self, place: _InRegion, token: int) -> Iterator[_InRegion | Options]:
        if self._pieces.is_special(token):
            return
        tokens = (*place.tokens, token)
        text = self._pieces.text(tokens)
        if place.region.goes_on(text):
            yield _InRegion(tokens, place.region)
        if place.region.is_done(text):
            yield place.region.then(text)


def _opened(pieces: Pieces, options: Options) -> Iterable[_InText | _InRegion]:
    for choice in options.choices:
        yield _InText(pieces.trie(choice.texts), choice)
    if options.region is not None:
        yield _InRegion((), options.region)
