"""Find the names of entities and the values, such as dates, that a question mentions.

Every run of words that is a name is kept, even if others overlap it; the linker ranks them. Words
that look like a name but match no entity may be misspelt, and are looked up as such.

Function words are hardly ever names: of the 57,000 in webqsp.train, cwq.dev and SimpleQuestions
that are a name in the slice, six are the topic. But *is* is a domain, *all* the code of a
currency, and *It* a novel. A question that means them marks them: by quotation marks, capitals, an
article (*the who*), a dot (*.is*), or a word such as "code" before them.
"""

import html
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from itertools import groupby, islice
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, cast

from kbqa.engine.files import read_model_json
from kbqa.engine.questions.words import COMPARISON_WORDS
from kbqa.kb.names import NameMatch, Names, Span, normalise, symbols
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.terms import NOTABLE_TYPES

SHIPPED_MODEL = Path(__file__).with_name("linking_model.json")

SCHEMA_VERSION = 1

_UNSEEN_NAME = 2.0  # names are rare words, and most of them are in no training question
_MOST_ODDS = 300.0  # log-odds; above 700 math.exp overflows
_HARDLY = -3.0  # one time in twenty
_NOTHING: Mapping[str, float] = MappingProxyType({})
_ENDINGS = ("'s", "’s", "ing", "ies", "es", "ed", "s")

MAX_WORDS = 100  # of a question; later ones are ignored

# Words that do not identify an entity by themselves: those of the closed classes in questions
# (Quirk et al. 1985, A Comprehensive Grammar of the English Language, section 2.35), and "name".
FUNCTION_WORDS = frozenset(
    """& a about after all also am an and any are as at be because been before being between but by
    can could did do does during each every for from had has have he her him his how i if in into is
    it its many me more most much my name names no nor not of off on one or our out over she should
    since so some such than that the their them then there these they this those through to too
    under until up us was we were what when where which while who whom whose why will with within
    without would you your""".split()  # noqa: SIM905 – a list of a hundred words reads better as text
)

# Function words that follow "the" without being a name.
_AFTER_THE = frozenset(
    "all any every many me more most much name names no one some such too".split()  # noqa: SIM905
)

# Words that announce a name if one word follows.
_ANNOUNCING = frozenset(
    """abbreviated abbreviation acronym called code codes domain entitled initials letters named
    symbol tld titled""".split()  # noqa: SIM905
)

