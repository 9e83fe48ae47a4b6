"""Turn question sets into training examples: a question, and the CRP text that answers it.

Rows that cannot be used are counted by reason, and the first of each reason are named. They never
stop a run. A manifest and a card list both.

No test question is trained on. Rows marked `test_parent` are left out, because a test question was
made from them, or they from one. If rows are not marked, as in the official files, the test sets
themselves decide: ComplexWebQuestions was made from WebQSP, and each of its questions has a parent
there, sometimes in the other half. A model trained on one has seen half of the other.
"""

import hashlib
import itertools
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from kbqa.engine.files import file_sha256
from kbqa.engine.linking.linker import likely_topics
from kbqa.engine.linking.mentions import mend_mojibake
from kbqa.engine.methods import Resources
from kbqa.engine.questions.question_sets import Unconverted, read_question_rows
from kbqa.engine.retrieval.retriever import RelationSuggester
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.dialect import query_mentions
from kbqa.sparql.errors import InputError
from kbqa.sparql.forms import read_crp
from kbqa.training.data.targets import UNNAMED, NameSource, TargetForm, row_targets, write_target
from kbqa.training.demo import demo_examples

RELATED = "a test question was made from it, or it from one"
ASKED = "asked in a test set"

DEMO_SOURCE = "demo"  # the source of questions on the demo graph
COMPOSED_SOURCE = "composed"  # the source of questions that are composed of others and of facts
NAMED_SKIPS = 10  # how many of the rows left out are named, for each reason
ExampleKey: TypeAlias = tuple[str, str]  # the question set and the id of an example
_WORD = re.compile(r"\w+")
_CWQ_ID = re.compile(r"(WebQT(?:rn|est)-\d+)_[0-9a-f]{32}")
_QUESTION_SET = re.compile(r"\.jsonl?(?:\.gz)?$")


@dataclass(frozen=True, slots=True)
class Example:
    """A question and the text that a model learns to answer it with."""

    id: str
    question: str  # as a user would type it
    target: str  # the CRP, by names, in a `TargetForm`
    source: str
    parent: str = ""  # the id of the question that it was made from
    relations: tuple[str, ...] = ()  # to suggest with the question, best first

    @property
    def key(self) -> ExampleKey:
        """What identifies it among all question sets."""
        return self.source, self.id

    @property
    def family(self) -> str:
        """What stays together in a split: the question that it was made from, or itself."""
        return self.parent or self.id


class Split(NamedTuple):
    """How the examples of a run are used.

    Those in the fold are left out, so that a judge can learn from what the model writes for them.
    """

    train: tuple[Example, ...]
    valid: tuple[Example, ...]
    in_fold: tuple[Example, ...] = ()


class Fold(NamedTuple):
    """One of the parts, of about the same size, into which the families of questions fall."""

    at: int  # from 1
    of: int

    def __str__(self) -> str:
        return f"{self.at}/{self.of}"

    def has(self, example: Example) -> bool:
        """Return whether a question's family is of this fold; its id alone decides."""
        return int(_rank(example.family)[-8:], 16) % self.of == self.at - 1


class DataFile(NamedTuple):
    """A file that examples were read from, with the SHA-256 of its bytes in hex."""

    name: str
    sha256: str


@dataclass(slots=True)
class ExampleSet:
    """Examples, the files that they were read from, and what was left out by reason."""

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
        """Count a row that is left out, and name the first `NAMED_SKIPS` of each reason."""
        self.skipped[reason] += 1
        named = self.skipped_rows.setdefault(reason, [])
        if len(named) < NAMED_SKIPS:
            named.append(f"{source} {row_id}")


@dataclass(frozen=True, slots=True)
class ScoredSets:
    """What identifies the questions that a model will be scored on.

    `facts` are the entities of their queries, each with each relation of the same query.
    """

    ids: frozenset[str] = frozenset()  # without plain numbers, which every file counts from 1
    parents: frozenset[str] = frozenset()
    questions: frozenset[str] = frozenset()  # their `question_words`
    facts: frozenset[tuple[str, str]] = frozenset()

    def reason_against(self, row: Mapping[str, Any]) -> str | None:
        """Return the reason why a row may not be trained on, or None if it may."""
        row_id = str(row.get("id", ""))
        if row_id in self.ids or question_words(str(row.get("question"))) in self.questions:
            return ASKED
        if row_id in self.parents or parent_id(row) in self.ids:
            return RELATED
        return None


