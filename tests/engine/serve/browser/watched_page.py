"""A page under watch, and the scripted model behind it."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbqa.engine.writing.generate import Candidate, Progress, Request

if TYPE_CHECKING:
    from playwright.sync_api import Page

LARGEST = "what is the largest city in Kenya?"
NEIGHBOURS = "which countries border Peru?"
AMBIGUOUS = "where is Georgia?"
UNREACHABLE = "what is the anthem of Kenya?"
CAPITAL = "what is the capital of Kenya?"
BOTH = "What is the capital of Peru and what currency do they use there?"
HALF = "Which countries border Peru and what is its anthem?"

_LARGEST_PATH = """\
Kenya -> location.location.contains
?x -> common.topic.notable_types = [City/Town/Village]
largest ?x -> location.statistical_region.population -> measurement_unit.dated_integer.number"""
_POPULATION_PATH = """\
{} -> location.statistical_region.population -> measurement_unit.dated_integer.number"""
CAPITAL_PATH = "Kenya -> location.country.capital"
RELAXED_PATH = """\
Kenya -> location.country.capital
?x -> location.statistical_region.population -> measurement_unit.dated_integer.number > 999999999"""

PATHS: dict[str, Sequence[str]] = {
    LARGEST: [
        _LARGEST_PATH,
        CAPITAL_PATH,
        "Kenya -> location.location.contains",
        "Kenya -> location.country.anthem",
        "this is no path",
    ],
    NEIGHBOURS: ["Peru -> location.location.adjoin_s -> location.adjoining_relationship.adjoins"],
    AMBIGUOUS: ["Georgia -> location.location.containedby"],
    UNREACHABLE: ["Kenya -> location.country.anthem"],
    "does France border Spain?": [
        "France -> location.location.adjoin_s -> location.adjoining_relationship.adjoins\n"
        "?x = Spain\nask"
    ],
    "which city of a billion is the capital of Kenya?": [RELAXED_PATH],
    CAPITAL: [CAPITAL_PATH],
    "Nairobi's population?": [_POPULATION_PATH.format("Nairobi")],
    "What is the capital of Peru?": ["Peru -> location.country.capital"],
    "what currency do they use in Peru?": ["Peru -> location.country.currency_used"],
    "Which countries border Peru?": [
        "Peru -> location.location.adjoin_s -> location.adjoining_relationship.adjoins"
    ],
    "what is Peru's anthem?": ["Peru -> location.country.anthem"],
}

HUB_EDGES = 5000
HOSTILE = {
    "m.0img": "<img src=x onerror=alert(1)>",
    "m.0script": '"><script>alert(1)</script>',
    "m.0rtl": "\u202egnp.exe \u0627\u0644\u0642\u0627\u0647\u0631\u0629",
    "m.0long": "long " * 2000,
}
"""Names of a graph that attack whoever shows them."""


@dataclass
class Writer:
    """The small model of these tests: it writes the paths that it has for a question."""

    paths: dict[str, Sequence[str]] = field(default_factory=lambda: PATHS)
    name: str = "scripted"
    suggested_relations: int = 0
    may_write: threading.Event = field(default_factory=threading.Event)
    questions: list[str] = field(default_factory=list)
    failure: Exception | None = None

    def __post_init__(self) -> None:
        self.may_write.set()

    def generate(
        self,
        requests: Sequence[Request],
        n: int = 5,
        *,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        self.questions += [request.question for request in requests]
        assert self.may_write.wait(60)
        if self.failure is not None:
            raise self.failure
        return [
            [
                Candidate(text, -0.2 - rank, 9)
                for rank, text in enumerate(self.paths.get(request.question, ()))
            ]
            for request in requests
        ]


@dataclass
class Visit:
    """A page, what it asks of which host, and what it complains about."""

    page: "Page"
    url: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def note(self, kind: str, text: str) -> None:
        """Keep a message of the console, but for statuses: that is how problems look there."""
        is_status = "the server responded with a status of" in text
        if kind in ("error", "warning") and not is_status:
            self.complaints.append(text)

    def press(self, key: str) -> None:
        """Press a key outside of all fields."""
        self.page.evaluate("document.activeElement.blur()")
        self.page.keyboard.press(key)

    def check(self) -> None:
        """Check that all requests went to the server, and that nothing was refused or thrown."""
        assert [each for each in self.requests if not each.startswith(self.url)] == []
        assert self.complaints == []
