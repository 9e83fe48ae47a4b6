"""A graph behind a SPARQL 1.1 endpoint, or behind several that hold copies, asked by POST.

The search operations of a store are queries here. `kbqa.kb.protocol` sends them and lists the
errors.

Many servers cut results at a number of rows, most of them silently. So a result of a suspicious
size, smaller than the limit of its query, counts as whole only if a second query, for one row
beyond it, returns none.

The edges of many entities are asked for together, in a VALUES list. If the result is too large,
entities with many rows are asked for apart, and the others in two halves. So are names, which an
endpoint finds by their labels.
"""

import logging
import re
import reprlib
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeGuard, TypeVar, cast

from kbqa.kb.connections import read_address
from kbqa.kb.deadline import bound
from kbqa.kb.graph import (
    DEFAULT_LIMIT,
    DEFAULT_TIMEOUT_S,
    Direction,
    Edges,
    Graph,
    GraphIdentity,
    Neighbours,
    Table,
    batches,
    edge_pattern,
    neighbours_query,
    pick_label,
    prepare_query,
    read_count,
    relations_query,
    sorted_edges,
)
from kbqa.kb.names import MAX_SPAN_TOKENS, NameMatch, Names, Span, standing, symbols, token_runs
from kbqa.kb.protocol import Copies, EndpointReply, QuerySender, describe_copies
from kbqa.kb.schema import KEPT, LEFT_OUT, is_telling
from kbqa.sparql.dialect import cap_rows, is_distinct, row_beyond, row_limit
from kbqa.sparql.errors import EndpointError, InputError, MalformedResult, ResultTruncated
from kbqa.sparql.terms import (
    ALIAS,
    NAME,
    LiteralTerm,
    Term,
    full_iri,
    has_scheme,
    iri,
    is_well_formed,
    quote,
    read_literal,
    resource_id,
    sparql_term,
    term_order,
)

logger = logging.getLogger(__name__)

_BATCH = 50  # entities asked for together: they seldom have more edges than one may have
_LABEL_BATCH = 500  # few enough for any server's limit on the length of a query
_ROWS_EACH = 10  # rows for each entity that a request may always fetch

# Servers' limits on rows are its multiples: 10,000 is Virtuoso's and that of public endpoints.
_ROUND = 1000

_Key = TypeVar("_Key", bound=tuple[str, ...])
_Asked = TypeVar("_Asked", bound=Hashable)
_Found = TypeVar("_Found")
_Item = TypeVar("_Item")

_T = TypeVar("_T")
_Rows: TypeAlias = Sequence[tuple[Term | None, ...]]

_EXCERPT = reprlib.Repr()  # bounds what a message shows, in length and in depth
_EXCERPT.maxstring = _EXCERPT.maxother = 100

# The schema is small, and every endpoint answers at once.
_PROPERTIES = f"SELECT DISTINCT ?r {{ ?r {iri('type.property.schema')} ?type }}"
_USED = "SELECT DISTINCT ?r { ?s ?r ?o }"

# No bookkeeping, see `kbqa.kb.schema.is_telling`.
_STARTS = (f"STRSTARTS(STR(?relation), {quote(full_iri(prefix))})" for prefix in LEFT_OUT)
_IS_TELLING = f" FILTER (?relation IN ({', '.join(map(iri, KEPT))}) || !({' || '.join(_STARTS)}))"

# The only column of Virtuoso 7's answer to ASK: one row for yes, none for no.
_VIRTUOSO_ASK = "__ASK_RETVAL"


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

_POSSESSIVE = re.compile(r"['’]s$", re.IGNORECASE)


