"""Subgraphs of questions, with the triples that are right: the gold query's, or on shortest paths.

Gold labels also cover constraints. Shortest paths need answers only, and are the paper's.

Looking up thousands of subgraphs takes most of the time of a run. So each is kept in a file as soon
as it is made. A run that is resumed, or one with other settings of the training, reads it again.

Source: SubgraphRAG §4.1, "Training". Its graph keeps one relation between two nodes, the last; here
all relations of a hop are right.
"""

import hashlib
import json
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from kbqa.engine.questions.question_sets import Unconverted, convert_queries
from kbqa.engine.retrieval.retriever import Subgraph
from kbqa.engine.running.evidence import Triple, find_matches
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.errors import GraphError, InputError, KbqaError, TrainingError
from kbqa.sparql.forms import render_crp
from kbqa.sparql.terms import Term
from kbqa.training.data.targets import gold_topics
from kbqa.training.data.training_set import (
    Example,
    ExampleKey,
    ExampleSet,
    data_file,
    kept_rows,
    parent_id,
    read_scored_sets,
    source_name,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Places = NDArray[np.int32]


LabelKind: TypeAlias = Literal["gold", "shortest"]

MAX_ANSWERS = 50
"""Gold answers whose triples are looked up; few questions have more."""

_MAX_MATCHES = 1000
_TIMEOUT_S = 10.0
_NAMES = "names"
_ARRAYS = ("heads", "links", "tails", "stated", "matches", "answers", "shortest")

# What numpy raises on damaged files.
_UNREADABLE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, struct.error),
)


@dataclass(frozen=True, slots=True)
class Gold:
    """What a gold query matches."""

    answers: tuple[Term, ...]  # its first, at most `MAX_ANSWERS`
    matches: tuple[tuple[Triple, ...], ...]  # each way in which it matches them, as its triples


class NoGold(KbqaError):
    """A gold query finds nothing; the message is the reason, the same for all such queries."""


def find_gold(graph: Graph, crp: Crp) -> Gold:
    """Run a gold query, and find the triples that it matches.

    Raises:
        NoGold: It fails, or it has no answers in the graph.
    """
    try:
        table = graph.select(compile_crp(crp), timeout_s=_TIMEOUT_S, limit=MAX_ANSWERS)
        answers = [row[0] for row in table.rows if row[0] is not None]
        matches = find_matches(graph, crp, answers, _TIMEOUT_S, _MAX_MATCHES) if answers else []
    except (GraphError, InputError) as error:
        raise NoGold(f"its query fails: {type(error).__name__}") from error
    matches = [match for match in dict.fromkeys(matches) if match]
    if not matches:
        raise NoGold("its query finds nothing in the graph")
    return Gold(tuple(answers), tuple(matches))


def canonical_triples(triples: Sequence[Triple], schema: GraphSchema) -> list[Triple]:
    """Write each triple with its relation or that relation's reverse, always with the same one.

    The graph holds both, and they state the same fact.
    """
    hops = schema.canonical([Hop(relation) for _, relation, _ in triples])
    return [
        (object_, hop.relation, subject) if hop.inverse else (subject, hop.relation, object_)
        for (subject, _, object_), hop in zip(triples, hops, strict=True)
    ]


def find_facts(
    subgraph: Subgraph, facts: Sequence[Triple], schema: GraphSchema
) -> "NDArray[np.int32]":
    """Return for each triple of a subgraph the place of the fact that it states, or -1.

    The facts are canonical triples, each once.
    """
    import numpy as np

    places = {node: at for at, node in enumerate(subgraph.nodes)}
    wanted = {
        (places[subject], relation, places[object_]): at
        for at, (subject, relation, object_) in enumerate(facts)
        if subject in places and object_ in places
    }
    ends = {end for subject, _, object_ in wanted for end in (subject, object_)}
    is_end = np.zeros(len(subgraph.nodes), dtype=bool)
    is_end[list(ends)] = True
    hops = schema.canonical([Hop(relation) for relation in subgraph.relations])
    found = np.full(len(subgraph.heads), -1, dtype=np.int32)
    for at in np.flatnonzero(is_end[subgraph.heads] & is_end[subgraph.tails]):
        head, tail = int(subgraph.heads[at]), int(subgraph.tails[at])
        hop = hops[subgraph.links[at]]
        fact = (tail, hop.relation, head) if hop.inverse else (head, hop.relation, tail)
        found[at] = wanted.get(fact, -1)
    return found


