"""Add composed questions to a training set.

Compose questions that need more relations, as ComplexWebQuestions was made from WebQSP.

The training questions of a benchmark know few of a graph's relations, and a small model writes few
that it never saw. The graph has them all, with names. So new questions are composed of the words of
the schema, of facts, and of training questions:

- *direct*: "what is the *anthem* of *Iceland*";
- *described*: a question's topic is described by a fact instead of being named;
- *narrowed*: of a question's answers those are asked for of which a fact holds, too;
- *ordered* and *compared*: those with the largest value, or one above a bound.

Rare relations come first. A composed question has at least one answer on the graph; a description
fits one entity. It is held out with the question it was made from, and none holds a fact about an
entity that a test question's query names with the same relation.

Source: Talmor and Berant, The Web as a Knowledge-Base for Answering Complex Questions, 2018, §3.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from kbqa.engine.questions.official import convert_queries
from kbqa.kb.graph import Graph, Schema
from kbqa.kb.schema import list_relations
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.crp import (
    Compare,
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    Operator,
    Order,
    TextEquals,
)
from kbqa.sparql.errors import GraphError
from kbqa.sparql.terms import LiteralTerm, iri, is_mid
from kbqa.training import composed_facts as wording
from kbqa.training.composed_facts import Fact, Facts, is_askable
from kbqa.training.data.targets import TargetForm, row_query, write_target
from kbqa.training.data.training_set import (
    COMPOSED_SOURCE,
    Example,
    ExampleSet,
    ScoredSets,
    kept_rows,
    parent_id,
    read_scored_sets,
    source_name,
)

_TURNS = 3
_NAMES_TRIED = 20
_MOST_ANSWERS = 100
_LIMIT_S = 5.0
_ALIAS = "common.topic.alias"
_CLASS = "common.topic.notable_types"

_Part = TypeVar("_Part", Constraint, Order)


@dataclass(frozen=True, slots=True)
class Base:
    """A training question that others are made from.

    Attributes:
        id: The question that it was made from, or its own id.
        question: As asked.
        crp: Its path, with mids.
    """

    id: str
    question: str
    crp: Crp


class Composed(NamedTuple):
    """A composed question, its path over names, and the id of the base; empty if there is none."""

    question: str
    crp: Crp
    base: str = ""


class Composer:
    """Composes questions on a graph.

    Args:
        graph: Has the facts and the schema.
        known: Pairs of an entity and a relation that no question may be about.
        seed: Decides what is drawn and how it is worded.

    Raises:
        GraphError: The graph does not answer.
    """

    def __init__(self, graph: Graph, known: frozenset[tuple[str, str]], seed: int) -> None:
        self._graph, self._known, self._seed = graph, known, seed
        self._facts = Facts(graph)
        self._used: Counter[tuple[str, ...]] = Counter()

    def direct(self) -> Iterator[Composed]:
        """Ask about a fact of each relation of the graph, then about another of each."""
        relations = list(filter(is_askable, list_relations(self._graph)))
        self._rng("relations").shuffle(relations)
        for turn in range(_TURNS):
            for relation in relations:
                rng = self._rng(f"{turn}/{relation}")
                for subject, name in self._subjects(relation, rng):
                    facts = [f for f in self._facts.of(subject) if f.relations[0] == relation]
                    fact = self._rarest(subject, facts, rng)
                    if fact is not None:
                        yield self._ask(Entity(name, subject), fact, rng)
                        break

    def made_from(self, base: Base) -> Iterator[Composed]:
        """Compose new questions from a question, one of each kind that it allows."""
        rng = self._rng(base.id + base.question)
        if base.crp.form != "select" or not all(isinstance(step, Hop) for step in base.crp.path):
            return
        if any(True for each in base.crp.all_constraints() for _ in each.references()):
            return
        answers = self._answers(base.crp)
        makers: list[Callable[[], Composed | None]] = [lambda: self._described(base, rng)]
        if len(answers) > 1 and base.crp.order is None:
            makers.append(lambda: self._narrowed(base, answers, rng))
            makers.append(lambda: self._valued(base, answers, rng))
        for make in makers:
            made = make()
            if made is not None:
                yield made

    def _ask(self, subject: Entity, fact: Fact, rng: random.Random) -> Composed:
        """Ask for the end of a fact; behind a mediator, at times with what else it ties."""
        question = wording.ask(fact, str(subject), self._schema(fact), rng)
        crp = Crp(subject, fact.hops())
        if fact.node is not None and rng.random() < 0.5:
            others = [
                other
                for other in self._facts.of_mediator(fact.node)
                if other.relations[0] != fact.relations[1]
                and other.end != subject.mid
                and isinstance(other.end, str)
            ]
            other = self._rarest(fact.node, others, rng)
            if other is not None:
                question = f"{question} {wording.state(other, self._schema(other), rng)}"
                test = IsEntity(Entity(other.name, str(other.end)))
                crp = replace(crp, constraints=(Constraint(1, other.hops(), test),))
        return Composed(question, crp)

    def _described(self, base: Base, rng: random.Random) -> Composed | None:
        """Describe the topic of a question instead of naming it."""
        topic = base.crp.topic.mid
        if topic is None or not is_mid(topic):
            return None
        facts = [f for f in self._facts.of(topic) if isinstance(f.end, str)]
        facts = [f for f in facts if f.relations[0] != _first_relation(base.crp)]
        fact = self._rarest(topic, facts, rng)
        class_name = self._class_name(topic)
        if fact is None or class_name is None or self._ends(fact) != {topic}:
            return None
        description = wording.describe(fact, class_name, self._schema(fact), rng)
        written = (
            wording.replace_name(base.question, name, description) for name in self._names(topic)
        )
        question = next((each for each in written if each is not None), None)
        if question is None:
            return None
        back, shift = fact.way_back(), len(fact.relations)
        crp = replace(
            base.crp,
            topic=Entity(fact.name, str(fact.end)),
            path=(*back, *base.crp.path),
            constraints=tuple(_moved(each, shift) for each in base.crp.constraints),
            order=base.crp.order and _moved(base.crp.order, shift),
            differs_from=0,
        )
        return self._named(Composed(question, crp, base.id))

    def _narrowed(self, base: Base, answers: Sequence[str], rng: random.Random) -> Composed | None:
        """Ask for some of the answers of a question."""
        answer = rng.choice(answers)
        facts = [f for f in self._facts.of(answer) if self._narrows(f)]
        fact = self._rarest(answer, facts, rng)
        if fact is None:
            return None
        test = (
            TextEquals(fact.name)
            if isinstance(fact.end, LiteralTerm)
            else IsEntity(Entity(fact.name, fact.end))
        )
        crp = _with(base.crp, Constraint(base.crp.answer, fact.hops(), test))
        if not 0 < len(self._answers(crp)) < len(answers):
            return None
        question = wording.narrow(base.question, fact, self._schema(fact), rng)
        return self._named(Composed(question, crp, base.id))

    def _valued(self, base: Base, answers: Sequence[str], rng: random.Random) -> Composed | None:
        """Ask for the answers with the largest or smallest value, or one beyond a bound."""
        answer = rng.choice(answers)
        facts = [f for f in self._facts.of(answer) if self._kind(f) != "text"]
        fact = self._rarest(answer, facts, rng)
        if fact is None or not isinstance(fact.end, LiteralTerm):
            return None
        kind, words = self._kind(fact), wording.relation_words(fact.relations, self._schema(fact))
        if rng.random() < 0.5:
            is_descending = rng.random() < 0.6
            order = Order(base.crp.answer, fact.hops(), is_descending)
            question = wording.order(base.question, words, kind, is_descending, rng)
            crp = replace(base.crp, order=order)
        else:
            operator: Operator = rng.choice(("<", ">"))
            value = fact.end.text[:10] if kind == "date" else fact.end.text
            test = Compare(operator, LiteralTerm(value))
            crp = _with(base.crp, Constraint(base.crp.answer, fact.hops(), test))
            question = wording.compare(base.question, words, kind, operator, value, rng)
        if not 0 < len(self._answers(crp)) < len(answers):
            return None
        return self._named(Composed(question, crp, base.id))

    def _rarest(self, entity: str, facts: Sequence[Fact], rng: random.Random) -> Fact | None:
        """Draw a fact with the relations used least so far, and count it."""
        free = [f for f in facts if not self._is_known(entity, f)]
        if not free:
            return None
        least = min(self._used[fact.relations] for fact in free)
        fact = rng.choice([fact for fact in free if self._used[fact.relations] == least])
        self._used[fact.relations] += 1
        return fact

    def _is_known(self, entity: str, fact: Fact) -> bool:
        ends = (entity, str(fact.end))
        schema = self._schema(fact)
        reverses = (schema.property(relation) for relation in fact.relations)
        relations = {*fact.relations, *(each.reverse for each in reverses if each is not None)}
        return any((end, relation) in self._known for end in ends for relation in relations)

    def _schema(self, fact: Fact) -> Schema:
        """Return what the schema states about the relations of a fact."""
        return self._facts.schema.of(fact.relations)

    def _narrows(self, fact: Fact) -> bool:
        return isinstance(fact.end, str) or self._kind(fact) == "text"

    def _kind(self, fact: Fact) -> wording.Kind:
        """Return what kind of literal a fact ends in; entities count as texts."""
        stated = self._schema(fact).property(fact.relations[-1])
        expected = stated.expected_type if stated is not None else None
        if not isinstance(fact.end, LiteralTerm):
            return "text"
        if expected in ("type.int", "type.float"):
            return "number"
        return "date" if expected == "type.datetime" else "text"

    def _subjects(self, relation: str, rng: random.Random) -> Iterator[tuple[str, str]]:
        """Yield entities with names that have a relation, in random order."""
        query = f"SELECT DISTINCT ?s {{ ?s {iri(relation)} ?o }}"
        try:
            rows = self._graph.select(query, timeout_s=_LIMIT_S, limit=_NAMES_TRIED).rows
        except GraphError:
            return
        mids = [str(row[0]) for row in rows if is_mid(str(row[0]))]
        rng.shuffle(mids)
        yield from self._graph.labels(mids).items()

    def _answers(self, crp: Crp) -> list[str]:
        """Return the entities that a path leads to, sorted; none if there are very many."""
        try:
            table = self._graph.select(
                compile_crp(crp), timeout_s=_LIMIT_S, limit=_MOST_ANSWERS + 1
            )
        except GraphError:
            return []
        found = {row[0] for row in table.rows}
        mids = sorted(each for each in found if isinstance(each, str))
        return mids if len(mids) == len(found) <= _MOST_ANSWERS else []

    def _ends(self, fact: Fact) -> set[str]:
        """Return the entities of which a fact holds."""
        crp = Crp(Entity(mid=str(fact.end)), fact.way_back(), differs_from=None)
        return set(self._answers(crp))

    def _names(self, entity: str) -> list[str]:
        """Return what people call an entity, the longest name first."""
        aliases = self._graph.neighbours(entity, _ALIAS, "out")
        texts = {each.text for each in aliases if isinstance(each, LiteralTerm)}
        texts |= set(self._graph.labels([entity]).values())
        return sorted(texts, key=lambda text: (-len(text), text))

    def _class_name(self, entity: str) -> str | None:
        classes = self._graph.neighbours(entity, _CLASS, "out")
        mids = sorted(each for each in classes if isinstance(each, str))
        return self._graph.labels(mids[:1]).get(mids[0]) if mids else None

    def _named(self, composed: Composed) -> Composed | None:
        """Give the entities of a path their names; None if one has none."""
        mids = {each.mid for each in composed.crp.entities() if each.mid and not each.name}
        names = self._graph.labels(sorted(mids))
        if any(mid not in names for mid in mids if is_mid(mid)):
            return None
        crp = composed.crp.with_entities(
            lambda e: e if e.name else Entity(names.get(e.mid or ""), e.mid)
        )
        return composed._replace(crp=crp)

    def _rng(self, content: str) -> random.Random:
        return random.Random(f"{self._seed}/{content}")


def _first_relation(crp: Crp) -> str:
    step = crp.path[0]
    return step.relation if isinstance(step, Hop) else ""


def _with(crp: Crp, constraint: Constraint) -> Crp:
    return replace(crp, constraints=(*crp.constraints, constraint))


def _moved(part: _Part, shift: int) -> _Part:
    """Move a part of a path as many nodes towards the answer."""
    return replace(part, at=part.at + shift) if isinstance(part.at, int) else part


def add_composed(
    gathered: ExampleSet,
    paths: Sequence[Path],
    graph: Graph,
    *,
    count: int,
    seed: int,
    form: TargetForm,
    scored: Sequence[Path],
) -> None:
    """Compose questions on a graph, half of them from those of question sets.

    Args:
        gathered: Gets the examples.
        paths: The question sets; rows without SPARQL are not used.
        graph: Has the facts and the schema.
        count: How many to add.
        seed: Decides which.
        form: The text form of the targets.
        scored: Test sets, whose questions and facts are left out.

    Raises:
        InputError: A file is missing or unreadable.
        GraphError: The graph does not answer.
    """
    scored_sets = read_scored_sets(scored)
    composer = Composer(graph, scored_sets.facts, seed)
    bases = [base for path in paths for base in _bases(path, scored_sets)]
    random.Random(seed).shuffle(bases)
    made = islice(_sayable(chain.from_iterable(map(composer.made_from, bases)), form), count // 2)
    examples = [*made]
    examples += islice(_sayable(composer.direct(), form), count - len(examples))
    for number, (composed, target) in enumerate(examples):
        row_id = f"{COMPOSED_SOURCE}-{number}"
        if reason := scored_sets.reason_against({"question": composed.question}):
            gathered.skip(COMPOSED_SOURCE, row_id, reason)
        else:
            gathered.add(Example(row_id, composed.question, target, COMPOSED_SOURCE, composed.base))


def _bases(path: Path, scored_sets: ScoredSets) -> Iterator[Base]:
    """Read the questions of a set that have a query, without counting those left out again."""
    kept = list(kept_rows(path, source_name(path), scored_sets, ExampleSet()))
    queries = [row_query(one.row) for one in kept]
    converted = convert_queries(filter(None, queries))
    for one, query in zip(kept, queries, strict=True):
        crp = converted.get(query)
        if isinstance(crp, Crp):
            yield Base(parent_id(one.row) or one.id, one.question, crp)


def _sayable(composed: Iterator[Composed], form: TargetForm) -> Iterator[tuple[Composed, str]]:
    for one in composed:
        target = write_target(one.crp, form)
        if isinstance(target, str):
            yield one, target
