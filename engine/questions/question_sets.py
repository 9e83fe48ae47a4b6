"""Read question sets, draw samples of them, and read a question by its function words."""

import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbqa.engine.questions.official import (
    GoldKind,
    GoldSets,
    gold_boolean,
    gold_count,
    gold_kind,
    gold_names,
    gold_sets,
    is_unanswerable,
    names_other_kinds,
    read_question_rows,
    unread_gold,
)
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import is_mid

_TOPICS, _ANSWERS = '"topic_entities": [{"mid", "name"}]', '"answers": [{"arg", "name"}]'
_FORM = f'{{"id", "question", {_TOPICS}, {_ANSWERS}, "sparql"}}'

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_LATIN = re.compile(r"[a-zA-Z]")

# ruff: noqa: SIM905 – lists of a hundred words read better as text
_ENGLISH = frozenset(
    """a an the of in on at to for from by with and or not no as is are was were be been am do does
    did has have had can could will would should may might must who whom whose what whats which when
    where why how many much that this these those there it its he his she her they their them i me
    my you your we our us if than then about into over under between during before after tell name
    list give show find""".split()
)
_FOREIGN = frozenset(
    """le les des du dans est sont qui que quel quelle quels quelles combien où et une un au aux
    der das den dem ist sind wer wie wo wann welche welcher welches und ein eine von im
    el los las del en es son quién quien qué cuál cual cuáles cuántos dónde donde cuándo
    il gli di è che chi quale quali quanti dove qual quais onde quem são""".split()
)
_SMALL_TALK = frozenset(
    """hello hi hey thanks thank you good morning afternoon evening night bye goodbye ok okay cool
    yes no please cheers great nice well how are welcome sorry so very much lol""".split()
)
_MOST_SHARE = 0.25  # of English function words, up to which foreign ones decide

_STARTS = re.compile(r"^(?:(?:and|so|but|ok|what about|how about)\b[ ,]*)+", re.IGNORECASE)
_THERE = re.compile(r"(?<!\bis )(?<!\bare )(?<!\bwas )(?<!\bwere )\bthere\b", re.IGNORECASE)
_OWN = re.compile(r"\b(?:its|his|her|their)\b(?= \w)", re.IGNORECASE)
_ITSELF = re.compile(r"\b(?:it|he|she|him|her|they|them)\b", re.IGNORECASE)
_MOST_WORDS = 4  # of a question without a pronoun that may leave out its topic


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold data."""

    id: str  # unique in its set
    text: str
    topics: tuple[Entity, ...]  # gold; only evaluation with gold entities uses them
    golds: GoldSets  # WebQSP has one for each parse and may list an answer twice
    tier: str | None = None  # of evidence in the slice
    type: str | None = None  # the compositionality type, in ComplexWebQuestions
    sparql: str | None = None  # for several parses, that of the first that counts
    gold_names: GoldSets = ()  # those of entities, or mids, and texts; see `gold_names`
    boolean: bool | None = None  # the gold answer to a yes/no question
    count: int | None = None  # the gold answer to "how many?"
    unanswerable: bool = False  # the right thing is not to answer
    compares_values: bool = False  # literals are compared by value, not by their text
    category: str | None = None  # the kind of question, if the set says so
    generalization: str | None = None  # in GrailQA: i.i.d., compositional or zero-shot
    function: str | None = None  # in GrailQA, such as count or argmax

    @property
    def kind(self) -> GoldKind | None:
        """The kind of gold it has; None if it has none, and is not scored."""
        return gold_kind(self.golds, self.boolean, self.count, self.unanswerable)


def asked_questions(argument: str) -> Iterator[str]:
    """Yield the question of a command line, or for ``-`` the lines of standard input.

    Raises:
        InputError: The question is empty.
    """
    if argument == "-":
        for line in sys.stdin.buffer:
            if text := line.decode("utf-8-sig", "replace").strip():
                yield text
    elif argument.strip():
        yield _typed(argument)
    else:
        raise InputError("the question is empty")


def read_questions(path: Path) -> list[Question]:
    """Read a question set.

    Raises:
        InputError: The file is missing, unreadable or empty, or a record is not a question or has
            the id of an earlier one.
    """
    questions: dict[str, Question] = {}
    for number, row in read_question_rows(path):
        question = _question(row, path, number)
        if question.id in questions:
            raise InputError(
                f"{path}, line {number}: an earlier question also has the id {question.id!r}"
            )
        questions[question.id] = question
    if not questions:
        raise InputError(f"{path} has no questions")
    return list(questions.values())


def gold_warning(path: Path, questions: Sequence[Question]) -> str | None:
    """Return a sentence if no question of a file has gold, or an unread field seems to hold it."""
    unscored = {question.id for question in questions if question.kind is None}
    if not unscored:
        return None
    rows = (row for number, row in read_question_rows(path) if _id(row, number) in unscored)
    field = next(filter(None, map(unread_gold, rows)), None)
    if field is None and len(unscored) < len(questions):
        return None
    advice = f': "{field}" is not read. Write {_ANSWERS} with mids, which `kbqa entities` finds'
    return (
        f"{len(unscored):,} of {len(questions):,} questions in {path} have no gold and are not "
        f"scored{'' if field is None else advice}"
    )


def sample_questions(questions: Sequence[Question], size: int, seed: int) -> list[Question]:
    """Draw at most `size` questions and keep their order; the same for the same set and seed."""
    ids = sorted(question.id for question in questions)
    drawn = set(random.Random(seed).sample(ids, min(size, len(ids))))
    return [question for question in questions if question.id in drawn]


def topic_entities(row: Mapping[str, Any]) -> tuple[Entity, ...]:
    """Return a record's topic entities that have a mid."""
    entities = row.get("topic_entities")
    if not isinstance(entities, list | None):
        raise TypeError('"topic_entities" is not a list')
    found = map(_topic, entities or ())
    return tuple(entity for entity in found if entity is not None)


