"""Answer each question over a graph of its own, which its row brings along.

The rows of RoG, which GCR and SubgraphRAG use as well, have a ``graph``: a few thousand triples of
Freebase around the question, ``[head, relation, tail]``, with names for entities, and mids for
those without a name. Each becomes a small store, by the loader of all stores, and an engine is
opened over it. Models are loaded once.

- The mid of an entity is made of its name. So entities of one name are one, as in the row.
- A number or a date is a literal, unless a triple begins with it.
- The rows have no schema. A type is a mediator if nothing that its relations leave has a name, and
  a relation leads to mediators if nothing that it leads to has one.

Topics and gold answers, which the rows name, become ids in the same way.

Source: Luo et al. 2024, Reasoning on Graphs: Faithful and Interpretable Large Language Model
Reasoning, §5.1.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from kbqa.engine.asked import Method
from kbqa.engine.engine import Engine
from kbqa.engine.methods import Resources, make_method
from kbqa.engine.questions.question_sets import Question, Row, read_graphs
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_triples
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import GraphError, InputError
from kbqa.sparql.terms import NAME, LiteralTerm, Term, iri, is_mid, sparql_term, term_text
from kbqa.sparql.values import is_date, is_number

OpenEngine: TypeAlias = Callable[[], AbstractContextManager[Engine]]

_Triple: TypeAlias = tuple[Term, str, Term]

_MEDIATOR = "freebase.type_hints.mediator"


class OwnGraphs:
    """Opens an engine over the graph of each question. Any number of threads may open one.

    Args:
        file: The question set.
        questions: Those that will be asked, in the order of the file.
        make: Makes what the method works with, over the graph of the first question that has one.
        method: Name of the method.
        settings: Of the method, by name.

    Raises:
        InputError: No question has a graph, or a graph is not a list of triples.
    """

    def __init__(
        self,
        file: Path,
        questions: Sequence[Question],
        make: Callable[[Graph], Resources],
        method: str,
        settings: Mapping[str, object],
    ) -> None:
        self._file, self._chosen = file, (method, settings)
        own = next((each for each in self._read(questions) if each.triples), None)
        if own is None:
            raise InputError(f'no question in {file} has a "graph", as those of RoG have')
        with open_triples(own.lines()) as graph, closing(make(graph)) as resources:
            self.resources: Resources = resources
            """What the engines share; the graph in it is closed."""
            self.method: Method = make_method(resources, *self._chosen)
            """The method over that graph, for its settings alone."""
        if self.method.general_calls is not None:
            raise InputError("general_calls is for a run over one graph: leave it out")

    def each(self, questions: Sequence[Question]) -> Iterator[tuple[Question, OpenEngine]]:
        """Yield questions, with the ids of their topics and gold, and what opens their engines."""
        for own in self._read(questions):
            yield own.question, partial(self._open, own)

    @contextmanager
    def _open(self, own: "_OwnGraph") -> Iterator[Engine]:
        if not own.triples:
            raise GraphError(f"the question {own.question.id} has no graph")
        with (
            open_triples(own.lines()) as graph,
            closing(self.resources.over(graph)) as resources,
        ):
            yield Engine.over(resources, make_method(resources, *self._chosen))

    def _read(self, questions: Sequence[Question]) -> "Iterator[_OwnGraph]":
        left = {question.id: question for question in questions}
        for id_, record in read_graphs(self._file):
            if not left:
                return
            if id_ in left:
                yield _read_own(left.pop(id_), record, self._file)


class _OwnGraph(NamedTuple):
    question: Question
    triples: Sequence[_Triple]
    names: Mapping[str, str]  # by id

    def lines(self) -> Iterator[str]:
        """Write the triples in N-Triples, with the names and what is known of the schema."""
        named = ((mid, NAME, LiteralTerm(self.names[mid], language="en")) for mid in self.names)
        for head, relation, tail in (*self.triples, *named, *self._schema()):
            yield f"{sparql_term(head)} {iri(relation)} {sparql_term(tail)} .\n"

    def _schema(self) -> Iterator[_Triple]:
        """Yield what says which types are mediators, and which relations lead to them."""
        leaving = defaultdict[Term, list[str]](list)
        heads, tails = defaultdict[str, set[Term]](set), defaultdict[str, set[Term]](set)
        for head, relation, tail in self.triples:
            leaving[head].append(_domain(relation))
            heads[_domain(relation)].add(head)
            tails[relation].add(tail)
        mediators = {domain for domain in heads if not any(map(self._is_named, heads[domain]))}
        for relation in sorted(tails):
            if _domain(relation) in mediators:
                yield relation, "type.property.schema", _domain(relation)
            if not any(map(self._is_named, tails[relation])):
                of_tails = (domain for tail in tails[relation] for domain in leaving[tail])
                types = Counter(domain for domain in of_tails if domain in mediators)
                expected = min(types, key=lambda each: (-types[each], each), default=relation)
                mediators.add(expected)
                yield relation, "type.property.expected_type", expected
        for type_ in sorted(mediators):
            yield type_, _MEDIATOR, LiteralTerm("true")

    def _is_named(self, node: Term) -> bool:
        return isinstance(node, LiteralTerm) or node in self.names


def _read_own(question: Question, record: Row, file: Path) -> _OwnGraph:
    """Read the graph of a question, and give its topics and gold the ids that they have there."""
    try:
        rows = [(str(h), str(r), str(t)) for h, r, t in record.get("graph") or () if r != NAME]
        _ = {iri(relation) for _, relation, _ in rows}  # raises if one is none
    except (TypeError, ValueError):
        raise InputError(
            f'the "graph" of the question {question.id} in {file} is not a list of '
            "[head, relation, tail]"
        ) from None
    heads = {head for head, _, _ in rows}

    def term(name: str) -> Term:
        literal = LiteralTerm(name)
        is_value = name not in heads and (is_number(literal) or is_date(literal))
        return literal if is_value else _mid(name)

    triples = [(_mid(head), relation, term(tail)) for head, relation, tail in rows]
    called = {name for head, _, tail in rows for name in (head, tail) if not is_mid(name)}
    names = {_mid(name): name for name in sorted(called) if isinstance(term(name), str)}
    given = record.get("q_entity") or ()
    topics = tuple(Entity(None if is_mid(each) else each, _mid(each)) for each in given)
    golds = (tuple(sorted(term_text(term(name)) for name in gold)) for gold in question.gold_names)
    question = replace(
        question, topics=topics or question.topics, golds=question.golds or tuple(golds)
    )
    return _OwnGraph(question, triples, names)


def _mid(name: str) -> str:
    """Return the mid of an entity, which the row may give instead of its name."""
    if is_mid(name):
        return name
    return f"m.name_{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:16]}"


def _domain(relation: str) -> str:
    return relation.rpartition(".")[0]
