"""Read the records of question sets, in our form or that of the official releases.

WebQSP is one JSON object with ``Questions``; ComplexWebQuestions, GrailQA, Free917 and RouterKGQA's
``examples.json`` are JSON lists. Their records are converted to ours: ``id``, ``question``,
``sparql``, ``topic_entities``, ``entities_in_sparql``, ``answers``; for WebQSP ``parses``, for
ComplexWebQuestions ``webqsp_id`` and ``compositionality_type``, for GrailQA ``level``, ``function``
and ``s_expression``, for Free917 ``formula``, and for RouterKGQA ``crp_routerkgqa``.

Free917's file has neither answers nor SPARQL, but formulas with the keys of entities, such as
``fb:en.kenya``, instead of mids.

SimpleQuestions is a text file of lines: a subject, a relation, an object and a question. A record
in JSON Lines may have the same fields. Their query and topic are made from these; a field
``mention`` is what the question calls the subject.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbqa.engine.files.json_lines import BadRow, read_rows
from kbqa.sparql.errors import InputError

Row = Mapping[str, Any]

# Not an answer's type, which questions name by a common noun.
_TOPIC = re.compile(r"(?<!notable_types )\bns:([mg]\.[0-9a-z_]+)")
_READ = "WebQSP, ComplexWebQuestions, GrailQA, Free917, SimpleQuestions or RouterKGQA"
_SITE = "www.freebase.com/"
_FACT = re.compile(
    rf"(?P<subject>{_SITE}\S+)\t(?P<relation>{_SITE}\S+)\t(?P<object>{_SITE}\S+)\t"
    r"(?P<question>.+)"
)
_ROUTERKGQA_INPUT = re.compile(r"\s*Question:\s*\{(.*)\}\s*", re.DOTALL)


def read_question_rows(path: Path, bad: BadRow | None = None) -> Iterator[tuple[int, Row]]:
    """Read the records of a question set, each with its line or record number.

    Args:
        path: The file.
        bad: Called with each record that is not a question; without it, the first one raises.

    Raises:
        InputError: The file is missing or unreadable, or a record is not a question.
    """
    document = _document(path) if ".json" in path.suffixes else None
    if document is None and ".txt" not in path.suffixes:
        for number, row in read_rows(path, bad):
            yield number, _fact_row(row) if _is_fact(row) else row
        return
    records = _fact_lines(path) if document is None else _records(document)
    for number, record in enumerate(records, 1):
        try:
            row = _row(record, number)
        except (KeyError, TypeError, AttributeError) as error:
            problem = f"not a record of {_READ} ({error!r})"
            if bad is None:
                raise InputError(f"{path}, record {number}: {problem}") from None
            bad(number, problem)
            continue
        yield number, row


def scored_parses(row: Row) -> list[Row]:
    """Return a WebQSP record's parses that count: complete ones of a good question.

    The official script skips questions that have none.

    Raises:
        TypeError: The record's parses are not as in the official files.
    """
    try:
        return [
            parse
            for parse in row["parses"]
            if parse["AnnotatorComment"]["QuestionQuality"] == "Good"
            and parse["AnnotatorComment"]["ParseQuality"] == "Complete"
        ]
    except (KeyError, TypeError):
        raise TypeError('"parses" is not as in the official files') from None


def _document(path: Path) -> Any:
    """Return the JSON document of an official file; None for any other file."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            document = json.load(file)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    except ValueError:
        return None  # JSON Lines, or something that `read_rows` refuses
    is_official = isinstance(document, list) or (
        isinstance(document, dict) and isinstance(document.get("Questions"), list)
    )
    return document if is_official else None


def _fact_lines(path: Path) -> list[Row]:
    """Read the lines of SimpleQuestions; one that is not of its form becomes an empty record."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    # Not splitlines(): questions hold U+0085, from UTF-8 read as Latin-1.
    lines = text.removesuffix("\n").split("\n") if text else []
    matches = (_FACT.fullmatch(line.removesuffix("\r")) for line in lines)
    return [
        {name: _id(text) for name, text in match.groupdict().items()} if match else {}
        for match in matches
    ]


def _id(text: str) -> str:
    """Return the id that an address of Freebase's site ends with; other texts stay."""
    return text.removeprefix(_SITE).replace("/", ".") if text.startswith(_SITE) else text


