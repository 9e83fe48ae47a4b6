"""What a graph knows of an entity: facts of one hop, and of two through a mediator.

Words for relations and classes, from their names in the schema.
"""

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from kbqa.kb.graph import Graph, Schema
from kbqa.kb.schema import GraphSchema, is_telling
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import LiteralTerm, Term, is_mid

_MOST_EDGES = 300
_MEDIATORS = 4
"""The most mediators of one relation that are looked behind."""

_FEW = 5
"""The most ends of a relation of an entity that has very many edges."""

_MOST_CHARACTERS = 50
_NOT_ASKED = ("authority.", "base.", "common.", "m.", "topic_server.", "user.")
"""Relations that people do not ask about by their names."""

_INVERSE = "_inverse"
"""The end of relations that Freebase named for want of words."""


class Fact(NamedTuple):
    """What is known of an entity.

    Attributes:
        relations: One relation, or one to a mediator and one from there.
        end: What they lead to: an entity with a name, or a literal.
        name: The name of the entity, or the text of the literal.
        node: The mediator; None for one relation.
    """

    relations: tuple[str, ...]
    end: Term
    name: str
    node: str | None = None

    def hops(self) -> tuple[Hop, ...]:
        """Return the way from the entity to the end."""
        return tuple(Hop(relation) for relation in self.relations)

    def way_back(self) -> tuple[Hop, ...]:
        """Return the way from the end to the entity."""
        return tuple(Hop(relation, inverse=True) for relation in reversed(self.relations))


class Facts:
    """Looks up facts, each entity once.

    Raises:
        GraphError: The graph does not answer.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph, self.schema = graph, GraphSchema(graph)
        self._of: dict[str, tuple[Fact, ...]] = {}

    def of(self, entity: str) -> tuple[Fact, ...]:
        """Return the facts of an entity, sorted; some of each relation if it has very many."""
        if entity not in self._of:
            self._of[entity] = tuple(sorted(self._named(self._found(entity)), key=_content))
        return self._of[entity]

    def of_mediator(self, node: str) -> tuple[Fact, ...]:
        """Return what a mediator ties together, by one relation each."""
        edges = self._graph.edges([node], "out", _MOST_EDGES).get(node, {})
        found = [
            ((relation,), end, None)
            for relation, ends in edges.items()
            if is_askable(relation)
            for end in ends
        ]
        return tuple(sorted(self._named(found), key=_content))

    def _found(self, entity: str) -> Iterator[tuple[tuple[str, ...], Term, str | None]]:
        edges = self._graph.edges([entity], "out", _MOST_EDGES).get(entity)
        if edges is None:
            asked = filter(is_askable, self._graph.relations(entity, "out"))
            edges = {each: self._graph.neighbours(entity, each, "out", _FEW) for each in asked}
        behind: dict[str, str] = {}
        for relation, ends in edges.items():
            if not is_askable(relation):
                continue
            if not self.schema.leads_to_mediator(Hop(relation)):
                yield from (((relation,), end, None) for end in ends)
                continue
            nodes = [end for end in ends if isinstance(end, str)]
            behind |= dict.fromkeys(sorted(nodes, key=_digest)[:_MEDIATORS], relation)
        for node, others in self._graph.edges(behind, "out", _MOST_EDGES).items():
            for relation, ends in others.items():
                if is_askable(relation) and not self.schema.leads_to_mediator(Hop(relation)):
                    relations = (behind[node], relation)
                    yield from ((relations, end, node) for end in ends if end != entity)

    def _named(self, found: Iterable[tuple[tuple[str, ...], Term, str | None]]) -> Iterator[Fact]:
        rows = list(found)
        mids = {end for _, end, _ in rows if isinstance(end, str) and is_mid(end)}
        names: Mapping[str, str] = self._graph.labels(sorted(mids))
        for relations, end, node in rows:
            name = end.text if isinstance(end, LiteralTerm) else names.get(end)
            if name and len(name) <= _MOST_CHARACTERS and "\n" not in name:
                yield Fact(relations, end, name, node)


def is_askable(relation: str) -> bool:
    """Return whether people may ask for what a relation leads to, in the words of its name."""
    is_named = not relation.startswith(_NOT_ASKED) and not relation.endswith(_INVERSE)
    return is_named and is_telling(relation)


def _content(fact: Fact) -> tuple[tuple[str, ...], str]:
    return fact.relations, fact.name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


Kind = Literal["number", "date", "text"]

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


def relation_words(relations: tuple[str, ...], schema: Schema) -> str:
    """Return what people call a chain of relations.

    >>> relation_words(("film.film.directed_by",), Schema({}, frozenset()))
    'directed by'
    """
    return " ".join(dict.fromkeys(_words(relation, schema) for relation in relations))


def _words(relation: str, schema: Schema) -> str:
    stated = schema.property(relation)
    name = stated.name if stated is not None and stated.name else None
    words = name or relation.rpartition(".")[2].replace("_", " ")
    return " ".join(word if word.isupper() else word.lower() for word in words.split())


def state(fact: Fact, schema: Schema, rng: random.Random) -> str:
    """Write a fact of an entity as a clause: *whose currency is Euro*."""
    return rng.choice(_SAYS).format(what=relation_words(fact.relations, schema), end=fact.name)


def ask(fact: Fact, entity: str, schema: Schema, rng: random.Random) -> str:
    """Ask for the end of a fact: *what is the currency of France*."""
    return rng.choice(_ASKS).format(what=relation_words(fact.relations, schema), entity=entity)


def narrow(question: str, fact: Fact, schema: Schema, rng: random.Random) -> str:
    """Ask for those answers of a question of which a fact holds, too."""
    return rng.choice(_ADDS).format(
        question=_stem(question),
        says=state(fact, schema, rng),
        what=relation_words(fact.relations, schema),
        end=fact.name,
    )


def order(question: str, words: str, kind: Kind, descending: bool, rng: random.Random) -> str:
    """Ask for the answer of a question with the largest or smallest value."""
    word = rng.choice(_ORDERS[kind, descending])
    return rng.choice(_ORDERED).format(question=_stem(question), word=word, what=words)


def compare(
    question: str, words: str, kind: Kind, operator: str, value: str, rng: random.Random
) -> str:
    """Ask for the answers of a question with a value above or below another."""
    word = rng.choice(_COMPARES[kind, operator])
    return rng.choice(_COMPARED).format(
        question=_stem(question), what=words, word=word, value=value
    )


def describe(fact: Fact, class_name: str, schema: Schema, rng: random.Random) -> str:
    """Describe an entity instead of naming it: *the country whose currency is Euro*."""
    return f"the {class_name.lower()} {state(fact, schema, rng)}"


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
