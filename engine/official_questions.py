"""Read the records of question sets, in our form or in that of the official releases.

WebQSP's is one JSON object with ``Questions``, ComplexWebQuestions' one JSON list. Their records
become ours: ``id``, ``question``, ``sparql``, ``topic_entities``, ``answers``, and for WebQSP
``parses``.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbqa.engine.json_lines import read_rows
from kbqa.sparql.errors import InputError

Row = Mapping[str, Any]


def read_question_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Read the records of a question set, each with its line's number, or its own number.

    Raises:
        InputError: The file is missing or unreadable, or a record is none of a question set.
    """
    document = _document(path) if ".json" in path.suffixes else None
    if document is None:
        yield from read_rows(path)
        return
    convert = _cwq_row if isinstance(document, list) else _webqsp_row
    records = document if isinstance(document, list) else document["Questions"]
    for number, record in enumerate(records, 1):
        try:
            yield number, convert(record)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path}, record {number}: not a record of the official files ({error!r})"
            ) from None


def _document(path: Path) -> Any:
    """Read a file that is one JSON document; None where it is none, or none of ours."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            document = json.load(file)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    except ValueError:
        return None  # JSON Lines, or what `read_rows` finds wrong with it
    is_official = isinstance(document, list) or (
        isinstance(document, dict) and isinstance(document.get("Questions"), list)
    )
    return document if is_official else None


def _webqsp_row(record: Row) -> Row:
    parses = record["Parses"]
    topics = {parse["TopicEntityMid"]: parse.get("TopicEntityName") for parse in parses}
    return {
        "id": record["QuestionId"],
        "question": record["RawQuestion"],
        "sparql": parses[0]["Sparql"] if parses else None,
        "topic_entities": [{"mid": mid, "name": name} for mid, name in topics.items() if mid],
        "parses": parses,
    }


def _cwq_row(record: Row) -> Row:
    return {
        "id": record["ID"],
        "question": record["question"],
        "sparql": record["sparql"],
        "answers": [
            {"arg": answer["answer_id"], "name": answer.get("answer")}
            for answer in record.get("answers", ())
        ],
    }
