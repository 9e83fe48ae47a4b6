"""Turn question sets into training examples: a question, and the CRP text that answers it.

Rows that cannot be used are counted by reason, and the first of each reason are named. They never
stop a run.

Split hygiene: rows marked `test_parent` are left out, because a test question was made from them,
or they from one. If rows are not marked, as in the official files, the test sets themselves decide
what is left out.
"""

import hashlib
import random
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from kbqa.engine.files.manifest import file_sha256
from kbqa.engine.linking.mentions import mend_mojibake
from kbqa.engine.questions.conversion import Unconverted
from kbqa.engine.questions.official import read_question_rows
from kbqa.sparql.errors import InputError
from kbqa.training.data.split_hygiene import RELATED, ScoredSets, parent_id, read_scored_sets
from kbqa.training.data.targets import UNNAMED, NameSource, TargetForm, row_targets, write_target
from kbqa.training.demo.questions import demo_examples

DEMO_SOURCE = "demo"
"""The source of questions on the demo graph."""

COMPOSED_SOURCE = "composed"
"""The source of questions that are composed of others and of facts."""

NAMED_SKIPS = 10
"""How many of the rows left out are named, for each reason."""

ExampleKey: TypeAlias = tuple[str, str]
"""The question set and the id of an example."""

_QUESTION_SET = re.compile(r"\.jsonl?(?:\.gz)?$")


@dataclass(frozen=True, slots=True)
class Example:
    """One training example.

    Attributes:
        id: The row's id.
        question: As a user would type it.
        target: The CRP, by names, in a `TargetForm`.
        source: The question set it comes from.
        parent: The id of the question that it was made from; empty if there is none.
        relations: To suggest with the question, best first.
    """

    id: str
    question: str
    target: str
    source: str
    parent: str = ""
    relations: tuple[str, ...] = ()


def example_key(example: Example) -> ExampleKey:
    """Return the question set and the id of an example."""
    return example.source, example.id


class Split(NamedTuple):
    """How the examples of a run are used.

    Attributes:
        train: They are trained on.
        valid: They are held out to validate the training.
        in_fold: They are left out, so that a judge can learn from what the model writes for them.
    """

    train: tuple[Example, ...]
    valid: tuple[Example, ...]
    in_fold: tuple[Example, ...] = ()


class Fold(NamedTuple):
    """One of the parts into which the families of questions fall.

    Attributes:
        at: Its number, from 1.
        of: How many there are, of about the same size.
    """

    at: int
    of: int

    def __str__(self) -> str:
        return f"{self.at}/{self.of}"

    def has(self, example: Example) -> bool:
        """Return whether a question's family is of this fold; its id alone decides."""
        return int(_rank(_family(example))[-8:], 16) % self.of == self.at - 1


class DataFile(NamedTuple):
    """A file that examples were read from: its name, and the SHA-256 of its bytes in hex."""

    name: str
    sha256: str


@dataclass(slots=True)
class ExampleSet:
    """Examples, where they were read from, and what was left out.

    Attributes:
        examples: The examples to train on or to hold out.
        skipped: How many rows were left out, by reason.
        files: The files that were read.
        scored: The test sets whose questions were left out.
        skipped_rows: Set and id of the first `NAMED_SKIPS` rows left out, by reason.
    """

    examples: list[Example] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    files: list[DataFile] = field(default_factory=list)
    scored: list[DataFile] = field(default_factory=list)
    skipped_rows: dict[str, list[str]] = field(default_factory=dict)
    _seen: set[tuple[str, str]] = field(default_factory=set, repr=False)

    def add(self, example: Example) -> None:
        """Add an example, unless its question is already here with the same target."""
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
    demo_questions: int = 0,
    seed: int = 42,
) -> ExampleSet:
    """Read question sets into examples, without repetitions, and add questions on the demo graph.

    Args:
        paths: Question sets with SPARQL or CRPs: ours, or official files.
        form: The text form of the targets.
        names: Looks up the names of entities that a record does not name. The official files of
            ComplexWebQuestions name none.
        scored: Test sets. Their questions are left out, and so are questions that one of theirs
            was made from, or that were made from one of theirs.
        demo_questions: How many questions on the demo graph to add at most.
        seed: Decides which questions on the demo graph are added, and their wording.

    Raises:
        InputError: A file is missing or unreadable, or names few of its entities and there is no
            `names` to look them up.
        GraphError: The names cannot be looked up.
    """
    scored_sets = read_scored_sets(scored)
    gathered = ExampleSet(scored=[data_file(path) for path in scored])
    for path in paths:
        source = source_name(path)
        kept = list(kept_rows(path, source, scored_sets, gathered))
        unnamed_before = gathered.skipped[UNNAMED]
        targets = row_targets([one.row for one in kept], form, names)
        for one, target in zip(kept, targets, strict=True):
            if isinstance(target, Unconverted):
                gathered.skip(source, one.id, target.reason)
            else:
                parent = parent_id(one.row) or ""
                gathered.add(Example(one.id, one.question, target, source, parent))
        unnamed = gathered.skipped[UNNAMED] - unnamed_before
        if names is None and unnamed > len(kept) / 2:
            raise InputError(
                f"{path}: the entities of {unnamed} of {len(kept)} queries have no name in the "
                "file. Name a graph to look them up: --store or --endpoint."
            )
        gathered.files.append(data_file(path))
    if demo_questions:
        _add_demo_questions(gathered, demo_questions, seed, form, scored_sets)
    return gathered


