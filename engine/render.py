"""Print answers and summaries for people."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from kbqa.engine.answer import Answer, AnswerEntity, Beam, EvidenceTriple, Result
from kbqa.engine.evaluation.metrics import Mean
from kbqa.engine.repair.repair import Repair
from kbqa.sparql.terms import Literal, is_mid
from kbqa.sparql.words import describe_crp, describe_dropped

_SHOWN = 10
_COLUMNS = {"hit": "hit", "hits_at_1": "Hits@1", "exact_match": "exact match", "f1": "F1"}


def render_answer(answer: Answer) -> str:
    """Write an answer as lines: the answers, then path, query, evidence and times."""
    lines = [_answer_line(item) for item in answer.answers[:_SHOWN]]
    if len(answer.answers) > _SHOWN:
        more = "+" if answer.truncated else ""
        lines.append(f"… and {len(answer.answers) - _SHOWN}{more} more (--json prints all)")
    if answer.problem is not None:
        kind = "Note" if answer.answers else "No answer"
        lines.append(f"{kind}: {answer.problem.removesuffix('.')}.")
    if answer.result is not None:
        lines += _proof(answer.result, answer.beams[answer.result.beam], answer.evidence)
        lines += ["", *_origin(answer.result, answer.repair if answer.stage == "general" else None)]
    if not answer.answers:
        lines += _beam_lines(answer)
    seconds = ", ".join(f"{stage} {s:.2f} s" for stage, s in answer.seconds.items())
    return "\n".join([*lines, "", f"Time: {seconds}"])


def render_summary(
    means: Mapping[str, Mapping[str, Mean]],
    *,
    entities: str,
    failed: int,
    unscored: int,
    as_json: bool,
) -> str:
    """Write a run's scores as a Markdown table, or as JSON.

    Args:
        means: By tier and metric.
        entities: ``gold`` or ``linked``.
        failed: Questions that ended in an error; they score 0.
        unscored: Questions without gold answers.
        as_json: Write JSON.
    """
    if as_json:
        record = {
            "entities": entities,
            "failed": failed,
            "unscored": unscored,
            "tiers": {
                tier: {metric: asdict(mean) for metric, mean in metrics.items()}
                for tier, metrics in means.items()
            },
        }
        return json.dumps(record, indent=2)
    lines = [
        f"| tier ({entities} entities) | n | {' | '.join(_COLUMNS.values())} |",
        f"|---|---|{'---|' * len(_COLUMNS)}",
    ]
    for tier, metrics in means.items():
        cells = " | ".join(_cell(metrics[name]) for name in _COLUMNS)
        lines.append(f"| {tier} | {metrics['f1'].n} | {cells} |")
    lines.append(f"\n95 % bootstrap intervals. {failed} failed, {unscored} not scored.")
    return "\n".join(lines)


def _cell(mean: Mean) -> str:
    return f"{mean.mean:.3f} [{mean.low:.3f}, {mean.high:.3f}]"


def _answer_line(item: AnswerEntity) -> str:
    if isinstance(item.term, Literal) or item.term == item.name:
        return item.name
    return f"{item.name}  ({item.term})"


def _proof(result: Result, beam: Beam, evidence: tuple[EvidenceTriple, ...]) -> Iterator[str]:
    yield ""
    yield "Path:"
    yield from (f"  {sentence}" for sentence in describe_crp(result.crp))
    if beam.problem is not None:
        yield f"Of what the model wrote: {beam.problem}."
    if result.dropped:
        yield "Dropped, because nothing satisfied all of it:"
        yield from (f"  {sentence}" for sentence in describe_dropped(result.dropped, result.crp))
    yield ""
    yield "Evidence:"
    for triple in evidence[:_SHOWN]:
        subject = _end(triple.subject_name, str(triple.subject))
        object_ = triple.object_name
        if not isinstance(triple.object, Literal):
            object_ = _end(triple.object_name, triple.object)
        yield f"  {subject}  {triple.relation}  {object_}"
    if len(evidence) > _SHOWN:
        yield f"  … and {len(evidence) - _SHOWN} more triples (--json prints all)"
    yield ""
    yield "SPARQL:"
    yield from (f"  {line}" for line in result.sparql.splitlines())


def _origin(result: Result, repair: Repair | None) -> Iterator[str]:
    """Say where the path comes from: the small model, or repair."""
    if repair is None:
        yield f"From path {result.beam + 1} of the model, relaxation: {result.level}."
        return
    yield f"Found by searching the graph, because {repair.reason}. Relaxation: {result.level}."
    if repair.lost:
        yield "Lost, because no node of the new path has its relation:"
        yield from (f"  {sentence}" for sentence in repair.lost)


def _end(name: str, mid: str) -> str:
    return f"[{mid}]" if name == mid and is_mid(mid) else name


def _beam_lines(answer: Answer) -> Iterator[str]:
    yield ""
    yield "Paths that the model wrote:"
    for number, beam in enumerate(answer.beams, 1):
        lines = filter(None, map(str.strip, beam.text.splitlines()))
        first = next((line for line in lines if line.lower() != "main path:"), "")
        problem = f" ({beam.problem})" if beam.problem else ""
        yield f"  {number}. {beam.fate}: {first}{problem}"
