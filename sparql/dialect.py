r"""Read SPARQL as people and models write it about Freebase, and refuse what does not only read.

The gold queries of WebQSP and CWQ were written for Virtuoso. `repair_query` turns them into
SPARQL 1.1 that released Oxigraph parses, token by token, so that strings, IRIs and comments stay as
they are:

- a prefixed name becomes a full IRI: released Oxigraph rejects ``ns:people.person.gender``, legal
  as it is. ``ns:``, ``fb:``, ``xsd:``, ``rdf:`` and ``rdfs:`` need no declaration;
- the keywords ``OR`` and ``AND`` become ``||`` and ``&&``;
- ``xsd:datetime`` becomes ``xsd:dateTime``;
- blanks around the ``^^`` of a typed literal go: rdflib does not read them.

What parses but means something else on Oxigraph, such as comparisons of ill-typed dates, is not
mended here: a handed-in query keeps its meaning. Queries that name no valid SPARQL at all
(``HAVING COUNT(?c) = 2`` without brackets) are left to the engine's own message.
"""

import re
from collections.abc import Iterator
from typing import Literal as Choice
from typing import NamedTuple, cast

from kbqa.sparql.errors import QueryRefused, QuerySyntaxError
from kbqa.sparql.terms import FREEBASE_NS, XSD_NS

QueryForm = Choice["select", "ask", "construct", "describe"]

KNOWN_PREFIXES = {
    "ns": FREEBASE_NS,
    "fb": FREEBASE_NS,
    "xsd": XSD_NS,
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
}
"""Prefixes that a query may use without declaring them."""

_QUERY_FORMS = frozenset({"SELECT", "ASK", "CONSTRUCT", "DESCRIBE"})
_UPDATE_FORMS = frozenset(
    {"INSERT", "DELETE", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY", "WITH"}
)
_OPERATORS = {"OR": "||", "AND": "&&"}
_REFUSED_CLAUSES = {
    "SERVICE": "SERVICE sends requests to other servers",
    "FROM": "FROM chooses another data set",
}

# Every repetition is possessive, so that no text takes more than linear time per token.
_TOKEN = re.compile(
    r"""
      (?P<blank>\s++)
    | (?P<comment>\#[^\n\r]*+)
    | (?P<iri><[^\x00-\x20<>"{}|^`\\]*+(?:\\[uU][0-9A-Fa-f]++[^\x00-\x20<>"{}|^`\\]*+)*+>)
    | (?P<string>
          \"\"\"(?:[^"\\]|\\.|"(?!""))*+\"\"\"
        | '''(?:[^'\\]|\\.|'(?!''))*+'''
        | "(?:[^"\\\n\r]|\\.)*+"
        | '(?:[^'\\\n\r]|\\.)*+'
      )
    | (?P<variable>[?$]\w++)
    | (?P<language>@[A-Za-z]++(?:-[A-Za-z0-9]++)*+)
    | (?P<node>_:[\w\-]++)
    | (?P<prefixed>
          (?P<prefix>(?:[^\W\d_][\w.\-]*+)?)
          :
          (?P<local>(?:\.*+(?:[\w:\-]|%[0-9A-Fa-f]{2}|\\[_~.\-!$&'()*+,;=/?\#@%]))*+)
      )
    | (?P<word>[^\W\d_]\w*+)
    | (?P<typed>\^\^)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
# Oxigraph reads the `<` of `FILTER(?a<?b)SERVICE?s#>` as less-than, where the SPARQL grammar and
# `_TOKEN` see an IRI: what hides behind the bracket is looked at as well.
_SERVICE_IN_IRI = re.compile(r"\).*\bSERVICE\b", re.IGNORECASE)
_LOCAL_ESCAPE = re.compile(r"\\(.)")


class Token(NamedTuple):
    """A piece of a query's text.

    Attributes:
        kind: The name of its group in the grammar of tokens: ``"iri"``, ``"word"``, ``"other"``, …
        text: As written.
        prefix: Of a prefixed name, else empty.
        local: The rest of a prefixed name, else empty.
    """

    kind: str
    text: str
    prefix: str
    local: str


def repair_query(text: str) -> str:
    """Rewrite a query into SPARQL 1.1 that Oxigraph parses; a repaired query stays as it is.

    Line numbers are kept, so that the engine's error messages point into the user's text.

    >>> repair_query("ASK { ns:m.0abc ns:people.person.gender ?x FILTER (?x = 1 OR ?x = 2) }")
    ... # doctest: +NORMALIZE_WHITESPACE
    'ASK { <http://rdf.freebase.com/ns/m.0abc>
    <http://rdf.freebase.com/ns/people.person.gender> ?x FILTER (?x = 1 || ?x = 2) }'

    Args:
        text: Any text. What is not understood is passed on for the engine to judge.
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
    """Tell the form of a query, and refuse one that would write or reach outside its graph.

    Only tokens count: a string that reads ``SERVICE`` harms nobody. The rest of the query's syntax
    is the engine's to judge.

    Raises:
        QueryRefused: It is an update, or uses SERVICE, FROM or FROM NAMED.
        QuerySyntaxError: It does not begin like a query.
    """
    form: str | None = None
    for token in tokens(text):
        if token.kind == "iri" and _SERVICE_IN_IRI.search(token.text):
            word = "SERVICE"
        elif token.kind == "word":
            word = token.text.upper()
        else:
            continue
        if word in _REFUSED_CLAUSES:
            raise QueryRefused(f"{_REFUSED_CLAUSES[word]}; kbqa runs queries over one graph only")
        if form is None and word not in ("PREFIX", "BASE"):
            if word in _UPDATE_FORMS:
                raise QueryRefused(f"{word} would write; kbqa only reads")
            if word not in _QUERY_FORMS:
                raise QuerySyntaxError(
                    f"not a SPARQL query: it begins with {token.text!r}, not with SELECT or ASK"
                )
            form = word.lower()
    if form is None:
        raise QuerySyntaxError("not a SPARQL query: it holds no SELECT or ASK")
    return cast(QueryForm, form)


def tokens(text: str) -> Iterator[Token]:
    """Cut any text into tokens, blanks and comments among them; joined they are the text again."""
    for match in _TOKEN.finditer(text):
        # lastgroup would name `local`, the last group that closed, for a prefixed name.
        if match["prefixed"] is not None:
            yield Token("prefixed", match.group(), match["prefix"], match["local"])
        else:
            yield Token(cast(str, match.lastgroup), match.group(), "", "")


def _expand(namespace: str, local: str) -> str:
    name = _LOCAL_ESCAPE.sub(r"\1", local)
    if name == "datetime" and namespace == XSD_NS:
        name = "dateTime"
    return f"<{namespace}{name}>"
