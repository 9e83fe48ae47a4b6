"""Convert many SPARQL queries to CRPs, each once: what came of a query is kept on disk.

Parsing SPARQL takes nearly all of the time, some 30 ms a query: a quarter of an hour for the 27,000
that ComplexWebQuestions has to train on. Read again they take seconds.
"""

import hashlib
import importlib.metadata
import importlib.resources
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kbqa.engine.text_cache import TextCache
from kbqa.kb.cache import cache_directory
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import CrpConversionError, QuerySyntaxError
from kbqa.sparql.from_sparql import crp_from_sparql
from kbqa.sparql.text import parse_crp, render_crp

logger = logging.getLogger(__name__)

_BLOCK = 200
"""Queries after which what was done is kept, should the process be stopped."""

_CRP, _REASON = "crp ", "reason "  # what the kept texts begin with


@dataclass(frozen=True, slots=True)
class Unconverted:
    """Stands in the place of a query's CRP.

    Attributes:
        reason: Why there is none, in a few words that are the same for each such query.
    """

    reason: str


def convert_queries(queries: Iterable[str]) -> dict[str, Crp | Unconverted]:
    """Convert queries, each once; entities come back as mids without names."""
    wanted = list(dict.fromkeys(queries))
    cache = TextCache(cache_directory() / f"crps-{_converter_digest()}.sqlite", "converted queries")
    found: Mapping[str, bytes] = cache.read(wanted)
    texts = {query: made.decode() for query, made in found.items()}
    missing = [query for query in wanted if query not in texts]
    if missing:
        logger.info("converting %d queries to CRPs", len(missing))
    for start in range(0, len(missing), _BLOCK):
        block = {query: _convert(query) for query in missing[start : start + _BLOCK]}
        cache.write({query: text.encode() for query, text in block.items()})
        texts |= block
    return {query: _read(texts[query]) for query in wanted}


def _convert(query: str) -> str:
    try:
        return f"{_CRP}{render_crp(crp_from_sparql(query))}"
    except CrpConversionError as error:
        return f"{_REASON}{error.reason}"
    except QuerySyntaxError:
        return f"{_REASON}SPARQL that does not parse"


def _read(text: str) -> Crp | Unconverted:
    if text.startswith(_CRP):
        return parse_crp(text.removeprefix(_CRP)).crp
    return Unconverted(text.removeprefix(_REASON))


def _converter_digest() -> str:
    """Name the code that converts, for the cache: all of `kbqa.sparql`, and rdflib's version."""
    digest = hashlib.sha256(importlib.metadata.version("rdflib").encode())
    modules = importlib.resources.files("kbqa.sparql").iterdir()
    for module in sorted(modules, key=lambda one: one.name):
        if module.name.endswith(".py"):
            digest.update(module.read_bytes())
    return digest.hexdigest()[:12]
