"""Shorten the IRIs of a query to prefixed names, for people to read.

Compiled queries name everything by full IRIs, since released Oxigraph rejects prefixed names with
two dots. `repair_query` turns the names back into IRIs, so `kbqa sparql` reads what is shown.
"""

import re

from kbqa.sparql.queries.dialect import KNOWN_PREFIXES, repair_query, tokens

# A part of what SPARQL 1.1 allows after the colon (§19.8, PN_LOCAL), without escapes.
_LOCAL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.\-]*[A-Za-z0-9_\-])?")
_CONTINUES_NAME = re.compile(r"[\w.:\-%\\]")
_ENDS_IN_NAME = re.compile(r"[\w.:\-%\\?$]$")


def prefix_query(query: str) -> str:
    """Write a query with prefixed names, such as ``ns:m.0abc``, and declare their prefixes.

    It means the same on every engine that reads SPARQL 1.1. A query that declares prefixes of its
    own, or a base, stays as it is.

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