class SparqlEndpoint(Graph):
    """A graph behind a URL, or behind the URLs of several copies of it.

    A URL may hold a user and password: ``http://ann:pw@host/``. `timeout_s` is for each search
    operation; `select` and `ask` take their own. `max_body_bytes` bounds each answer.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        max_body_bytes: int | None = None,
    ) -> None:
        self._addresses = [read_address(each) for each in ([url] if isinstance(url, str) else url)]
        if not self._addresses:
            raise InputError("there is no URL of an endpoint")
        self._sender = (
            QuerySender(self._addresses[0], max_body_bytes)
            if len(self._addresses) == 1
            else Copies(self._addresses, max_body_bytes)
        )
        self._timeout_s = timeout_s
        self._is_closed = False

    @property
    def description(self) -> str:
        """The graph in a few words: ``endpoint http://localhost:7878/query``."""
        return describe_copies(self._addresses)

    def identity(self) -> GraphIdentity:
        """Return the URLs, sorted, as the content of an endpoint is not known."""
        return GraphIdentity(
            {"store": None, "endpoint": self.description},
            {"graph": self.description, "store_summary": None},
        )

    def select(
        self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, limit: int | None = None
    ) -> Table:
        """Run a SELECT query by POST."""
        text = prepare_query(query, "select")
        # One row more than asked for shows whether there are more.
        text = text if limit is None else cap_rows(text, limit + 1)
        table = self._table(text, timeout_s, limit)
        return replace(table, rows=once(table.rows)) if is_distinct(text) else table

    def ask(self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> bool:
        """Run an ASK query by POST."""
        answer = self._post(prepare_query(query, "ask"), timeout_s)
        if isinstance(boolean := answer.json.get("boolean"), bool):
            return boolean
        table = self._read_table(answer)
        if table.variables != (_VIRTUOSO_ASK,):
            raise self._malformed("an ASK query with rows")
        return bool(table.rows)

    def relations_of_each(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Sequence[str]]:
        """Map each entity to its relations."""
        found = self._of_each(
            [(entity,) for entity in entities],
            lambda key: relations_query(*key, direction, limit),
            lambda keys, most: _query(
                "?node ?relation", [entity for (entity,) in keys], "?relation", direction, most
            ),
            limit,
        )
        return {entity: self._iris(terms) for (entity,), terms in found.items()}

    def neighbours_of_each(
        self,
        starts: Iterable[tuple[str, str]],
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Mapping[tuple[str, str], Sequence[Term]]:
        """Map each entity with a relation to what that leads to."""
        return self._of_each(
            starts,
            lambda start: neighbours_query(*start, direction, limit),
            lambda starts, most: _pairs_query(starts, direction, most),
            limit,
        )

    def first_neighbours(
        self, entity: str, relation: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Neighbours:
        """List the first of what one relation leads to, by id, and count the others."""
        found: Sequence[Term] = self.neighbours(entity, relation, direction, limit + 1)
        total = len(found)
        if total > limit:
            edge = edge_pattern(iri(entity), iri(relation), "?entity", direction)
            pattern = f"WHERE {{ {edge} }}"
            found = self._column(
                f"SELECT DISTINCT ?entity {pattern} ORDER BY STR(?entity) LIMIT {limit}"
            )
            total = self._count(f"SELECT (COUNT(DISTINCT ?entity) AS ?count) {pattern}")
        return Neighbours(tuple(sorted(found, key=term_order)[:limit]), max(total - limit, 0))

    def frontier_relations(
        self, entities: Sequence[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List the distinct relations that any of some entities has."""
        if not entities:
            return []
        return self._iris(
            self._column(_query("?relation", entities, "?relation", direction, limit))
        )

    def frontier_neighbours(
        self,
        entities: Sequence[str],
        relation: str,
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Sequence[Term]:
        """List what one relation leads to from any of some entities."""
        if not entities:
            return []
        return self._column(_query("?entity", entities, iri(relation), direction, limit))

    def edges(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Edges]:
        """Map entities to all their edges, if they have at most `limit`."""

        def search(entities: Sequence[str]) -> dict[str, Edges]:
            most = limit if len(entities) == 1 else 2 * limit
            columns = "?node ?relation ?entity"
            query = _query(columns, entities, "?relation", direction, most + 1, _IS_TELLING)
            rows = self._rows(query, 3)
            counts = Counter(str(node) for node, _, _ in rows)
            few = [entity for entity in entities if counts[entity] <= limit]
            if len(rows) > most:
                if len(few) == len(entities):
                    raise ResultTruncated(query, most, self.description)
                return _halving(few, search) if few else {}
            found: dict[str, dict[str, list[Term]]] = {entity: {} for entity in few}
            for node, relation, end in once(rows):
                if end is not None and str(node) in found and is_telling(str(relation)):
                    found[str(node)].setdefault(str(relation), []).append(end)
            return {entity: sorted_edges(edges) for entity, edges in found.items()}

        return _in_batches(entities, search, _BATCH)

    def labels(self, mids: Iterable[str]) -> Mapping[str, str]:
        """Map each mid that has a name to it."""

        def search(mids: Sequence[str]) -> dict[str, list[Term]]:
            names: dict[str, list[Term]] = {}
            values = " ".join(map(iri, mids))
            query = (
                f"SELECT ?mid ?name WHERE {{ VALUES ?mid {{ {values} }} ?mid {iri(NAME)} ?name }}"
            )
            for mid, name in self._rows(query, 2):
                if isinstance(mid, str) and name is not None:
                    names.setdefault(mid, []).append(name)
            return names

        # An endpoint may hold IRIs that no query can ask for.
        wanted = list(filter(is_well_formed, dict.fromkeys(mids)))
        names = _in_batches(wanted, search, _LABEL_BATCH)
        labels = {mid: pick_label(names.get(mid, ())) for mid in wanted}
        return {mid: label for mid, label in labels.items() if label is not None}

    def all_relations(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> set[str]:
        """Collect the properties that the schema states, or else every relation of a triple."""
        return self._resources(_PROPERTIES, timeout_s) or self._resources(_USED, timeout_s)

    def schema(self) -> None:
        """Return None, as only a few of thousands of properties are ever needed."""

    def names(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> "EndpointNames":
        """Return the names of entities, by equality of labels."""
        return EndpointNames(self, timeout_s)

    def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        self._sender.close()

    def _resources(self, query: str, timeout_s: float) -> set[str]:
        rows = self._rows(query, 1, timeout_s)
        return {row[0] for row in rows if isinstance(row[0], str)}

    def _post(self, query: str, timeout_s: float) -> EndpointReply:
        if self._is_closed:
            raise EndpointError(f"{self.description} was closed. Open it again to ask it.")
        logger.debug("asking %s: %s", self.description, query)
        return self._sender.post(query, bound(timeout_s))

    def _of_each(
        self,
        keys: Iterable[_Key],
        one: Callable[[_Key], str],
        many: Callable[[Sequence[_Key], int], str],
        limit: int,
    ) -> dict[_Key, list[Term]]:
        """Fetch at most `limit` terms of each key, by a query for one key or for many."""

        def search(keys: Sequence[_Key]) -> dict[_Key, list[Term]]:
            if len(keys) == 1:
                return {keys[0]: self._column(one(keys[0]))[:limit]}
            most = max(2 * limit, _ROWS_EACH * len(keys))
            query = many(keys, most + 1)
            rows = self._rows(query, len(keys[0]) + 1)
            terms: dict[_Key, list[Term]] = {key: [] for key in keys}
            for *start, term in rows:
                key = cast(_Key, tuple(map(str, start)))
                if term is not None and key in terms:
                    terms[key].append(term)
            found = {key: list(once(ends))[:limit] for key, ends in terms.items()}
            if len(rows) <= most:
                return found
            full = {key: ends for key, ends in found.items() if len(ends) == limit}
            if not full:
                raise ResultTruncated(query, most, self.description)
            left = [key for key in keys if key not in full]
            return full | _halving(left, search) if left else full

        return _in_batches(keys, search, _BATCH)

    def _column(self, query: str) -> list[Term]:
        return list(once(row[0] for row in self._rows(query, 1) if row[0] is not None))

    def _iris(self, terms: Iterable[Term]) -> list[str]:
        return sorted(map(self._iri, terms))

    def _iri(self, term: Term | None) -> str:
        if isinstance(term, str) and not term.startswith("_:"):
            return term
        shown = repr(term.text) if isinstance(term, LiteralTerm) else term or "nothing"
        raise self._malformed(f"with {shown[:200]} where an IRI must be")

    def _count(self, query: str) -> int:
        rows = self._rows(query, 1)
        if (count := read_count(rows)) is None:
            raise self._malformed(f"with {str(rows)[:200]}, not with a count")
        return count

    def _rows(self, query: str, columns: int, timeout_s: float | None = None) -> _Rows:
        """Run a query of kbqa's own; only its last column may have literals."""
        table = self._table(query, self._timeout_s if timeout_s is None else timeout_s, None)
        if len(table.variables) != columns:
            raise self._malformed(
                f"with {len(table.variables)} columns, and the query asks for {columns}. "
                "Does a cache stand before it?"
            )
        for *nodes, _ in table.rows:
            for node in nodes:
                self._iri(node)
        return table.rows

    def _table(self, query: str, timeout_s: float, limit: int | None) -> Table:
        """Run a query that asks for one row more than the limit, and cut off that row."""
        deadline = time.monotonic() + timeout_s
        answer = self._post(query, timeout_s)
        table = self._read_table(answer)
        count, asked = len(table.rows), row_limit(query)
        is_truncated = limit is not None and count > limit
        is_less = count > 0 and not is_truncated and (asked is None or count < asked)
        if is_less and (count == answer.max_rows or count % _ROUND == 0):
            left_s = max(deadline - time.monotonic(), 0.001)
            beyond = self._post(row_beyond(query, count), left_s)
            if self._read_table(beyond).rows:
                if limit is None or count < limit:
                    raise ResultTruncated(query, count, self.description)
                is_truncated = True
        return Table(table.variables, table.rows[:limit], is_truncated)

    def _read_table(self, answer: EndpointReply) -> Table:
        try:
            return Table(*_read_rows(answer.json))
        except ValueError as error:
            raise self._malformed(f"with {error}") from error

    def _malformed(self, words: str) -> MalformedResult:
        for address in self._addresses:
            words = address.hide(words)
        return MalformedResult(f"{self.description} answered {words}")


def _query(
    columns: str,
    entities: Sequence[str],
    relation: str,
    direction: Direction,
    limit: int,
    test: str = "",
) -> str:
    """Write the query for the edges of several entities: `?node`, `?relation` and `?entity`."""
    values = f"VALUES ?node {{ {' '.join(map(iri, entities))} }}"
    edge = edge_pattern("?node", relation, "?entity", direction)
    return f"SELECT DISTINCT {columns} WHERE {{ {values} {edge}{test} }} LIMIT {limit}"


def _pairs_query(starts: Sequence[tuple[str, str]], direction: Direction, limit: int) -> str:
    """Write the query for what relations lead to, each from its own entity."""
    pairs = " ".join(f"({iri(entity)} {iri(relation)})" for entity, relation in starts)
    edge = edge_pattern("?node", "?relation", "?entity", direction)
    return (
        "SELECT DISTINCT ?node ?relation ?entity "
        f"WHERE {{ VALUES (?node ?relation) {{ {pairs} }} {edge} }} LIMIT {limit}"
    )


def once(found: Iterable[_Item]) -> tuple[_Item, ...]:
    """Return each item once: Virtuoso's DISTINCT repeats rows that hold floats."""
    return tuple(dict.fromkeys(found))


def _in_batches(
    asked: Iterable[_Asked],
    search: Callable[[Sequence[_Asked]], dict[_Asked, _Found]],
    size: int,
) -> dict[_Asked, _Found]:
    wanted = list(dict.fromkeys(asked))
    found: dict[_Asked, _Found] = {}
    for batch in batches(wanted, size):
        found |= _halving(batch, search)
    return found


def _halving(
    asked: Sequence[_Asked], search: Callable[[Sequence[_Asked]], dict[_Asked, _Found]]
) -> dict[_Asked, _Found]:
    """Search for all together, and in two halves if the result is too large."""
    try:
        return search(asked)
    except ResultTruncated:
        if len(asked) == 1:
            raise
    half = len(asked) // 2
    return _halving(asked[:half], search) | _halving(asked[half:], search)


def _read_rows(
    result: Mapping[str, object],
) -> tuple[tuple[str, ...], tuple[tuple[Term | None, ...], ...]]:
    """Read SPARQL 1.1 Query Results JSON; raises `ValueError`, to follow "answered with"."""
    head, results = result.get("head"), result.get("results")
    variables = head.get("vars") if isinstance(head, dict) else None
    bindings = results.get("bindings") if isinstance(results, dict) else None
    if not _is_list(variables, str) or not _is_list(bindings, dict):
        raise ValueError(f"JSON that is not a SPARQL result: {_EXCERPT.repr(result)}")
    rows = tuple(
        tuple(_term_from_json(row[name]) if name in row else None for name in variables)
        for row in bindings
    )
    return tuple(variables), rows


def _is_list(value: object, kind: type[_T]) -> TypeGuard[list[_T]]:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def _term_from_json(binding: object) -> Term:
    if isinstance(binding, dict) and isinstance(value := binding.get("value"), str):
        datatype, language = binding.get("datatype"), binding.get("xml:lang")
        match binding.get("type"):
            case "uri" if has_scheme(value):
                return resource_id(value)
            case "bnode":
                return f"_:{value}"
            # Virtuoso writes typed-literal.
            case "literal" | "typed-literal" if isinstance(language, str | None) and (
                datatype is None or (isinstance(datatype, str) and has_scheme(datatype))
            ):
                return read_literal(value, datatype, language)
    raise ValueError(f"a value that is not an RDF term: {_EXCERPT.repr(binding)}")


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
        found: dict[str, dict[str, tuple[str, bool]]] = {}
        fetched = _in_batches(sorted(texts_of), self._fetch, _SPELLINGS_A_QUERY)
        for spelling, matches in fetched.items():
            for mid, is_alias in matches:
                for text in texts_of[spelling]:
                    mids = found.setdefault(text, {})
                    if mid not in mids or not is_alias:
                        mids[mid] = (spelling, is_alias)
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
                key=partial(_rank, symbols(text)),
            )[:limit]
            for text, mids in found.items()
        }

    def _fetch(self, spellings: Sequence[str]) -> dict[str, list[tuple[str, bool]]]:
        """Fetch the entities with each of these names, and whether it is an alias."""
        values = " ".join(
            sparql_term(LiteralTerm(spelling, language=language))
            for spelling in spellings
            for language in ("en", None)
        )
        # Not with the relations in VALUES: Oxigraph then reads all names of the graph, and given
        # pairs of relation and name, Virtuoso finds no name that has a language.
        ways = " UNION ".join(
            f"{{ ?mid {iri(relation)} ?matched BIND ({iri(relation)} AS ?relation) }}"
            for relation in (NAME, ALIAS)
        )
        query = (
            f"SELECT DISTINCT ?mid ?matched ?relation WHERE {{ "
            f"VALUES ?matched {{ {values} }} {{ {ways} }} }}"
        )
        table = self._graph.select(query, timeout_s=self._timeout_s, limit=_ROWS_A_QUERY)
        if table.truncated and len(spellings) > 1:
            raise ResultTruncated(query, _ROWS_A_QUERY, self._graph.description)
        found: dict[str, list[tuple[str, bool]]] = {spelling: [] for spelling in spellings}
        for mid, matched, relation in table.rows:
            text = matched.text if isinstance(matched, LiteralTerm) else ""
            if text in found and isinstance(mid, str) and is_well_formed(mid):
                found[text].append((mid, relation == ALIAS))
        return found

    def _popularity(self, mids: Sequence[str]) -> dict[str, int]:
        """Count the triples of each entity, up to `_COUNT_LIMIT`."""
        popularity: dict[str, int] = {}
        for batch in batches(mids, _COUNTS_A_QUERY):
            counts = " UNION ".join(
                f"{{ SELECT ({node} AS ?mid) (COUNT(*) AS ?n) WHERE {{ SELECT ?p ?x WHERE {{ "
                f"{{ {node} ?p ?x }} UNION {{ ?x ?p {node} }} }} LIMIT {_COUNT_LIMIT} }} }}"
                for node in map(iri, batch)
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


def _rank(marks: str, match: NameMatch) -> tuple[bool, int, bool, int, str]:
    best = -standing(match.popularity, match.is_alias)
    is_other = _has_other_symbols(match.matched, marks)
    return (is_other, best, match.is_alias, -match.popularity, match.mid)


def _has_other_symbols(name: str, marks: str) -> bool:
    """Return whether a text has symbols, `marks`, and a name has others."""
    return bool(marks) and symbols(name) != marks
