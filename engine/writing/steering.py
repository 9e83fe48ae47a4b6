"""Steer a text token by token along a grammar of pieces (`kbqa.engine.writing.grammar`).

A text may be at several places of the grammar at once: within one of several fixed texts, and
within free text that may end after any of its tokens. Only the tokens that the tokenizer itself
would write are allowed, so there is one way to write each text.

Level ``none`` allows any text. Level ``schema`` allows only CRPs, and in them only relations of the
graph. Level ``graph`` also makes main paths start from the question's topics and follow the graph,
so every main path exists there. Without topics, ``graph`` is ``schema``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal
from weakref import WeakKeyDictionary

from kbqa.engine.writing.generate import (
    DecodingLevel,
    PromptFormat,
    Tokenizer,
)
from kbqa.engine.writing.grammar import (
    KnownRelations,
    OneOf,
    Options,
    PathWalk,
    Region,
    Steps,
    TextSet,
)
from kbqa.kb.graph import Graph
from kbqa.kb.schema import list_relations
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import CrpSyntaxError, ModelError
from kbqa.sparql.forms import parse_routerkgqa

CONSTRAINED_FORMS: tuple[Literal["routerkgqa", "extended"], ...] = ("routerkgqa", "extended")

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
    """A place within some texts; each token that may follow leads to a child."""

    children: "dict[int, TrieNode]" = field(default_factory=dict)
    text: str | None = None  # that ends here
    newline: bool = False  # whether its last token includes the line break after it


class Pieces:
    """The pieces of a grammar in the tokens of the steered model's tokenizer.

    The tokenizers of GPT-4, Llama 3, Qwen and others have tokens for a punctuation mark with the
    line break after it. A piece may end in such a token; the next one begins after its line break.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.special = frozenset(tokenizer.all_special_ids)
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
        """Yield the places where a text may be that has these options."""
        for choice in options.choices:
            yield _InText(self._trie(choice.texts, before), choice)
        if options.region is not None:
            yield _InRegion("\n" if before == _LINE else "", (), options.region)

    def text(self, tokens: Sequence[int]) -> str:
        """Decode tokens; a space at the beginning is kept."""
        tokens = (*self._encode(_TEXT, _START), *tokens)
        return self._tokenizer.decode(tokens).removeprefix(_TEXT)

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
    """Within free text."""

    written: str  # a line break that an earlier token included, or empty
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
        places: list[_InText | _InRegion] = []
        may_end = False

        def reach(options: Options, before: str = _TEXT) -> None:
            nonlocal may_end
            places.extend(self._pieces.open(options, before))
            may_end = may_end or (options.may_end and before != _LINE)

        for place in self._places:
            if isinstance(place, _InText):
                node = place.node.children.get(token)
                if node is not None and node.children:
                    places.append(_InText(node, place.choice))
                if node is not None and node.text is not None:
                    reach(place.choice.then(node.text), _LINE if node.newline else _TEXT)
            elif token not in self._pieces.special:
                tokens, region = (*place.tokens, token), place.region
                text = place.written + self._pieces.text(tokens)
                if region.goes_on(text):
                    places.append(_InRegion(place.written, tokens, region))
                if region.is_done(text):
                    reach(region.then(text))
                elif (
                    self._pieces.merges_newlines
                    and text.endswith("\n")
                    and region.is_done(text[:-1])
                ):
                    reach(region.then(text[:-1]), _LINE)
        return SteeredText(self._pieces, places, may_end) if places or may_end else None

    def _listed(self) -> Sequence[int] | None:
        """List the tokens that may follow; None if free text may follow."""
        tokens = dict.fromkeys([self._pieces.end] if self._may_end else [])
        for place in self._places:
            if isinstance(place, _InRegion):
                return None
            tokens.update(dict.fromkeys(place.node.children))
        return tuple(tokens)


class Decoding:
    """A level, with the graph that the levels ``schema`` and ``graph`` need."""

    def __init__(self, level: DecodingLevel = "none", graph: Graph | None = None) -> None:
        self.level = level
        self.graph = graph
        self.relations: Sequence[str] = ()  # that paths may take; none at level `none`
        if level != "none":
            if graph is None:
                raise ValueError(f"decoding by {level} needs a graph")
            self.relations = list_relations(graph)
        self._known = {
            is_extended: KnownRelations(self.relations, is_extended=is_extended)
            for is_extended in (False, True)
        }

    def check(self, prompt: PromptFormat) -> None:
        """Check that the form that a model writes can be constrained."""
        if self.level != "none" and prompt.crp_format not in CONSTRAINED_FORMS:
            raise ModelError(
                f"the adapter writes paths in the form {prompt.crp_format!r}, which cannot be "
                "constrained. Use --decoding none."
            )

    def steps(self, topics: Sequence[Entity], crp_format: str = "routerkgqa") -> Steps | None:
        """Return where paths from topics may lead; None if texts are not constrained."""
        if self.level == "none" or self.graph is None:
            return None
        known = self._known[crp_format == "extended"]
        if self.level == "graph":
            walk = PathWalk(self.graph, topics, known)
            if walk.has_topics:
                return walk
        return known


def walked_topics(steps: Steps | None, text: str) -> tuple[str, ...]:
    """Return the mids from which a text's main path leads to answers.

    There are none if it was not walked, or cannot be read, such as a count with an order, which
    only the whole text shows.
    """
    if not isinstance(steps, PathWalk):
        return ()
    try:
        crp = parse_routerkgqa(text).crp
    except CrpSyntaxError:
        return ()
    return steps.mids(str(crp.topic), crp.hops, crp.differs_from or 0)