def split_examples(examples: Iterable[Example], valid_size: int) -> Split:
    """Hold out about `valid_size` questions of each set, at most a tenth of it.

    A question is held out together with those made from it or from the same question. No question
    is both held out and trained on. Their ids alone decide, so that a run that starts from the
    result of another holds out the same questions. Other sets may add to these, but take none
    away; composed questions add none.
    """
    pool = sorted(examples, key=lambda example: (example.source, example.id, example.target))
    of_family: dict[str, set[str]] = defaultdict(set)
    of_source: dict[str, set[str]] = defaultdict(set)
    families_of: dict[str, set[str]] = defaultdict(set)
    for example in pool:
        family, question = _family(example), example.question.casefold()
        of_family[family].add(question)
        of_source[example.source].add(question)
        families_of[example.source].add(family)
    held_out: set[str] = set()
    for source, questions in of_source.items():
        if source == COMPOSED_SOURCE:
            continue
        wanted, held_out_here = min(valid_size, len(questions) // 10), 0
        for family in sorted(families_of[source], key=_rank):
            if held_out_here >= wanted:
                break
            held_out |= of_family[family]
            held_out_here += len(of_family[family] & questions)
    train = tuple(e for e in pool if e.question.casefold() not in held_out)
    valid = tuple(e for e in pool if e.question.casefold() in held_out)
    return Split(train, valid)


def leave_out_fold(split: Split, fold: Fold) -> Split:
    """Leave the families of a fold out of what is trained on.

    A question that is asked in one of them is left out wherever else it is asked.
    """
    asked = {example.question.casefold() for example in split.train if fold.has(example)}
    train = tuple(e for e in split.train if e.question.casefold() not in asked)
    return split._replace(
        train=train, in_fold=tuple(e for e in split.train if e.question.casefold() in asked)
    )


def families_of(examples: Iterable[Example], ids: Container[str]) -> set[str]:
    """Return the ids of all examples of the same families as some, or that ask the same.

    Args:
        examples: All examples.
        ids: Of some of them.
    """
    examples = list(examples)
    some = [each for each in examples if each.id in ids]
    families = {_family(each) for each in some}
    questions = {each.question.casefold() for each in some}
    return {
        each.id
        for each in examples
        if _family(each) in families or each.question.casefold() in questions
    }


def _family(example: Example) -> str:
    """Return what stays together: the question that it was made from, or itself."""
    return example.parent or example.id


def _rank(family: str) -> str:
    """Return what orders families at random."""
    return hashlib.sha256(family.encode()).hexdigest()


def _add_demo_questions(
    gathered: ExampleSet, count: int, seed: int, form: TargetForm, scored_sets: ScoredSets
) -> None:
    """Add questions on the demo graph that the form can say and that are not kept for testing."""
    drawn = [example for example in demo_examples(seed) if example.split == "train"]
    random.Random(seed).shuffle(drawn)
    targets = ((example.question, write_target(example.crp, form)) for example in drawn)
    sayable = [(question, text) for question, text in targets if isinstance(text, str)]
    for number, (question, target) in enumerate(sayable[:count]):
        row_id = f"demo-{number}"
        if reason := scored_sets.reason_against({"question": question}):
            gathered.skip(DEMO_SOURCE, row_id, reason)
        else:
            gathered.add(Example(row_id, question, target, DEMO_SOURCE))


class KeptRow(NamedTuple):
    """A row whose question may be trained on, if it has a CRP."""

    id: str
    question: str
    row: Mapping[str, Any]


def kept_rows(
    path: Path, source: str, scored_sets: ScoredSets, gathered: ExampleSet
) -> Iterator[KeptRow]:
    """Read a file's rows, and count those whose questions may not be used."""

    def skip_record(number: int, _problem: str) -> None:
        gathered.skip(source, f"record {number}", "not a record of a question set")

    for number, row in read_question_rows(path, skip_record):
        id_, question = row_id(row, number), row.get("question")
        if row.get("test_parent"):
            gathered.skip(source, id_, RELATED)
        elif not isinstance(question, str) or not question.strip():
            gathered.skip(source, id_, "no question")
        elif reason := scored_sets.reason_against(row):
            gathered.skip(source, id_, reason)
        else:
            yield KeptRow(id_, mend_mojibake(question.strip()), row)


def row_id(row: Mapping[str, Any], number: int) -> str:
    """Return the id of a record, or its number in the file if it has none."""
    return str(row.get("id") or f"record {number}")


def source_name(path: Path) -> str:
    """Return the name of a question set: that of its file, without endings."""
    return _QUESTION_SET.sub("", path.name)


def data_file(path: Path) -> DataFile:
    """Identify a file by its name and content."""
    return DataFile(path.name, file_sha256(path))
