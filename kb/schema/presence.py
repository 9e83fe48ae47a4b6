"""Ask a graph which of many entities, relations and literals it holds, a batch a query."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.sparql.compiler.values import equal_literals
from kbqa.sparql.terms import LiteralTerm, is_well_formed, sparql_term

_T = TypeVar("_T")

_BATCH = 250
"""Terms in one VALUES list: few enough for any server's limit on the length of a query."""

# EXISTS stops at the first triple, where a join would walk through all of a hub's.
_ENTITY = "EXISTS { ?x ?p ?o } || EXISTS { ?s ?q ?x }"
_RELATION = "EXISTS { ?s ?x ?o }"
_OBJECT = "EXISTS { ?s ?p ?x }"


def present_entities(
    graph: Graph, entities: Collection[str], timeout_s: float = DEFAULT_TIMEOUT_S
) -> set[str]:
    """Select the entities of which the graph holds a triple, in either direction.

    Args:
        graph: Where to look.
        entities: Their ids; what no query can hold, no graph holds.
        timeout_s: Seconds for each batch.

    Raises:
        GraphError: The graph does not answer.
    """
    return _present_resources(graph, entities, _ENTITY, timeout_s)


def present_relations(
    graph: Graph, relations: Collection[str], timeout_s: float = DEFAULT_TIMEOUT_S
) -> set[str]:
    """Select the relations of which the graph holds a triple; see `present_entities`."""
    return _present_resources(graph, relations, _RELATION, timeout_s)


def present_texts(
    graph: Graph, texts: Collection[str], timeout_s: float = DEFAULT_TIMEOUT_S
) -> set[str]:
    """Select the texts that a literal of the graph says; see `present_entities`.

    A text means its value: ``1968`` is found if the graph holds a gYear, and ``12.0`` if it
    holds 12. Of languages only English and none are looked for.
    """
    written = [(text, literal) for text in sorted(texts) for literal in _spellings(text)]
    found: set[str] = set()
    for batch in _batches(written):
        literals = list(dict.fromkeys(literal for _, literal in batch))
        # Engines write literals differently, so each is identified by a number.
        rows = " ".join(f"({at} {sparql_term(literal)})" for at, literal in enumerate(literals))
        query = f"SELECT DISTINCT ?at {{ VALUES (?at ?x) {{ {rows} }} FILTER ({_OBJECT}) }}"
        held = {
            literals[int(at.text)]
            for (at,) in graph.select(query, timeout_s=timeout_s).rows
            if isinstance(at, LiteralTerm)
        }
        found.update(text for text, literal in batch if literal in held)
    return found


def _present_resources(
    graph: Graph, resources: Iterable[str], test: str, timeout_s: float
) -> set[str]:
    found: set[str] = set()
    for batch in _batches(sorted(filter(is_well_formed, set(resources)))):
        values = " ".join(map(sparql_term, batch))
        query = f"SELECT DISTINCT ?x {{ VALUES ?x {{ {values} }} FILTER ({test}) }}"
        rows = graph.select(query, timeout_s=timeout_s).rows
        found.update(resource for (resource,) in rows if isinstance(resource, str))
    return found


def _spellings(text: str) -> Iterator[LiteralTerm]:
    for literal in (*equal_literals(LiteralTerm(text)), LiteralTerm(text, language="en")):
        if is_well_formed(literal):
            yield literal


def _batches(items: Iterable[_T]) -> Iterator[Sequence[_T]]:
    left = iter(items)
    while batch := list(islice(left, _BATCH)):
        yield batch