def _records(document: Any) -> list[Any]:
    records: list[Any] = document if isinstance(document, list) else document["Questions"]
    return records


def _row(record: Row, number: int) -> Row:
    if "Parses" in record:
        return _webqsp_row(record)
    if _is_fact(record):
        return _fact_row({"id": str(number), **record})
    if "instruction" in record:
        return _routerkgqa_row(record, number)
    if "qid" in record:
        return _grailqa_row(record)
    if "utterance" in record:
        return _free917_row(record, number)
    return _cwq_row(record)


def _is_fact(row: Row) -> bool:
    """Return whether a record of ours has a fact instead of a query, as in SimpleQuestions."""
    fact = [row.get("subject"), row.get("relation")]
    return all(isinstance(each, str) for each in fact) and not row.get("sparql")


def _fact_row(row: Row) -> Row:
    """Add to a record the query and the topic that its fact implies."""
    subject, mention = row["subject"], row.get("mention")
    # SimpleQuestions has its questions, and so the mentions, in lower case.
    name = mention.title() if isinstance(mention, str) else None
    return {
        "topic_entities": [{"mid": subject, "name": name}],
        "sparql": f"SELECT DISTINCT ?x WHERE {{ ns:{subject} ns:{row['relation']} ?x }}",
        "answers": [{"arg": row["object"]}] if row.get("object") else [],
        **row,
    }


def _webqsp_row(record: Row) -> Row:
    """Convert a record of WebQSP; its query is that of the first parse that counts."""
    parses = record["Parses"]
    topics = {parse["TopicEntityMid"]: parse.get("TopicEntityName") for parse in parses}
    scored = scored_parses({"parses": parses})
    others = {
        constraint["Argument"]: constraint.get("EntityName")
        for parse in parses
        for constraint in parse.get("Constraints") or ()
        if constraint.get("ArgumentType") == "Entity"
    }
    return {
        "id": record["QuestionId"],
        "question": record.get("RawQuestion") or record["ProcessedQuestion"],
        "sparql": scored[0]["Sparql"] if scored else None,
        "topic_entities": [{"mid": mid, "name": name} for mid, name in topics.items() if mid],
        "entities_in_sparql": [{"mid": mid, "name": name} for mid, name in others.items()],
        "parses": parses,
    }


def _cwq_row(record: Row) -> Row:
    """Convert a record of ComplexWebQuestions; its topics are the entities in its query."""
    mids = dict.fromkeys(_TOPIC.findall(record["sparql"]))
    return {
        "id": record["ID"],
        "question": record["question"],
        "sparql": record["sparql"],
        "webqsp_id": record.get("webqsp_ID"),
        "compositionality_type": record.get("compositionality_type"),
        "topic_entities": [{"mid": mid} for mid in mids],
        "answers": [
            {"arg": answer["answer_id"], "name": answer.get("answer")}
            for answer in record.get("answers", ())
        ],
    }


def _grailqa_row(record: Row) -> Row:
    """Convert a record of GrailQA; one of its test set has only an id and a question."""
    nodes = (record.get("graph_query") or {}).get("nodes") or ()
    topics = {
        node["id"]: node.get("friendly_name") for node in nodes if node["node_type"] == "entity"
    }
    answers = record.get("answer")
    if answers == "null":  # The official script reads it as no answer.
        answers = None
    return {
        "id": str(record["qid"]),
        "question": record["question"],
        "sparql": record.get("sparql_query"),
        "s_expression": record.get("s_expression"),
        "level": record.get("level"),
        "function": record.get("function"),
        "topic_entities": [{"mid": mid, "name": name} for mid, name in topics.items()],
        "answers": [
            {"arg": answer["answer_argument"], "name": answer.get("entity_name")}
            for answer in answers or ()
        ],
    }


def _free917_row(record: Row, number: int) -> Row:
    return {
        "id": str(record.get("id") or number),
        "question": record["utterance"],
        "formula": record.get("targetFormula"),
    }


def _routerkgqa_row(record: Row, number: int) -> Row:
    asked = record["input"]
    match = _ROUTERKGQA_INPUT.fullmatch(asked)
    return {
        "id": str(number),
        "question": (match[1] if match else asked).strip(),
        "crp_routerkgqa": record["output"],
    }
