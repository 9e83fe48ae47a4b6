"""Write the rows of a query for a notebook."""

from collections.abc import Iterator, Sequence

from kbqa.kb.escaping import html_line, html_name
from kbqa.sparql.terms import Term

_SHOWN = 20


def table_html(
    variables: Sequence[str], rows: Sequence[Sequence[Term | None]], *, truncated: bool
) -> str:
    """Write the first rows as an HTML table, with what was left out.

    Args:
        variables: Names of the columns.
        rows: All of them.
        truncated: More exist than were fetched.
    """
    return "\n".join(_lines(variables, rows, truncated))


def _lines(
    variables: Sequence[str], rows: Sequence[Sequence[Term | None]], truncated: bool
) -> Iterator[str]:
    yield '<div class="kbqa-table"><table>'
    yield f"<thead><tr>{''.join(f'<th>{html_line(name)}</th>' for name in variables)}</tr></thead>"
    yield "<tbody>"
    for row in rows[:_SHOWN]:
        yield f"<tr>{''.join(f'<td>{_cell(term)}</td>' for term in row)}</tr>"
    yield "</tbody></table>"
    if len(rows) > _SHOWN:
        yield f"<p>… and {len(rows) - _SHOWN:,} other rows</p>"
    if truncated:
        yield "<p>More exist than were fetched.</p>"
    yield "</div>"


def _cell(term: Term | None) -> str:
    if term is None:
        return ""
    return html_name(term if isinstance(term, str) else term.text)
