"""Convert many SPARQL queries to CRPs, each once: the results are cached on disk.

Parsing SPARQL takes nearly all of the time, about 30 ms a query: a quarter of an hour for the
27,000 training queries of ComplexWebQuestions. Reading the cache takes seconds.
"""

import hashlib
import importlib.metadata
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import kbqa.sparql
from kbqa.engine.files.text_cache import TextCache
from kbqa.kb.cache import cache_directory
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import CrpConversionError, QuerySyntaxError
from kbqa.sparql.forms import parse_crp, render_crp

logger = logging.getLogger(__name__)

_BLOCK = 200
"""Queries converted between two writes to the cache."""

_CRP, _REASON = "crp ", "reason "  # prefixes of the cached texts


@dataclass(frozen=True, slots=True)
class Unconverted:
    """A query without a CRP.

    Attributes:
        reason: Why it has none, in a few words that are the same for all such queries.
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
    """Hash the converting code, for the cache: all of `kbqa.sparql`, and rdflib's version."""
    digest = hashlib.sha256(importlib.metadata.version("rdflib").encode())
    folder = Path(kbqa.sparql.__path__[0])
    for module in sorted(folder.rglob("*.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()[:12]
