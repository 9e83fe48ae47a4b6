"""Read question sets and their gold, in our form or that of the official releases; draw samples.

Official records become ours: ``id``, ``question``, ``sparql``, ``topic_entities``, ``answers``, and
fields that only one of the sets has. Files that other work made of them are read, too. A record has
one of four kinds of gold, or none and is then not scored:

- ``answers``, a set of entities and literals; WebQSP has a set for each parse;
- ``boolean``, the answer to a yes/no question;
- ``count``, the answer to "how many?". Official sets give the number as their answer, and mark such
  questions by their query, logical form or ``function``;
- ``unanswerable``, if the right thing is not to answer.

Some sets give their answers by name alone. Names are kept apart, for reports by name: such a
question has no gold that could be compared by id.

A part of a record in none of the accepted forms raises `TypeError`.

Gold queries are converted to CRPs, and cached on disk: parsing takes about 30 ms a query, a quarter
of an hour for the 27,000 training queries of ComplexWebQuestions. Reading the cache takes seconds.
"""

import gzip
import hashlib
import importlib.metadata
import json
import logging
import random
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import kbqa.sparql
from kbqa.engine.files import BadRow, TextCache, read_rows
from kbqa.kb.open import cache_directory
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.errors import CrpConversionError, InputError, QuerySyntaxError
from kbqa.sparql.forms import parse_crp, render_crp
from kbqa.sparql.terms import is_mid

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]

GoldKind: TypeAlias = Literal["answers", "boolean", "count", "unanswerable"]

GoldSets: TypeAlias = tuple[Collection[str], ...]  # alternatives, each sorted

# Not an answer's type, which questions name by a common noun.
_TOPIC = re.compile(r"(?<!notable_types )\bns:([mg]\.[0-9a-z_]+)")
_READ = (
    "WebQSP, ComplexWebQuestions, GrailQA, Free917, SimpleQuestions, WebQuestions, FreebaseQA, "
    "RoG, ToG or RouterKGQA"
)
_SITE = "www.freebase.com/"
_FACT = re.compile(
    rf"(?P<subject>{_SITE}\S+)\t(?P<relation>{_SITE}\S+)\t(?P<object>{_SITE}\S+)\t"
    r"(?P<question>.+)"
)
_ROUTERKGQA_INPUT = re.compile(r"\s*Question:\s*\{(.*)\}\s*", re.DOTALL)

_NUMBER_OR_DATE = re.compile(
    r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
    r"|-?\d{4}-\d\d(?:-\d\d(?:T[\d:.]+)?)?(?:Z|[+-]\d\d:\d\d)?"
)
# How a query, an s-expression or a formula that counts begins.
_COUNTS = re.compile(
    r"[^{]*\bselect\s+(?:distinct\s+)?\(?\s*count\s*\(|\s*\(count\s", re.IGNORECASE
)

# An answer of WebQuestions, as in (list (description "Jaxon Bieber") (description Lawyer)).
_DESCRIPTION = re.compile(r'\(description (?:"((?:[^"\\]|\\.)*)"|([^\s()]+))\)')

# Names that the gold of question sets has that are not read.
_LIKE_GOLD = re.compile(
    r"(?:gold_)?answers?(?:_(?:entit(?:y|ies)|mids?|ids?|names?|list))?|golds?|ground_?truth"
    r"|a_entity|targets?",
    re.IGNORECASE,
)
_OTHER_KINDS = ("boolean", "count", "unanswerable")  # fields of other gold than answers

_BLOCK = 200  # rows read at once, or queries converted between two writes to the cache
_CRP, _REASON = "crp ", "reason "  # prefixes of the cached texts

