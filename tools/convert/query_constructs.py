"""Name the constructs of a benchmark's SPARQL query, for the rows of tables.

Only constructs that occur in the question sets are recognised, by the tokens of the text. A query
can have several.
"""

import re
from collections.abc import Iterator

PLAIN = "none of them"
CONSTRUCTS = (
    "ORDER BY",
    "interval (NOT EXISTS || EXISTS)",
    "number or date comparison",
    "typed equality",
    "string equality",
    "UNION",
    "two-variable comparison",
    "cycle",
    "sub-select",
    PLAIN,
)

_COMMENT = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|<[^<>\s]*>)|\#[^\n]*""")
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?<![\w.:])-?\d[\d.]*)"""
_LANGUAGE_FILTER = re.compile(r"FILTER\s*\(\s*!\s*isLiteral", re.IGNORECASE)
_CAST = re.compile(r"\b(?:xsd:\w+|str)\s*\(\s*(\?\w+)\s*\)", re.IGNORECASE)
_COMPARED = re.compile(rf"\?\w+\s*[<>]=?\s*{_VALUE}|{_VALUE}[^\s<>=]*\s*[<>]=?\s*\?\w+")
_TWO_VARIABLES = re.compile(r"\?\w+\s*(?:[<>]=?|-)\s*\?\w+")
_STRING_FILTER = re.compile(r"""(?<![!<>])=\s*["']|["'](?:@\w+)?\s*=""")
_OBJECT = re.compile(rf"[\w>]\s+(?P<text>{_VALUE})(?P<type>\s*@\w+|\s*\^\^\s*[\w:]+)?\s*[.;,}}]")
_NUMBER_OR_DATE = re.compile(r"""["']?-?\d[\d.\-T:]*["']?""")
_EDGE = re.compile(r"(\?\w+)\s+(\w+:[\w.]+)\s+(\?\w+)")


def query_constructs(sparql: str) -> tuple[str, ...]:
    """List the constructs of a query, in the order of `CONSTRUCTS`; `PLAIN` if it has none.

    >>> query_constructs('SELECT ?x { ?x ns:c.d "34" . ?x ns:e.f ?n } ORDER BY ?n LIMIT 1')
    ('ORDER BY', 'typed equality')
    """
    text = _COMMENT.sub(lambda match: match[1] or "", sparql)
    filters = [body for body in _filters(text) if not _LANGUAGE_FILTER.match(body)]
    for body in _filters(text):
        text = text.replace(body, " ")
    bare = [_CAST.sub(r"\1", body) for body in filters]
    compared = [body for body in bare if not re.search(r"\bEXISTS\b", body, re.IGNORECASE)]
    objects = list(_OBJECT.finditer(text))
    typed = [
        match
        for match in objects
        if _NUMBER_OR_DATE.fullmatch(match["text"]) and "@" not in (match["type"] or "")
    ]
    found = {
        "ORDER BY": re.search(r"\bORDER\s+BY\b", text, re.IGNORECASE),
        "interval (NOT EXISTS || EXISTS)": len(compared) < len(bare),
        "number or date comparison": any(map(_COMPARED.search, compared)),
        "typed equality": typed,
        "string equality": len(objects) > len(typed) or any(map(_STRING_FILTER.search, compared)),
        "UNION": re.search(r"\bUNION\b", text, re.IGNORECASE),
        "two-variable comparison": any(map(_TWO_VARIABLES.search, bare)),
        "cycle": _has_cycle(text),
        "sub-select": len(re.findall(r"\bSELECT\b", text, re.IGNORECASE)) > 1,
    }
    return tuple(name for name in CONSTRUCTS if found.get(name)) or (PLAIN,)


def _filters(text: str) -> Iterator[str]:
    """Yield each outermost FILTER with what its brackets hold."""
    end = 0
    for start in re.finditer(r"\bFILTER\s*(?:NOT\s+)?(?:EXISTS\s*)?[({]", text, re.IGNORECASE):
        if start.start() < end:
            continue
        depth, end = 0, start.end() - 1
        while end < len(text):
            depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(text[end], 0)
            end += 1
            if depth == 0:
                break
        yield text[start.start() : end]


def _has_cycle(text: str) -> bool:
    """Return whether triples join variables in a circle; alternatives (UNION) do not count."""
    if re.search(r"\bUNION\b", text, re.IGNORECASE):
        return False
    joined: dict[str, str] = {}

    def root(variable: str) -> str:
        while (above := joined.get(variable, variable)) != variable:
            variable = above
        return variable

    for subject, _, object_ in set(_EDGE.findall(text)):
        if root(subject) == root(object_):
            return True
        joined[root(subject)] = root(object_)
    return False
