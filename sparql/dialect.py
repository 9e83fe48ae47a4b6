"""Repair SPARQL as people and models write it for Freebase, check it, and find what it mentions.

The gold queries of WebQSP and CWQ were written for Virtuoso. `repair_query` turns them, token by
token, into SPARQL 1.1 that released Oxigraph parses:

- a prefixed name becomes a full IRI: released Oxigraph rejects ``ns:people.person.gender``, legal
  as it is. ``ns:``, ``fb:``, ``xsd:``, ``rdf:`` and ``rdfs:`` need no declaration;
- the keywords ``OR`` and ``AND`` become ``||`` and ``&&``;
- ``xsd:datetime`` becomes ``xsd:dateTime``;
- blanks around the ``^^`` of a typed literal are removed: rdflib cannot read them.

A query keeps its meaning: what parses but means something else on Oxigraph, such as comparisons of
ill-typed dates, stays. What is no SPARQL at all (``HAVING COUNT(?c) = 2``) gets the engine's own
message. Only queries that read are allowed. `prefix_query` shortens compiled queries for people to
read, and `repair_query` turns them back.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

from kbqa.sparql.errors import QueryRefused, QuerySyntaxError
from kbqa.sparql.terms import FREEBASE_NS, XSD_NS, is_mid, resource_id

QueryForm = Literal["select", "ask", "construct", "describe"]

# Prefixes that a query may use without declaring them.
KNOWN_PREFIXES = {
    "ns": FREEBASE_NS,
    "fb": FREEBASE_NS,
    "xsd": XSD_NS,
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
}

_QUERY_FORMS = frozenset({"SELECT", "ASK", "CONSTRUCT", "DESCRIBE"})
_UPDATE_FORMS = frozenset(
    {"INSERT", "DELETE", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY", "WITH"}
)
_OPERATORS = {"OR": "||", "AND": "&&"}
_REFUSED_CLAUSES = {
    "SERVICE": "SERVICE would send requests to other servers",
    "FROM": "FROM would read another data set",
}

# Every repetition is possessive, so that no text takes more than linear time per token.
_TOKEN = re.compile(
    r"""
      (?P<blank>\s++)
    | (?P<comment>\#[^\n\r]*+)
    | (?P<iri><[^\x00-\x20<>"{}|^`\\]*+(?:\\[uU][0-9A-Fa-f]++[^\x00-\x20<>"{}|^`\\]*+)*>)
    | (?P<string>
          \"\"\"(?:[^"\\]|\\.|"(?!""))*\"\"\"
        | '''(?:[^'\\]|\\.|'(?!''))*'''
        | "(?:[^"\\\n\r]|\\.)*"
        | '(?:[^'\\\n\r]|\\.)*'
      )
    | (?P<variable>[?$]\w++)
    | (?P<language>@[A-Za-z]++(?:-[A-Za-z0-9]++)*)
    | (?P<node>_:[\w\-]++)
    | (?P<prefixed>
          (?P<prefix>(?:[^\W\d_][\w.\-]*+)?)
          :
          (?P<local>(?:\.*+(?:[\w:\-]|%[0-9A-Fa-f]{2}|\\[_~.\-!$&'()*+,;=/?\#@%]))*)
      )
    | (?P<word>[^\W\d_]\w*+)
    | (?P<typed>\^\^)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_REFUSED_WORD = re.compile("|".join(_REFUSED_CLAUSES), re.IGNORECASE)
_MAX_DOUBTFUL = 100  # each may cost time in proportion to the query's length
_ABSOLUTE_IRI = re.compile(r"<[A-Za-z][A-Za-z0-9+.\-]*://")
_CODE_POINT = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U(00(?:0[0-9A-Fa-f]|10)[0-9A-Fa-f]{4}))")
_LOCAL_ESCAPE = re.compile(r"\\(.)")
_NUMBER = re.compile(r"(?:\s|#[^\n\r]*+)*(\d++)")
# A part of what SPARQL 1.1 allows after the colon (§19.8, PN_LOCAL), without escapes.
_LOCAL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.\-]*[A-Za-z0-9_\-])?")
_CONTINUES_NAME = re.compile(r"[\w.:\-%\\]")
_ENDS_IN_NAME = re.compile(r"[\w.:\-%\\?$]$")

_SUBJECT, _RELATION, _OBJECT, _END = range(4)
_NO_TRIPLES = -1  # in expressions, in data, and outside of all braces
_NEXT_PLACE = {".": _SUBJECT, ";": _RELATION, ",": _OBJECT, "/": _RELATION, "|": _RELATION}
_TERMS = frozenset({"iri", "prefixed", "string", "variable", "node"})


class Token(NamedTuple):
    """A piece of a query's text."""

    kind: str  # the name of its group in the grammar of tokens: "iri", "word", "other", …
    text: str
    prefix: str = ""  # of a prefixed name
    local: str = ""  # the rest of a prefixed name


def repair_query(text: str) -> str:
    """Rewrite a query into SPARQL 1.1 that Oxigraph parses; a repaired query stays as it is.

    Line numbers are kept, so that the engine's error messages point into the user's text.

    >>> repair_query("ASK { ns:m.0abc ?y ?x FILTER (?x = 1 OR ?x = 2) }")
    'ASK { <http://rdf.freebase.com/ns/m.0abc> ?y ?x FILTER (?x = 1 || ?x = 2) }'
    """
    prefixes = dict(KNOWN_PREFIXES)
    pieces: list[str] = []
    declaring: str | None = None  # the prefix that waits for its IRI
    last = ""  # the keyword just before, over blanks and comments
    after_typed = False
    for token in tokens(text):
        kind, piece = token.kind, token.text
        if kind == "blank":
            if not after_typed:
                pieces.append(piece)
            continue
        if kind == "comment":
            pieces.append(piece)
            continue
        if kind == "prefixed":
            if last == "PREFIX":
                declaring = token.prefix
            elif (namespace := prefixes.get(token.prefix)) is not None:
                piece = _expand(namespace, token.local)
        elif kind == "iri" and declaring is not None:
            prefixes[declaring] = piece[1:-1]
            declaring = None
        elif kind == "word":
            piece = _OPERATORS.get(piece.upper(), piece)
        elif kind in ("typed", "language") and pieces and pieces[-1].isspace():
            pieces.pop()
        after_typed = kind == "typed"
        last = piece.upper() if kind == "word" else ""
        pieces.append(piece)
    return "".join(pieces)


def check_read_only(text: str) -> QueryForm:
    """Return the form of a query, and refuse one that would write or reach outside its graph.

    Only tokens count: ``SERVICE`` within a string is harmless. The engine checks the rest of the
    syntax. Where engines disagree on what a token is, every reading is checked.

    Raises:
        QueryRefused: It is an update, or uses SERVICE, FROM or FROM NAMED.
        QuerySyntaxError: It does not begin like a query.
    """
    for token in _tokens_of_all_readings(text):
        # Oxigraph reads `FROM:x` as FROM and `:x`.
        word = (token.prefix if token.kind == "prefixed" else token.text).upper()
        if token.kind in ("word", "prefixed") and word in _REFUSED_CLAUSES:
            raise QueryRefused(f"{_REFUSED_CLAUSES[word]}; kbqa queries a single graph")
    words = (token.text for token in tokens(text) if token.kind == "word")
    first = next((word for word in words if word.upper() not in ("PREFIX", "BASE")), None)
    if first is None:
        raise QuerySyntaxError("not a SPARQL query: it contains no SELECT or ASK")
    if first.upper() in _UPDATE_FORMS:
        raise QueryRefused(f"{first.upper()} would write to the graph; kbqa only reads")
    if first.upper() not in _QUERY_FORMS:
        raise QuerySyntaxError(
            f"not a SPARQL query: it begins with {first!r}, not with SELECT or ASK"
        )
    return cast(QueryForm, first.lower())


def cap_rows(query: str, limit: int) -> str:
    """Add a LIMIT to a SELECT query that has none; the LIMIT of a sub-query does not count.

    A query with VALUES after its pattern is returned unchanged: the caller must cut its rows.
    """
    end = _read_end(query)
    if end.limit is not None or end.values_at < len(query):
        return query
    return f"{query}\nLIMIT {limit}"


def row_limit(query: str) -> int | None:
    """Return how many rows a SELECT query asks for at most; None for all."""
    return _read_end(query).limit


def is_distinct(query: str) -> bool:
    """Return whether a SELECT query asks for each row once.

    >>> is_distinct("SELECT DISTINCT * {}"), is_distinct("SELECT * { { SELECT DISTINCT * {} } }")
    (True, False)
    """
    words = (token.text.upper() for token in tokens(query) if token.kind == "word")
    return "SELECT" in words and next(words, "") == "DISTINCT"


def row_beyond(query: str, count: int) -> str:
    """Rewrite a SELECT query to have a row only if, without its LIMIT, it has more than `count`."""
    end = _read_end(query)
    body, values = query[: end.body_ends_at], query[end.values_at :]
    return f"{body}\nLIMIT 1 OFFSET {end.offset + count}\n{values}"


def prefix_query(query: str) -> str:
    """Write a query with prefixed names, unless it declares prefixes of its own or a base.

    >>> print(prefix_query("ASK { <http://rdf.freebase.com/ns/m.0abc> ?y ?x }"))
    PREFIX ns: <http://rdf.freebase.com/ns/>
    ASK { ns:m.0abc ?y ?x }
    """
    pieces: list[str] = []
    used: set[str] = set()
    follows_name = False
    for token in tokens(query):
        if token.kind == "word" and token.text.upper() in ("PREFIX", "BASE"):
            return query
        prefix = _prefix(token.text) if token.kind == "iri" else None
        piece = token.text
        if prefix is not None:
            used.add(prefix)
            piece = _name(token.text, prefix)
        before = pieces[-1] if pieces else ""
        if (follows_name and _CONTINUES_NAME.match(piece)) or (
            prefix is not None and _ENDS_IN_NAME.search(before)
        ):
            pieces.append(" ")
        pieces.append(piece)
        follows_name = prefix is not None
    declarations = [f"PREFIX {prefix}: <{KNOWN_PREFIXES[prefix]}>\n" for prefix in sorted(used)]
    return "".join([*declarations, *pieces])


def tokens(text: str) -> Iterator[Token]:
    """Split any text into tokens, including blanks and comments; joined they are the text again."""
    return map(_token, _TOKEN.finditer(text))


def _token(match: re.Match[str]) -> Token:
    # lastgroup would name `local`, the last group that closed, for a prefixed name.
    if match["prefixed"] is not None:
        return Token("prefixed", match.group(), match["prefix"], match["local"])
    return Token(cast(str, match.lastgroup), match.group())


def _tokens_of_all_readings(text: str) -> Iterator[Token]:
    r"""Yield the tokens that an engine may see in a query, in no particular order.

    Oxigraph reads the ``<`` of ``FILTER(?a<?b)SERVICE?s#>`` as less-than, where the SPARQL grammar
    sees an IRI. And rdflib decodes ``S\u0045RVICE`` before it parses, as SPARQL 1.1 §19.2 says,
    while released Oxigraph does not.
    """
    decoded = _CODE_POINT.sub(lambda match: chr(int(match[1] or match[2], 16)), text)
    for reading in dict.fromkeys((text, decoded)):
        if _REFUSED_WORD.search(reading) is None:
            continue  # as nearly always, and much faster
        starts, seen, doubtful = [0], set[int](), 0
        while starts:
            at = starts.pop()
            while at < len(reading) and at not in seen:
                seen.add(at)
                match = cast(re.Match[str], _TOKEN.match(reading, at))  # it matches anywhere
                token = _token(match)
                yield token
                if token.kind == "iri" and not _ABSOLUTE_IRI.match(token.text):
                    starts.append(at + 1)
                    doubtful += 1
                at = match.end()
            if doubtful > _MAX_DOUBTFUL:
                raise QueryRefused(f"more than {_MAX_DOUBTFUL} relative IRIs; write them in full")


def _expand(namespace: str, local: str) -> str:
    name = _LOCAL_ESCAPE.sub(r"\1", local)
    if name == "datetime" and namespace == XSD_NS:
        name = "dateTime"
    return f"<{namespace}{name}>"


class _QueryEnd(NamedTuple):
    """The clauses that follow a query's pattern and its groups."""

    body_ends_at: int  # where ORDER BY, LIMIT, OFFSET or VALUES begin
    values_at: int  # the query's end if there is no VALUES
    limit: int | None
    offset: int


def _read_end(query: str) -> _QueryEnd:
    depth = at = offset = 0
    body_ends_at = values_at = len(query)
    limit: int | None = None
    for token in tokens(query):
        start, at = at, at + len(token.text)
        if token.text in ("{", "}"):
            depth += 1 if token.text == "{" else -1
        if depth > 0 or token.kind != "word":
            continue
        word = token.text.upper()
        if word in ("ORDER", "LIMIT", "OFFSET", "VALUES"):
            body_ends_at = min(body_ends_at, start)
        if word == "VALUES":
            values_at = start
        elif word in ("LIMIT", "OFFSET") and (number := _NUMBER.match(query, at)) is not None:
            if word == "LIMIT":
                limit = int(number[1])
            else:
                offset = int(number[1])
    return _QueryEnd(body_ends_at, values_at, limit, offset)


def _prefix(iri: str) -> str | None:
    """Return the prefix of a name that is read as this IRI and no other; None if none is."""
    for prefix, namespace in KNOWN_PREFIXES.items():
        if iri.startswith(f"<{namespace}"):
            is_local = _LOCAL.fullmatch(iri, len(namespace) + 1, len(iri) - 1) is not None
            # `xsd:datetime` is read as `xsd:dateTime`.
            return prefix if is_local and repair_query(_name(iri, prefix)) == iri else None
    return None


def _name(iri: str, prefix: str) -> str:
    return f"{prefix}:{iri[1 + len(KNOWN_PREFIXES[prefix]) : -1]}"


class QueryMentions(NamedTuple):
    """The relations and entities that a query mentions."""

    relations: frozenset[str]  # of its triples, without variables
    entities: frozenset[str]  # all mids


def query_mentions(query: str) -> QueryMentions:
    """Collect the relations and entities of a query by its tokens.

    That is a hundred times faster than parsing it; a test checks that both find the same relations.

    Raises:
        QuerySyntaxError: It is not a query, a prefix is not declared, or brackets do not match.
        QueryRefused: It is an update, or uses SERVICE or FROM.
    """
    check_read_only(query)
    relations: set[str] = set()
    entities: set[str] = set()
    places = [_NO_TRIPLES]
    after_word = ""  # a keyword that decides what the next bracket contains
    declares = False
    for token in tokens(repair_query(query)):
        kind, text = token.kind, token.text
        place = places[-1]
        if kind in ("blank", "comment", "typed"):
            continue
        if kind == "word":
            word = text.upper()
            declares = word == "PREFIX"
            if word in ("FILTER", "VALUES", "BIND"):
                after_word = word
                places[-1] = place if place == _NO_TRIPLES else _SUBJECT  # a triple ends here
            if text == "a" and place == _RELATION:
                relations.add(f"{KNOWN_PREFIXES['rdf']}type")
                places[-1] = _OBJECT
        elif kind in _TERMS:
            if kind == "prefixed" and not declares:
                raise QuerySyntaxError(f"the prefix {token.prefix}: is not declared")
            if kind == "iri" and is_mid(resource := resource_id(text[1:-1])):
                entities.add(resource)
            if _SUBJECT <= place <= _OBJECT and not after_word:
                if kind == "iri" and place == _RELATION:
                    relations.add(resource_id(text[1:-1]))
                places[-1] += 1
            declares = declares and kind == "prefixed"
        elif text in ("{", "(", "["):
            places.append(_place_within(text, place, after_word))
            after_word = ""
        elif text in ("}", ")", "]"):
            _close(places, text)
        elif text in _NEXT_PLACE and place != _NO_TRIPLES:
            places[-1] = _NEXT_PLACE[text]
    if len(places) > 1:
        raise QuerySyntaxError("not a SPARQL query: a bracket is not closed")
    return QueryMentions(frozenset(relations), frozenset(entities))


def _place_within(bracket: str, around: int, after_word: str) -> int:
    if after_word == "VALUES" or (bracket == "(" and (after_word or around != _RELATION)):
        return _NO_TRIPLES
    # Round brackets in place of a relation contain a property path.
    return _SUBJECT if bracket == "{" else _RELATION


def _close(places: list[int], bracket: str) -> None:
    places.pop()
    if not places:
        raise QuerySyntaxError("not a SPARQL query: a closing bracket was never opened")
    if places[-1] == _NO_TRIPLES:
        return
    if bracket == "}":
        places[-1] = _SUBJECT
    elif bracket == "]" or places[-1] == _RELATION:
        places[-1] += 1
