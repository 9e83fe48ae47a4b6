"""The parts of reports: sections, their layout, and the names and meanings of figures."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kbqa.engine.evaluation.scores import Mean

WIDTH = 100
"""Columns of the terminal that text is laid out for."""

Cell: TypeAlias = str | Mean
_GAP = "  "
_RULES = {1: "═", 2: "─"}


@dataclass(frozen=True, slots=True)
class MarkdownTable:
    """A table; its first column is text, the others are numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report: a title, and below it facts, a table and notes."""

    title: str
    facts: Sequence[tuple[str, str]] = ()  # labels and texts
    table: MarkdownTable | None = None
    notes: Sequence[str] = ()  # paragraphs
    depth: int = 2  # level of the heading, from 1


def table_section(
    title: str, header: Sequence[str], rows: Sequence[Sequence[Cell]], *notes: str
) -> Section:
    """Make a section of a table and notes."""
    return Section(title, table=MarkdownTable(header, rows), notes=notes)


def render_text(sections: Iterable[Section]) -> str:
    """Lay sections out for a terminal of `WIDTH` columns."""
    return "\n\n".join("\n".join(_text_section(section)) for section in sections)


def render_markdown(sections: Iterable[Section]) -> str:
    """Lay sections out in Markdown."""
    return "\n\n".join("\n\n".join(_markdown_section(section)) for section in sections)


def markdown_table(table: MarkdownTable) -> str:
    """Lay a table out in Markdown."""
    rule = f"|---|{'---:|' * (len(table.header) - 1)}"
    return "\n".join([_markdown_row(table.header), rule, *map(_markdown_row, table.rows)])


def _text_section(section: Section) -> list[str]:
    blocks = [_text_facts(section.facts)] if section.facts else []
    if section.table is not None:
        blocks.append(_text_table(section.table))
    blocks += [textwrap.wrap(note, WIDTH) for note in section.notes]
    lines = textwrap.wrap(section.title, WIDTH)
    if section.depth in _RULES:
        lines.append(_RULES[section.depth] * len(lines[-1]))
    # Not splitlines(): a question may hold U+2028.
    return [*lines, *("\n\n".join(map("\n".join, blocks)).split("\n") if blocks else ())]


def _text_facts(facts: Sequence[tuple[str, str]]) -> list[str]:
    indent = max(len(label) for label, _ in facts) + len(_GAP)
    lines = []
    for label, value in facts:
        first, *rest = textwrap.wrap(value, WIDTH - indent) or [""]
        lines.append(f"{label:<{indent}}{first}".rstrip())
        lines += [" " * indent + line for line in rest]
    return lines


def _text_table(table: MarkdownTable) -> list[str]:
    """Align columns; if a row is too wide, put intervals below their means, then wrap names."""
    for is_stacked in (False, True):
        rows = [[_cell_lines(cell, is_stacked) for cell in row] for row in table.rows]
        rows.insert(0, [[name] for name in table.header])
        widths = [
            max(len(line) for row in rows for line in row[column])
            for column in range(len(table.header))
        ]
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - WIDTH
        if excess <= 0:
            break
    else:
        longest_word = max(len(word) for row in rows for word in row[0][0].split() or [""])
        widths[0] = max(widths[0] - excess, longest_word)
        for row in rows:
            row[0] = textwrap.wrap(row[0][0], widths[0]) or [""]
    lines = []
    for number, row in enumerate(rows):
        for at in range(max(map(len, row))):
            cells = [cell[at] if at < len(cell) else "" for cell in row]
            aligned = [f"{cells[0]:<{widths[0]}}"]
            aligned += [f"{c:>{w}}" for c, w in zip(cells[1:], widths[1:], strict=True)]
            lines.append(_GAP.join(aligned).rstrip())
        if number == 0:
            lines.append(_GAP.join("─" * width for width in widths))
    return lines


def _cell_lines(cell: Cell, is_stacked: bool) -> list[str]:
    if is_stacked and isinstance(cell, Mean):
        return [f"{cell.mean:.3f}", f"{cell.low:.3f}–{cell.high:.3f}"]
    return [str(cell)]


def _markdown_section(section: Section) -> list[str]:
    blocks = [f"{'#' * section.depth} {_escape(section.title)}"]
    if section.facts:
        blocks.append("\n".join(f"- **{_escape(k)}**: {_escape(v)}" for k, v in section.facts))
    if section.table is not None:
        blocks.append(markdown_table(section.table))
    return [*blocks, *map(_escape, section.notes)]


def _markdown_row(cells: Sequence[Cell]) -> str:
    return f"| {' | '.join(_escape(str(cell)) for cell in cells)} |"


def _escape(text: str) -> str:
    text = " ".join(text.split())  # a line break would end a cell, a heading or an item
    for character in "\\|*_<":
        text = text.replace(character, f"\\{character}")
    return text


METRIC_NAMES: Mapping[str, str] = {
    "hit": "hit",
    "hits_at_1": "Hits@1",
    "exact_match": "exact match",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
}

NAME_METRICS: Mapping[str, str] = {
    "hits_at_1": "Hits@1, BPC",
    "f1": "F1, BPC",
    "contained": "contained, ToG",
    "rog_hit": "Hit, RoG",
    "rog_f1": "F1, RoG",
    "subgraphrag_hits_at_1": "Hits@1, SubgraphRAG",
    "subgraphrag_f1": "F1, SubgraphRAG",
}

BREAKDOWN_NAMES: Mapping[str, str] = {
    "kind": "kind of gold",
    "category": "category",
    "generalization": "level of generalization",
    "function": "function",
    "type": "type of composition",
    "depth": "hops of the gold path",
    "constraints": "constraints of the gold query",
    "answers": "number of gold answers",
    "stage": "stage that answered",
    "level": "relaxation of the path",
    "origin": "origin of the answers",
}

DEFINITIONS: Mapping[str, str] = {
    "hit": "a gold answer is among the predicted ones (some papers call this Hits@1)",
    "hits_at_1": "the first predicted answer, in the order of the row, is a gold one",
    "exact_match": "the predicted answers are exactly the gold ones",
    "precision": "share of the predicted answers that are gold",
    "recall": "share of the gold answers that are predicted",
    "f1": "harmonic mean of a question's precision and recall; averaged over questions (macro)",
    "empty": "if gold and prediction are both empty, each score is 1; if only one is, 0",
    "boolean, count": "right (1) or wrong (0); a list without its number is no count",
    "unanswerable": "right (1) without an answer, or with one whose status is unsure or none",
    "several gold sets": "a question with several parses (WebQSP) counts with the one of best F1",
    "failed": "a question that ended in an error scores 0",
    "not scored": "a question without gold answers is left out of all scores",
}


def define_scores(resamples: int) -> dict[str, str]:
    """Return the definitions, with that of the intervals."""
    drawn = f"95 % percentile bootstrap over questions, {resamples:,} resamples, seed 42"
    return {**DEFINITIONS, "interval": drawn}


OFFICIAL_RULE = (
    "The rule of WebQSP's official script. Its F1 is ours. Its precision is 1 if nothing is "
    "predicted, and its recall is 1 if nothing is gold; ours are 0."
)

COST_RULE = (
    "Calls: of all models. General calls: of the general model; cached ones came from the cache, "
    "which takes no time, and reasoned ones with reasoning, which is not read. Tokens: the small "
    "model's prompt and first path, and all of the general model's."
)

NAME_RULES = (
    "Names, not ids: two entities of one name are the same here. BPC: the names in lower case with "
    "single blanks; Hits@1 is of the first answer, F1 of the set. Contained, the rule of ToG, PoG "
    "and KnowPath: without blanks and capitals, the answers in one text contain a gold name or a "
    "gold name contains them; an empty answer is wrong here, and right in their code. RoG and "
    "SubgraphRAG compare names without capitals, punctuation and articles, and an answer that "
    "contains a gold name matches it. RoG, also GCR's Hit: Hit is 1 if the answers in one text "
    "contain a gold name, which some papers call Hits@1; F1 is of the gold names contained, and "
    "precision is at most 1. SubgraphRAG, also Path Pooling: Hits@1 is of the first answer; in F1 "
    "each answer matches one gold name. To questions such as when and where, a part of a gold name "
    "matches too, and to when a date's year."
)

NO_GOLD_NAMES = (
    "The rows have no names of gold answers. They come from the question set. If it has names, an "
    "older kbqa wrote the rows: run `kbqa eval` again."
)

ORIGIN_RULE = (
    "graph: a query or walk of the graph found the answer. named: a language model named it, and "
    "the graph has an entity of that name. text: a language model wrote it, and the graph does not "
    "confirm it."
)

_HASH_SHOWN = 12
_TEXT_SHOWN = 160


def shorten_setting(label: str, text: str) -> str:
    """Cut a hash, or a text that is too long to read."""
    if label.endswith(("sha256", "git")):
        return text[:_HASH_SHOWN]
    return text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}…"


def spoken(name: str) -> str:
    """Return a name of code as words."""
    return name.replace("_", " ")


def count_of(count: int, n: int) -> str:
    """Write a count with its share of `n`; a dash if that is 0.

    >>> count_of(300, 1200), count_of(0, 0)
    ('300 (25.0%)', '–')
    """
    return f"{count:,} ({count / n:.1%})" if n else "–"