_TOPICS, _ANSWERS = '"topic_entities": [{"mid", "name"}]', '"answers": [{"arg", "name"}]'
_FORM = f'{{"id", "question", {_TOPICS}, {_ANSWERS}, "sparql"}}'


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold data."""

    id: str  # unique in its set
    text: str
    topics: tuple[Entity, ...]  # gold; only evaluation with gold entities uses them
    golds: GoldSets  # WebQSP has one for each parse and may list an answer twice
    tier: str | None = None  # of evidence in the slice
    type: str | None = None  # the compositionality type, in ComplexWebQuestions
    sparql: str | None = None  # for several parses, that of the first that counts
    gold_names: GoldSets = ()  # those of entities, or mids, and texts; see `gold_names`
    boolean: bool | None = None  # the gold answer to a yes/no question
    count: int | None = None  # the gold answer to "how many?"
    unanswerable: bool = False  # the right thing is not to answer
    compares_values: bool = False  # literals are compared by value, not by their text
    category: str | None = None  # the kind of question, if the set says so
    generalization: str | None = None  # in GrailQA: i.i.d., compositional or zero-shot
    function: str | None = None  # in GrailQA, such as count or argmax

    @property
    def kind(self) -> GoldKind | None:
        """The kind of gold it has; None if it has none, and is not scored."""
        return gold_kind(self.golds, self.boolean, self.count, self.unanswerable)


@dataclass(frozen=True, slots=True)
class Unconverted:
    """The result for a query that no CRP can express."""

    reason: str  # the same words for all such queries


def read_questions(path: Path) -> list[Question]:
    """Read a question set.

    Raises:
        InputError: The file is missing, unreadable or empty, or a record is not a question or has
            the id of an earlier one.
    """
    questions: dict[str, Question] = {}
    for number, row in read_question_rows(path):
        question = _question(row, path, number)
        if question.id in questions:
            raise InputError(
                f"{path}, line {number}: an earlier question also has the id {question.id!r}"
            )
        questions[question.id] = question
    if not questions:
        raise InputError(f"{path} has no questions")
    return list(questions.values())


def gold_warning(path: Path, questions: Sequence[Question]) -> str | None:
    """Return a sentence if gold is by name alone, missing, or seems to be in an unread field."""
    by_name = sum(question.kind is None and bool(question.gold_names) for question in questions)
    if by_name:
        return (
            f"{by_name:,} of {len(questions):,} questions in {path} have gold by name alone. They "
            "are not scored by id, but by name: kbqa report RUN.jsonl --names"
        )
    unscored = {question.id for question in questions if question.kind is None}
    if not unscored:
        return None
    rows = (row for number, row in read_question_rows(path) if _id(row, number) in unscored)
    named = (name for row in rows for name, value in row.items() if value not in (None, "", [], {}))
    field = next((n for n in named if n != "answers" and _LIKE_GOLD.fullmatch(n)), None)
    if field is None and len(unscored) < len(questions):
        return None
    advice = f': "{field}" is not read. Write {_ANSWERS} with mids, which `kbqa entities` finds'
    return (
        f"{len(unscored):,} of {len(questions):,} questions in {path} have no gold and are not "
        f"scored{'' if field is None else advice}"
    )


def sample_questions(questions: Sequence[Question], size: int, seed: int) -> list[Question]:
    """Draw at most `size` questions and keep their order; the same for the same set and seed."""
    ids = sorted(question.id for question in questions)
    drawn = set(random.Random(seed).sample(ids, min(size, len(ids))))
    return [question for question in questions if question.id in drawn]


def read_question_rows(path: Path, bad: BadRow | None = None) -> Iterator[tuple[int, Row]]:
    """Read the records of a question set, each with its line or record number.

    `bad` is called with each record that is not a question; without it, the first one raises.
    """
    records = _listed(path)
    read, place = (_line_row, "line") if records is None else (_row, "record")
    for number, record in read_rows(path, bad) if records is None else enumerate(records, 1):
        try:
            row = read(record, number)
        except (LookupError, TypeError, AttributeError) as error:
            problem = f"not a record of {_READ} ({error!r})"
            if bad is None:
                raise InputError(f"{path}, {place} {number}: {problem}") from None
            bad(number, problem)
            continue
        yield number, row


def read_graphs(path: Path) -> Iterator[tuple[str, Row]]:
    """Read the records of a question set as they are, with their graphs, each with its id."""
    records = _listed(path, with_graphs=True)
    for number, record in read_rows(path) if records is None else enumerate(records, 1):
        yield str(record.get("id") or number), record


def scored_parses(row: Row) -> list[Row]:
    """Return a WebQSP record's parses that count: complete ones of a good question."""
    try:
        return [
            parse
            for parse in row["parses"]
            if parse["AnnotatorComment"]["QuestionQuality"] == "Good"
            and parse["AnnotatorComment"]["ParseQuality"] == "Complete"
        ]
    except (KeyError, TypeError):
        raise TypeError('"parses" is not as in the official files') from None


