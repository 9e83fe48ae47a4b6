"""Write answers and summaries of runs for people to read."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from kbqa.engine.answer import Answer, AnswerEntity, EvidenceTriple, Origin
from kbqa.sparql.terms import LiteralTerm, is_mid

if TYPE_CHECKING:
    from kbqa.engine.evaluation.runs.rows import Row

_SHOWN = 10
_ORIGINS: Mapping[Origin, str] = {
    "named": "  [from the language model, not from the graph]",
    "text": "  [from the language model; the graph has no such name]",
}
_COLUMNS = {"hit": "hit", "hits_at_1": "Hits@1", "exact_match": "exact match", "f1": "F1"}


def render_answer(answer: Answer, graph: str) -> str:
    """Write an answer as lines: the answers, how they were found, evidence, query and times.

    Args:
        answer: What a method returned.
        graph: The description of the graph that was asked.
    """
    lines = [_answer_line(item) for item in answer.answers[:_SHOWN]]
    if len(answer.answers) > _SHOWN:
        more = "+" if answer.truncated else ""
        lines.append(f"… and {len(answer.answers) - _SHOWN}{more} more (--json prints all)")
    if answer.problem is not None:
        kind = "Note" if answer.answers else "No answer"
        lines.append(f"{kind}: {answer.problem.removesuffix('.')}.")
    if answer.confidence is not None:
        lines.append(f"Confidence: {answer.confidence:.2f}")
    lines += ["", *answer.trace.describe()]
    if answer.evidence:
        lines += ["", *_evidence(answer.evidence)]
    if answer.sparql is not None:
        lines += ["", "SPARQL:", *(f"  {line}" for line in answer.sparql.splitlines())]
    seconds = ", ".join(f"{stage} {s:.2f} s" for stage, s in answer.seconds.items())
    return "\n".join([*lines, "", f"Graph: {graph}", f"Time: {seconds}"])


def render_summary(rows: Sequence["Row"], *, entities: str, as_json: bool) -> str:
    """Write a run's scores as a Markdown table, or as JSON.

    Args:
        rows: Of the whole run.
        entities: ``gold`` or ``linked``.
        as_json: Write JSON.
    """
    from kbqa.engine.evaluation.reports.breakdowns import score_tiers, share_right
    from kbqa.engine.evaluation.reports.glossary import BREAKDOWN_NAMES
    from kbqa.engine.evaluation.reports.tables import MarkdownTable, markdown_table

    tiers = score_tiers(rows)
    right = share_right(rows)
    failed = sum(row.error is not None for row in rows)
    unscored = sum(row.scores is None for row in rows)
    if as_json:
        record = {
            "entities": entities,
            "failed": failed,
            "unscored": unscored,
            "tiers": {
                tier: {metric: asdict(mean) for metric, mean in means.items()}
                for tier, means in tiers.items()
            },
            "exact_match": {
                way: {group: asdict(mean) for group, mean in groups.items()}
                for way, groups in right.items()
            },
        }
        return json.dumps(record, indent=2)
    table = MarkdownTable(
        (f"tier ({entities} entities)", "n", *_COLUMNS.values()),
        [
            (tier, str(means["f1"].n), *(means[name] for name in _COLUMNS))
            for tier, means in tiers.items()
        ],
    )
    tables = [markdown_table(table)]
    for way, groups in right.items():
        members = [(group, str(mean.n), mean) for group, mean in groups.items()]
        header = (BREAKDOWN_NAMES[way], "n", "exact match")
        tables.append(markdown_table(MarkdownTable(header, members)))
    note = f"95 % bootstrap intervals. {failed} failed, {unscored} not scored."
    return "\n\n".join([*tables, note])


def _answer_line(item: AnswerEntity) -> str:
    is_plain = isinstance(item.term, LiteralTerm) or item.term == item.name
    line = item.name if is_plain else f"{item.name}  ({item.term})"
    return f"{line}{_ORIGINS.get(item.origin, '')}"


def _evidence(evidence: tuple[EvidenceTriple, ...]) -> Iterator[str]:
    yield "Evidence:"
    for triple in evidence[:_SHOWN]:
        subject = _end(triple.subject_name, str(triple.subject))
        object_ = triple.object_name
        if not isinstance(triple.object, LiteralTerm):
            object_ = _end(triple.object_name, triple.object)
        yield f"  {subject}  {triple.relation}  {object_}"
    if len(evidence) > _SHOWN:
        yield f"  … and {len(evidence) - _SHOWN} more triples (--json prints all)"


def _end(name: str, mid: str) -> str:
    return f"[{mid}]" if name == mid and is_mid(mid) else name
