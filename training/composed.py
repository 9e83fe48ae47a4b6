"""Compose questions that need more relations, as ComplexWebQuestions was made from WebQSP.

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

import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from kbqa.engine.questions.question_sets import convert_queries
from kbqa.kb.graph import Graph, Schema
from kbqa.kb.schema import GraphSchema, is_telling, list_relations
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.crp import AnyPart, Constraint, Crp, Entity, Hop, Operator, compare_with
from kbqa.sparql.errors import GraphError
from kbqa.sparql.terms import LiteralTerm, Term, iri, is_mid
from kbqa.training.data.targets import TargetForm, row_query, write_target
from kbqa.training.data.training_set import (
    COMPOSED_SOURCE,
    Example,
    ExampleSet,
    ScoredSets,
    kept_rows,
    read_scored_sets,
)

_TURNS = 3
_NAMES_TRIED = 20
_MOST_ANSWERS = 100
_LIMIT_S = 5.0
_ALIAS = "common.topic.alias"
_CLASS = "common.topic.notable_types"

_MOST_EDGES = 300
_MEDIATORS = 4  # of one relation that are looked behind
_FEW = 5  # ends of a relation of an entity that has very many edges
_MOST_CHARACTERS = 50
_NOT_ASKED = ("authority.", "base.", "common.", "m.", "topic_server.", "user.")
"""Relations that people do not ask about by their names."""
_INVERSE = "_inverse"  # the end of relations that Freebase named for want of words
_ARTICLE = re.compile(r"(?i)\b(?:the|an?) $")
_SAYS = (
    "whose {what} is {end}",
    "with {end} as {what}",
    "with the {what} {end}",
    "that has the {what} {end}",
    "where the {what} is {end}",
    "that has {end} as {what}",
)
_ASKS = (
    "what is the {what} of {entity}",
    "what {what} does {entity} have",
    "{entity} {what}",
    "name the {what} of {entity}",
    "{entity}'s {what}",
    "which {what} belongs to {entity}",
    "tell me the {what} for {entity}",
)
_ADDS = (
    "{question} {says}",
    "{question}, the one {says}",
    "{question} and has {end} as {what}",
    "{question} and whose {what} is {end}",
)
_ORDERS = {
    ("number", True): ("largest", "highest", "greatest", "most"),
    ("number", False): ("smallest", "lowest", "least"),
    ("date", True): ("latest", "most recent", "last"),
    ("date", False): ("earliest", "first", "oldest"),
}
_ORDERED = (
    "{question} with the {word} {what}",
    "{question}, the one with the {word} {what}",
    "{question} and has the {word} {what}",
)
_COMPARES = {
    ("number", ">"): ("more than", "greater than", "above", "over"),
    ("number", "<"): ("less than", "smaller than", "below", "under"),
    ("date", ">"): ("after", "later than", "since"),
    ("date", "<"): ("before", "earlier than", "prior to"),
}
_COMPARED = (
    "{question} with a {what} {word} {value}",
    "{question} whose {what} is {word} {value}",
    "{question} and has a {what} {word} {value}",
)

# Relations, their end, and the mediator between two of them.
_Way: TypeAlias = tuple[tuple[str, ...], Term, str | None]


class Base(NamedTuple):
    """A training question that others are made from."""

    id: str  # of the question that it was made from, or its own
    question: str
    crp: Crp  # with mids


class Composed(NamedTuple):
    """A composed question, its path over names, and the id of the base; empty if there is none."""

    question: str
    crp: Crp
    base: str = ""


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
    """Compose questions on a graph, half of them from those of question sets, and gather them.

    Rows without SPARQL are not used, nor are questions and facts of the sets to be scored on.
    """
    scored_sets = read_scored_sets(scored)
    composer = Composer(graph, scored_sets.facts, seed)
    bases = [base for path in paths for base in _bases(path, scored_sets)]
    random.Random(seed).shuffle(bases)
    made = chain.from_iterable(map(composer.made_from, bases))
    examples = list(islice(_sayable(made, form), count // 2))
    examples += islice(_sayable(composer.direct(), form), count - len(examples))
    for number, (composed, target) in enumerate(examples):
        row_id = f"{COMPOSED_SOURCE}-{number}"
        if reason := scored_sets.reason_against({"question": composed.question}):
            gathered.skip(COMPOSED_SOURCE, row_id, reason)
        else:
            gathered.add(Example(row_id, composed.question, target, COMPOSED_SOURCE, composed.base))


def _bases(path: Path, scored_sets: ScoredSets) -> Iterator[Base]:
    """Read the questions of a set that have a query, without counting those left out again."""
    kept = list(kept_rows(path, scored_sets, ExampleSet()))
    queries = [row_query(one.row) for one in kept]
    converted = convert_queries(filter(None, queries))
    for one, query in zip(kept, queries, strict=True):
        crp = converted.get(query)
        if isinstance(crp, Crp):
            yield Base(one.parent or one.id, one.question, crp)


def _sayable(composed: Iterator[Composed], form: TargetForm) -> Iterator[tuple[Composed, str]]:
    for one in composed:
        target = write_target(one.crp, form)
        if isinstance(target, str):
            yield one, target


class Composer:
    """Composes questions on a graph, but none about a known pair of an entity and a relation.

    The seed decides what is drawn and how it is worded.
    """

    def __init__(self, graph: Graph, known: frozenset[tuple[str, str]], seed: int) -> None:
        self._graph, self._known, self._seed = graph, known, seed
        self._facts = _Facts(graph)
        self._used: Counter[tuple[str, ...]] = Counter()

    def direct(self) -> Iterator[Composed]:
        """Ask about a fact of each relation of the graph, then about another of each."""
        relations = list(filter(_is_askable, list_relations(self._graph)))
        random.Random(f"{self._seed}/relations").shuffle(relations)
        for turn in range(_TURNS):
            for relation in relations:
                rng = random.Random(f"{self._seed}/{turn}/{relation}")
                for subject, name in self._subjects(relation, rng):
                    facts = [f for f in self._facts.of(subject) if f.relations[0] == relation]
                    fact = self._rarest(subject, facts, rng)
                    if fact is not None:
                        yield self._ask(Entity(name, subject), fact, rng)
                        break

    def made_from(self, base: Base) -> Iterator[Composed]:
        """Compose new questions from a question, one of each kind that it allows."""
        rng = random.Random(f"{self._seed}/{base.id}{base.question}")
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

    def _ask(self, subject: Entity, fact: "_Fact", rng: random.Random) -> Composed:
        """Ask for the end of a fact; behind a mediator, at times with what else it ties."""
        question = rng.choice(_ASKS).format(what=self._words(fact), entity=subject)
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
                question = f"{question} {self._says(other, rng)}"
                test = compare_with("=", Entity(other.name, str(other.end)))
                crp = replace(crp, constraints=(Constraint(1, other.hops(), test),))
        return Composed(question, crp)

    def _described(self, base: Base, rng: random.Random) -> Composed | None:
        """Describe the topic of a question instead of naming it."""
        topic = base.crp.topic.mid
        if topic is None or not is_mid(topic):
            return None
        first = base.crp.path[0].relation if isinstance(base.crp.path[0], Hop) else ""
        facts = [
            fact
            for fact in self._facts.of(topic)
            if isinstance(fact.end, str) and fact.relations[0] != first
        ]
        fact = self._rarest(topic, facts, rng)
        classes = self._graph.neighbours(topic, _CLASS, "out")
        first_class = sorted(each for each in classes if isinstance(each, str))[:1]
        class_names = list(self._graph.labels(first_class).values())
        if fact is None or not class_names:
            return None
        described = Crp(Entity(mid=str(fact.end)), fact.way_back(), differs_from=None)
        if self._answers(described) != [topic]:
            return None
        description = f"the {class_names[0].lower()} {self._says(fact, rng)}"
        written = (replace_name(base.question, name, description) for name in self._names(topic))
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
        facts = [f for f in self._facts.of(answer) if self._kind(f) in ("entity", "text")]
        fact = self._rarest(answer, facts, rng)
        if fact is None:
            return None
        end = fact.end
        test = compare_with(
            "=", fact.name if isinstance(end, LiteralTerm) else Entity(fact.name, end)
        )
        holds = Constraint(base.crp.answer, fact.hops(), test)
        crp = replace(base.crp, constraints=(*base.crp.constraints, holds))
        if not 0 < len(self._answers(crp)) < len(answers):
            return None
        question = rng.choice(_ADDS).format(
            question=_stem(base.question),
            says=self._says(fact, rng),
            what=self._words(fact),
            end=fact.name,
        )
        return self._named(Composed(question, crp, base.id))

    def _valued(self, base: Base, answers: Sequence[str], rng: random.Random) -> Composed | None:
        """Ask for the answers with the largest or smallest value, or one beyond a bound."""
        answer = rng.choice(answers)
        facts = [f for f in self._facts.of(answer) if self._kind(f) in ("number", "date")]
        fact = self._rarest(answer, facts, rng)
        if fact is None or not isinstance(fact.end, LiteralTerm):
            return None
        kind, stem, what = self._kind(fact), _stem(base.question), self._words(fact)
        if rng.random() < 0.5:
            is_descending = rng.random() < 0.6
            crp = base.crp.ordered_by(base.crp.answer, fact.hops(), descending=is_descending)
            word = rng.choice(_ORDERS[kind, is_descending])
            question = rng.choice(_ORDERED).format(question=stem, word=word, what=what)
        else:
            operator: Operator = rng.choice(("<", ">"))
            value = fact.end.text[:10] if kind == "date" else fact.end.text
            test = compare_with(operator, LiteralTerm(value))
            holds = Constraint(base.crp.answer, fact.hops(), test)
            crp = replace(base.crp, constraints=(*base.crp.constraints, holds))
            word = rng.choice(_COMPARES[kind, operator])
            compared = rng.choice(_COMPARED)
            question = compared.format(question=stem, what=what, word=word, value=value)
        if not 0 < len(self._answers(crp)) < len(answers):
            return None
        return self._named(Composed(question, crp, base.id))

    def _rarest(self, entity: str, facts: Sequence["_Fact"], rng: random.Random) -> "_Fact | None":
        """Draw a fact with the relations used least so far, and count it."""
        free = [f for f in facts if not self._is_known(entity, f)]
        if not free:
            return None
        least = min(self._used[fact.relations] for fact in free)
        fact = rng.choice([fact for fact in free if self._used[fact.relations] == least])
        self._used[fact.relations] += 1
        return fact

    def _is_known(self, entity: str, fact: "_Fact") -> bool:
        ends = (entity, str(fact.end))
        schema = self._facts.schema.of(fact.relations)
        reverses = (schema.property(relation) for relation in fact.relations)
        relations = {*fact.relations, *(each.reverse for each in reverses if each is not None)}
        return any((end, relation) in self._known for end in ends for relation in relations)

    def _words(self, fact: "_Fact") -> str:
        """Return what people call the relations of a fact."""
        schema = self._facts.schema.of(fact.relations)
        return " ".join(dict.fromkeys(_relation_name(each, schema) for each in fact.relations))

    def _says(self, fact: "_Fact", rng: random.Random) -> str:
        """Write a fact of an entity as a clause: *whose currency is Euro*."""
        return rng.choice(_SAYS).format(what=self._words(fact), end=fact.name)

    def _kind(self, fact: "_Fact") -> Literal["entity", "number", "date", "text"]:
        """Return what a fact ends in."""
        if not isinstance(fact.end, LiteralTerm):
            return "entity"
        stated = self._facts.schema.of(fact.relations).property(fact.relations[-1])
        expected = stated.expected_type if stated is not None else None
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

    def _names(self, entity: str) -> list[str]:
        """Return what people call an entity, the longest name first."""
        aliases = self._graph.neighbours(entity, _ALIAS, "out")
        texts = {each.text for each in aliases if isinstance(each, LiteralTerm)}
        texts |= set(self._graph.labels([entity]).values())
        return sorted(texts, key=lambda text: (-len(text), text))

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


class _Fact(NamedTuple):
    """What is known of an entity, by one relation, or by one to a mediator and one from there."""

    relations: tuple[str, ...]
    end: Term  # an entity with a name, or a literal
    name: str  # of the entity, or the text of the literal
    node: str | None = None  # the mediator

    def hops(self) -> tuple[Hop, ...]:
        return tuple(Hop(relation) for relation in self.relations)

    def way_back(self) -> tuple[Hop, ...]:
        return tuple(Hop(relation, inverse=True) for relation in reversed(self.relations))


class _Facts:
    """Looks up facts of one hop, and of two through a mediator, each entity once."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self.schema = graph, GraphSchema(graph)
        self._of: dict[str, tuple[_Fact, ...]] = {}

    def of(self, entity: str) -> tuple[_Fact, ...]:
        """Return the facts of an entity, sorted; some of each relation if it has very many."""
        if entity not in self._of:
            self._of[entity] = self._named(self._found(entity))
        return self._of[entity]

    def of_mediator(self, node: str) -> tuple[_Fact, ...]:
        """Return what a mediator ties together, by one relation each."""
        edges = self._graph.edges([node], "out", _MOST_EDGES).get(node, {})
        return self._named(
            ((relation,), end, None)
            for relation, ends in edges.items()
            if _is_askable(relation)
            for end in ends
        )

    def _found(self, entity: str) -> Iterator[_Way]:
        edges = self._graph.edges([entity], "out", _MOST_EDGES).get(entity)
        if edges is None:
            asked = filter(_is_askable, self._graph.relations(entity, "out"))
            edges = {each: self._graph.neighbours(entity, each, "out", _FEW) for each in asked}
        behind: dict[str, str] = {}
        for relation, ends in edges.items():
            if not _is_askable(relation):
                continue
            if not self.schema.leads_to_mediator(Hop(relation)):
                yield from (((relation,), end, None) for end in ends)
                continue
            nodes = [end for end in ends if isinstance(end, str)]
            nodes.sort(key=lambda node: hashlib.sha256(node.encode()).hexdigest())
            behind |= dict.fromkeys(nodes[:_MEDIATORS], relation)
        for node, others in self._graph.edges(behind, "out", _MOST_EDGES).items():
            for relation, ends in others.items():
                if _is_askable(relation) and not self.schema.leads_to_mediator(Hop(relation)):
                    relations = (behind[node], relation)
                    yield from ((relations, end, node) for end in ends if end != entity)

    def _named(self, found: Iterable[_Way]) -> tuple[_Fact, ...]:
        """Make facts of the ways whose ends have short names, in the order of their content."""
        ways = list(found)
        mids = {end for _, end, _ in ways if isinstance(end, str) and is_mid(end)}
        names: Mapping[str, str] = self._graph.labels(sorted(mids))
        facts = []
        for relations, end, node in ways:
            name = end.text if isinstance(end, LiteralTerm) else names.get(end)
            if name and len(name) <= _MOST_CHARACTERS and "\n" not in name:
                facts.append(_Fact(relations, end, name, node))
        return tuple(sorted(facts, key=lambda fact: (fact.relations, fact.name)))


