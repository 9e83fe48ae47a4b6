"""What a check found, and what to do about it."""

from dataclasses import dataclass
from typing import Literal as Choice

from kbqa.sparql.errors import KbqaError

Status = Choice["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        check: What was looked at, in a word.
        status: A warning lets kbqa work; a problem does not.
        finding: What is so.
        advice: What to do about it; empty where nothing is to be done.
    """

    check: str
    status: Status
    finding: str
    advice: str = ""


def ok(check: str, finding: str) -> Finding:
    """Make a finding that nothing is wrong."""
    return Finding(check, "ok", finding)


def warning(check: str, finding: str, advice: str) -> Finding:
    """Make a finding of something that kbqa works with, but not well."""
    return Finding(check, "warning", finding, advice)


def problem(check: str, finding: str, advice: str) -> Finding:
    """Make a finding of something that keeps kbqa from working."""
    return Finding(check, "problem", finding, advice)


def from_error(check: str, error: KbqaError, advice: str = "") -> Finding:
    """Make a problem of an error; where it does not say itself what to do, `advice` does."""
    finding, _, last = str(error).rpartition(". ")
    return problem(check, finding, last) if finding else problem(check, last, advice)
