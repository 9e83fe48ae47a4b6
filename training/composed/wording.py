"""Words for relations and classes, from their names in the schema."""

import random
import re
from typing import Literal

from kbqa.kb.schema.properties import Schema
from kbqa.training.composed.facts import Fact

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
