"""Write answers and summaries of runs as text."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from kbqa.engine.answer import Answer
from kbqa.engine.answer_lines import answer_lines, last_lines, literal_forms
from kbqa.engine.commands.terminal.screen import PAPER, Screen
from kbqa.kb.graph import Graph
from kbqa.kb.schema.literals import LiteralForms

if TYPE_CHECKING:
    from kbqa.engine.evaluation.runs.rows import Row

_COLUMNS = {"hit": "hit", "hits_at_1": "Hits@1", "exact_match": "exact match", "f1": "F1"}


def render_text(answer: Answer, graph: Graph, screen: Screen = PAPER) -> str:
    """Write an answer with the literals as its graph says; see `render_answer`."""
    return render_answer(answer, graph.description, literal_forms(answer, graph), screen)


def render_answer(
    answer: Answer, graph: str, forms: LiteralForms | None = None, screen: Screen = PAPER
) -> str:
    """Write an answer as lines: the answers, how they were found, evidence, query and times.

    Args:
        answer: What a method returned.
        graph: The description of the graph that was asked.
        forms: How literals are written; None to write them as they are.
        screen: What it is written for.
    """
    lines = [*answer_lines(answer, forms or LiteralForms()), *last_lines(graph, answer.seconds)]
    return screen.write_all(lines)


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
