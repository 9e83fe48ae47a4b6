"""What the scorer learns from: questions with labelled subgraphs, and how it is measured on them.

What is around the topics of a question is looked up, and its right triples are labelled: those that
the gold query matches, or those on shortest paths. Gold labels also cover constraints. Shortest
paths need answers only, and are the paper's.

Looking up thousands of subgraphs takes most of the time of a run. So each is kept in a file as soon
as it is made. A run that is resumed, or one with other settings of the training, reads it again.

Half of the questions get their gold topics and half those that the linker finds, as drawn by their
ids: otherwise the scorer would trust topics more than it may when entities are linked.

Source: SubgraphRAG §4.1, "Training". Its graph keeps one relation between two nodes, the last; here
all relations of a hop are right.
"""

import hashlib
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files import TextCache
from kbqa.engine.linking.linker import Linker, starting_topics
from kbqa.engine.questions.question_sets import Unconverted, convert_queries
from kbqa.engine.retrieval.retriever import (
    DISTANCE_ROUNDS,
    Caps,
    EntityText,
    RelationInput,
    Subgraph,
    Weights,
    encode_distances,
    extract,
    node_columns,
    node_texts,
    text_columns,
)
from kbqa.engine.running.evidence import Triple, find_matches
from kbqa.kb.graph import Graph
from kbqa.kb.layout import write_safely
from kbqa.kb.option import Option
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.english import relation_words
from kbqa.sparql.errors import GraphError, InputError, KbqaError, TrainingError
from kbqa.sparql.forms import read_crp, render_crp
from kbqa.sparql.terms import Term
from kbqa.training.data.targets import gold_topics
from kbqa.training.data.training_set import (
    Example,
    ExampleKey,
    ExampleSet,
    data_file,
    kept_rows,
    read_scored_sets,
    source_name,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Places = NDArray[np.int32]
    Floats = NDArray[np.float32]


LabelKind: TypeAlias = Literal["gold", "shortest"]

CHOSEN_BY = 50  # the weights with the best recall of gold facts among this many triples are kept
CUTOFFS = (10, 25, 50, 100, 200)  # how many triples are read
MAX_ANSWERS = 50  # gold answers whose triples are looked up; few questions have more
_QUESTIONS_A_BATCH = 256
_NAMES_A_BATCH = 4096
_ALL = slice(None)
_MAX_MATCHES = 1000
_TIMEOUT_S = 10.0
_NAMES = "names"
_ABOUT = ("question", "relations", "nodes", "topics", "facts")
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
    """Run a gold query and find the triples that it matches; `NoGold` if there are none."""
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


def _canonical(triples: Sequence[Triple], schema: GraphSchema) -> list[Triple]:
    """Write each triple with the same one of a relation and its reverse; the graph holds both."""
    hops = schema.canonical([Hop(relation) for _, relation, _ in triples])
    return [
        (object_, hop.relation, subject) if hop.inverse else (subject, hop.relation, object_)
        for (subject, _, object_), hop in zip(triples, hops, strict=True)
    ]


def _find_facts(subgraph: Subgraph, facts: Sequence[Triple], schema: GraphSchema) -> "Places":
    """Return for each triple of a subgraph the place of the canonical fact it states, or -1."""
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

    ways = [_canonical(match, schema) for match in gold.matches]
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
        stated=_find_facts(subgraph, facts, schema),
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

    about = {name: getattr(labelled, name) for name in _ABOUT}
    arrays = {name: getattr(labelled, name) for name in _ARRAYS}
    if labelled.names is not None:
        arrays[_NAMES] = np.frombuffer(json.dumps(labelled.names).encode(), dtype=np.uint8)
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)
    unfinished.replace(path)


def load_labelled(path: Path) -> Labelled:
    """Read an example that `save_labelled` wrote, without the names of its nodes."""
    with _arrays(path) as arrays:
        about = json.loads(str(arrays["about"]))
        about["relations"] = tuple(about["relations"])
        return Labelled(**about, **{name: arrays[name] for name in _ARRAYS})