def _listed(path: Path, *, with_graphs: bool = False) -> Iterable[Any] | None:
    """Return the records of a file; None if it is JSON Lines."""
    if ".json" in path.suffixes:
        return _document(path)
    if ".txt" in path.suffixes:
        return _fact_lines(path)
    return _parquet(path, with_graphs) if path.suffix == ".parquet" else None


def _document(path: Path) -> list[Any] | None:
    """Return the records of an official JSON file; None for any other file."""
    try:
        document = json.loads(_content(path))
    except ValueError:
        return None  # JSON Lines, or something that `read_rows` refuses
    if isinstance(document, dict):
        document = document.get("Questions")
    return document if isinstance(document, list) else None


def _parquet(path: Path, with_graphs: bool) -> Iterator[Row]:
    """Read the rows of a data set of Hugging Face; the graphs are most of it."""
    import polars

    try:
        left_out = {"choices"} if with_graphs else {"graph", "choices"}
        wanted = [name for name in polars.read_parquet_schema(path) if name not in left_out]
        rows, at = polars.scan_parquet(path).select(wanted), 0
        while block := rows.slice(at, _BLOCK).collect().to_dicts():
            yield from block
            at += len(block)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, polars.exceptions.PolarsError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _content(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _fact_lines(path: Path) -> list[Row]:
    """Read the lines of SimpleQuestions; one that is not of its form becomes an empty record."""
    try:
        text = _content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    # Not splitlines(): questions hold U+0085, from UTF-8 read as Latin-1.
    lines = text.removesuffix("\n").split("\n") if text else []
    matches = (_FACT.fullmatch(line.removesuffix("\r")) for line in lines)
    return [
        {name: _local_id(text) for name, text in match.groupdict().items()} if match else {}
        for match in matches
    ]


def _local_id(text: str) -> str:
    """Return the id that an address of Freebase's site ends with; other texts stay."""
    return text.removeprefix(_SITE).replace("/", ".") if text.startswith(_SITE) else text


def _line_row(record: Row, number: int) -> Row:
    """Convert a line of JSON Lines: ours, or a record of others whose gold is names."""
    if _is_by_name(record):
        return _row_by_name(record, number)
    return _fact_row(record) if _is_fact(record) else record


def _row(record: Row, number: int) -> Row:
    if "Parses" in record:
        return _webqsp_row(_as_webqsp(record) if "Question-ID" in record else record)
    if _is_fact(record):
        return _fact_row({"id": str(number), **record})
    if "instruction" in record:
        return _routerkgqa_row(record, number)
    if "qid" in record:
        return _grailqa_row(record)
    if "ID" not in record and _is_by_name(record):
        return _row_by_name(record, number)
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


def _is_by_name(row: Row) -> bool:
    """Return whether a record is of WebQuestions in any form, of ToG's sets, or of RoG's."""
    if "topic_entities" in row:
        return False  # ours
    if "targetValue" in row or "q_entity" in row or "topic_entity" in row:
        return True
    answers = row.get("answers")
    return "url" in row and isinstance(answers, list) and all(isinstance(a, str) for a in answers)


def _row_by_name(record: Row, number: int) -> Row:
    """Convert a record whose gold is names; the graph in it is not read."""
    topics = record.get("topic_entity") or {}
    if not topics:  # RoG's are names, except for entities that have none.
        topics = {each: None for each in record.get("q_entity") or () if is_mid(each)}
    answers = record.get("answers") or record.get("answer") or record.get("a_entity")
    if text := record.get("targetValue"):
        found = (quoted or word for quoted, word in _DESCRIPTION.findall(text))
        answers = [re.sub(r"\\(.)", r"\1", each) for each in found]
    return {
        "id": str(record.get("id") or number),
        "question": record["utterance" if "utterance" in record else "question"],
        "topic_entities": _named(topics),
        "answers": _answers_by_name(answers),
    }


def _answers_by_name(answers: Any) -> list[Row]:
    """Read a name, or a list of names; they are ids only if all of them are."""
    names = [answers] if isinstance(answers, str) else list(answers or ())
    if not all(isinstance(each, str) for each in names):
        raise TypeError("an answer is not a text")
    is_ids = all(map(is_mid, names))
    return [{"arg": each if is_ids else None, "name": None if is_ids else each} for each in names]


def _as_webqsp(record: Row) -> Row:
    """Convert a record of FreebaseQA, any parse of which gives right answers, to WebQSP's form."""
    return {
        **record,
        "QuestionId": record["Question-ID"],
        "Parses": [
            {
                **parse,
                "AnnotatorComment": {"QuestionQuality": "Good", "ParseQuality": "Complete"},
                "Sparql": _chain_query(parse["TopicEntityMid"], parse["InferentialChain"]),
                "Answers": [
                    {"AnswerArgument": each["AnswersMid"], "EntityName": each["AnswersName"][0]}
                    for each in parse["Answers"]
                ],
            }
            for parse in record["Parses"]
        ],
    }


def _chain_query(topic: str, chain: str) -> str:
    relations = chain.split("..")
    nodes = [f"ns:{topic}", *(f"?y{at}" for at in range(1, len(relations))), "?x"]
    steps = zip(nodes, relations, nodes[1:], strict=False)
    triples = " . ".join(f"{head} ns:{relation} {tail}" for head, relation, tail in steps)
    return f"SELECT DISTINCT ?x WHERE {{ {triples} }}"


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
        "topic_entities": _named({mid: name for mid, name in topics.items() if mid}),
        "entities_in_sparql": _named(others),
        "parses": parses,
    }


