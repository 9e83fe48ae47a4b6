"""Read a question by its function words: whether it is one in English, and whether it is whole.

A text is small talk if all its words are. It is in another language if it has no Latin letter, or
if it has at least two function words of French, German, Spanish, Italian or Portuguese, more than
English ones, and few of these. Key words without any function word, such as "france capital", pass.

A question of a few words, or with a pronoun, may leave out what it is about.
"""

import re

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
_MOST_SHARE = 0.25
"""The share of English function words up to which foreign ones decide."""


def unlike_a_question(text: str) -> str | None:
    """Return why a text is not a question in English; None if it may be one.

    >>> unlike_a_question("Wie hoch ist der Siedepunkt von Eisen?")
    'the question does not look like English'
    >>> unlike_a_question("good morning")
    'this does not look like a question'
    >>> unlike_a_question("france capital") is None
    True
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


_STARTS = re.compile(r"^(?:(?:and|so|but|ok|what about|how about)\b[ ,]*)+", re.IGNORECASE)
_THERE = re.compile(r"(?<!\bis )(?<!\bare )(?<!\bwas )(?<!\bwere )\bthere\b", re.IGNORECASE)
_OWN = re.compile(r"\b(?:its|his|her|their)\b(?= \w)", re.IGNORECASE)
_ITSELF = re.compile(r"\b(?:it|he|she|him|her|they|them)\b", re.IGNORECASE)
_MOST_WORDS = 4
"""Words of a question without a pronoun that may leave out what it is about."""


def with_topic(question: str, name: str) -> str:
    """Write what a question is about into it, if it leaves that out; else return it as it is.

    Args:
        question: It does not name its topic.
        name: The topic's.

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