def read_scored_sets(paths: Iterable[Path]) -> ScoredSets:
    """Read the question sets that a model will be scored on: ours, or official files."""
    rows = [row for path in paths for _, row in read_question_rows(path)]
    facts: set[tuple[str, str]] = set()
    for row in rows:
        parses = [parse.get("Sparql") for parse in row.get("parses") or ()]
        for query in filter(None, (row.get("sparql"), *parses)):
            with suppress(InputError):
                relations, entities = query_mentions(query)
                facts.update(itertools.product(entities, relations))
    ids = (str(row.get("id") or "") for row in rows)
    questions = (row.get("question") for row in rows)
    return ScoredSets(
        ids=frozenset(id_ for id_ in ids if id_ and not id_.isdigit()),
        parents=frozenset(parent for row in rows if (parent := parent_id(row))),
        questions=frozenset(question_words(each) for each in questions if isinstance(each, str)),
        facts=frozenset(facts),
    )


def parent_id(row: Mapping[str, Any]) -> str | None:
    """Return the id of the WebQSP question that a question of ComplexWebQuestions was made from.

    If the row has no field for it, the id of the question begins with it.

    >>> parent_id({"id": "WebQTest-12_5a1b6cf2df0c5a5cbbd2b62dd4f4de6a"})
    'WebQTest-12'
    """
    if parent := row.get("webqsp_id"):
        return str(parent)
    match = _CWQ_ID.fullmatch(str(row.get("id", "")))
    return match[1] if match else None


def question_words(question: str) -> str:
    """Reduce a question to its words, so that questions that differ only in spelling are equal.

    >>> question_words("Where's  GoiÃ¡s?") == question_words("where s goiás")
    True
    """
    return " ".join(_WORD.findall(mend_mojibake(question).casefold()))


def load_examples(
    paths: Iterable[Path],
    *,
    form: TargetForm = "routerkgqa",
    names: NameSource | None = None,
    scored: Sequence[Path] = (),
    demo_questions: int = 0,
    seed: int = 42,
) -> ExampleSet:
    """Read question sets, ours or official files, into examples, without repetitions.

    Names that a file lacks are looked up by `names`; the official ComplexWebQuestions has none.
    Left out are the questions of the test sets `scored`, their parents and their children. At most
    `demo_questions` on the demo graph are added; the seed decides which, and their wording.

    Raises:
        InputError: A file is missing or unreadable, or names few of its entities and there is no
            `names` to look them up.
        GraphError: The names cannot be looked up.
    """
    scored_sets = read_scored_sets(scored)
    gathered = ExampleSet(scored=[data_file(path) for path in scored])
    for path in paths:
        source = source_name(path)
        kept = list(kept_rows(path, scored_sets, gathered))
        unnamed_before = gathered.skipped[UNNAMED]
        row_texts = row_targets([one.row for one in kept], form, names)
        for one, target in zip(kept, row_texts, strict=True):
            if isinstance(target, Unconverted):
                gathered.skip(source, one.id, target.reason)
            else:
                gathered.add(Example(one.id, one.question, target, source, one.parent))
        unnamed = gathered.skipped[UNNAMED] - unnamed_before
        if names is None and unnamed > len(kept) / 2:
            raise InputError(
                f"{path}: the entities of {unnamed} of {len(kept)} queries have no name in the "
                "file. Name a graph to look them up: --store or --endpoint."
            )
        gathered.files.append(data_file(path))
    if demo_questions:
        drawn = [example for example in demo_examples(seed) if example.split == "train"]
        random.Random(seed).shuffle(drawn)
        targets = ((example.question, write_target(example.crp, form)) for example in drawn)
        sayable = ((question, text) for question, text in targets if isinstance(text, str))
        for number, (question, target) in enumerate(itertools.islice(sayable, demo_questions)):
            example_id = f"{DEMO_SOURCE}-{number}"
            if reason := scored_sets.reason_against({"question": question}):
                gathered.skip(DEMO_SOURCE, example_id, reason)
            else:
                gathered.add(Example(example_id, question, target, DEMO_SOURCE))
    return gathered


