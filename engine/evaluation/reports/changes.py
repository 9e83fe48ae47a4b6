"""Compare the manifests of two runs: which settings differ, and which other facts."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kbqa.engine.evaluation.runs.recorded_run import setting_text

# What does not change a method's answer to a question that both runs have.
_NOTES = {
    "schema_version",
    "kbqa",
    "git",
    "python",
    "packages",
    "questions",
    "questions_sha256",
    "question_count",
    "sample",
    "seed",
    "timings",
    "graph",
    "store_summary",
    "beams",
    "beams_manifest",
    "adapter",
}

_FOLLOWS = {"embedder": "chooser", "general_model": "chooser", "hop_cost": "chooser"}
"""Settings that only one of two runs has where another setting differs, which says it all."""

_OF_ALL_METHODS = ("chooser", "embedder", "general_model", "seed")
"""Settings of a method that mean the same for others."""


class Change(NamedTuple):
    """A value that differs: in A and in B, as text; None if there is none."""

    a: str | None
    b: str | None


def compare_manifests(
    a: Mapping[str, object], b: Mapping[str, object]
) -> tuple[dict[str, Change], dict[str, Change]]:
    """Return the settings that differ, by path, and the notes, such as versions and files.

    The settings of one method are compared one by one. Those of two different methods are one
    difference, but for what means the same in all methods, such as who chooses.

    >>> a = {"n": 5, "method": {"name": "router", "order": "confidence", "without": []}}
    >>> b = {"n": 5, "method": {"name": "router", "order": "beam", "without": []}, "git": "0b1"}
    >>> compare_manifests(a, b)[0]
    {'method.order': Change(a='confidence', b='beam')}
    >>> compare_manifests(a, {"n": 5, "method": {"name": "io"}})[0]
    {'method': Change(a='router (order confidence, without none)', b='io')}
    """
    changes = {name: list(_changes(name, a, b)) for name in dict.fromkeys((*a, *b))}
    settings = (pair for name, pairs in changes.items() if name not in _NOTES for pair in pairs)
    notes = (pair for name, pairs in changes.items() if name in _NOTES for pair in pairs)
    return dict(settings), dict(notes)


def _changes(
    name: str, a: Mapping[str, object], b: Mapping[str, object]
) -> Iterator[tuple[str, Change]]:
    old, new = a.get(name), b.get(name)
    if old == new or _follows(name, a, b):
        return
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield name, Change(*(None if one is None else setting_text(one) for one in (old, new)))
        return
    inner = list(dict.fromkeys((*old, *new)))
    if old.get("name") != new.get("name"):
        yield name, Change(setting_text(old), setting_text(new))
        inner = [each for each in _OF_ALL_METHODS if each in old and each in new]
    for each in inner:
        yield from ((f"{name}.{below}", change) for below, change in _changes(each, old, new))


def _follows(name: str, a: Mapping[str, object], b: Mapping[str, object]) -> bool:
    """Return whether a setting differs only because one run has no use for it."""
    leader = _FOLLOWS.get(name)
    if leader is None or a.get(leader) == b.get(leader):
        return False
    return None in (a.get(name), b.get(name))
