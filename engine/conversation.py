"""Questions that lean on others: follow-ups, and two questions in one.

*And its capital?* asks something only after another question. It is completed before it is asked:
pronouns become the names of what they stand for, and a question that names nothing but another
entity is the last one about that entity. The path that answered the last question is taken over, so
that the graph is asked the same thing again. Which earlier answer or topic a word stands for is
decided by its type in the graph, and by whether it has the relations that the question asks for.

    >>> split("What is the capital of Peru and what currency do they use there?")
    ['What is the capital of Peru?', 'what currency do they use there?']
    >>> split("the symbol and the atomic number of tungsten")
    ['the symbol of tungsten', 'the atomic number of tungsten']
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from kbqa.engine.answer import Answer
from kbqa.engine.linking.linker import LinkedEntity, Linker, stems
from kbqa.engine.linking.mentions import FUNCTION_WORDS
from kbqa.engine.questions.words import singular, unlike_a_question, with_topic
from kbqa.engine.running.evidence import PathTrace
from kbqa.engine.running.run import GivenTrace
from kbqa.kb.graph import Graph, name_terms
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.terms import is_mid

_BE = r"(?:is|are|was|were)"
_AUXILIARY = rf"(?:{_BE}|do|does|did|has|have|had|can|could|will|would)\b(?:n['’]t\b)?"
_HALF = (
    rf"(?:(?:what|which) (?!{_AUXILIARY}|(?:he|she|it|they|you|\w+ed)\b)\w+"
    r"|how (?:many|much|long|old|tall|big|large|high|far)\b"
    rf"|(?:what|who|where|when|how)(?:['’]s| {_AUXILIARY})|{_AUXILIARY} (?:it|he|she|they|there)\b"
    r"|(?:where|when|why|how)\W*$)"
)
_OWN = r"(?:its|his|her|their)"
_BETWEEN_HALVES = re.compile(
    rf"(?:\?,?| ?,)? and (?:also )?(?={_HALF})|\?,? (?=\w)"
    rf"|(?:,|(?<=\w)) and (?={_OWN} \w+(?: \w+)?\W*$)",
    re.IGNORECASE,
)
_OPENS = re.compile(
    rf"(?:\w+ ){{0,2}}?(?:who|whom|whose|what|which|where|when|how|{_AUXILIARY})\b", re.IGNORECASE
)
_OWN_NOUN = re.compile(_OWN, re.IGNORECASE)
_ASKS_FOR_ONE = re.compile(rf"(?:what|who) {_BE} the .+ of ", re.IGNORECASE)
_NOUNS = re.compile(
    rf"(?P<start>(?:what|which|who) {_BE} |what's )?(?:the )?(?P<one>\w+(?: \w+)?)"
    r" and (?:the )?(?P<other>\w+(?: \w+)?)(?P<rest> of .+)",
    re.IGNORECASE,
)
_OWN_NOUNS = re.compile(
    rf"(?P<start>(?:.* )?{_OWN} )(?P<one>\w+(?: \w+)?) and (?:{_OWN} )?(?P<other>\w+(?: \w+)?)"
    r"(?P<rest>)",
    re.IGNORECASE,
)

_STARTS = re.compile(
    r"(?:(?:and|so|but|ok|okay|then|now)\b[ ,]*)*(?:(?:what|how) about\b[ ,]*)?", re.IGNORECASE
)
_GOES_ON = re.compile(r"(?:and|so|but|what about|how about)\b", re.IGNORECASE)
_BEFORE_NAME = re.compile(
    r"(?P<lead>(?:(?:of|in|for|from|with|to|on|at|by) )?)(?P<name>.+?)(?: (?:then|too|instead))?",
    re.IGNORECASE,
)
_PRONOUN = re.compile(
    r"\b(?:(?P<he>he|him|his)|(?P<she>she|her|hers)|(?P<they>they|them|their|those|these)"
    r"|(?P<it>it|its)|(?<!is )(?<!are )(?<!was )(?<!were )(?P<there>there))\b",
    re.IGNORECASE,
)
_CLASS = re.compile(
    r"\b(?P<lead>(?:in |at |of )?)(?:that|this|the|those|these) (?P<noun>\w+)\b"
    r"(?!(?: \w+)? (?:of|in|on|at|with|that|which|who)\b)",
    re.IGNORECASE,
)
_OF_THOSE = re.compile(
    r"(?P<which>which|who|what)(?: ones?)?(?P<before> .+)? (?:of|among|out of) "
    r"(?:(?P<two>the two|both)|those|these|them)\b(?: \w+(?= (?:is|are|has|have)\b))?(?P<rest>.*)",
    re.IGNORECASE,
)
_HOW_MANY = re.compile(
    rf"how many(?: {_BE} (?:there|they|those|these|that)| of (?:them|those))?(?: {_BE} there)?",
    re.IGNORECASE,
)
_BY_HOW_MUCH = re.compile(r"(?:by )?how much(?: \w+er)?", re.IGNORECASE)
_WHICH_IS_MORE = re.compile(
    r"(?:which|who)(?: \w+)? is (?P<more>\w+er|more \w+)(?: in \w+)?, (?P<one>.+) or (?P<other>.+)",
    re.IGNORECASE,
)
_WHICH_ONE = re.compile(r"which one(?P<many>s?)\b", re.IGNORECASE)
_WHICH = re.compile(rf"(?:which|what) (?!one|{_AUXILIARY})\w+", re.IGNORECASE)
_MORE = re.compile(rf" {_BE} (?:\w+er|more \w+|less \w+)\b", re.IGNORECASE)
_OTHER = re.compile(r"\bother (\w+)", re.IGNORECASE)
_WHO_ELSE = re.compile(r"\b(?:other|others|else|another)\b", re.IGNORECASE)
_ASKS_WORD_ALONE = re.compile(r"(where|when|who|how|why)", re.IGNORECASE)
_FIRST_WORD = re.compile(r"(?:where|when|who|how|why)\b", re.IGNORECASE)
_INSTEAD = re.compile(rf"(what|who|which|where) {_BE}(?: it| that)?(?:,? then)?", re.IGNORECASE)
_YES_NO = re.compile(rf"(?P<be>{_BE}) (?P<rest>.+?) (?P<noun>the \w+.*)", re.IGNORECASE)
_TOGETHER = re.compile(r"\b(?:together|in total|combined|altogether|in all)\b", re.IGNORECASE)
_LIST = re.compile(
    r"(?:please )?(?:(?:list|name|show|give)(?: me)?(?: all)?|what are|which|what|how many)"
    r"(?: of)?(?: the)? (.+)",
    re.IGNORECASE,
)
_TELLING = 0.3  # a chance that words ask for a relation; below, they tell little
_MOST_PARTS = 4
_MOST_WORDS = 12  # of a question for two things of one
_WORD = re.compile(r"\w+")
_OF_ANYTHING = ("common.", "base.", "type.object")
_NOT_SAID = {"movie": "film", "town": "city", "nation": "country"}


def split(question: str) -> list[str]:
    """Split a text into the questions that it asks at once; mostly it is one.

    Each but the first may lean on those before it.
    """
    text = " ".join(question.split())
    mark = "?" if text.endswith("?") else ""
    parts, rest = list[str](), text
    while (halves := _first_of(rest)) is not None:
        first, rest = halves
        parts.append(first + mark)
        if len(parts) == _MOST_PARTS:
            return [text]
    parts += _two_of_one(rest, mark)
    return parts if len(parts) <= _MOST_PARTS else [text]


def _first_of(text: str) -> tuple[str, str] | None:
    """Cut the first question off from those after it; None if there is only one."""
    for match in _BETWEEN_HALVES.finditer(text):
        first, other = text[: match.start()].strip(" ,"), text[match.end() :].strip()
        is_asked = "?" not in match[0] or _OPENS.match(other) or _GOES_ON.match(other)
        opens = _ASKS_FOR_ONE if match[0] == " and " and _OWN_NOUN.match(other) else _OPENS
        if is_asked and ("?" in match[0] or opens.match(first)) and len(first.split()) > 1:
            return first, other
    return None


def _two_of_one(text: str, mark: str) -> list[str]:
    """Split *the symbol and the atomic number of tungsten*; other questions stay whole."""
    said = text.rstrip(" ?.!")
    nouns = _NOUNS.fullmatch(said) or _OWN_NOUNS.fullmatch(said)
    if nouns is None or len(text.split()) > _MOST_WORDS:
        return [text]
    start = nouns["start"] or ""
    if not start.lower().rstrip().endswith(("its", "his", "her", "their")):
        start += "the "
    return [f"{start}{nouns[noun]}{nouns['rest']}{mark}" for noun in ("one", "other")]


@dataclass(frozen=True, slots=True)
class Completed:
    """A question that stands for itself, and what of earlier ones it has taken over."""

    question: str
    topics: tuple[Entity, ...] = ()  # what it is about, if that was taken over
    path: Crp | None = None  # that answered an earlier question, about these topics
    without: tuple[Entity, ...] = ()  # entities that "other" and "else" leave out
    typed: str = ""  # the question as it was asked


class _Named(NamedTuple):
    """An entity that may be meant again."""

    entity: Entity
    mention: str  # what the question calls it


@dataclass(frozen=True, slots=True)
class Completer:
    """Completes questions on one graph. Any number of threads may use one."""

    graph: Graph
    linker: Linker

    def complete(
        self, question: str, turns: Sequence[Answer], *, at_once: bool = False
    ) -> Completed:
        """Write a question so that it stands for itself.

        Args:
            question: As asked.
            turns: The answers to earlier questions, oldest first.
            at_once: Whether it was asked together with the last: then it cannot mean its answer.

        Raises:
            GraphError: The graph does not answer.
        """
        rest = _STARTS.sub("", question.strip(), count=1).strip(" ,?!.")
        turns = [each for each in turns if each.is_answered or each.linked]
        if not turns:
            return Completed(question)
        linked = [each for each in self.linker.link(question) if self._is_name(each)]
        turn = _Turn(self, question, rest, linked, turns, at_once)
        for rule in (
            turn.of_those,
            turn.how_many,
            turn.by_how_much,
            turn.which_one,
            turn.another_entity,
            turn.another_question_word,
            turn.what_instead,
            turn.together,
            turn.pronoun,
            turn.class_word,
            turn.nothing_named,
        ):
            if (completed := rule()) is not None:
                return replace(completed, typed=question)
        return Completed(question)

    def _is_name(self, linked: LinkedEntity) -> bool:
        """Return whether words mean an entity, and not a class such as *countries*."""
        is_plain = self.linker.is_plain(linked.mention)
        return not is_plain and "type.type" not in self.graph.types(linked.mid)

    def types(self, mid: str) -> set[str]:
        """Return the types of an entity that say what it is."""
        types = self.graph.types(mid)
        return {each for each in types if not each.startswith(_OF_ANYTHING)} or set(types)

    def with_relation(self, text: str, entities: Sequence[Entity]) -> list[Entity]:
        """Return those of some entities that have a relation which a text names."""
        words = stems(text)
        leaving = self.graph.relations_of_each([each.mid or "" for each in entities], "out")
        return [
            entity
            for entity in entities
            if any(
                stems(relation.rpartition(".")[2].replace("_", " ")) <= words
                for relation in leaving[entity.mid or ""]
            )
        ]

    def is_person(self, mid: str) -> bool:
        """Return whether an entity is a person by its type or by what is known of it."""
        leaving = self.graph.relations_of_each([mid], "out")[mid]
        is_known = any(each.startswith("people.person.") for each in leaving)
        return is_known or "people.person" in self.types(mid)


@dataclass(frozen=True, slots=True)
class _Turn:
    """A question among others, and the rules that may complete it; None if one does not apply."""

    completer: Completer
    question: str
    rest: str  # of the question, without how it begins
    linked: Sequence[LinkedEntity]
    turns: Sequence[Answer]
    at_once: bool

    @property
    def last(self) -> Answer:
        return self.turns[-1]

    @property
    def last_question(self) -> str:
        return (self.last.understood or self.last.question).rstrip(" ?!.")

    def of_those(self) -> Completed | None:
        """*Which of those is the largest?* of the answers, or of the last two topics."""
        match = _OF_THOSE.search(self.rest)
        if match is None:
            return None
        which, rest = match["which"], (match["before"] or "") + match["rest"]
        if match["two"]:
            two = self._two()
            if two is None:
                return None
            return Completed(f"{which}{rest}, {two[0]} or {two[1]}?", two)
        path = answering_path(self.last)
        if path is None or len(self.last.answers) < 2:
            return None
        return Completed(f"{which} of the {self._listed()}{rest}?", _about(self.last), path)

    def how_many(self) -> Completed | None:
        """*How many are there?* of the answers."""
        path = answering_path(self.last)
        if not _HOW_MANY.fullmatch(self.rest) or path is None or path.form != "select":
            return None
        count = replace(path, form="count", order=None)
        return Completed(f"how many {self._listed()}?", _about(self.last), count)

    def by_how_much(self) -> Completed | None:
        """*By how much?* after *which is larger, Kenya or Peru?*."""
        asked = _WHICH_IS_MORE.fullmatch(self.last_question)
        if asked is None or not _BY_HOW_MUCH.fullmatch(self.rest):
            return None
        of_both = f"{asked['one']} than {asked['other']}"
        return Completed(f"how much {asked['more']} is {of_both}?", _about(self.last))

    def which_one(self) -> Completed | None:
        """*Which one uses the pula?* of what was asked for, *which one is larger?* of two."""
        noun = _WHICH.match(self.last_question)
        match = _WHICH_ONE.match(self.rest)
        if match is None:
            return None
        rest, two = self.rest[match.end() :], self._two()
        if two is not None and _MORE.match(rest):
            return Completed(f"which{rest}, {two[0]} or {two[1]}?", two)
        if noun is None:
            return None
        words = noun[0] if match["many"] else singular(noun[0])
        return Completed(f"{words}{rest}?")

    def another_entity(self) -> Completed | None:
        """*What about Peru?* is the last question about Peru."""
        match = _BEFORE_NAME.fullmatch(self.rest)
        if match is None:
            return None
        said = _plain(match["name"])
        named = [each for each in self.linked if _plain(each.mention) == said]
        if not named:
            return None
        entities = [Entity(each.name, each.mid) for each in named]
        if swapped := self._about_another(entities, match["name"]):
            return swapped
        if not match["lead"]:
            return None
        return Completed(f"{self.last_question} {match['lead']}{match['name']}?")

    def another_question_word(self) -> Completed | None:
        """*And where?* is the last question with *where*."""
        if not _ASKS_WORD_ALONE.fullmatch(self.rest) or not _FIRST_WORD.match(self.last_question):
            return None
        return Completed(
            _FIRST_WORD.sub(self.rest, self.last_question, count=1) + "?", _about(self.last)
        )

    def what_instead(self) -> Completed | None:
        """*What is, then?* after *is Zurich the capital of Switzerland?*."""
        match = _INSTEAD.fullmatch(self.rest)
        asked = _YES_NO.fullmatch(self.last_question)
        if match is None or asked is None or self.last.boolean is None:
            return None
        noun = asked["noun"]
        about = tuple(each.entity for each in _named(self.last) if _plain(each.mention) in noun)
        return Completed(f"{match[1]} {asked['be']} {noun}?", about)

    def together(self) -> Completed | None:
        """*How many is that together?* of the last two topics."""
        two = self._two() if _TOGETHER.search(self.rest) else None
        if two is None or any(map(self._names, two)):
            return None
        for named in _named(self.last):
            if named.entity in two:
                both = f"{two[0]} and {two[1]}"
                return Completed(_put(self.last_question, named.mention, both) + " together?", two)
        return None

    def pronoun(self) -> Completed | None:
        """*Where was he born?* of the last person."""
        match = _PRONOUN.search(self.rest)
        if match is None or self._names_before(match.start()):
            return None
        kind = str(match.lastgroup)
        if kind == "they" and len(_entities(self.last)) > 1:
            return self._of_all(match)
        other = _OTHER.search(self.rest)
        noun = None if other is None else singular(other[1])

        def may_be(entity: Entity) -> bool:
            return self._may_be(kind, entity)

        # "Which other countries use it?" hardly means a country.
        meant = self._meant(lambda each: may_be(each) and not (noun and self._is_a(each, noun)))
        meant = meant or self._meant(may_be)
        if meant is None:
            return None
        is_empty = not _content(self.rest[: match.start()] + self.rest[match.end() :])
        words = (self.rest.split()[0].lower(), self.last_question.split()[0].lower())
        if is_empty and (words[0] == words[1] or not _FIRST_WORD.match(self.rest)):
            return self._about_another([meant], str(meant))
        text = with_topic(self.rest, str(meant))
        return Completed(f"{text.rstrip(' ?')}?", (meant,), without=self._without(meant))

    def _of_all(self, match: re.Match[str]) -> Completed | None:
        """*And their capitals?* of all answers."""
        path = answering_path(self.last)
        if path is None or match[0].lower() != "their":
            return None
        text = f"{self.rest[: match.start()]}{self.rest[match.end() :].strip()}"
        return Completed(f"{text} of the {self._listed()}?", _about(self.last), path)

    def _listed(self) -> str:
        """Return what the last question asked for: *countries border Laos*."""
        noun = _LIST.fullmatch(self.last_question)
        return noun[1] if noun else self.last_question

    def class_word(self) -> Completed | None:
        """*How many people live in that city?* of the last city."""
        for match in _CLASS.finditer(self.rest):
            if self._names_before(match.start()):
                return None
            meant = self._meant(partial(self._is_a, noun=match["noun"]))
            if meant is not None:
                text = (
                    f"{self.rest[: match.start()]}{match['lead']}{meant}{self.rest[match.end() :]}"
                )
                return Completed(f"{text}?", (meant,), without=self._without(meant))
        return None

    def nothing_named(self) -> Completed | None:
        """*Population?* of the last topic."""
        is_question = unlike_a_question(self.rest) is None
        if self.linked or _PRONOUN.search(self.rest) or not is_question:
            return None
        meant = self._meant(lambda _: True)
        if meant is None:
            return None
        text = with_topic(self.rest, str(meant))
        return None if text == self.rest else Completed(f"{text.rstrip(' ?')}?", (meant,))

    def _about_another(self, others: Sequence[Entity], name: str) -> Completed | None:
        """Ask the last question about another entity, of the same types as one that it names."""
        types = self.completer.types
        pairs = [
            (len(types(old.entity.mid or "") & types(new.mid or "")), old, new)
            for new in others
            for old in _named(self.last)
        ]
        alike, old, new = max(pairs, key=lambda pair: pair[0], default=(0, None, None))
        if old is None or new is None or not alike:
            return None
        changed = {old.entity.mid: new}
        path = answering_path(self.last)
        if path is not None:
            path = path.with_entities(lambda each: changed.get(each.mid, each))
        topics = tuple(changed.get(each.mid, each) for each in _about(self.last))
        return Completed(_put(self.last_question, old.mention, name) + "?", topics, path)

    def _meant(self, may_be: Callable[[Entity], bool]) -> Entity | None:
        """Return the latest entity that a word may be, preferably one that has what is asked."""
        known = [each for each in self._earlier() if may_be(each)]
        known = self.completer.with_relation(self.rest, known) or known
        fits = self.completer.linker.fits(self.rest, [each.mid or "" for each in known])
        best = max(fits.values(), default=0.0)
        enough = best / 2 if best >= _TELLING else 0.0
        return next((each for each in known if fits[each.mid or ""] >= enough), None)

    def _earlier(self) -> Iterator[Entity]:
        """Yield what earlier questions were about and found, the latest first."""
        seen = set()
        for number, turn in enumerate(reversed(self.turns)):
            found = _entities(turn)
            if len(found) > 1 or (self.at_once and number == 0):
                found = ()
            for entity in (*found, *(each.entity for each in _named(turn))):
                if entity.name and entity.mid not in seen:
                    seen.add(entity.mid)
                    yield entity

    def _two(self) -> tuple[Entity, Entity] | None:
        """Return the two answers of the last question, or the topics of the last two."""
        found = _entities(self.last)
        if len(found) != 2:
            of_each = [_about(turn)[:1] for turn in self.turns[-2:]]
            found = tuple(dict.fromkeys(entity for topics in of_each for entity in topics))
        return (found[0], found[1]) if len(found) == 2 else None

    def _without(self, meant: Entity) -> tuple[Entity, ...]:
        if not _WHO_ELSE.search(self.rest):
            return ()
        known = (
            entity
            for turn in self.turns
            for entity in (*_entities(turn), *(each.entity for each in _named(turn)))
        )
        return tuple(dict.fromkeys(each for each in known if each.mid != meant.mid))

    def _may_be(self, pronoun: str, entity: Entity) -> bool:
        """Return whether a pronoun may stand for an entity."""
        is_person = self.completer.is_person(entity.mid or "")
        if pronoun not in ("he", "she"):
            return pronoun == "they" or not is_person
        if not is_person:
            return False
        gender = self.completer.graph.neighbours(entity.mid or "", "people.person.gender", "out")
        names = set(name_terms(self.completer.graph, gender).values())
        return not names or ("Female" if pronoun == "she" else "Male") in names

    def _is_a(self, entity: Entity, noun: str) -> bool:
        """Return whether an entity has a type of that name."""
        noun = _NOT_SAID.get(noun.lower(), noun.lower())
        types = self.completer.types(entity.mid or "")
        words = {word for each in types for word in each.rpartition(".")[2].split("_")}
        return len(noun) > 3 and any(word.startswith(noun) for word in words)

    def _names(self, entity: Entity) -> bool:
        return _plain(str(entity)) in _plain(self.rest)

    def _names_before(self, end: int) -> bool:
        """Return whether the question itself names an entity before a word."""
        before = self.rest[:end]
        return any(each.score >= 0.5 and each.mention in before for each in self.linked)


def answering_path(answer: Answer) -> Crp | None:
    """Return the path that answered, if one did."""
    trace = answer.trace
    tried = trace.answering if isinstance(trace, PathTrace | GivenTrace) else None
    return None if tried is None or tried.relaxation is None else tried.relaxation.crp


def _entities(answer: Answer) -> tuple[Entity, ...]:
    """Return the entities that were found."""
    if answer.boolean is not None:
        return ()
    return tuple(Entity(e.name, e.term) for e in answer.answers if isinstance(e.term, str))


def _named(answer: Answer) -> list[_Named]:
    """Return the entities that a question was about, with their mentions; classes are none."""
    mentions = {each.mid: each.mention for each in answer.linked}
    path = answering_path(answer)
    if path is not None:
        of_path = [each for each in path.entities() if is_mid(each.mid or "")]
        return [_Named(each, mentions.get(each.mid or "", str(each))) for each in of_path]
    return [_Named(Entity(each.name, each.mid), each.mention) for each in answer.linked[:1]]


def _about(answer: Answer) -> tuple[Entity, ...]:
    return tuple(dict.fromkeys(each.entity for each in _named(answer)))


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text.lower())).removeprefix("the ")


def _put(text: str, mention: str, name: str) -> str:
    """Put a name in place of a mention."""
    return re.sub(rf"(?<!\w){re.escape(mention)}(?!\w)", lambda _: name, text, count=1, flags=re.I)


def _content(text: str) -> set[str]:
    """Return the words of a text that say something."""
    return {word for word in _WORD.findall(text.lower()) if word not in FUNCTION_WORDS}