def _named(names: Mapping[str, str | None]) -> list[Row]:
    return [{"mid": mid, "name": name} for mid, name in names.items()]


def _cwq_row(record: Row) -> Row:
    """Convert a record of ComplexWebQuestions; its topics are the entities in its query.

    ToG's file names the topics, and has one name as the answer.
    """
    mids = dict.fromkeys(_TOPIC.findall(record["sparql"]))
    given = record.get("answers") or record.get("answer") or ()
    answers = (
        _answers_by_name(given)
        if isinstance(given, str)
        else [{"arg": each["answer_id"], "name": each.get("answer")} for each in given]
    )
    return {
        "id": record["ID"],
        "question": record["question"],
        "sparql": record["sparql"],
        "webqsp_id": record.get("webqsp_ID"),
        "compositionality_type": record.get("compositionality_type"),
        "topic_entities": _named(record.get("topic_entity") or {})
        or [{"mid": mid} for mid in mids],
        "answers": answers,
    }


def _grailqa_row(record: Row) -> Row:
    """Convert a record of GrailQA; one of its test set has only an id and a question.

    AgentBench has its topics by name.
    """
    nodes = (record.get("graph_query") or {}).get("nodes") or ()
    topics = {
        node["id"]: node.get("friendly_name") for node in nodes if node["node_type"] == "entity"
    } or {mid: name for name, mid in (record.get("entities") or {}).items()}
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
        "topic_entities": _named(topics),
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


