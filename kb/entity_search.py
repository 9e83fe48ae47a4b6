"""Find entities by name on any graph: in a store's name index, or by label at an endpoint."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.layout import StoreLayout
from kbqa.kb.names import MAX_SPAN_TOKENS, NameIndex, NameMatch, Span, standing
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.terms import Literal, iri, is_well_formed, sparql_term

_COUNT_LIMIT = 20_000
"""Triples counted for an entity's popularity at an endpoint: a hub has millions."""

_COUNTS_A_QUERY = 50
"""Entities counted by one query to an endpoint: each request takes a millisecond or two."""

_NAME = "type.object.name"
_ALIAS = "common.topic.alias"


class Names(Protocol):
    """The names of a graph's entities; `NameIndex` says what each method does."""

    def lookup(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find the entities that bear exactly this name or alias, best first."""

    def near(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find the entities whose name or alias is spelled nearly like a text, best first."""

    def search(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find entities by a name that may be incomplete or mistyped, best first."""

    def match_spans(
        self, tokens: Sequence[str], max_tokens: int = MAX_SPAN_TOKENS, limit: int = 10
    ) -> list[Span]:
        """Find every run of tokens that is somebody's name, in reading order, longer runs first."""

    def close(self) -> None:
        """Free what the names hold; they are not used afterwards."""


def open_names(graph: Graph, timeout_s: float = DEFAULT_TIMEOUT_S) -> Names:
    """Open the names of a graph: a store's index, or an endpoint's labels.

    Args:
        graph: Stays open, and the caller's to close.
        timeout_s: Seconds until a query to an endpoint is stopped.

    Raises:
        StoreError: The store has no name index.
    """
    if isinstance(graph, OxigraphStore):
        return NameIndex.open(StoreLayout(graph.directory).names)
    return EndpointNames(graph, timeout_s)


class EndpointNames:
    """Names by equality of labels, for a graph without a name index.

    A name is found where it is written as in the graph, but for capitals at its words' starts:
    SPARQL has no index for anything else. So `search` finds what `lookup` finds.
    """

    def __init__(self, graph: Graph, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._graph = graph
        self._timeout_s = timeout_s

    def lookup(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find the entities that bear this name or alias; raises a `GraphError`."""
        return self._bearers([text], limit).get(text, [])

    def near(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find nobody: an endpoint has no index of spellings."""
        return []

    def search(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find what `lookup` finds."""
        return self.lookup(text, limit)

    def match_spans(
        self, tokens: Sequence[str], max_tokens: int = MAX_SPAN_TOKENS, limit: int = 10
    ) -> list[Span]:
        """Find every run of tokens that is somebody's name, in one query."""
        runs = [
            (start, end, " ".join(tokens[start:end]))
            for start in range(len(tokens))
            for end in range(min(len(tokens), start + max_tokens), start, -1)
        ]
        bearers = self._bearers({text for _, _, text in runs}, limit)
        return [Span(start, end, bearers[text]) for start, end, text in runs if text in bearers]

    def close(self) -> None:
        """Do nothing: the graph is the caller's."""

    def _bearers(self, texts: Iterable[str], limit: int) -> dict[str, list[NameMatch]]:
        texts_of: dict[str, set[str]] = {}
        for text in filter(str.strip, texts):
            for spelling in _spellings(text):
                texts_of.setdefault(spelling, set()).add(text)
        if not texts_of:
            return {}
        values = " ".join(
            sparql_term(Literal(spelling, language=language))
            for spelling in sorted(texts_of)
            for language in ("en", None)
        )
        # Each relation by itself: given both in VALUES, Oxigraph reads all names of the graph, and
        # given pairs of relation and name, Virtuoso finds no name that has a language.
        ways = " UNION ".join(
            f"{{ VALUES ?matched {{ {values} }} ?mid {iri(relation)} ?matched "
            f"BIND ({iri(relation)} AS ?relation) }}"
            for relation in (_NAME, _ALIAS)
        )
        table = self._graph.select(
            f"SELECT DISTINCT ?mid ?matched ?relation WHERE {{ {ways} }}",
            timeout_s=self._timeout_s,
            limit=10 * limit * len(texts_of),
        )
        found: dict[str, dict[str, tuple[str, bool]]] = {}
        for mid, matched, relation in table.rows:
            if isinstance(mid, str) and is_well_formed(mid) and isinstance(matched, Literal):
                for text in texts_of.get(matched.text, ()):
                    mids = found.setdefault(text, {})
                    if mid not in mids or relation == _NAME:
                        mids[mid] = (matched.text, relation == _ALIAS)
        everybody = sorted({mid for mids in found.values() for mid in mids})
        labels = self._graph.labels(everybody)
        popularity = self._popularity(everybody)
        return {
            text: sorted(
                (
                    NameMatch(mid, labels.get(mid, matched), matched, is_alias, popularity[mid], 1)
                    for mid, (matched, is_alias) in mids.items()
                ),
                key=_order,
            )[:limit]
            for text, mids in found.items()
        }

    def _popularity(self, mids: Sequence[str]) -> dict[str, int]:
        """Count the triples of each entity, up to `_COUNT_LIMIT`."""
        popularity: dict[str, int] = {}
        for start in range(0, len(mids), _COUNTS_A_QUERY):
            counts = " UNION ".join(
                f"{{ SELECT ({node} AS ?mid) (COUNT(*) AS ?n) WHERE {{ SELECT ?p ?x WHERE {{ "
                f"{{ {node} ?p ?x }} UNION {{ ?x ?p {node} }} }} LIMIT {_COUNT_LIMIT} }} }}"
                for node in map(iri, mids[start : start + _COUNTS_A_QUERY])
            )
            table = self._graph.select(
                f"SELECT ?mid ?n WHERE {{ {counts} }}", timeout_s=self._timeout_s
            )
            for mid, count in table.rows:
                if isinstance(mid, str) and isinstance(count, Literal):
                    popularity[mid] = int(count.text)
        return popularity


def _spellings(text: str) -> set[str]:
    bare = text.removesuffix("'s").removesuffix("’s")
    forms = {text, bare} if bare.strip() else {text}
    return {
        spelling
        for form in forms
        for spelling in (form, form[:1].upper() + form[1:], _capitalised(form))
    }


def _capitalised(text: str) -> str:
    # Not str.title, which would write "Schindler'S List".
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))


def _order(match: NameMatch) -> tuple[int, bool, int, str]:
    best = -standing(match.popularity, match.is_alias)
    return (best, match.is_alias, -match.popularity, match.mid)
