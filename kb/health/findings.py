"""The result of a check, and what to do about it."""

from dataclasses import dataclass
from typing import Literal

from kbqa.sparql.errors import KbqaError

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        check: What was checked, in a word.
        status: A warning lets kbqa work; a problem does not.
        finding: What is the case.
        advice: What to do about it; empty if nothing needs to be done.
    """

    check: str
    status: Status
    finding: str
    advice: str = ""


def ok(check: str, finding: str) -> Finding:
    """Build a finding that nothing is wrong."""
    return Finding(check, "ok", finding)


def warning(check: str, finding: str, advice: str) -> Finding:
    """Build a finding of something that kbqa works with, but not well."""
    return Finding(check, "warning", finding, advice)


def problem(check: str, finding: str, advice: str) -> Finding:
    """Build a finding of something that keeps kbqa from working."""
    return Finding(check, "problem", finding, advice)


def from_error(check: str, error: KbqaError, advice: str = "") -> Finding:
    """Turn an error into a problem; `advice` is used if the error gives none."""
    finding, _, last = str(error).rpartition(". ")
    return problem(check, finding, last) if finding else problem(check, last, advice)