def _question(row: Mapping[str, Any], path: Path, number: int) -> Question:
    try:
        text, id_ = row["question"], row.get("id")
        if not isinstance(text, str):
            raise TypeError('"question" is not a text')
        if isinstance(id_, bool) or not isinstance(id_, str | int | None):
            raise TypeError('"id" is neither a text nor a number')
        return Question(
            id=_id(row, number),
            text=text,
            topics=topic_entities(row),
            golds=gold_sets(row),
            tier=_text(row, "evidence"),
            type=_text(row, "compositionality_type"),
            sparql=_text(row, "sparql"),
            gold_names=gold_names(row),
            boolean=gold_boolean(row),
            count=gold_count(row),
            unanswerable=is_unanswerable(row),
            compares_values=any(field in row for field in _OTHER_KINDS),
            category=_text(row, "category"),
            generalization=_text(row, "level"),
            function=_text(row, "function"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}, line {number}: {record_problem(error)}") from None


def _id(row: Mapping[str, Any], number: int) -> str:
    id_ = row.get("id")
    return str(number if id_ is None else id_)


def _text(row: Mapping[str, Any], field: str) -> str | None:
    """Return an optional text of a record; None if it is missing or empty."""
    text = row.get(field)
    if not isinstance(text, str | None):
        raise TypeError(f'"{field}" is not a text')
    return text or None


def record_problem(error: KeyError | TypeError | AttributeError) -> str:
    """Describe why a record is not a question, from the error that reading it raised."""
    problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return f"not a question record: {problem}. Expected {_FORM}"


def topic_entities(row: Mapping[str, Any]) -> tuple[Entity, ...]:
    """Return a record's topic entities that have a mid."""
    entities = row.get("topic_entities")
    if not isinstance(entities, list | None):
        raise TypeError('"topic_entities" is not a list')
    found = map(_topic, entities or ())
    return tuple(entity for entity in found if entity is not None)


def _topic(entity: object) -> Entity | None:
    """Read a topic entity: a mid, or a record that may lack one."""
    if isinstance(entity, str) and is_mid(entity):
        return Entity(mid=entity)
    if not isinstance(entity, Mapping):
        raise TypeError(f'the topic entity {entity!r} is neither a mid nor {{"mid", "name"}}')
    mid, name = entity.get("mid"), entity.get("name")
    if not isinstance(mid, str | None) or not isinstance(name, str | None):
        raise TypeError(f'the "mid" or "name" of the topic entity {entity!r} is not a text')
    return Entity(name, mid) if mid else None


def gold_kind(
    golds: GoldSets, boolean: bool | None, count: int | None, unanswerable: bool
) -> GoldKind | None:
    """Return the kind of gold that a question has, if it has any."""
    if unanswerable:
        return "unanswerable"
    if boolean is not None:
        return "boolean"
    if count is not None:
        return "count"
    return "answers" if golds else None


def gold_answers(row: Row) -> list[str]:
    """Return a record's gold answers; one that is only known by its name is left out."""
    return [text for answer in _answers(row) if (text := _answer(answer))]


def parse_answers(parse: Row) -> list[str]:
    """Return the gold answers of a WebQSP parse."""
    try:
        answers = [answer["AnswerArgument"] for answer in parse["Answers"]]
    except (KeyError, TypeError):
        raise TypeError('the "Answers" of a parse are not as in the official files') from None
    if not all(isinstance(answer, str) for answer in answers):
        raise TypeError('an "AnswerArgument" is not a text')
    return answers


def gold_sets(row: Row) -> GoldSets:
    """Return the gold sets: the answers, or for WebQSP those of each parse that counts."""
    if "parses" in row:
        return tuple(tuple(sorted(parse_answers(parse))) for parse in scored_parses(row))
    answers = tuple(sorted(set(gold_answers(row))))
    return (answers,) if answers else ()


def gold_names(row: Row) -> GoldSets:
    """Return the gold sets with names in place of mids; none if no entity has a name.

    If the record has no gold but names, these.
    """
    if "parses" in row:
        sets = [
            [(each["AnswerArgument"], each.get("EntityName")) for each in parse["Answers"]]
            for parse in scored_parses(row)
        ]
    else:
        answers = [
            (text, each.get("name") if isinstance(each, Mapping) else None)
            for each in _answers(row)
            if (text := _answer(each))
        ]
        sets = [answers] if answers else []
        if not answers and (names := [each["name"] for each in _answers(row) if each.get("name")]):
            return (tuple(sorted({str(name) for name in names})),)
    entities = [name for one in sets for text, name in one if is_mid(text)]
    if entities and not any(entities):
        return ()
    return tuple(tuple(sorted({str(name or text) for text, name in one})) for one in sets)


def gold_boolean(row: Row) -> bool | None:
    """Return the gold answer to a yes/no question; None for other questions."""
    boolean = row.get("boolean")
    if not isinstance(boolean, bool | None):
        raise TypeError('"boolean" is neither true nor false')
    return boolean


def gold_count(row: Row) -> int | None:
    """Return the gold answer to "how many?"; None for other questions."""
    count = row.get("count")
    if count is None and _is_marked_as_count(row):
        given = [str(_answer(each) or each.get("name")) for each in _answers(row)]
        return int(given[0]) if len(given) == 1 and given[0].isdecimal() else None
    if isinstance(count, bool) or not isinstance(count, int | None) or (count or 0) < 0:
        raise TypeError('"count" is not a whole number from 0 on')
    return count


def is_unanswerable(row: Row) -> bool:
    """Return whether a record says that the question cannot be answered."""
    unanswerable = row.get("unanswerable")
    if not isinstance(unanswerable, bool | None):
        raise TypeError('"unanswerable" is neither true nor false')
    others = (_answers(row) or None, row.get("boolean"), row.get("count"))
    if unanswerable and any(other is not None for other in others):
        raise TypeError('the question is "unanswerable" and has an answer')
    return bool(unanswerable)


def _is_marked_as_count(row: Row) -> bool:
    if row.get("function") == "count":
        return True
    forms = (row.get(field) for field in ("sparql", "s_expression", "formula"))
    return any(isinstance(form, str) and _COUNTS.match(form) for form in forms)


def _answers(row: Row) -> list[Any]:
    found = row.get("answers")
    if not isinstance(found, list | None):
        raise TypeError('"answers" is not a list')
    return found or []


def _answer(answer: object) -> str | None:
    """Read a gold answer: a mid, a number, a date, or a record with a mid or a literal's text."""
    value = answer
    if isinstance(answer, Mapping):
        if "arg" not in answer and "name" not in answer:
            raise TypeError(f'the answer {answer!r} has no "arg"')
        value = answer.get("arg")
    elif isinstance(answer, str) and not is_mid(answer) and not _NUMBER_OR_DATE.fullmatch(answer):
        raise TypeError(
            f"the answer {answer!r} looks like a name, and answers are compared by id. Write "
            f'{{"arg": "m.…", "name": {json.dumps(answer, ensure_ascii=False)}}} with its mid '
            f'(kbqa entities finds it), or for a literal {{"arg": "its text"}}'
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str | None) or (value is None and answer is None):
        raise TypeError(f"the answer {answer!r} is neither a mid nor a literal")
    return value


def convert_queries(queries: Iterable[str]) -> dict[str, Crp | Unconverted]:
    """Convert queries, each once; entities come back as mids without names."""
    wanted = list(dict.fromkeys(queries))
    cache = TextCache(cache_directory() / f"crps-{_converter_digest()}.sqlite", "converted queries")
    found: Mapping[str, bytes] = cache.read(wanted)
    texts = {query: made.decode() for query, made in found.items()}
    missing = [query for query in wanted if query not in texts]
    if missing:
        logger.info("converting %d queries to CRPs", len(missing))
    for start in range(0, len(missing), _BLOCK):
        block = {query: _convert(query) for query in missing[start : start + _BLOCK]}
        cache.write({query: text.encode() for query, text in block.items()})
        texts |= block
    return {query: _read(texts[query]) for query in wanted}


def _convert(query: str) -> str:
    try:
        return f"{_CRP}{render_crp(crp_from_sparql(query))}"
    except CrpConversionError as error:
        return f"{_REASON}{error.reason}"
    except QuerySyntaxError:
        return f"{_REASON}SPARQL that does not parse"


def _read(text: str) -> Crp | Unconverted:
    if text.startswith(_CRP):
        return parse_crp(text.removeprefix(_CRP)).crp
    return Unconverted(text.removeprefix(_REASON))


def _converter_digest() -> str:
    """Hash all that can change the conversion: the code of `kbqa.sparql`, and rdflib's version."""
    digest = hashlib.sha256(importlib.metadata.version("rdflib").encode())
    folder = Path(kbqa.sparql.__path__[0])
    for module in sorted(folder.rglob("*.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()[:12]
