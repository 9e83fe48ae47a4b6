"""An answer as the templates of the page show it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup

from kbqa.engine.display.drawing import draw_evidence
from kbqa.engine.display.notebook import ORIGIN_NOTES
from kbqa.engine.serve.served import Served

_FATES = {
    "unreadable": "could not be read",
    "unlinked": "starts from a name that the graph does not have",
    "unreachable": "breaks: the graph has no such way",
    "failed": "the graph did not answer",
    "unfit": "answers another question",
}
_SOURCES = {
    "writer": "Written by the model.",
    "search": "Found by searching the graph.",
    "repair": "Found by a repair.",
}
_ADVICE = {
    "no-question": "Ask a question in English, such as “what is the capital of Kenya?”.",
    "unlinked": "Use the name that the graph has, or add the entity yourself, above.",
    "none-written": "Word the question differently, or write a path below.",
    "unreadable": "Word the question differently, or write a path below.",
    "unreachable": "Choose another entity above, or edit a path below: the graph may call "
    "what you ask for something else. Browse the entity to see what the graph has.",
    "unfit": "Say in full what you ask, and about what.",
    "empty": "Ask for less, or edit the path below and leave a condition out.",
    "graph": "Ask again in a moment, or ask for less.",
    "calls": "Ask something simpler; the operator limits the calls of the language model.",
    "unnamed": "Word the question differently.",
}
_DEFAULT_ADVICE = "Word the question differently, choose another entity, or edit a path below."
_RELATION = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)+", re.IGNORECASE)
_MID = re.compile(r"\b[mg]\.[0-9a-z_]+")
_OTHERS = 5
_BAR_WIDTH = 400


class QuestionPart(NamedTuple):
    """Some words of the question, and the number of the mention that they are, from 1 on."""

    text: str
    mention: int | None = None


class Meaning(NamedTuple):
    """An entity that words of the question may mean, and the address that asks about it."""

    mid: str
    name: str
    score: float
    url: str


class Mention(NamedTuple):
    """Words of the question, the entity they were taken for, if any was, and others."""

    text: str
    taken: Meaning | None
    others: tuple[Meaning, ...]


class QueryLine(NamedTuple):
    """A line of the query, and the sentences of the path that it is from, as ``0 2``."""

    text: str
    parts: str


class ShownCandidate(NamedTuple):
    """A path that was considered."""

    words: Sequence[str]
    text: str
    source: str
    confidence: float | None
    fate: str
    found: str
    is_best: bool
    url: str | None


class Stage(NamedTuple):
    """A stage of the question, and its place in a bar."""

    name: str
    seconds: float
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Asking:
    """A question with the mids that the user chose as topics, or a path that the user wrote."""

    question: str = ""
    topics: tuple[str, ...] = ()
    path: str = ""

    @property
    def url(self) -> str:
        """The address of the page that asks this."""
        return page_url(self.question, self.topics, self.path)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked."""
        return not self.question.strip() and not self.path.strip()


class AnswerView:
    """The record of an answer, and all else that the templates show of it."""

    notes = ORIGIN_NOTES

    def __init__(self, served: Served, asking: Asking) -> None:
        self.asking = asking
        self.record = served.to_dict()
        trace = self.record["trace"]
        self.beams: Sequence[Mapping[str, Any]] = trace.get("beams") or ()
        self.sentences: Sequence[str] = trace.get("crp_words") or ()
        """The path that answers; empty if the method has none."""
        has_path = self.sentences or self.beams
        self.how = () if has_path else tuple(served.answer.trace.describe())
        self.dropped: Sequence[str] = trace.get("dropped") or ()
        """Conditions that nothing satisfied."""
        self.words, self.mentions = _mentions(self.record, asking)

    @property
    def dropped_besides(self) -> list[str]:
        """The dropped conditions that are no sentences of their own."""
        return [each for each in self.dropped if each not in self.sentences]

    @property
    def advice(self) -> str:
        """What to try if there is no answer."""
        return _ADVICE.get(self.record["reason"] or "", _DEFAULT_ADVICE)

    @cached_property
    def drawing(self) -> Markup | None:
        """The evidence as SVG; None if there is none."""
        drawing = draw_evidence(self.record, entity_url)
        # Everything in it is escaped; see `kbqa.engine.display.drawing`.
        return None if drawing is None else Markup(drawing)

    @property
    def editable(self) -> str:
        """The path to begin with when one is edited."""
        written = (beam.get("crp") for beam in self.beams)
        paths = (self.record["trace"].get("crp"), self.asking.path, *written)
        return next(filter(None, paths), "")

    @cached_property
    def lines(self) -> list[QueryLine]:
        """The query, each line with the sentences that have its relations or its order."""
        relations = [set(_RELATION.findall(sentence)) for sentence in self.sentences]
        ordering = [n for n, each in enumerate(self.sentences) if each.startswith("Take the ")]
        lines = []
        for line in self.record["sparql"].split("\n") if self.record["sparql"] else ():
            found = {each.rpartition("/")[2] for each in re.findall(r"<([^<>]*)>", line)}
            found |= {each.rpartition(":")[2] for each in re.findall(r"\b\w*:[\w.]+", line)}
            parts = [n for n, known in enumerate(relations) if known & found]
            if not parts and line.lstrip().startswith(("ORDER BY", "LIMIT", "OFFSET")):
                parts = ordering
            lines.append(QueryLine(line, " ".join(map(str, parts))))
        return lines

    @cached_property
    def candidates(self) -> list[ShownCandidate]:
        """The paths that were considered, best first, each with its source if these differ."""
        is_mixed = len({beam["source"] for beam in self.beams}) > 1
        asking, best = self.asking, self.record["trace"].get("beam")
        shown = []
        for number, beam in enumerate(self.beams):
            text = beam.get("crp") or beam.get("routerkgqa") or ""
            is_readable = beam["fate"] != "unreadable"
            candidate = ShownCandidate(
                words=beam.get("crp_words") or (),
                text=text,
                source=_SOURCES[beam["source"]] if is_mixed else "",
                confidence=beam.get("confidence"),
                fate=_FATES.get(beam["fate"], ""),
                found=_found(beam),
                is_best=number == best,
                url=page_url(asking.question, asking.topics, text) if is_readable else None,
            )
            shown.append(candidate)
        return shown

    @property
    def seconds(self) -> float:
        """Seconds in all."""
        return float(sum(self.record["seconds"].values()))

    @property
    def stages(self) -> Iterator[Stage]:
        """Where the time went."""
        total, x = self.seconds or 1.0, 0.0
        for name, spent in self.record["seconds"].items():
            width = spent / total * _BAR_WIDTH
            yield Stage(name, spent, round(x, 1), round(width, 1))
            x += width

    @property
    def spoken(self) -> str:
        """The answer for a screen reader, in a sentence."""
        record = self.record
        if record["status"] == "none":
            return f"No answer: {record['problem'].removesuffix('.')}."
        if record.get("boolean") is not None:
            said = "Yes" if record["boolean"] else "No"
        elif record.get("count") is not None:
            said = f"{record['count']:,}"
        else:
            names = [each["name"][:100] for each in record["answers"][:3]]
            hidden = len(record["answers"]) - len(names)
            said = ", ".join(names) + (f" and {hidden} more" if hidden else "")
        is_guess = record["status"] == "unsure"
        opening = f"Not sure: {record['doubt']}. Best guess" if is_guess else "Answer"
        sure = record["confidence"]
        return f"{opening}: {said}." + ("" if sure is None else f" Confidence {sure:.2f}.")