def on_shortest_paths(subgraph: Subgraph, answers: Collection[Term]) -> "NDArray[np.bool_]":
    """Return for each triple whether it is on a shortest path between a topic and an answer.

    Paths are directed, from the topic to the answer or from the answer to the topic; the longer
    ones of the two do not count.
    """
    import numpy as np

    wanted = set(answers)
    answer_places = [at for at, node in enumerate(subgraph.nodes) if node in wanted]
    topics = list(range(subgraph.topics))
    starts = list(dict.fromkeys([*topics, *answer_places]))
    row = {start: at for at, start in enumerate(starts)}
    size = len(subgraph.nodes)
    away = _steps(subgraph.heads, subgraph.tails, starts, size)
    towards = _steps(subgraph.tails, subgraph.heads, starts, size)
    found = np.zeros(len(subgraph.heads), dtype=bool)
    for topic, answer in product(topics, answer_places):
        there, back = away[row[topic], answer], away[row[answer], topic]
        length = min(there, back)
        if not 0 < length < np.inf:
            continue
        for start, end, steps in ((topic, answer, there), (answer, topic, back)):
            if steps == length:
                before = away[row[start]][subgraph.heads]
                after = towards[row[end]][subgraph.tails]
                found |= before + 1 + after == length
    return found


def _steps(
    heads: "NDArray[np.int32]", tails: "NDArray[np.int32]", starts: Sequence[int], nodes: int
) -> "NDArray[np.float64]":
    """Count the steps from each start to every node; infinitely many to one out of reach."""
    import numpy as np
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    edges = csr_array((np.ones(len(heads)), (heads, tails)), shape=(nodes, nodes))
    steps: NDArray[np.float64] = dijkstra(edges, indices=starts, unweighted=True)
    return steps


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """A question's subgraph and what is right in it.

    A fact is what a triple states, whichever of a relation and its reverse it is written with.
    """

    question: str
    relations: tuple[str, ...]
    nodes: int  # how many
    topics: int  # how many; they are the first nodes
    heads: "Places"  # the subject of each triple
    links: "Places"  # the relation of each triple
    tails: "Places"  # the object of each triple
    stated: "Places"  # for each triple the gold fact that it states, or -1
    facts: int  # how many are gold, those outside of the subgraph included
    matches: "Places"  # facts of each match of the gold query, padded with -1: (ways, facts)
    answers: "Places"  # among the nodes, or -1
    shortest: "NDArray[np.bool_]"  # for each triple whether it is on a shortest path
    names: tuple[str | None, ...] | None = None  # of the nodes, if they were looked up and read


def label(question: str, subgraph: Subgraph, gold: Gold, schema: GraphSchema) -> Labelled:
    """Label the triples of a question's subgraph."""
    import numpy as np

    ways = [canonical_triples(match, schema) for match in gold.matches]
    facts = list(dict.fromkeys(triple for way in ways for triple in way))
    place = {fact: at for at, fact in enumerate(facts)}
    matches = np.full((len(ways), max(map(len, ways))), -1, dtype=np.int32)
    for at, way in enumerate(ways):
        matches[at, : len(way)] = [place[fact] for fact in way]
    nodes = {node: at for at, node in enumerate(subgraph.nodes)}
    return Labelled(
        question=question,
        relations=subgraph.relations,
        nodes=len(subgraph.nodes),
        topics=subgraph.topics,
        heads=subgraph.heads,
        links=subgraph.links,
        tails=subgraph.tails,
        stated=find_facts(subgraph, facts, schema),
        facts=len(facts),
        matches=np.unique(matches, axis=0),
        answers=np.array([nodes.get(answer, -1) for answer in gold.answers], dtype=np.int32),
        shortest=on_shortest_paths(subgraph, gold.answers),
    )


