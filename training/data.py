"""Turn question sets into training examples: a question, and the CRP text that answers it.

A row's CRP is the published RouterKGQA text where there is one, else the conversion of its SPARQL.
Every target is written anew by `render_routerkgqa`, so that one meaning has one text. What a query
says of languages, and of a topic that may be an answer, has no words in that form; targets leave it
out, as the published texts do. Rows that cannot be used are counted by reason and never end a run.

Split hygiene: rows marked `test_parent` are left out. A CWQ question was made from each of them, or
it was made from a WebQSP one, that stands in a test set.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from kbqa.engine.json_lines import read_rows
from kbqa.engine.question_mentions import mend_mojibake
from kbqa.sparql.crp import Constraint, Crp, Entity, TextEquals
from kbqa.sparql.errors import CrpConversionError, CrpSyntaxError, QuerySyntaxError
from kbqa.sparql.from_sparql import crp_from_sparql
from kbqa.sparql.routerkgqa import parse_routerkgqa, render_routerkgqa


@dataclass(frozen=True, slots=True)
class Example:
    """One training example.

    Attributes:
        id: The row's id.
        question: As a user would type it.
        target: The CRP in RouterKGQA's text form.
        source: The question set it comes from.
    """

    id: str
    question: str
    target: str
    source: str


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
    """Examples, where they were read from, and how many rows were left out for which reason."""

    examples: list[Example] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    files: list[DataFile] = field(default_factory=list)
    _seen: set[tuple[str, str]] = field(default_factory=set, repr=False)

    def add(self, example: Example) -> None:
        """Add an example, unless its question stands here already with the same target."""
        key = (example.question.casefold(), example.target)
        if key in self._seen:
            self.skipped["repeated"] += 1
            return
        self._seen.add(key)
        self.examples.append(example)


def load_examples(paths: Iterable[Path]) -> ExampleSet:
    """Read question sets (JSON Lines, gzipped or not) into examples, without repetitions.

    Raises:
        InputError: A file is missing, or holds a line that is no JSON object.
    """
    gathered = ExampleSet()
    for path in paths:
        source = path.name.split(".jsonl")[0]
        for _, row in read_rows(path):
            try:
                gathered.add(_example(row, source))
            except _SkipError as skip:
                gathered.skipped[str(skip)] += 1
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        gathered.files.append(DataFile(path.name, digest))
    return gathered


def split_examples(examples: Iterable[Example], valid_size: int, seed: int) -> Split:
    """Hold out examples of `valid_size` questions, a tenth of all at most, chosen by the seed.

    No question is both held out and trained on.
    """
    pool = sorted(examples, key=lambda example: (example.source, example.id, example.target))
    questions = sorted({example.question.casefold() for example in pool})
    held_out = set(random.Random(seed).sample(questions, min(valid_size, len(questions) // 10)))
    train = tuple(e for e in pool if e.question.casefold() not in held_out)
    valid = tuple(e for e in pool if e.question.casefold() in held_out)
    return Split(train, valid)


class _SkipError(Exception):
    """The row is of no use; the message says why, in words that are counted."""


def _example(row: Mapping[str, Any], source: str) -> Example:
    if row.get("test_parent"):
        raise _SkipError("a test question was made from it, or it from one")
    question = row.get("question")
    if not isinstance(question, str) or not question.strip():
        raise _SkipError("no question")
    target = render_routerkgqa(_nearest_sayable(_named_crp(row)))
    if target is None:
        raise _SkipError("RouterKGQA's text form cannot say it")
    return Example(str(row.get("id", "")), mend_mojibake(question.strip()), target, source)


def _nearest_sayable(crp: Crp) -> Crp:
    """Leave out what the published texts leave out: languages, and that the topic may answer."""

    def in_any_language(constraint: Constraint) -> Constraint:
        if not isinstance(constraint.test, TextEquals):
            return constraint
        return replace(constraint, test=TextEquals(constraint.test.text))

    sayable = replace(crp, answer_language="en", differs_from=crp.differs_from or 0)
    return sayable.with_constraints(in_any_language)


def _named_crp(row: Mapping[str, Any]) -> Crp:
    names = _names(row)
    crp = _crp(row).with_entities(lambda e: e if e.name else Entity(names.get(e.mid or ""), e.mid))
    if any(entity.name is None for entity in crp.entities()):
        raise _SkipError("an entity without a name")
    return crp


def _crp(row: Mapping[str, Any]) -> Crp:
    published, sparql = row.get("crp_routerkgqa"), row.get("sparql")
    try:
        if isinstance(published, str) and published:
            crp, problems = parse_routerkgqa(published)
            if problems:
                raise _SkipError("published CRP with problems")
            return crp
        if isinstance(sparql, str) and sparql:
            return crp_from_sparql(sparql)
    except CrpConversionError as error:
        raise _SkipError(error.reason) from None
    except CrpSyntaxError:
        raise _SkipError("published CRP that cannot be read") from None
    except QuerySyntaxError:
        raise _SkipError("SPARQL that does not parse") from None
    raise _SkipError("neither CRP nor SPARQL")


def _names(row: Mapping[str, Any]) -> dict[str, str]:
    """Collect the names of the row's entities by mid."""
    try:
        entities = [*(row.get("entities_in_sparql") or ()), *(row.get("topic_entities") or ())]
        return {e["mid"]: mend_mojibake(e["name"]) for e in entities if e.get("name")}
    except (AttributeError, KeyError, TypeError):
        raise _SkipError("malformed entities") from None
