"""Find entities by name on any graph: in a store's name index, or by label at an endpoint."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.names.index import MAX_SPAN_TOKENS, NameMatch, Span, standing, token_runs
from kbqa.kb.names.index import Names as Names  # also from here, beside `open_names`
from kbqa.kb.names.keys import symbols
from kbqa.sparql.errors import ResultTruncated
from kbqa.sparql.terms import NAME, LiteralTerm, iri, is_well_formed, sparql_term

_COUNT_LIMIT = 20_000  # triples counted for an entity's popularity: a hub has millions

# Entities counted by one query: each request takes a millisecond or two, and Virtuoso 7 counts 100
# in 0.27 s by twenties, and in 0.39 s by fifties.
_COUNTS_A_QUERY = 20

_COUNTED_OF_A_NAME = 100  # only the best known match is needed, not all thousands
_COUNTED = 500  # entities for all names in a text: 25 queries, about 2 s on Virtuoso 7

# Each is two literals. Virtuoso 7 is as quick with 25 as with 300 a query; with thousands it takes
# three times as long, or refuses them as "Too many arguments".
_SPELLINGS_A_QUERY = 100

_ROWS_A_QUERY = 2000  # well below 10,000, the limit of most servers

# Each spelling of each run of words is looked up; with runs of up to 12 words they are half as many
# again, and names that long are rare.
_MAX_NAME_TOKENS = 8

_MAX_TOKENS = 40  # words of a text: they have 300 runs, which take up to 1 s

_ALIAS = "common.topic.alias"
_POSSESSIVE = re.compile(r"['’]s$", re.IGNORECASE)


def open_names(graph: Graph, timeout_s: float = DEFAULT_TIMEOUT_S) -> Names:
    """Open the names of a graph, as `Graph.names` does."""
    return graph.names(timeout_s)


class EndpointNames(Names):
    """Names by equality of labels, for a graph without a name index.

    A name is found if it is written as in the graph, apart from capitals at its words' starts, or
    with all words in capitals if each begins with one: SPARQL has no index for anything else.
    """

    is_exact = True

    def __init__(self, graph: Graph, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._graph = graph
        self._timeout_s = timeout_s

    def lookup(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find the entities with this name or alias."""
        return self._matches([text], limit).get(text, [])

    def near(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Return nothing: an endpoint has no index of spellings."""
        return []

    def containing(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Return nothing: an endpoint has no index of words."""
        return []

    def search(self, text: str, limit: int = 10) -> list[NameMatch]:
        """Find what `lookup` finds."""
        return self.lookup(text, limit)

    def match_spans(
        self, tokens: Sequence[str], max_tokens: int = MAX_SPAN_TOKENS, limit: int = 10
    ) -> list[Span]:
        """Find the runs of at most 8 of the first 40 tokens that are an entity's name.

        If a text has very many names, their less known matches may be missing.
        """
        runs = token_runs(tokens[:_MAX_TOKENS], min(max_tokens, _MAX_NAME_TOKENS))
        matches = self._matches({text for _, _, text in runs}, limit)
        return [Span(start, end, matches[text]) for start, end, text in runs if text in matches]

    def close(self) -> None:
        """Do nothing: the graph is the caller's."""

    def _matches(self, texts: Iterable[str], limit: int) -> dict[str, list[NameMatch]]:
        texts_of: dict[str, set[str]] = {}
        for text in filter(str.strip, texts):
            for spelling in _spellings(text):
                texts_of.setdefault(spelling, set()).add(text)
        spellings = sorted(texts_of)
        found: dict[str, dict[str, tuple[str, bool]]] = {}
        for start in range(0, len(spellings), _SPELLINGS_A_QUERY):
            batch = spellings[start : start + _SPELLINGS_A_QUERY]
            for mid, matched, is_alias in self._fetch(batch):
                for text in texts_of.get(matched, ()):
                    mids = found.setdefault(text, {})
                    if mid not in mids or not is_alias:
                        mids[mid] = (matched, is_alias)
        counted = _worth_counting(found, max(limit, _COUNTED_OF_A_NAME))
        labels = self._graph.labels(counted)
        popularity = self._popularity(counted)
        return {
            text: sorted(
                (
                    NameMatch(mid, labels.get(mid, matched), matched, is_alias, popularity[mid], 1)
                    for mid, (matched, is_alias) in mids.items()
                    if mid in popularity
                ),
                key=partial(_order, symbols(text)),
            )[:limit]
            for text, mids in found.items()
        }

    def _fetch(self, spellings: Sequence[str]) -> list[tuple[str, str, bool]]:
        """Fetch the matches of spellings: the mid, the name, and whether it is an alias."""
        values = " ".join(
            sparql_term(LiteralTerm(spelling, language=language))
            for spelling in spellings
            for language in ("en", None)
        )
        # Not with the relations in VALUES: Oxigraph then reads all names of the graph, and given
        # pairs of relation and name, Virtuoso finds no name that has a language.
        ways = " UNION ".join(
            f"{{ ?mid {iri(relation)} ?matched BIND ({iri(relation)} AS ?relation) }}"
            for relation in (NAME, _ALIAS)
        )
        query = (
            f"SELECT DISTINCT ?mid ?matched ?relation WHERE {{ "
            f"VALUES ?matched {{ {values} }} {{ {ways} }} }}"
        )
        is_alone = len(spellings) == 1
        try:
            table = self._graph.select(query, timeout_s=self._timeout_s, limit=_ROWS_A_QUERY)
            is_whole = not table.truncated
        except ResultTruncated:
            if is_alone:
                raise
            is_whole = False
        if is_whole or is_alone:
            return [
                (mid, matched.text, relation == _ALIAS)
                for mid, matched, relation in table.rows
                if isinstance(mid, str) and is_well_formed(mid) and isinstance(matched, LiteralTerm)
            ]
        half = len(spellings) // 2
        return self._fetch(spellings[:half]) + self._fetch(spellings[half:])

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
                if isinstance(mid, str) and isinstance(count, LiteralTerm):
                    popularity[mid] = int(count.text)
        return popularity


def _worth_counting(found: Mapping[str, Mapping[str, tuple[str, bool]]], each: int) -> list[str]:
    """Choose `_COUNTED` entities of those found, `each` of one text at most, all texts in turn."""
    # First go names with the symbols of the text, then own names, then short mids, which Freebase
    # gave first: of 445 names with 12 matches or more, the best known is among the first three of
    # these for 76 %, and for 33 % if mids are in alphabetical order.
    ranked = sorted(
        (rank, mid)
        for text, mids in found.items()
        for rank, (_, _, _, mid) in enumerate(
            sorted(
                (_has_other_symbols(matched, symbols(text)), is_alias, len(mid), mid)
                for mid, (matched, is_alias) in mids.items()
            )[:each]
        )
    )
    return list(dict.fromkeys(mid for _, mid in ranked))[:_COUNTED]


def _spellings(text: str) -> set[str]:
    plain = "".join(c for c in text if c not in symbols(text)).strip()
    forms = [form for each in (text, plain) for form in (each, _POSSESSIVE.sub("", each)) if form]
    return {
        spelling
        for form in forms
        for spelling in (form, form[:1].upper() + form[1:], _capitalised(form))
    } | {_capitalised(form.lower()) for form in forms if form.isupper()}


def _capitalised(text: str) -> str:
    # Not str.title, which would write "Schindler'S List".
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))


def _order(marks: str, match: NameMatch) -> tuple[bool, int, bool, int, str]:
    best = -standing(match.popularity, match.is_alias)
    is_other = _has_other_symbols(match.matched, marks)
    return (is_other, best, match.is_alias, -match.popularity, match.mid)


def _has_other_symbols(name: str, marks: str) -> bool:
    """Return whether a text has symbols, `marks`, and a name has others."""
    return bool(marks) and symbols(name) != marks
