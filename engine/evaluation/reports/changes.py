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


class Change(NamedTuple):
    """A value that differs: in A and in B, as text; None if there is none."""

    a: str | None
    b: str | None


def compare_manifests(
    a: Mapping[str, object], b: Mapping[str, object]
) -> tuple[dict[str, Change], dict[str, Change]]:
    """Return the settings that differ, by name, and the notes, such as versions and paths.

    The settings of two different methods are one difference; those of one method are compared one
    by one.

    >>> a = {"n": 5, "method": {"name": "router", "order": "confidence", "without": []}}
    >>> b = {"n": 5, "method": {"name": "router", "order": "beam", "without": []}, "git": "0b1"}
    >>> compare_manifests(a, b)[0]
    {'method, order': Change(a='confidence', b='beam')}
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
    old, new, label = a.get(name), b.get(name), name.replace("_", " ")
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict) and old.get("name") == new.get("name"):
        for inner in dict.fromkeys((*old, *new)):
            yield from ((f"{label}, {below}", each) for below, each in _changes(inner, old, new))
    else:
        yield label, Change(*(None if one is None else setting_text(one) for one in (old, new)))