class KeptRow(NamedTuple):
    """A row whose question may be trained on, if it has a CRP."""

    id: str
    question: str
    parent: str  # the id of the question that it was made from, or ""
    row: Mapping[str, Any]


def kept_rows(path: Path, scored_sets: ScoredSets, gathered: ExampleSet) -> Iterator[KeptRow]:
    """Read a file's rows, and count those whose questions may not be used."""
    source = source_name(path)

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
            yield KeptRow(id_, mend_mojibake(question.strip()), parent_id(row) or "", row)


def row_id(row: Mapping[str, Any], number: int) -> str:
    """Return the id of a record, or its number in the file if it has none."""
    return str(row.get("id") or f"record {number}")


def source_name(path: Path) -> str:
    """Return the name of a question set: that of its file, without endings."""
    return _QUESTION_SET.sub("", path.name)


def data_file(path: Path) -> DataFile:
    """Identify a file by its name and content."""
    return DataFile(path.name, file_sha256(path))


def split_examples(examples: Iterable[Example], valid_size: int) -> Split:
    """Hold out about `valid_size` questions of each set, at most a tenth of it.

    A question is held out together with those made from it or from the same question. Their ids
    alone decide, so that a run that starts from the result of another holds out the same questions.
    Other sets may add to these, but take none away; composed questions add none.
    """
    pool = sorted(examples, key=lambda example: (example.source, example.id, example.target))
    of_family: dict[str, set[str]] = defaultdict(set)
    of_source: dict[str, set[str]] = defaultdict(set)
    families: dict[str, set[str]] = defaultdict(set)
    for example in pool:
        question = example.question.casefold()
        of_family[example.family].add(question)
        of_source[example.source].add(question)
        families[example.source].add(example.family)
    held_out: set[str] = set()
    for source, questions in of_source.items():
        if source == COMPOSED_SOURCE:
            continue
        wanted, held_out_here = min(valid_size, len(questions) // 10), 0
        for family in sorted(families[source], key=_rank):
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
    return split._replace(
        train=tuple(e for e in split.train if e.question.casefold() not in asked),
        in_fold=tuple(e for e in split.train if e.question.casefold() in asked),
    )


def families_of(examples: Iterable[Example], ids: Container[str]) -> set[str]:
    """Return the ids of all examples of the same families as those named, or that ask the same."""
    examples = list(examples)
    some = [each for each in examples if each.id in ids]
    families = {each.family for each in some}
    questions = {each.question.casefold() for each in some}
    return {
        each.id
        for each in examples
        if each.family in families or each.question.casefold() in questions
    }


def _rank(family: str) -> str:
    """Return what orders families at random."""
    return hashlib.sha256(family.encode()).hexdigest()


def data_record(
    gathered: ExampleSet, split: Split, also_left_out: Mapping[str, tuple[str, ...]]
) -> dict[str, object]:
    """Record for a manifest which questions were used, and which were left out and why.

    The training itself may have left out more: set and id of each, by reason.
    """
    train, valid = (Counter(each.source for each in part) for part in (split.train, split.valid))
    left_out = [
        {"reason": reason, "count": count, "rows": gathered.skipped_rows.get(reason, [])}
        for reason, count in sorted(gathered.skipped.items())
    ]
    left_out += [
        {"reason": reason, "count": len(rows), "rows": list(rows[:NAMED_SKIPS])}
        for reason, rows in also_left_out.items()
        if rows
    ]
    return {
        "files": [one._asdict() for one in gathered.files],
        "scored": [one._asdict() for one in gathered.scored],
        "sets": [
            {"name": source, "trained_on": train[source], "held_out": valid[source]}
            for source in sorted({*train, *valid})
        ],
        "left_out": left_out,
    }


def data_lines(data: Mapping[str, Any]) -> Iterator[str]:
    """Write a record of `data_record` in Markdown, for a card."""
    yield "| question set | trained on | held out |"
    yield "|---|---|---|"
    for one in data["sets"]:
        yield f"| {one['name']} | {one['trained_on']:,} | {one['held_out']:,} |"
    yield from ("", "Left out, by reason:", "")
    if not data["left_out"]:
        yield "- none"
    for one in data["left_out"]:
        yield f"- {one['count']:,}: {one['reason']}"
    yield ""
    yield "Rows marked `test_parent` are never used: a test question was made from each of them, or"
    yield "they from one. No training question is held out, or was made from one that is."
    yield ""
    for file in data["files"]:
        yield f"- `{file['name']}`: SHA-256 {file['sha256']}"
    for file in data["scored"]:
        yield (
            f"- test set `{file['name']}` (neither its questions nor related ones are used):"
            f" SHA-256 {file['sha256']}"
        )


def write_untrained(output: Path, split: Split) -> None:
    """Write the questions that a model was not trained on: what is fitted to it needs them.

    Each set has `held_out.SET.jsonl`, and `fold.SET.jsonl` if a fold was left out. A row is
    ``{"id", "question"}``, as `kbqa crp generate` reads it.
    """
    for part, examples in (("held_out", split.valid), ("fold", split.in_fold)):
        sets: dict[str, dict[str, str]] = defaultdict(dict)
        for example in examples:
            sets[example.source][example.id] = example.question
        for source, questions in sets.items():
            rows = [
                json.dumps({"id": id_, "question": question}, ensure_ascii=False) + "\n"
                for id_, question in questions.items()
            ]
            (output / f"{part}.{source}.jsonl").write_text("".join(rows), encoding="utf-8")


def draw_mixture(
    examples: Iterable[Example], weights: Mapping[str, float], seed: int
) -> tuple[Example, ...]:
    """Take each set's examples as often as its weight says: 2 is twice, 0.1 a tenth of them.

    A part of a set, which the seed decides, has as many different relations as possible: one
    example of each chain of relations, then a second one of each, and so on.
    """
    of_set: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        of_set[example.source].append(example)
    drawn: list[Example] = []
    for source, members in sorted(of_set.items()):
        whole, part = divmod(round(weights.get(source, 1.0) * len(members)), len(members))
        drawn += members * whole
        drawn += _by_relations(members, f"{seed}/{source}")[:part] if part else ()
    return tuple(drawn)


def _by_relations(members: Sequence[Example], seed: str) -> list[Example]:
    """Shuffle examples, and put the first of each chain of relations first, then the second."""
    shuffled = list(members)
    random.Random(seed).shuffle(shuffled)
    seen: Counter[tuple[str, ...]] = Counter()
    ranks = []
    for example in shuffled:
        relations = tuple(read_crp(example.target).crp.relations())
        ranks.append(seen[relations])
        seen[relations] += 1
    order = sorted(range(len(shuffled)), key=lambda index: ranks[index])
    return [shuffled[index] for index in order]


def suggest_relations(
    split: Split, graph: Graph, count: int, report: Callable[[int], object] = lambda done: None
) -> Split:
    """Give the examples of a split the relations that would be suggested for their questions.

    They are found from the linked entities, as when a question is asked; those of questions on the
    demo graph in that graph. `report` is called with how many were looked up since the last call.
    """
    examples = (*split.train, *split.valid)
    found: dict[tuple[bool, str], tuple[str, ...]] = {}
    for is_demo in (False, True):
        questions = {e.question for e in examples if (e.source == DEMO_SOURCE) is is_demo}
        if not questions:
            continue
        with ExitStack() as stack:
            asked = stack.enter_context(closing(open_graph())) if is_demo else graph
            linker = stack.enter_context(closing(Resources(asked))).linker
            suggester = RelationSuggester(asked, count)
            for question in sorted(questions):
                topics = likely_topics(linker.link(question))
                found[is_demo, question] = suggester.suggest(question, topics)
                report(1)
    train, valid = (
        tuple(replace(e, relations=found[e.source == DEMO_SOURCE, e.question]) for e in part)
        for part in (split.train, split.valid)
    )
    return split._replace(train=train, valid=valid)
