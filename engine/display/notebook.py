"""Write an answer for a notebook: one line of text, and HTML with the drawn evidence.

The HTML has no script and takes its colours from what surrounds it, so it works in a light and in a
dark notebook. A notebook that is not trusted drops the drawing; all else stays.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbqa.engine.display.drawing import draw_evidence
from kbqa.kb.graph import html_block, html_line, html_name, one_line

ORIGIN_NOTES = {
    "named": "from the language model, not from the graph",
    "text": "from the language model; the graph has no such name",
}
"""A note on an answer that the graph does not prove, by its origin."""

_LONGEST_QUESTION = 200
_IN_LINE = 3
_SHOWN = 10
_TRIPLES = 50


def in_one_line(record: Mapping[str, Any]) -> str:
    """Write the record of an answer, of any method, as one line of text."""
    question = record["question"]
    if len(question) > _LONGEST_QUESTION:
        question = f"{question[:_LONGEST_QUESTION]}…"
    said = "; ".join(map(_said, record.get("parts") or (record,)))
    return one_line(f"<Answer to {question!r}: {said}>")


def _said(record: Mapping[str, Any]) -> str:
    answers, confidence = record["answers"], record["confidence"]
    if record.get("boolean") is not None:
        said = "yes" if record["boolean"] else "no"
    elif record.get("count") is not None:
        said = f"{record['count']:,}"
    elif record.get("value") is not None:
        said = f"{record['value']:,.12g}"
    elif answers:
        said = ", ".join(each["name"] for each in answers[:_IN_LINE])
        if len(answers) > _IN_LINE:
            more = "+" if record["truncated"] else ""
            said += f" and {len(answers) - _IN_LINE:,}{more} more"
    else:
        said = f"none, because {record['problem']}" if record["problem"] else "none"
    return said if confidence is None else f"{said} (confidence {confidence:.2f})"


def as_html(record: Mapping[str, Any], words: Sequence[str]) -> str:
    """Write the record of an answer as HTML.

    `words` says how the answers were found, as `Trace.describe` does; for traces without a path.
    """
    return "\n".join(_html(record, words))


def _html(record: Mapping[str, Any], words: Sequence[str]) -> Iterator[str]:
    yield '<div class="kbqa-answer">'
    yield f"<p>{html_name(record['question'])}</p>"
    if record.get("understood"):
        yield f"<p>Understood as: {html_name(record['understood'])}</p>"
    if record["status"] == "unsure":
        yield f"<p>Not sure ({record['confidence']:.2f}): {record['doubt']}. Best guess:</p>"
    yield from _answers(record)
    if record["problem"]:
        kind = "No answer" if record["status"] == "none" else "Note"
        yield f"<p>{kind}: {html_line(record['problem'])}</p>"
    if record.get("not_understood"):
        missed = ", ".join(f"“{html_line(word)}”" for word in record["not_understood"])
        yield f"<p>Not understood: {missed}. The path below does not say it.</p>"
    if record.get("not_used"):
        left = ", ".join(f"“{html_line(word)}”" for word in record["not_used"])
        yield f"<p>Not used: {left}.</p>"
    if record["confidence"] is not None and record["status"] != "unsure":
        yield f"<p>Confidence: {record['confidence']:.2f}</p>"
    yield from _path(record, words)
    drawing = draw_evidence(record)
    if drawing is not None:
        yield from _details(
            "Evidence, drawn", f'<div style="overflow-x: auto">{drawing}</div>', is_open=True
        )
        yield from _details(f"Evidence, {len(record['evidence'])} triples", _triples(record))
    if record["sparql"]:
        yield from _details("SPARQL", f"<pre>{html_block(record['sparql'])}</pre>")
    yield "</div>"


def _answers(record: Mapping[str, Any]) -> Iterator[str]:
    answers = record["answers"]
    if record.get("boolean") is not None:
        yield f"<p><strong>{'Yes' if record['boolean'] else 'No'}</strong></p>"
        return
    if record.get("count") is not None:
        yield f"<p><strong>{record['count']:,}</strong></p>"
    elif record.get("value") is not None:
        yield f"<p><strong>{record['value']:,.12g}</strong></p>"
    if not answers:
        return
    yield "<ul>"
    for each in answers[:_SHOWN]:
        mid = each.get("mid")
        note = ORIGIN_NOTES.get(each["origin"])
        shown = f"<strong>{html_name(each['name'])}</strong>"
        if mid is not None and mid != each["name"]:
            shown += f" <small>{html_line(mid)}</small>"
        yield f"<li>{shown}{f' <em>{note}</em>' if note else ''}</li>"
    hidden = max(record.get("count") or 0, len(answers)) - len(answers[:_SHOWN])
    if hidden:
        more = " or more" if record["truncated"] else ""
        yield f"<li>… and {hidden:,}{more} others in <code>answer.answers</code></li>"
    yield "</ul>"


def _path(record: Mapping[str, Any], words: Sequence[str]) -> Iterator[str]:
    """Write the path that answers, a sentence each; or how else a method found the answers."""
    trace = record["trace"]
    sentences = trace.get("crp_words")
    if not sentences:
        if words:
            yield from _details("How", f"<pre>{html_block(chr(10).join(words))}</pre>")
        return
    yield "<ol>"
    yield from (f"<li>{html_line(sentence)}</li>" for sentence in sentences)
    yield "</ol>"
    if trace.get("dropped"):
        yield "<p>Dropped, because nothing satisfied all of it:</p><ul>"
        yield from (f"<li><s>{html_line(sentence)}</s></li>" for sentence in trace["dropped"])
        yield "</ul>"


def _triples(record: Mapping[str, Any]) -> str:
    evidence = record["evidence"]
    rows = [
        f"<tr><td>{html_name(each['subject_name'])}</td><td>{html_line(each['relation'])}</td>"
        f"<td>{html_name(each['object_name'])}</td></tr>"
        for each in evidence[:_TRIPLES]
    ]
    hidden = len(evidence) - len(rows)
    rest = f"<p>… and {hidden} others in <code>answer.evidence</code></p>" if hidden else ""
    head = "<tr><th>subject</th><th>relation</th><th>object</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>{rest}"


def _details(summary: str, inner: str, *, is_open: bool = False) -> Iterator[str]:
    yield f"<details{' open' if is_open else ''}><summary>{summary}</summary>"
    yield inner
    yield "</details>"