_WORD = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*(?:['’]s)?|&", re.UNICODE)
_OPENING = ('"', "“", "”", "«", "‘", "'", "`")
_CLOSING_MARKS = ('"', "“", "”", "»", "’", "'", "`")
_SENTENCE_ENDS = (".", "?", "!", ":")
_LEAST_TITLE = 3
_LONGEST_CODE = 5
_LONGEST_SMALL_CODE = 3

_MAX_ENTITIES = 30  # of one name, the best known first
_MAX_NAME_WORDS = 12
_MAX_NEAR_LOOKUPS = 12  # of 1 ms each on 350,000 names, of 2 to 6 ms on ten million
_MAX_MISSPELT_WORDS = 4
_MIN_MISSPELT_LETTERS = 4
_MAX_LONGER_NAMES = 3

_QUOTED = re.compile(r"[\"“”«]([^\"“”«»]{2,200})[\"“”»]")
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_YEAR = r"(?:1\d|20)\d\d"
_ORDINALS = "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth"
_NUMBERS = (
    "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen"
    "|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
    "|a\\ dozen|(?:a|one)(?=\\ (?:hundred|thousand|million|billion|trillion))"
)
_VALUES = re.compile(
    rf"""\b(?:
    (?P<date> \d{{4}}[-/]\d\d?(?:[-/]\d\d?)? | \d{{1,2}}[-/]\d{{1,2}}[-/]\d{{2,4}}
        | {_DAY}\s(?:of\s)?{_MONTH}(?:,?\s{_YEAR})? | {_MONTH}\s(?:{_DAY},?\s)?{_YEAR}
        | {_MONTH}\s{_DAY} | {_YEAR}(?:-{_YEAR}|'?s)? )
    | (?P<ordinal> \d+(?:st|nd|rd|th) | {_ORDINALS} )
    | (?P<number> (?: \d+(?:[,.]\d+)* | {_NUMBERS} )
        (?: \s(?: hundred | thousand | million | billion | trillion ))* )
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)

_BYTES = {chr(byte): byte for byte in range(256)} | {
    char: byte for byte in range(256) if (char := bytes([byte]).decode("cp1252", "ignore"))
}
_AFTER = (
    "[" + re.escape("".join(char for char, byte in _BYTES.items() if 0x80 <= byte < 0xC0)) + "]"
)
_CLOSING = "‘’‚“”„‹›«»–—…•"
_ENCODED = rf"(?:[Â-ß]{_AFTER}|[à-ï]{_AFTER}{{2}}|[ð-ô]{_AFTER}{{3}})"
# Two encoded characters in a row, a Latin letter, or a mark such as a dash. One character alone may
# be meant, as in “Spaß” and « café ».
_MANGLED = re.compile(
    rf"{_ENCODED}{{2,}}|[ÂÃÄÅ](?:(?![{_CLOSING}]){_AFTER}|{_AFTER}(?=\w))|â€{_AFTER}"
)

# Symbols that end a name, as in C++, C# and Yahoo!; the last "!" of a question ends a sentence.
_SYMBOLS = re.compile(r"(?:[+#*]|!(?!\s*$))+(?!\w)")

_HTML = re.compile(r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z\d]{1,30});", re.IGNORECASE)
_MOST_REPAIRS = 3  # damage may be done twice


@dataclass(frozen=True, slots=True)
class LinkingModel:
    """Weights of a linear ranker, and tables of the words that go together, as stems.

    The file is readable JSON with words, types and relations, but no entities.
    """

    names: Mapping[str, float]  # log-odds that a word is part of a topic's name
    types: Mapping[str, Mapping[str, float]]  # by type, log p(word | type) - log p(word)
    relations: Mapping[str, float]  # that questions ask for, with their share
    asking: Mapping[str, Mapping[str, float]]  # by word, log p(word | relation) - log p(word)
    alone: Mapping[str, float] = field(default_factory=dict)  # the same of a name of one word
    first: Mapping[str, float] = field(default_factory=dict)  # of features without a look-up
    final: Mapping[str, float] = field(default_factory=dict)  # of all features
    trained_on: Mapping[str, int] = field(default_factory=dict)  # questions of each set

    def name_odds(self, word: str) -> float:
        """Return the log-odds that a stem is part of a topic's name."""
        return self.names.get(word, _UNSEEN_NAME)

    def is_hardly_a_name(self, word: str) -> bool:
        """Return whether a lower-case word was hardly ever a whole name in training."""
        return self.alone.get(stem(word), 0.0) < _HARDLY

    def is_ordinary(self, word: str) -> bool:
        """Return whether a lower-case word is common in questions, mostly outside names."""
        return self.name_odds(stem(word)) < 0

    def is_known(self, word: str) -> bool:
        """Return whether a lower-case word was in several training questions: it is no error."""
        return stem(word) in self.names

    def type_agreement(self, types: Iterable[str], words: AbstractSet[str]) -> float:
        """Return how well words fit types, as the mean over known types; 0 if none is known."""
        tables = [self.types[type_] for type_ in types if type_ in self.types]
        ratios = [table[word] for table in tables for word in table.keys() & words]
        # fsum: words are unordered, and the result of sum depends on the order.
        return math.fsum(ratios) / len(tables) if tables else 0.0

    def asked_relations(self, words: Iterable[str]) -> dict[str, float]:
        """Return the probability that words ask for each relation (naive Bayes)."""
        raised: dict[str, float] = {}
        for word in sorted(words):
            for relation, ratio in self.asking.get(word, _NOTHING).items():
                raised[relation] = raised.get(relation, 0.0) + ratio
        powers = dict(self.relations)
        for relation, ratio in raised.items():
            if relation in powers:  # else it has no share
                powers[relation] *= math.exp(min(ratio, _MOST_ODDS))
        total = sum(powers.values()) or 1.0
        return {relation: power / total for relation, power in powers.items()}

    @classmethod
    def load(cls, path: Path = SHIPPED_MODEL) -> "LinkingModel":
        """Read a model written by `save`."""
        return read_model_json(
            path, cls, SHIPPED_MODEL, "the linking model", schema_version=SCHEMA_VERSION
        )

    def save(self, path: Path) -> None:
        """Write the model as sorted JSON, one entry a line, rounded to four digits."""
        parts = [f'"schema_version": {SCHEMA_VERSION}']
        for name, table in asdict(self).items():
            entries = ",\n".join(
                f" {json.dumps(key, ensure_ascii=False)}: {_entry(table[key])}"
                for key in sorted(table)
            )
            parts.append(f'"{name}": {{\n{entries}\n}}')
        path.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


class Word(NamedTuple):
    """A word of a question, with its place in characters."""

    text: str
    start: int
    end: int


Run: TypeAlias = tuple[int, int]  # tokens of a question, from the first to before the second

ValueKind = Literal["date", "ordinal", "number"]


class Value(NamedTuple):
    """A date, an ordinal or a number, with its tokens, `end` exclusive."""

    start: int
    end: int
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class Mentions:
    """The names and values that a question mentions."""

    question: str  # with mojibake repaired
    tokens: Sequence[Word]  # its words, at most `MAX_WORDS`
    spans: Sequence[Span]  # runs that are names, with their entities, in reading order
    values: Sequence[Value]  # may also be names (*1984*)
    quoted: frozenset[Run]  # in quotation marks, or with the symbols of a name (*C++*)
    marked: frozenset[Run]  # those of `spans` that the question marks as a name; see `_are_marked`

    def text(self, start: int, end: int) -> str:
        """Return the question's text from token `start` to before token `end`."""
        return self.question[self.tokens[start].start : self.tokens[end - 1].end]


def find_mentions(
    question: str, names: Names, model: LinkingModel | None = None, longer_names: bool = True
) -> Mentions:
    """Find the names and values in a question, as typed: case and punctuation need not be right.

    The model knows the words of other questions, which are not considered misspelt. With
    `longer_names`, longer ones are looked for, too: London Heathrow Airport for Heathrow.
    """
    # Bytes that are not text in the user's locale arrive as lone surrogates.
    text = mend_mojibake(question.encode("utf-8", "replace").decode("utf-8"))
    tokens = tokenise(text)
    words = [token.text for token in tokens]
    written = [token.text + _symbols_after(token, text) for token in tokens]
    quoted = frozenset(_token_runs(tokens, (m.span(1) for m in _QUOTED.finditer(text))))
    spans = names.match_spans(written, _MAX_NAME_WORDS, _MAX_ENTITIES)
    for start, end in sorted(quoted):
        if end - start > _MAX_NAME_WORDS:
            matches = names.lookup(" ".join(written[start:end]), _MAX_ENTITIES)
            spans += [Span(start, end, matches)] if matches else []
    exact = {(s.start, s.end): s for span in spans if (s := _exactly_written(span, written))}
    spans = [exact.get((span.start, span.end), span) for span in spans]
    ends = {end for _, end in exact}
    tokens = [
        token._replace(end=token.start + len(written[i])) if i + 1 in ends else token
        for i, token in enumerate(tokens)
    ]
    quoted |= exact.keys()
    known = {(span.start, span.end) for span in spans}
    covered: set[int] = set()
    uses_capitals = capitals_mark_names(words)
    suspicious = _suspicious(words, known, quoted, model)
    for start, end in islice(suspicious, _MAX_NEAR_LOOKUPS):
        if covered.issuperset(range(start, end)):
            continue
        run = words[start:end]
        found = _near(" ".join(run), names, model)
        may_be_longer = all(_may_be_in_name(word, uses_capitals, model) for word in run)
        if not found and longer_names and may_be_longer:
            longer = names.containing(" ".join(run), _MAX_ENTITIES)
            found = longer if len(longer) <= _MAX_LONGER_NAMES else []
        if found:
            spans.append(Span(start, end, found))
            covered.update(range(start, end))
    marked = frozenset(
        (span.start, span.end)
        for span in spans
        if (span.start, span.end) in quoted or _are_marked(text, tokens, span.start, span.end)
    )
    spans = [span for span in spans if _may_be_name(span, tokens, marked)]
    return Mentions(text, tokens, spans, list(_values(text, tokens)), quoted, marked)


def named_entities(crp: Crp) -> tuple[Entity, ...]:
    """Return the entities of a CRP that a question mentions by name, each once.

    The type of an answer is none of them: a common noun says it.
    """
    types = {
        each.entity
        for each in crp.all_constraints()
        if each.hops and each.hops[-1].relation == NOTABLE_TYPES
    }
    return tuple(dict.fromkeys(each for each in crp.entities() if each not in types))


def mend_mojibake(text: str) -> str:
    """Repair UTF-8 that was read as Latin-1 or Windows-1252, as in 73 questions of CWQ, and HTML.

    Where other letters are not ASCII, only what can hardly be meant is repaired.

    >>> mend_mojibake("Where is GoiÃ¡s?"), mend_mojibake("Where is Goiás &amp; Acre?")
    ('Where is Goiás?', 'Where is Goiás & Acre?')
    """
    for _ in range(_MOST_REPAIRS):
        mended = _HTML.sub(lambda entity: html.unescape(entity.group()), _decoded_again(text))
        if mended == text:
            break
        text = mended
    return text


def tokenise(text: str) -> list[Word]:
    """Split a text into its first `MAX_WORDS` words.

    >>> [token.text for token in tokenise("Who's in AT&T's St. Mary-le-Bow?")]
    ["Who's", 'in', "AT&T's", 'St', 'Mary-le-Bow']
    """
    tokens = []
    for match in _WORD.finditer(text):
        tokens.append(Word(match.group(), *match.span()))
        if len(tokens) == MAX_WORDS:
            break
    return tokens


def capitals_mark_names(words: Sequence[str]) -> bool:
    """Return whether a question capitalises names and not other words."""
    return any(
        word[:1].isupper() and word.partition("'")[0] != "I" for word in words[1:]
    ) and not all(word.isupper() for word in words)


def _is_only_function_words(words: Sequence[str]) -> bool:
    """Return whether words are one or two function words; more may be a title by themselves.

    >>> _is_only_function_words(["the", "us"]), _is_only_function_words(["being", "with", "you"])
    (True, False)
    """
    return len(words) < _LEAST_TITLE and all(word.lower() in FUNCTION_WORDS for word in words)


def is_code(name: str) -> bool:
    """Return whether a name is written as codes are.

    >>> [is_code(name) for name in ("CUP", "is", "Cup", "NATO members")]
    [True, True, False, False]
    """
    most = _LONGEST_CODE if name.isupper() else _LONGEST_SMALL_CODE
    return name.isalpha() and (name.isupper() or name.islower()) and 1 < len(name) <= most


def _are_marked(text: str, tokens: Sequence[Word], start: int, end: int) -> bool:
    """Return whether a question marks tokens `start` to `end` (exclusive) as a name.

    >>> [_are_marked(text, tokenise(text), 3, 4) for text in (
    ...     "which domain is 'is'?", "which country has IS as domain?", "who plays in It today?",
    ...     "whose domain is .is?", "country with code is", "what does it do?")]
    [True, True, True, True, True, False]
    """
    first, last = tokens[start], tokens[end - 1]
    before, after = text[: first.start], text[last.end :]
    if before.endswith(_OPENING) and after.startswith(_CLOSING_MARKS):
        return True
    if before.endswith(" .") or before == ".":
        return True
    is_announced = start > 0 and tokens[start - 1].text.lower() in _ANNOUNCING
    return (is_announced and end == len(tokens)) or _have_capitals(text, tokens, start, end)


def _follow_article(tokens: Sequence[Word], start: int, end: int) -> bool:
    """Return whether function words follow "the" as only names do: *the us*, not *the most*."""
    words = [token.text.lower() for token in tokens[max(0, start - 1) : end]]
    while len(words) > 1 and words[0] != "the":
        words = words[1:]
    return len(words) > 1 and words[1] not in _AFTER_THE


def stem(word: str) -> str:
    """Remove a common ending from a lower-case word, if three letters remain."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            return word[: -len(ending)]
    return word


def softmax(scores: Sequence[float]) -> list[float]:
    """Turn scores into probabilities."""
    highest = max(scores, default=0.0)
    powers = [math.exp(score - highest) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]


def _entry(value: float | Mapping[str, float]) -> str:
    if isinstance(value, Mapping):
        rounded = {key: round(value[key], 2) for key in sorted(value)}
        return json.dumps(rounded, ensure_ascii=False)
    return f"{value:.4g}"


def _have_capitals(text: str, tokens: Sequence[Word], start: int, end: int) -> bool:
    """Return whether words have capitals that mark them and not their neighbours."""
    words = [token.text for token in tokens]
    run = words[start:end]
    if not any(word.islower() for word in words):
        return False
    if all(word.isupper() and len(word) > 1 for word in run):
        return True
    begins_sentence = start == 0 or text[: tokens[start].start].rstrip().endswith(_SENTENCE_ENDS)
    follows_name = start > 1 and words[start - 1][:1].isupper() and "'" not in words[start - 1]
    leads_name = end < len(words) and words[end][:1].isupper()
    is_capitalised = all(word[:1].isupper() and word != "I" for word in run)
    return is_capitalised and not (begins_sentence or follows_name or leads_name)


def _decoded_again(text: str) -> str:
    """Decode a text, or else each part that cannot be meant, as UTF-8."""
    if text.isascii():
        return text
    try:
        return bytes(_BYTES[char] for char in text).decode()
    except (KeyError, UnicodeError):
        return _MANGLED.sub(_decoded_part, text)


def _decoded_part(part: re.Match[str]) -> str:
    try:
        return bytes(_BYTES[char] for char in part.group()).decode()
    except UnicodeError:
        return part.group()


def _symbols_after(token: Word, text: str) -> str:
    found = _SYMBOLS.match(text, token.end)
    return found.group() if found else ""


def _exactly_written(span: Span, written: Sequence[str]) -> Span | None:
    """Leave in a span the names that have its symbols, as C++ and C# have, if any do."""
    marks = symbols("".join(written[span.start : span.end]))
    exact = [match for match in span.matches if symbols(match.matched) == marks] if marks else []
    return span._replace(matches=exact) if exact else None


def _may_be_name(span: Span, tokens: Sequence[Word], marked: frozenset[Run]) -> bool:
    """Return whether a span is more than function words, or is marked as a name."""
    return (
        not _is_only_function_words([token.text for token in tokens[span.start : span.end]])
        or (span.start, span.end) in marked
        or _follow_article(tokens, span.start, span.end)
    )


def _values(text: str, tokens: Sequence[Word]) -> Iterator[Value]:
    """Yield the values in a text; a token is in at most one (the parts of 9/11 are tokens)."""
    end_of_last = 0
    for match in _VALUES.finditer(text):
        for start, end in _token_runs(tokens, [match.span()]):
            if start >= end_of_last:
                yield Value(start, end, cast(ValueKind, match.lastgroup))
                end_of_last = end


def _token_runs(tokens: Sequence[Word], stretches: Iterable[Run]) -> Iterator[Run]:
    """Yield the run of tokens that overlap each range of characters."""
    for first, last in stretches:
        touched = [i for i, t in enumerate(tokens) if t.start < last and t.end > first]
        if touched:
            yield touched[0], touched[-1] + 1


def _near(text: str, names: Names, model: LinkingModel | None) -> list[NameMatch]:
    """Find names spelled nearly like a text; of a known word, such as "European", only stems."""
    near = [match for match in names.near(text, _MAX_ENTITIES) if not is_code(match.matched)]
    if model and model.is_known(text.lower()):
        return [one for one in near if normalise(text).startswith(normalise(one.matched))]
    return near


def _may_be_in_name(word: str, uses_capitals: bool, model: LinkingModel | None) -> bool:
    """Return whether a word has capitals, or in a question without them, is known from names."""
    lower = word.lower()
    if lower in FUNCTION_WORDS:
        return True
    if uses_capitals:
        return word[:1].isupper()
    return model is not None and model.is_known(lower) and not model.is_ordinary(lower)


def _suspicious(
    words: Sequence[str], known: set[Run], quoted: frozenset[Run], model: LinkingModel | None
) -> Iterator[Run]:
    """Yield runs that may be misspelt names, the most likely and longest first.

    They are in quotation marks or capitals, or around a word that is in no name. If the question
    capitalises names, runs with lower-case words come last.
    """
    runs = {run for run in (*quoted, *_capitalised_runs(words)) if run not in known}
    yield from sorted(runs, key=lambda run: (run[0] - run[1], run))
    uses_capitals = capitals_mark_names(words)
    is_function = [word.lower() in FUNCTION_WORDS for word in words]
    is_small = [
        uses_capitals and not word[:1].isupper() and not is_function[i]
        for i, word in enumerate(words)
    ]
    in_names = {i for start, end in known for i in range(start, end)}
    strange = {
        i
        for i, word in enumerate(words)
        if i not in in_names
        and not is_function[i]
        and len(word) >= _MIN_MISSPELT_LETTERS
        and word.replace("-", "").isalpha()
        and not (model and model.is_ordinary(word.lower()))
        and not COMPARISON_WORDS.fullmatch(word)
    }
    windows = [
        range(start, start + length)
        for length in range(_MAX_MISSPELT_WORDS, 0, -1)
        for start in range(len(words) - length + 1)
        if not strange.isdisjoint(range(start, start + length))
        and not (is_function[start] or is_function[start + length - 1])
    ]
    for window in sorted(windows, key=lambda window: any(is_small[i] for i in window)):
        if (window.start, window.stop) not in runs:
            yield window.start, window.stop


def _capitalised_runs(words: Sequence[str]) -> Iterator[Run]:
    """Yield runs of two or more capitalised words, with function words between them."""
    is_function = [word.lower() in FUNCTION_WORDS for word in words]
    is_capital = [word[:1].isupper() for word in words]
    stretches = groupby(range(len(words)), lambda i: is_function[i] or is_capital[i])
    for is_run, stretch in stretches:
        capitals = [i for i in stretch if is_capital[i] and not is_function[i]]
        if is_run and len(capitals) > 1:
            yield capitals[0], capitals[-1] + 1
