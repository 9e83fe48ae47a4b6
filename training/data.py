"""Turn question sets into training examples: a question, and the CRP text that answers it.

Rows that cannot be used are counted by reason, the first of them by name, and never end a run.

Split hygiene: rows marked `test_parent` are left out. A CWQ question was made from each of them, or
it was made from a WebQSP one, that stands in a test set. Where rows are not marked, as in the
official files, the test sets themselves tell what to leave out.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kbqa.engine.official_questions import read_question_rows
from kbqa.engine.question_mentions import mend_mojibake
from kbqa.engine.run_manifest import file_sha256
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import InputError
from kbqa.training.crp_targets import TargetForm, write_target
from kbqa.training.entity_names import NameSource
from kbqa.training.row_crps import row_crps
from kbqa.training.split_hygiene import RELATED, ScoredSets, parent_id, read_scored_sets
from kbqa.training.unusable import UNNAMED, Unusable

NAMED_SKIPS = 10
"""Rows left out that are named, for each reason."""

_QUESTION_SET = re.compile(r"\.jsonl?(?:\.gz)?$")


@dataclass(frozen=True, slots=True)
class Example:
    """One training example.

    Attributes:
        id: The row's id.
        question: As a user would type it.
        target: The CRP, by names, in one of the forms of `kbqa.training.crp_targets`.
        source: The question set it comes from.
        parent: The id of the question that it was made from; empty if from none.
    """

    id: str
    question: str
    target: str
    source: str
    parent: str = ""


class Split(NamedTuple):
    """Examples to train on, and examples held out to watch the training by."""

    train: tuple[Example, ...]
    valid: tuple[Example, ...]


class DataFile(NamedTuple):
    """A file that examples were read from: its name, and the SHA-256 of its bytes in hex."""

    name: str
    sha256: str


@dataclass(slots=True)
class ExampleSet:
    """Examples, where they were read from, and what was left out.

    Attributes:
        examples: What there is to train on.
        skipped: How many rows were left out, by reason.
        files: Where the rows were read from.
        scored: The test sets against which the rows were held.
        skipped_rows: The first `NAMED_SKIPS` rows left out, by reason: their set and id.
    """

    examples: list[Example] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    files: list[DataFile] = field(default_factory=list)
    scored: list[DataFile] = field(default_factory=list)
    skipped_rows: dict[str, list[str]] = field(default_factory=dict)
    _seen: set[tuple[str, str]] = field(default_factory=set, repr=False)

    def add(self, example: Example) -> None:
        """Add an example, unless its question stands here already with the same target."""
        key = (example.question.casefold(), example.target)
        if key in self._seen:
            self.skip(example.source, example.id, "repeated")
            return
        self._seen.add(key)
        self.examples.append(example)

    def skip(self, source: str, row_id: str, reason: str) -> None:
        """Count a row that is left out."""
        self.skipped[reason] += 1
        named = self.skipped_rows.setdefault(reason, [])
        if len(named) < NAMED_SKIPS:
            named.append(f"{source} {row_id}")


def load_examples(
    paths: Iterable[Path],
    *,
    form: TargetForm = "routerkgqa",
    names: NameSource | None = None,
    scored: Sequence[Path] = (),
) -> ExampleSet:
    """Read question sets into examples, without repetitions.

    Args:
        paths: Question sets with SPARQL or CRPs: ours, or official files.
        form: How targets are written.
        names: Looks up names of entities that a record does not name; ComplexWebQuestions' own
            files name none.
        scored: Test sets. No question of theirs is taken, none that one of theirs was made from,
            and none that was made from one.

    Raises:
        InputError: A file is missing or unreadable, or names few of its entities where there is no
            `names` to look them up.
        GraphError: The names cannot be looked up.
    """
    scored_sets = read_scored_sets(scored)
    gathered = ExampleSet(scored=[_data_file(path) for path in scored])
    for path in paths:
        source = _QUESTION_SET.sub("", path.name)
        kept = list(_kept_rows(path, source, scored_sets, gathered))
        unnamed_before = gathered.skipped[UNNAMED]
        for one, crp in zip(kept, row_crps([one.row for one in kept], names), strict=True):
            target = write_target(crp, form) if isinstance(crp, Crp) else crp
            if isinstance(target, Unusable):
                gathered.skip(source, one.id, target.reason)
            else:
                parent = parent_id(one.row) or ""
                gathered.add(Example(one.id, one.question, target, source, parent))
        unnamed = gathered.skipped[UNNAMED] - unnamed_before
        if names is None and unnamed > len(kept) / 2:
            raise InputError(
                f"{path}: {unnamed} of {len(kept)} queries are about entities that the file does "
                "not name. Name the graph that knows them: --store or --endpoint."
            )
        gathered.files.append(_data_file(path))
    return gathered


def split_examples(examples: Iterable[Example], valid_size: int, seed: int) -> Split:
    """Hold out examples of some `valid_size` questions, a tenth of all at most, by the seed.

    A question is held out with all that were made from it or from the same one. No question is both
    held out and trained on.
    """
    pool = sorted(examples, key=lambda example: (example.source, example.id, example.target))
    questions = {example.question.casefold() for example in pool}
    wanted = min(valid_size, len(questions) // 10)
    families = sorted({example.parent or example.id for example in pool})
    random.Random(seed).shuffle(families)
    of_family: dict[str, set[str]] = defaultdict(set)
    for example in pool:
        of_family[example.parent or example.id].add(example.question.casefold())
    held_out: set[str] = set()
    for family in families:
        if len(held_out) >= wanted:
            break
        held_out |= of_family[family]
    train = tuple(e for e in pool if e.question.casefold() not in held_out)
    valid = tuple(e for e in pool if e.question.casefold() in held_out)
    return Split(train, valid)


class _KeptRow(NamedTuple):
    """A row whose question may be trained on, if it has a CRP."""

    id: str
    question: str
    row: Mapping[str, Any]


def _kept_rows(
    path: Path, source: str, scored_sets: ScoredSets, gathered: ExampleSet
) -> Iterator[_KeptRow]:
    """Read a file's rows; those left out for their questions are counted."""

    def skip_record(number: int, _problem: str) -> None:
        gathered.skip(source, f"record {number}", "not a record of a question set")

    for number, row in read_question_rows(path, skip_record):
        row_id = str(row.get("id") or f"record {number}")
        question = row.get("question")
        if row.get("test_parent"):
            gathered.skip(source, row_id, RELATED)
        elif not isinstance(question, str) or not question.strip():
            gathered.skip(source, row_id, "no question")
        elif reason := scored_sets.reason_against(row):
            gathered.skip(source, row_id, reason)
        else:
            yield _KeptRow(row_id, mend_mojibake(question.strip()), row)


def _data_file(path: Path) -> DataFile:
    return DataFile(path.name, file_sha256(path))