def record_problem(error: KeyError | TypeError | AttributeError) -> str:
    """Describe why a record is not a question, from the error that reading it raised."""
    problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return f"not a question record: {problem}. Expected {_FORM}"


def _typed(argument: str) -> str:
    """Return an argument as it was typed."""
    try:  # In a locale without UTF-8, its bytes arrive as surrogates.
        return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # Other surrogates, which no terminal sends.
        return argument.encode("utf-8", "replace").decode("utf-8")


def _question(row: Mapping[str, Any], path: Path, number: int) -> Question:
    try:
        text, id_ = row["question"], row.get("id")
        if not isinstance(text, str):
            raise TypeError('"question" is not a text')
        if isinstance(id_, bool) or not isinstance(id_, str | int | None):
            raise TypeError('"id" is neither a text nor a number')
        return Question(
            id=_id(row, number),
            text=text,
            topics=topic_entities(row),
            golds=gold_sets(row),
            tier=_text(row, "evidence"),
            type=_text(row, "compositionality_type"),
            sparql=_text(row, "sparql"),
            gold_names=gold_names(row),
            boolean=gold_boolean(row),
            count=gold_count(row),
            unanswerable=is_unanswerable(row),
            compares_values=names_other_kinds(row),
            category=_text(row, "category"),
            generalization=_text(row, "level"),
            function=_text(row, "function"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}, line {number}: {record_problem(error)}") from None


def _id(row: Mapping[str, Any], number: int) -> str:
    id_ = row.get("id")
    return str(number if id_ is None else id_)


def _text(row: Mapping[str, Any], field: str) -> str | None:
    """Return an optional text of a record; None if it is missing or empty."""
    text = row.get(field)
    if not isinstance(text, str | None):
        raise TypeError(f'"{field}" is not a text')
    return text or None


def _topic(entity: object) -> Entity | None:
    """Read a topic entity: a mid, or a record that may lack one."""
    if isinstance(entity, str) and is_mid(entity):
        return Entity(mid=entity)
    if not isinstance(entity, Mapping):
        raise TypeError(f'the topic entity {entity!r} is neither a mid nor {{"mid", "name"}}')
    mid, name = entity.get("mid"), entity.get("name")
    if not isinstance(mid, str | None) or not isinstance(name, str | None):
        raise TypeError(f'the "mid" or "name" of the topic entity {entity!r} is not a text')
    return Entity(name, mid) if mid else None


def unlike_a_question(text: str) -> str | None:
    """Return why a text is not a question in English; None if it may be one.

    It is small talk if all its words are. It is in another language if it has no Latin letter, or
    at least two function words of another language, more than English ones, and few of these. Key
    words without any function word, such as "france capital", pass.
    """
    words = [each.lower().replace("’", "'") for each in _WORD.findall(text)]
    if all(word in _SMALL_TALK for word in words):
        return "this does not look like a question"
    english = sum(word.partition("'")[0] in _ENGLISH for word in words)
    foreign = sum(word in _FOREIGN for word in words)
    is_foreign = foreign >= 2 and foreign > english and english <= _MOST_SHARE * len(words)
    if is_foreign or not _LATIN.search(text):
        return "the question does not look like English"
    return None


def with_topic(question: str, name: str) -> str:
    """Write the name of its topic into a question that leaves it out; else return it as it is.

    >>> with_topic("and its neighbours?", "Bulgaria"), with_topic("how big is it", "Finland")
    ("Bulgaria's neighbours?", 'how big is Finland')
    >>> with_topic("population?", "Nepal")
    'population of Nepal'
    """
    rest = _STARTS.sub("", question.strip())
    for pattern, words in ((_THERE, f"in {name}"), (_OWN, f"{name}'s"), (_ITSELF, name)):
        if match := pattern.search(rest):
            return rest[: match.start()] + words + rest[match.end() :]
    if rest and len(rest.split()) <= _MOST_WORDS:
        return f"{rest.rstrip(' ?!.')} of {name}"
    return question
