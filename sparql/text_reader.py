"""Read kbqa's own text form, leniently; `kbqa.sparql.text` says what the form is."""

from dataclasses import dataclass, replace

from kbqa.sparql.constraints import changed_constraints, changed_step
from kbqa.sparql.crp import Constraint, Crp, Order
from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.reading import CrpReading
from kbqa.sparql.text_line import Distinct, Language, LineReader, Statement

_MAX_LINES = 1000
_ONLY_ONCE = (Order, Distinct, Language)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that could be read, as far as that one line tells."""

    number: int
    reader: LineReader
    statement: Statement


def parse_crp(text: str) -> CrpReading:
    r"""Read a CRP in kbqa's own text form.

    A line is read as a whole or not at all. A label that nothing refers to is passed over.

    >>> reading = parse_crp("Kenya -> location.country.capital\n?x ~> type.object.name")
    >>> reading.crp.path
    (Hop(relation='location.country.capital', inverse=False),)
    >>> reading.problems
    ("line 2: expected an arrow or a test, found '~> type.object.name'",)

    Returns:
        The CRP, and one problem for each line that is not in it.

    Raises:
        CrpSyntaxError: The first line, which holds the main path, cannot be read; or the text is
            endless.
    """
    # Not splitlines(): names hold U+0085, from UTF-8 read as Latin-1.
    rows = [(n, row.strip()) for n, row in enumerate(text.split("\n"), 1) if row.strip()]
    if not rows:
        raise CrpSyntaxError("no main path")
    if len(rows) > _MAX_LINES:
        raise CrpSyntaxError(f"a CRP of {len(rows)} lines; {_MAX_LINES} are read")
    (number, first), *others = rows
    problems: dict[int, str] = {}
    main = LineReader(first, -1)
    try:
        topic, path = main.main_line()
    except ValueError as error:
        raise CrpSyntaxError(str(error), number) from None
    lines = _read_lines(others, len(path), problems)
    lines = _without_repetitions(lines, main.borne, problems)
    lines = _without_dangling(lines, problems)
    used = main.used.union(*(line.reader.used for line in lines))

    def labelled(constraint: Constraint) -> Constraint:
        return constraint if constraint.label in used else replace(constraint, label=None)

    statements = [line.statement for line in lines]
    constraints = tuple(s for s in statements if isinstance(s, Constraint))
    crp = Crp(
        topic,
        tuple(changed_step(step, labelled) for step in path),
        changed_constraints(constraints, labelled),
        next((s for s in statements if isinstance(s, Order)), None),
        next((s.node for s in statements if isinstance(s, Distinct)), 0),
        next((s.tag for s in statements if isinstance(s, Language)), "en"),
    )
    return CrpReading(crp, tuple(f"line {n}: {what}" for n, what in sorted(problems.items())))


def _read_lines(rows: list[tuple[int, str]], answer: int, problems: dict[int, str]) -> list[_Line]:
    lines = []
    for number, row in rows:
        reader = LineReader(row, answer)
        try:
            lines.append(_Line(number, reader, reader.statement()))
        except ValueError as error:
            problems[number] = str(error)
    return lines


def _without_repetitions(
    lines: list[_Line], borne: set[str], problems: dict[int, str]
) -> list[_Line]:
    """Keep the first line of those that bear the same label or say what is said but once."""
    kept: list[_Line] = []
    labels, said = set(borne), set[type]()
    for line in lines:
        kind = type(line.statement)
        if twice := labels & line.reader.borne:
            problems[line.number] = f"two branches bear the label ?{min(twice)}"
        elif kind in said:
            problems[line.number] = "this was said before, in another way"
        else:
            kept.append(line)
            labels |= line.reader.borne
            said |= {kind} & set(_ONLY_ONCE)
    return kept


def _without_dangling(lines: list[_Line], problems: dict[int, str]) -> list[_Line]:
    """Keep the lines that refer only to labels that other kept lines show."""
    while True:
        shown = {label for line in lines for label in line.reader.scope.labels}
        kept = []
        for line in lines:
            if dangling := line.reader.scope.references - shown:
                problems[line.number] = f"no node ?{min(dangling)} is to be seen here"
            else:
                kept.append(line)
        if len(kept) == len(lines):
            return kept
        lines = kept