def _is_askable(relation: str) -> bool:
    """Return whether people may ask for what a relation leads to, in the words of its name."""
    is_named = not relation.startswith(_NOT_ASKED) and not relation.endswith(_INVERSE)
    return is_named and is_telling(relation)


def _moved(part: AnyPart, shift: int) -> AnyPart:
    """Move a part of a path as many nodes towards the answer."""
    return replace(part, at=part.at + shift) if isinstance(part.at, int) else part


def _relation_name(relation: str, schema: Schema) -> str:
    """Return what people call a relation.

    >>> _relation_name("film.film.directed_by", Schema({}, frozenset()))
    'directed by'
    """
    stated = schema.property(relation)
    name = stated.name if stated is not None and stated.name else None
    words = name or relation.rpartition(".")[2].replace("_", " ")
    return " ".join(word if word.isupper() else word.lower() for word in words.split())


def replace_name(question: str, name: str, description: str) -> str | None:
    """Put a description where a question names an entity; None if it does not, or possessively.

    >>> replace_name("who rules france?", "France", "the country with the capital Paris")
    'who rules the country with the capital Paris?'
    """
    place = re.search(rf"(?i)(?<!\w){re.escape(name)}(?!\w|'s|-)", question)
    if place is None or len(name) < 3:
        return None
    before = _ARTICLE.sub("", question[: place.start()])
    return before + description + question[place.end() :]


def _stem(question: str) -> str:
    return question.strip().rstrip("?.! ")