def load_names(path: Path) -> tuple[str | None, ...] | None:
    """Read the names of an example's nodes; None if they were not looked up."""
    with _arrays(path) as arrays:
        return tuple(json.loads(arrays[_NAMES].tobytes())) if _NAMES in arrays else None


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
    """Read question sets with SPARQL, ours or official files, as `load_examples` does."""
    scored_sets = read_scored_sets(scored)
    gathered = ExampleSet(scored=[data_file(path) for path in scored])
    topics: dict[ExampleKey, tuple[Entity, ...]] = {}
    for path in paths:
        source = source_name(path)
        kept = list(kept_rows(path, scored_sets, gathered))
        sparql = [one.row.get("sparql") for one in kept]
        queries = [query if isinstance(query, str) else "" for query in sparql]
        converted = convert_queries(filter(None, queries))
        for one, query in zip(kept, queries, strict=True):
            crp = converted.get(query, Unconverted("no SPARQL"))
            if isinstance(crp, Unconverted):
                gathered.skip(source, one.id, crp.reason)
                continue
            gathered.add(Example(one.id, one.question, render_crp(crp), source, one.parent))
            topics[source, one.id] = gold_topics(one.row, crp)
        gathered.files.append(data_file(path))
    return Queries(gathered, topics)


@dataclass(frozen=True, slots=True)
class RetrieverConfig:
    """Everything except the examples that decides the result of a training run.

    Of the wrong triples, half are those whose relation is most similar to the question, and half
    are drawn by chance.
    """

    labels: Annotated[
        LabelKind,
        Option(
            "Right triples: those that the gold query matches, or those on shortest paths between "
            "topics and answers."
        ),
    ] = "gold"
    rounds: Annotated[
        int,
        Option(
            "Rounds of the distance encoding; 0 for a scorer that sees no distances.", at_least=0
        ),
    ] = DISTANCE_ROUNDS
    relation_input: Annotated[
        Literal["agreement", "words"],
        Option(
            "What the scorer sees of a relation: its words, or also how they agree with the "
            "question."
        ),
    ] = "agreement"
    entity_text: Annotated[
        EntityText,
        Option(
            "What the scorer sees of the ends of a triple besides their distances: nothing, or "
            "their names, which take long to embed."
        ),
    ] = "none"
    epochs: Annotated[int, Option("At most.", at_least=1)] = 60
    patience: Annotated[
        int, Option("Stop after this many epochs without improvement.", at_least=1)
    ] = 8
    negatives: Annotated[
        int, Option("Wrong triples of a question in a step, at most.", at_least=2)
    ] = 500
    batch_size: int = 4  # questions in a step
    learning_rate: float = 1e-3
    hidden: int = 128
    seed: Annotated[
        int,
        Option("Decides the initial weights, held-out questions, linked topics, order and draws."),
    ] = 42


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Looks up and labels what is around the topics of questions."""

    graph: Graph
    schema: GraphSchema
    linker: Linker
    caps: Caps
    with_names: bool = False  # look up the names of the nodes, too

    def label(
        self, example: Example, gold_topics: tuple[Entity, ...], *, are_linked: bool
    ) -> Labelled:
        """Label the subgraph of a question around linked entities, or else its gold topics.

        `NoGold` is raised if the question's query finds nothing.
        """
        gold = find_gold(self.graph, read_crp(example.target).crp)
        topics = gold_topics
        if are_linked:
            linked = self.linker.link(example.question)
            topics = starting_topics((), linked) or gold_topics
        mids = list(dict.fromkeys(each.mid for each in topics if each.mid))
        if not mids:
            raise NoGold("it has no topic")
        subgraph = extract(self.graph, self.schema, mids, self.caps)
        labelled = label(example.question, subgraph, gold, self.schema)
        if not self.with_names:
            return labelled
        return replace(labelled, names=node_texts(subgraph.nodes, self.graph.labels))


def keep_labelled(
    queries: Queries,
    surroundings: Surroundings,
    folder: Path,
    seed: int,
    report: Callable[[int, int], None],
) -> dict[Example, Path]:
    """Label each question that is not yet in a folder; those without gold are left out and counted.

    Each question has a file: its labelled subgraph, or why it is left out. If names are wanted, a
    question that is there without them is labelled again. The seed draws where topics come from.
    `report` is called after each with how many are done, and of how many.
    """
    kept = {}
    examples = list(queries.gathered.examples)
    for done, example in enumerate(examples, 1):
        path = labelled_path(folder, example)
        left_out = path.with_suffix(".txt")
        is_done = path.is_file() and (not surroundings.with_names or load_names(path) is not None)
        if not is_done and not left_out.is_file():
            digest = hashlib.sha256(f"{seed}\0{example.source}\0{example.id}".encode()).digest()
            try:
                labelled = surroundings.label(
                    example, queries.topics[example.key], are_linked=digest[0] % 2 == 1
                )
                save_labelled(path, labelled)
            except NoGold as error:
                write_safely(left_out, str(error))
        if path.is_file():
            kept[example] = path
        else:
            reason = left_out.read_text(encoding="utf-8")
            queries.gathered.skip(example.source, example.id, reason)
        report(done, len(examples))
    return kept


class EmbeddedNames(NamedTuple):
    """The names of the nodes of questions."""

    vectors: "NDArray[np.float16]"  # of each name; the first is zeros, for nodes without a name
    places: "dict[Path, NDArray[np.int32]]"  # of each file's nodes in `vectors`


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """A labelled question as the scorer sees it."""

    labelled: Labelled
    vector: "Floats"  # of the question
    vectors: "Floats"  # of the relations of all questions
    places: "NDArray[np.int64]"  # of its relations in `vectors`
    distances: "Floats"  # of each node
    right: "NDArray[np.bool_]"  # each triple
    names: "NDArray[np.float16] | None" = None  # of all questions, for a scorer that sees names
    name_places: "NDArray[np.int32] | None" = None  # of its nodes in `names`

    @property
    def words(self) -> "Floats":
        """The vector of each relation."""
        words: Floats = self.vectors[self.places]
        return words

    def node_columns(
        self, kind: RelationInput, nodes: "NDArray[np.int64] | slice" = _ALL
    ) -> "Floats":
        """Return what the scorer sees of some nodes."""
        import numpy as np

        names = None
        if self.names is not None and self.name_places is not None:
            names = self.names[self.name_places[nodes]].astype(np.float32)
        return node_columns(self.vector, self.distances[nodes], names, kind)

    def score(self, weights: Weights, config: RetrieverConfig) -> "NDArray[np.float64]":
        """Score all triples, as the retriever does."""
        return weights.score(
            self.vector,
            text_columns(self.vector, self.words, config.relation_input),
            self.node_columns(config.relation_input),
            self.labelled.heads,
            self.labelled.links,
            self.labelled.tails,
        )

    def cosines(self) -> "NDArray[np.float64]":
        """Compare the relation of each triple with the question."""
        scores: NDArray[np.float64] = (self.words @ self.vector).astype(float)[self.labelled.links]
        return scores

    def draw(self, negatives: int, seed: Sequence[int]) -> "NDArray[np.int64]":
        """Choose triples for a step: all right ones, the most similar wrong ones, and others."""
        import numpy as np

        right = np.flatnonzero(self.right)
        wrong = np.flatnonzero(~self.right)
        if len(wrong) > negatives:
            ranked = wrong[np.argsort(-self.cosines()[wrong], kind="stable")]
            near, others = ranked[: negatives // 2], ranked[negatives // 2 :]
            drawn = np.random.default_rng(seed).choice(
                others, negatives - len(near), replace=False, shuffle=False
            )
            wrong = np.concatenate([near, drawn])
        return np.concatenate([right, wrong])


def embed_names(
    paths: Sequence[Path], embedder: Embedder, cache: TextCache, report: Callable[[int, int], None]
) -> EmbeddedNames:
    """Embed the names of the nodes of questions, each name once; embedding takes long.

    `report` is called after each part with how many names are embedded, and of how many.
    """
    import numpy as np

    place: dict[str | None, int] = {None: 0}
    places = {
        path: np.array(
            [place.setdefault(name, len(place)) for name in load_names(path) or ()], dtype=np.int32
        )
        for path in paths
    }
    names = [name for name in place if name is not None]
    vectors = np.zeros((len(place), embedder.embed(["a"]).shape[1]), dtype=np.float16)
    # Of similar length together, because a batch takes as long as its longest text.
    order = sorted(range(len(names)), key=lambda at: (len(names[at]), names[at]))
    for start in range(0, len(order), _NAMES_A_BATCH):
        batch = order[start : start + _NAMES_A_BATCH]
        texts = [names[at] for at in batch]
        kept = cache.read(texts)
        if new := [text for text in texts if text not in kept]:
            rows = embedder.embed(new).astype(np.float16)
            made = {text: row.tobytes() for text, row in zip(new, rows, strict=True)}
            cache.write(made)
            kept |= made
        for at, text in zip(batch, texts, strict=True):
            vectors[at + 1] = np.frombuffer(kept[text], dtype=np.float16)
        report(start + len(batch), len(order))
    return EmbeddedNames(vectors, places)


def make_inputs(
    paths: Sequence[Path],
    embedder: Embedder,
    config: RetrieverConfig,
    names: EmbeddedNames | None = None,
) -> list[Inputs]:
    """Read labelled questions, embed questions and relations, and encode distances."""
    import numpy as np

    examples = [load_labelled(path) for path in paths]
    relations = sorted({relation for each in examples for relation in each.relations})
    vectors = embedder.recall([relation_words(relation) for relation in relations])
    place = {relation: at for at, relation in enumerate(relations)}
    made = []
    for start in range(0, len(examples), _QUESTIONS_A_BATCH):
        batch = examples[start : start + _QUESTIONS_A_BATCH]
        questions = embedder.embed([each.question for each in batch])
        files = paths[start : start + _QUESTIONS_A_BATCH]
        for one, path, question in zip(batch, files, questions, strict=True):
            made.append(
                Inputs(
                    labelled=one,
                    vector=question,
                    vectors=vectors,
                    places=np.array([place[each] for each in one.relations], dtype=np.int64),
                    distances=encode_distances(
                        one.heads, one.tails, one.nodes, one.topics, config.rounds
                    ),
                    right=one.stated >= 0 if config.labels == "gold" else one.shortest,
                    names=names.vectors if names else None,
                    name_places=names.places[path] if names else None,
                )
            )
    return made


class Recalls(NamedTuple):
    """How much of what is right comes early, for each number of triples read; all in [0, 1]."""

    triples: tuple[float, ...]  # share of gold facts that these triples state
    path: tuple[float, ...]  # 1 if they state all facts of one match of the gold query, else 0
    answers: tuple[float, ...]  # share of answers that are an end of one of them


def measure_recall(
    scores: "NDArray[np.float64]", labelled: Labelled, cutoffs: tuple[int, ...] = CUTOFFS
) -> Recalls:
    """Measure a ranking of triples by their scores, the highest first; ties keep their order."""
    import numpy as np

    rank = np.empty(len(scores))
    rank[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    # One more place, which -1 finds: the padding of `matches`, and answers out of sight.
    of_fact = np.full(labelled.facts + 1, np.inf)
    is_gold = labelled.stated >= 0
    np.minimum.at(of_fact, labelled.stated[is_gold], rank[is_gold])
    of_fact[-1] = -1
    of_match = of_fact[labelled.matches].max(axis=1)
    of_node = np.full(labelled.nodes + 1, np.inf)
    np.minimum.at(of_node, labelled.heads, rank)
    np.minimum.at(of_node, labelled.tails, rank)
    of_answer = of_node[labelled.answers]
    return Recalls(
        tuple(float((of_fact[:-1] < cutoff).mean()) for cutoff in cutoffs),
        tuple(float(of_match.min() < cutoff) for cutoff in cutoffs),
        tuple(float((of_answer < cutoff).mean()) for cutoff in cutoffs),
    )
