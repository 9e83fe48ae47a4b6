"""Read the replies of general models. A reader never fails, and never takes other options.

Nothing in a reply is evaluated as a program.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kbqa.kb.names import normalise


@dataclass(frozen=True, slots=True)
class Picked:
    """The chosen ones of some options."""

    chosen: tuple[int, ...]  # indexes of the options, in order, each once
    scores: tuple[float, ...] = ()  # of the chosen ones, if the decision scores them
    unread: tuple[str, ...] = ()  # parts that could not be understood, or that name no option
    stops: bool = False  # the reply says that nothing should follow, as STOP or an empty list do

    @property
    def scored(self) -> Iterator[tuple[int, float]]:
        """The chosen indexes with their scores: 1 each if the decision scores nothing."""
        return zip(self.chosen, self.scores or (1.0,) * len(self.chosen), strict=True)


MAX_UNREAD = 5
"""The most unread parts of a reply that are kept, each at most 80 letters long."""

_BULLET = re.compile(r"^\s*(?:(?!->)[-*•#>]+\s*)?(?:\(?(\d{1,4})[.):]\s+)?(.*?)\s*$", re.DOTALL)
_NUMBER = re.compile(r"^\(?#?(\d{1,4})[.):]?$")
_ARROW = re.compile(r"^(?:->|<-) ")
_SCORE = re.compile(r"(?<![\d.])(\d{0,6}\.?\d{1,20})[\s)\]}.,;*]*$")
_NUMBER_AND_SCORE = re.compile(
    r"^\W{0,4}(\d{1,4})\s?[.):=-]\s{0,3}(?:score\W{0,3})?(\d{0,6}\.?\d{1,20})\W{0,4}$",
    re.IGNORECASE,
)
_SCORE_LETTERS = 40
_QUOTES = "\"'`*“”‘’ \t"
_STOPS = frozenset({"stop", "none", "nothing", "n/a", "[]", "{}", "no relation", "no relations"})
_NO_ANSWER = frozenset(
    {"", "answer", "answers", "na", "n a", "none", "nothing", "null", "unanswerable", "unknown"}
)

# How a text begins, as `normalise` writes it, that says of an answer or an option: there is none.
# What follows must be so particular that few names begin alike: there are songs called "Sorry", "I
# Can't Help It" and "I Don't Know How to Love Him".
_THING = (
    r"(?:[a-z]+ ){0,3}?(?:answers?|paths?|triples?|facts?|relations?|relationships?|information"
    r"|evidence|data|context|entit(?:y|ies)|options?|candidates?|match(?:es)?|results?|graph)"
)
_STATED = (
    r"(?:available|certain|clear|contained|determinable|determined|enough|explicitly|found|given|in"
    r"|included|known|listed|mentioned|possible|present|provided|shown|specified|stated|sufficient)"
)
_SAY = (
    r"(?:answer|assist|confirm|determine|deduce|derive|help with|identify|infer|locate|provide"
    r"|verify|(?:find|give|name|say|see|tell)(?: (?:any|an?|the|this|that|wh(?:o|at|ich|ere|en))|$)"
    r"|(?:be )?(?:answered|determined|found|given|identified|inferred))"
)
_HOLD = (
    r"(?:contain|give|hold|have|include|lead|mention|name|provide|say|show|specify|state|suffice"
    r"|tell)"
)
_NOT = r"(?:not|cannot|cant|(?:can|do|does|did|is|are|was|were|could)(?: not|nt))"
_ADVERB = r"(?:[a-z]+ly )?"
_REFUSALS = (
    # "No path", "There is not enough information", "I see no relevant relation"
    r"(?:(?:there (?:is|are|was|were)|i (?:see|found|find|have)) )?"
    rf"(?:no|not any|not enough|not sufficient|insufficient|too little) {_THING}\b",
    # "Based on the given facts, it is not …"
    rf"(?:based on |from |given |in ){_THING} (?:it |i |there |this )?(?:is |are )?{_NOT}\b",
    # "The paths do not contain the answer", "The answer is unknown"
    rf"{_THING} (?:(?:is|are|was|were|could|can) )?"
    rf"(?:{_NOT} {_ADVERB}(?:{_STATED}|{_SAY}|{_HOLD})|unknown|unclear|insufficient)\b",
    # "It cannot be determined"
    rf"(?:it|this|that|question|this question) {_NOT} (?:be )?(?:{_STATED}|{_SAY})\b",
    # "There is not any evidence"
    rf"there {_NOT} (?:enough|any|a|an) {_THING}\b",
    # "Not found", "Cannot determine"
    rf"(?:not|cannot|cant|could not) (?:{_STATED}|applicable|sure|{_SAY})\b",
    # "I cannot answer", "We are unable to say who"
    rf"(?:i|we) (?:am |are |was |were )?(?:{_NOT}|unable to|not able to) {_ADVERB}{_SAY}\b",
    # "I do not know", "We do not know who", "I don't have access to the graph"
    r"(?:i|we) (?:do not|dont) know(?: (?:the|who|what|which|where|when|any)\b|$)",
    r"(?:i|we) (?:do not|dont) (?:have|see|find) "
    rf"(?:enough|any|access|sufficient|(?:the )?{_THING})",
    rf"(?:unable|impossible) to {_SAY}\b",
    r"none of (?:the|these|those|them)\b",
    # "Sorry, but …", "I'm sorry, there is …"
    r"(?:im |i am )?sorry (?:but|i|the|there|no|we)\b",
)
_REFUSAL = re.compile("|".join(_REFUSALS))
_CONSEQUENCE = re.compile(r",? (?:so|therefore|thus|hence)\b,? ")
_CLAUSE_ENDS = re.compile(r"(?<=\w\w[.!?]) |; |,? (?:but|however|though|although)\b,? ?")
_YES = re.compile(r"^\W*(?:yes|true)\b[\s}\])*_\"'.,:;!-]*", re.IGNORECASE)
_NO = re.compile(r"\W*(?:no|false|not)\b", re.IGNORECASE)
_BRACED = re.compile(r"\{([^{}\n]{1,300})\}")
_NAME_WORDS, _NAME_LETTERS = 12, 300
"""The most words and letters of a name that no prompt showed."""


def read_choice(
    reply: str, options: Sequence[str], most: int | None = None, *, is_loose: bool = False
) -> Picked:
    r"""Read which options a reply names, one a line or in a list, by name or by number from 1.

    At most `most` count, if it is given. STOP, alone on a line, ends the list, and so does an empty
    list. The arrow of an option may be left out; it is then the first option of that name.

    A line that says that there is none chooses nothing, whatever it names. If `is_loose`, a name
    also counts if it contains an option, of several the longest; or if only one option contains it.
    For relations, which models shorten; names of entities that contain each other are different
    entities.

    >>> read_choice("1. people.person.parents\nnonsense\nSTOP", ["people.person.parents"], 3)
    Picked(chosen=(0,), scores=(), unread=('nonsense',), stops=True)
    """
    listed = read_list(reply)
    lines = listed if listed is not None else plain_lines(reply)
    chosen: dict[int, None] = {}
    unread: list[str] = []
    stops = listed == []
    for line in lines:
        found = _option(line, options, is_loose=False)
        if found is None and line.strip(_QUOTES + ".").lower() in _STOPS:
            stops = True
            break
        if found is None and is_no_answer(line):
            stops = True
        elif found is not None or (found := _option(line, options, is_loose)) is not None:
            chosen[found] = None
        else:
            unread.append(line)
    if not (chosen or unread or stops):
        unread.append("(empty)")
    return Picked(tuple(chosen)[:most], (), clip_unread(unread), stops)


def read_scores(reply: str, options: Sequence[str], most: int, *, is_loose: bool = False) -> Picked:
    r"""Read options with their scores, best first: a dictionary, or lines that end in a number.

    Scores are clipped to [0, 1]. A reply that says that there is none scores nothing.

    >>> read_scores("1: 0.2\n2: 0.8", ["a.b", "c.d"], 3)
    Picked(chosen=(1, 0), scores=(0.8, 0.2), unread=(), stops=False)
    """
    found: dict[int, float] = {}
    unread: list[str] = []
    stops = False
    record = read_record(reply)
    lines = _scored_lines(reply) if record is None else None
    for name, score in lines or (record or {}).items():
        says_none = score is None and is_no_answer(name)
        option = None if says_none else _option(name, options, is_loose)
        if says_none:
            stops = True
        elif option is None or isinstance(score, bool) or not isinstance(score, (int, float)):
            unread.append(name if record is None else f"{name}: {score}")
        elif option not in found and score == score:  # not NaN
            found[option] = min(max(float(score), 0.0), 1.0)
    order = sorted(found, key=lambda at: -found[at])[:most]
    scores = tuple(found[at] for at in order)
    return Picked(tuple(order), scores, clip_unread(unread), stops)


class Verdict(NamedTuple):
    """Whether it is enough, the names of the answers, and the unread parts."""

    is_enough: bool
    names: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def read_verdict(reply: str, known: Sequence[str]) -> Verdict:
    """Read a judgement in words, with braces, or as a record.

    A record has the fields Sufficient and Answer, by themselves or in a field A. Known are the
    names that the prompt showed.

    >>> read_verdict("{Yes}. It is {Paris}, the capital.", ["Paris"])
    Verdict(is_enough=True, names=('Paris',), unread=())
    >>> read_verdict('{"A": {"Sufficient": "No", "Answer": null}, "R": "too little"}', [])
    Verdict(is_enough=False, names=(), unread=())
    """
    record = read_record(reply)
    nested = field_of(record, "a")
    if isinstance(nested, dict):
        record = {str(key): value for key, value in nested.items()}
    judged = field_of(record, "sufficient", "enough", "answerable")
    if judged is not None:
        answer = field_of(record, "answer", "answers", "response")
        is_enough, text = read_yes(judged), _lines_of(answer)
        is_clear = is_enough or judged is False or _NO.match(str(judged)) is not None
    else:
        is_enough, text = read_yes(reply), _YES.sub("", reply)
        text = "\n".join(_BRACED.findall(text)) or text
        is_clear = is_enough or _NO.match(reply) is not None or is_no_answer(reply)
    if not is_enough:
        return Verdict(False, unread=() if is_clear else all_unread(reply))
    names, unread = read_names(text, known)
    if not (names or unread):
        unread = clip_unread([text.strip() or "(no answer)"])
    return Verdict(True, tuple(names), unread)


def _lines_of(answer: object) -> str:
    if isinstance(answer, list | tuple | set):
        return "\n".join(map(str, answer))
    return "" if answer is None else str(answer)


def read_list(reply: str) -> list[str] | None:
    """Read the first list in brackets, of JSON or Python; None if there is none."""
    value = _first_value(reply, "[", "]", list)
    return None if value is None else [str(each) for each in value]


def read_record(reply: str) -> dict[str, Any] | None:
    """Read the first record in braces, of JSON or Python; None if there is none."""
    value = _first_value(reply, "{", "}", dict)
    return None if value is None else {str(key): each for key, each in value.items()}


def field_of(record: Mapping[str, Any] | None, *names: str) -> Any:
    """Return the field of a record by its name without capitals; None if there is none."""
    for key, value in (record or {}).items():
        if key.strip().lower() in names:
            return value
    return None


def read_yes(value: object) -> bool:
    """Return whether a reply, or a field of it, begins with yes or true."""
    if isinstance(value, bool):
        return value
    return re.match(r"\W*(?:yes|true)\b", str(value), re.IGNORECASE) is not None


def read_names(reply: str, known: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    r"""Read answers: names one a line, or in a list, or with commas between them.

    Returns the names, each once, and the unread parts. Names that the prompt showed are found
    first, so a comma inside one does not break it; the rest is taken as it stands. A sentence
    counts only for the known names in it, and what says that there is no answer for nothing. Nor
    does a sentence below it, which explains it.

    >>> read_names("Washington, D.C., Paris\n- Rome", ["Washington, D.C."])
    (['Washington, D.C.', 'Paris', 'Rome'], ())
    """
    by_key = {normalise(name): name for name in reversed(known)}
    # Of two names that differ in commas alone, only one is in the table.
    longest = max((name.count(",") + 1 for name in known), default=1)
    listed = read_list(reply)
    found: dict[str, None] = {}
    unread: list[str] = []
    refuses = False
    for line in listed if listed is not None else plain_lines(reply):
        text = re.sub(r"^(?:the )?answers?(?: is| are)?\s*:\s*", "", line, flags=re.IGNORECASE)
        pieces = _known_pieces(text, by_key, longest)
        if any(is_known for _, is_known in pieces):
            pieces = [(p, is_known) for p, is_known in pieces if is_known or _is_name(p)]
        elif (said := without_refusals(text)) != text or not _is_name(text):
            within = _within(said, by_key)
            refuses |= said != text
            if not within and said == text:
                unread.append(line)
            pieces = [(name, True) for name in within]
        elif refuses and text.endswith("."):
            unread.append(line)
            continue
        for piece, is_known in pieces:
            if piece and (is_known or not is_no_answer(piece)):
                found[piece] = None
    return list(found), clip_unread(unread)


def is_no_answer(text: str) -> bool:
    """Return whether a text says that there is no answer, or says nothing.

    >>> is_no_answer("N/A"), is_no_answer("The paths do not contain it."), is_no_answer("No Doubt")
    (True, True, False)
    """
    key = normalise(text)
    return key in _NO_ANSWER or _REFUSAL.match(key) is not None


def without_refusals(text: str) -> str:
    """Remove the clauses of a text that say that there is no answer, or why.

    >>> without_refusals("I cannot be sure. No path is given, but it may be Paris")
    'I cannot be sure. it may be Paris'
    """
    clauses = _CLAUSE_ENDS.split(text)
    kept = [each for each in clauses if not any(map(is_no_answer, _CONSEQUENCE.split(each)))]
    return text if len(kept) == len(clauses) else " ".join(kept)


def names_within(text: str, known: Sequence[str]) -> list[str]:
    """Find known names among the words of a sentence, in their order there."""
    return _within(text, {normalise(name): name for name in reversed(known)})


def plain_lines(reply: str) -> list[str]:
    """Split a reply into lines without bullets, numbers of a list and code fences."""
    lines = []
    for line in reply.splitlines():
        match = _BULLET.match(line)
        text = (match[2] if match else line).strip(_QUOTES)
        if match and match[1] and not text:
            text = match[1]
        if text and not line.strip().startswith("```"):
            lines.append(text)
    return lines


def clip_unread(parts: Sequence[str]) -> tuple[str, ...]:
    """Shorten the unread parts of a reply, for a trace."""
    return tuple(part[:80] for part in parts[:MAX_UNREAD])


def all_unread(reply: str) -> tuple[str, ...]:
    """Note that nothing of a reply could be understood."""
    return clip_unread([reply.strip() or "(empty)"])


def _option(text: str, options: Sequence[str], is_loose: bool) -> int | None:
    """Find the option that a text names; None if there is none."""
    wanted = " ".join(text.strip(_QUOTES).lower().split())
    if number := _NUMBER.match(wanted):
        at = int(number[1]) - 1
        if 0 <= at < len(options) and wanted not in map(str.lower, options):
            return at
    if not wanted:
        return None
    lowered = [option.strip(_QUOTES).lower() for option in options]
    shorter = wanted.removesuffix(".").strip(_QUOTES)
    bare = [_ARROW.sub("", option) for option in lowered]
    for spelling, known in ((wanted, lowered), (shorter, lowered), (shorter, bare)):
        if spelling in known:
            return known.index(spelling)
    if not is_loose or len(shorter) < 3:
        return None
    return _nearest(shorter, lowered, bare)


def _nearest(text: str, options: Sequence[str], bare: Sequence[str]) -> int | None:
    """Find the option that a text contains, or else that alone contains it; whole words first."""
    alike = [at for at, o in enumerate(options) if o and (o in text or text in o)]
    whole = [at for at in alike if _has_words(text, options[at])]
    alike = whole or alike
    contained = [at for at in alike if options[at] in text]
    longest = max((len(options[at]) for at in contained), default=0)
    nearest = [at for at in contained if len(options[at]) == longest] or alike
    return nearest[0] if len({bare[at] for at in nearest}) == 1 else None


def _has_words(one: str, other: str) -> bool:
    """Return whether the longer of two texts has the shorter one, not cut out of a word."""
    short, long = sorted((one, other), key=len)
    return re.search(rf"(?<!\w){re.escape(short)}(?!\w)", long) is not None


def _scored_lines(reply: str) -> Iterator[tuple[str, object]]:
    """Split each line into an option, by name or number, and the score at its end."""
    for line in reply.splitlines():
        if numbered := _NUMBER_AND_SCORE.match(line):
            yield numbered[1], float(numbered[2])
            continue
        for text in plain_lines(line):
            # A score stands at the end: a long line is not searched.
            head, tail = text[:-_SCORE_LETTERS], text[-_SCORE_LETTERS:]
            score = _SCORE.search(tail)
            name = "" if score is None else _before_score(head + tail[: score.start()])
            yield (text, None) if score is None or not name else (name, float(score[1]))


def _before_score(text: str) -> str:
    """Remove the text between an option and its score, as in ``a.b (Score: 0.4)``."""
    between = _QUOTES + ":=([{|,–-"
    name = text.rstrip(between).removesuffix("score").removesuffix("Score")
    return name.rstrip(between + "}])").lstrip(_QUOTES + "{[(")


def _first_value(reply: str, opening: str, closing: str, kind: type[Any]) -> Any:
    """Read the first balanced bracket as JSON, or as a literal of Python; None if none is."""
    start = reply.find(opening)
    while start >= 0:
        end = _closing(reply, start, opening, closing)
        text = reply[start : end + 1] if end is not None else ""
        for read in (json.loads, ast.literal_eval):
            try:
                value = read(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
                continue
            if isinstance(value, kind):
                return value
        start = reply.find(opening, end + 1) if end is not None else -1
    return None


def _closing(text: str, start: int, opening: str, closing: str) -> int | None:
    """Find the bracket that closes the one at `start`, strings left out."""
    depth, quote = 0, ""
    at = start
    while at < len(text):
        letter = text[at]
        if quote:
            if letter == "\\":
                at += 1
            elif letter == quote:
                quote = ""
        elif letter == '"' or (letter == "'" and not text[at - 1].isalnum()):
            quote = letter
        elif letter == opening:
            depth += 1
        elif letter == closing:
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return None


def _known_pieces(text: str, known: Mapping[str, str], longest: int) -> list[tuple[str, bool]]:
    """Split a text at commas, but not inside known names, which have at most `longest` parts."""
    parts = [part.strip(_QUOTES) for part in text.split(",")]
    pieces: list[tuple[str, bool]] = []
    at = 0
    while at < len(parts):
        for end in range(min(at + longest, len(parts)), at, -1):
            name = known.get(normalise(", ".join(parts[at:end])))
            if name is not None:
                pieces.append((name, True))
                at = end
                break
        else:
            pieces.append((parts[at], False))
            at += 1
    return pieces


def _within(text: str, known: Mapping[str, str]) -> list[str]:
    """Find names by their keys among the words of a sentence, longer ones first."""
    words = f" {normalise(text)} "
    found = []
    for key in sorted(filter(None, known), key=lambda key: (-len(key), key)):
        if f" {key} " in words:
            found.append((words.index(f" {key} "), known[key]))
            words = words.replace(f" {key} ", " \0 ")
    return [name for _, name in sorted(found)]


def _is_name(text: str) -> bool:
    """Return whether a text may be a name and not a sentence."""
    if len(text) > _NAME_LETTERS or text.rstrip().endswith((":", "?")):
        return False
    return 0 < len(text.split()) <= _NAME_WORDS