def labelled_path(folder: Path, example: Example) -> Path:
    """Return the file of an example; another question or query has another file."""
    key = json.dumps([example.source, example.id, example.question, example.target])
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.npz"


def save_labelled(path: Path, labelled: Labelled) -> None:
    """Write an example; a file is there as a whole or not at all."""
    import numpy as np

    about = {
        "question": labelled.question,
        "relations": labelled.relations,
        "nodes": labelled.nodes,
        "topics": labelled.topics,
        "facts": labelled.facts,
    }
    arrays = {name: getattr(labelled, name) for name in _ARRAYS}
    if labelled.names is not None:
        arrays[_NAMES] = np.frombuffer(json.dumps(labelled.names).encode(), dtype=np.uint8)
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)
    unfinished.replace(path)


def load_labelled(path: Path) -> Labelled:
    """Read an example that `save_labelled` wrote, without the names of its nodes.

    Raises:
        TrainingError: The file is damaged.
    """
    with _arrays(path) as arrays:
        about = json.loads(str(arrays["about"]))
        about["relations"] = tuple(about["relations"])
        return Labelled(**about, **{name: arrays[name] for name in _ARRAYS})


def load_names(path: Path) -> tuple[str | None, ...] | None:
    """Read the names of an example's nodes; None if they were not looked up."""
    with _arrays(path) as arrays:
        return tuple(json.loads(arrays[_NAMES].tobytes())) if _NAMES in arrays else None


def has_names(path: Path) -> bool:
    """Return whether the file of an example has the names of its nodes."""
    with _arrays(path) as arrays:
        return _NAMES in arrays


@contextmanager
def _arrays(path: Path) -> Iterator[Mapping[str, Any]]:
    import numpy as np

    try:
        with path.open("rb") as file, np.load(file) as arrays:  # by name, it would stay open
            yield arrays
    except _UNREADABLE as error:
        raise TrainingError(
            f"{path} cannot be read ({error}). Delete it, and the same command makes it again."
        ) from error


class Queries(NamedTuple):
    """Questions with their gold queries and topics."""

    gathered: ExampleSet  # whose targets are the queries as CRPs by mids, in kbqa's form
    topics: dict[ExampleKey, tuple[Entity, ...]]


def read_queries(paths: Sequence[Path], scored: Sequence[Path]) -> Queries:
    """Read question sets with SPARQL, ours or official files, as `load_examples` does.

    Raises:
        InputError: A file is missing or unreadable.
    """
    scored_sets = read_scored_sets(scored)
    gathered = ExampleSet(scored=[data_file(path) for path in scored])
    topics: dict[ExampleKey, tuple[Entity, ...]] = {}
    for path in paths:
        source = source_name(path)
        kept = list(kept_rows(path, source, scored_sets, gathered))
        converted = convert_queries(query for one in kept if (query := _query(one.row)))
        for one in kept:
            crp = converted.get(_query(one.row), Unconverted("no SPARQL"))
            if isinstance(crp, Unconverted):
                gathered.skip(source, one.id, crp.reason)
                continue
            parent = parent_id(one.row) or ""
            gathered.add(Example(one.id, one.question, render_crp(crp), source, parent))
            topics[source, one.id] = gold_topics(one.row, crp)
        gathered.files.append(data_file(path))
    return Queries(gathered, topics)


def _query(row: Mapping[str, Any]) -> str:
    return query if isinstance(query := row.get("sparql"), str) else ""
