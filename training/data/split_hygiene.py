"""Keep test questions out of training, and the questions they were made from or made into.

ComplexWebQuestions was made from WebQSP: each of its questions has a parent there, sometimes in the
other half of the split. A model trained on one has seen half of the other.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbqa.engine.linking.mentions import mend_mojibake
from kbqa.engine.questions.official import read_question_rows
from kbqa.sparql.errors import InputError
from kbqa.sparql.queries.mentions import query_mentions

RELATED = "a test question was made from it, or it from one"
ASKED = "asked in a test set"

_WORD = re.compile(r"\w+")
_CWQ_ID = re.compile(r"(WebQT(?:rn|est)-\d+)_[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class ScoredSets:
    """What identifies the questions that a model will be scored on.

    Attributes:
        ids: Their ids, except plain numbers, which every file counts from the start.
        parents: Ids of the questions that they were made from.
        questions: Their words, from `question_words`.
        facts: Each entity of their queries with each relation of the same query.
    """

    ids: frozenset[str] = frozenset()
    parents: frozenset[str] = frozenset()
    questions: frozenset[str] = frozenset()
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
    """Read the question sets that a model will be scored on: ours, or official files.

    Raises:
        InputError: A file is missing, or not a question set.
    """
    rows = [row for path in paths for _, row in read_question_rows(path)]
    return ScoredSets(
        ids=frozenset(
            id_ for row in rows if (id_ := str(row.get("id") or "")) and not id_.isdigit()
        ),
        parents=frozenset(parent for row in rows if (parent := parent_id(row))),
        questions=frozenset(
            question_words(question)
            for row in rows
            if isinstance(question := row.get("question"), str)
        ),
        facts=frozenset(fact for row in rows for fact in _facts(row)),
    )


def _facts(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    parses = [parse.get("Sparql") for parse in row.get("parses") or ()]
    for query in filter(None, (row.get("sparql"), *parses)):
        with suppress(InputError):
            yield from itertools.product(*reversed(query_mentions(query)))


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