def page_url(question: str, topics: Sequence[str] = (), path: str = "") -> str:
    """Return the address of the page that asks a question or runs a path."""
    fields = [("q", question), *(("topic", mid) for mid in topics), ("path", path)]
    given = [(name, value) for name, value in fields if value]
    return f"/?{urlencode(given)}" if given else "/"


def entity_url(mid: str) -> str:
    """Return the address of an entity's page."""
    return f"/entity/{quote(mid, safe='')}"


def _mentions(
    record: Mapping[str, Any], asking: Asking
) -> tuple[list[QuestionPart], list[Mention]]:
    """Mark the words of the question that were taken for entities, with their other meanings."""
    question = asking.question
    by_words: dict[str, list[Mapping[str, Any]]] = {}
    for each in record["linked"]:
        by_words.setdefault(each["mention"].casefold(), []).append(each)
    # Where nothing answered, the most likely entity is the one that the model wrote about.
    used = _used(record["trace"]) or {each["mid"] for each in record["linked"][:1]}
    spans: list[tuple[int, int, str]] = []
    for mention in sorted(by_words, key=len, reverse=True):
        pattern = re.escape(mention).replace(r"\ ", r"\s+")
        found = re.search(rf"(?<!\w){pattern}(?!\w)", question, re.IGNORECASE)
        if found and all(found.end() <= start or end <= found.start() for start, end, _ in spans):
            spans.append((*found.span(), mention))
    words: list[QuestionPart] = []
    mentions: list[Mention] = []
    end = 0
    for start, stop, mention in sorted(spans):
        words.append(QuestionPart(question[end:start]))
        words.append(QuestionPart(question[start:stop], len(mentions) + 1))
        mentions.append(_mention(question[start:stop], by_words[mention], used, asking))
        end = stop
    words.append(QuestionPart(question[end:]))
    return [word for word in words if word.text], mentions


def _mention(
    words: str, linked: Sequence[Mapping[str, Any]], used: set[str], asking: Asking
) -> Mention:
    mids = {each["mid"] for each in linked}
    kept = [mid for mid in asking.topics if mid not in mids]
    choices = [
        Meaning(
            each["mid"],
            each["name"],
            each["score"],
            page_url(asking.question, [*kept, each["mid"]]),
        )
        for each in linked
    ]
    taken = next((choice for choice in choices if choice.mid in used), None)
    others = [choice for choice in choices if choice is not taken]
    return Mention(words, taken, tuple(others[:_OTHERS]))


def _used(trace: Mapping[str, Any]) -> set[str]:
    """Return the mids that the path has, or that walks began with."""
    walks = {walk["topic"] for walk in trace.get("walks", ())}
    return walks | set(_MID.findall(trace.get("crp") or ""))


def _found(beam: Mapping[str, Any]) -> str:
    """Write the answers of a candidate, as far as they are known."""
    if beam.get("boolean") is not None:
        return "yes" if beam["boolean"] else "no"
    names, n = beam.get("first_answers") or (), beam.get("answer_count")
    if not names:
        return "" if n is None else "nothing" if n == 0 else f"{n:,}"
    hidden = (n or 0) - len(names)
    return ", ".join(names) + (f" and {hidden:,} more" if hidden > 0 else "")
