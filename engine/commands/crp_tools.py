"""Tools for CRPs in JSON Lines: each takes a row and answers with one.

If something is wrong with a row, that is the error of its answer, and the next row is answered.
Tools that read a CRP accept both text forms; parts that could not be read are in `problems`.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kbqa.sparql.compiler.compile import compile_crp
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.errors import InputError, KbqaError
from kbqa.sparql.forms import read_crp, render_crp
from kbqa.sparql.forms.english import describe_crp

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowTool:
    """A tool that answers rows.

    Attributes:
        blank: The answer, apart from its id and error, to a row that cannot be answered.
        answer: Fills in the answer that it is given, which has the keys of `blank`. What it raises
            becomes the answer's error.
    """

    blank: Mapping[str, object]
    answer: Callable[[Row, dict[str, object]], None]


def answer_rows(lines: Iterable[bytes], tool: RowTool) -> Iterator[Row]:
    """Answer JSON Lines one by one, each as soon as it is read; empty lines are skipped.

    Yields:
        For each row its id (the line's number if it has none), the tool's answer, and `error`:
        None, or the error's type and message.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        answered: dict[str, object] = {"id": None, **tool.blank, "error": None}
        try:
            row = _read_row(line, number)
            answered["id"] = row.get("id", str(number))
            tool.answer(row, answered)
        except Exception as error:  # whatever it is, the next row is answered
            if not isinstance(error, KbqaError):
                logger.warning("line %d failed", number, exc_info=True)
            answered["error"] = f"{type(error).__name__}: {error}"
        yield answered


def row_text(row: Row, key: str) -> str:
    """Return the text that a row has under a key.

    Raises:
        InputError: It has none.
    """
    if not isinstance(text := row.get(key), str):
        raise InputError(f'"{key}" is {json.dumps(text)}, but must be a text')
    return text


def _read_row(line: bytes, number: int) -> Row:
    try:
        row = json.loads(line.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {number}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise InputError(f"line {number}: not a JSON object")
    return row


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")


def _convert(row: Row, answered: dict[str, object]) -> None:
    crp = crp_from_sparql(row_text(row, "sparql"))
    answered["crp"] = render_crp(crp)
    answered["sparql"] = compile_crp(crp)


def _compile(row: Row, answered: dict[str, object]) -> None:
    crp, problems = read_crp(row_text(row, "crp"))
    answered["problems"] = problems
    answered["sparql"] = compile_crp(crp)


def _show(row: Row, answered: dict[str, object]) -> None:
    crp, problems = read_crp(row_text(row, "crp"))
    answered["problems"] = problems
    answered["text"] = "\n".join(describe_crp(crp))


CONVERT = RowTool({"crp": None, "sparql": None}, _convert)
COMPILE = RowTool({"sparql": None, "problems": ()}, _compile)
SHOW = RowTool({"text": None, "problems": ()}, _show)
