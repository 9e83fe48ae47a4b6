"""The words of a question that the path of its answer says nothing about.

Of *which landlocked countries are in Africa?* a path may list all countries of Africa.
`WordCoverage` then finds *landlocked*. A content word is accounted for

- by what the question calls an entity of the path, or the entity's own name, or a value;
- by a word of a relation or a class, with the same stem, the same beginning, or a typing error;
- by a relation that it often asks for, by a short list (`_ASKED_WITH`), or as the linking model has
  learned from training questions;
- by a relation, class, entity or value of a similar meaning: a cosine of `_ALIKE` or more.

Numbers as words, units, politeness and the words of operators are left alone: operators have rules
of their own (`kbqa.engine.questions.operators`). What is left over is shown. It is not by itself a
reason for doubt, since people say more than they ask.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.linking.linker import stems
from kbqa.engine.linking.mentions import FUNCTION_WORDS, LinkingModel, stem, tokenise
from kbqa.engine.questions.operators import operator_words
from kbqa.engine.questions.words import SMALL_TALK, unlike_a_question
from kbqa.sparql.crp import Crp
from kbqa.sparql.english import relation_words
from kbqa.sparql.terms import LiteralTerm, is_mid

_ALIKE = 0.3
"""Chosen on everyday.dev and on conditions left out of paths of cwq.dev. With 0.38 a word is left
over in 14 of 54 questions instead of 8, and 70 % of the conditions are noticed instead of 67 %."""

_ASKS = 0.7
"""The natural logarithm of how much likelier a word is in questions for a relation: twice."""

_SAYS_LITTLE = FUNCTION_WORDS | frozenset(
    """actually ask asked called calling come comes currently different dollars ever
    everything find found gave get gets getting give given go goes going got had have having held
    here hi hold homework include included includes including just kind kinds know known list
    located look looking main major make makes many need now number numbers one ones other others
    please pls quickly really said say says see show sort still take taken takes tell thanks there
    thing things today took type types use used uses using various want wanted whose wonder
    wondering
    one two three four five six seven eight nine ten eleven twelve hundred thousand million billion
    celsius centimetres cubic degree degrees fahrenheit feet foot hours inches kelvin kg kilograms
    kilometers kilometres km km2 m meter meters metres mile miles minutes month months percent
    pounds sq square year years""".split()  # noqa: SIM905 – a list of words reads better as text
)

_ASKED_WITH = {
    "population": "people live living inhabitants residents populous big large",
    "adjoin": "border borders bordering neighbour neighbours neighbor neighbors next",
    "spouse": "wife husband married marry",
    "currency": "money pay buy",
    "language": "speak speaks spoken say written",
    "discover": "found find",
    "area": "big large size",
    "melting_point": "temperature melt",
    "boiling_point": "temperature boil",
}
"""Words that ask for relations whose names do not say them."""

_POSSESSIVE = re.compile(r"['’]s$")
_SHORTEST_BEGINNING = 4
_SHORTEST_MISSPELT = 5
_MISSPELT = 0.86


class WordCoverage:
    """Compares questions with paths; threads may share one."""

    def __init__(self, embedder: Embedder, asking: LinkingModel) -> None:
        self._embedder, self._asking = embedder, asking

    def left_over(self, question: str, crp: Crp, mentions: Mapping[str, str]) -> tuple[str, ...]:
        """Return the words that nothing in a path accounts for, in their order.

        Args:
            question: In English; of other languages nothing is known, and nothing left over.
            crp: As it was run, with the names of its entities.
            mentions: What the question calls entities, by mid.
        """
        if unlike_a_question(question) is not None:
            return ()
        said = set(self._said(crp, mentions))
        known = frozenset().union(*map(stems, said))
        relations = set(crp.relations())
        names = " ".join(relations)
        asked = {w for name, words in _ASKED_WITH.items() if name in names for w in words.split()}
        small = _SAYS_LITTLE | SMALL_TALK | operator_words(question) | asked
        left = []
        for token in tokenise(question):
            word = _POSSESSIVE.sub("", token.text.lower())
            if word in small or self._is_known(stem(word), known, relations):
                continue
            left.append(word)
        vectors = self._embedder.recall([*left, *said])
        alike = vectors[: len(left)] @ vectors[len(left) :].T
        return tuple(
            dict.fromkeys(w for w, row in zip(left, alike, strict=True) if max(row) < _ALIKE)
        )

    def _said(self, crp: Crp, mentions: Mapping[str, str]) -> Iterator[str]:
        """Yield what a path says, in words."""
        for entity in crp.entities():
            yield mentions.get(entity.mid or "", str(entity))
            is_class = entity.mid is not None and not is_mid(entity.mid)
            yield relation_words(str(entity.mid)) if is_class else str(entity)
        for constraint in crp.all_constraints():
            match constraint.operand:
                case str(text) | LiteralTerm(text):
                    yield text
        for relation in crp.relations():
            yield relation_words(relation)

    def _is_known(self, word: str, known: frozenset[str], relations: set[str]) -> bool:
        """Return whether a stem is among those of the path, or asks for one of its relations."""
        asks_for = self._asking.asking.get(word, {})
        return (
            word in known
            or any(asks_for.get(each, 0.0) >= _ASKS for each in relations)
            or any(_begin_alike(word, each) or _is_misspelt(word, each) for each in known)
        )


def _begin_alike(word: str, other: str) -> bool:
    shorter, longer = sorted((word, other), key=len)
    return len(shorter) >= _SHORTEST_BEGINNING and longer.startswith(shorter)


def _is_misspelt(word: str, other: str) -> bool:
    is_near = len(word) >= _SHORTEST_MISSPELT and abs(len(word) - len(other)) <= 1
    same_letters = sorted(word) == sorted(other)
    return is_near and (same_letters or SequenceMatcher(None, word, other).ratio() > _MISSPELT)
