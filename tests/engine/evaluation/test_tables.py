from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.evaluation.scores import Mean
from kbqa.engine.evaluation.tables import (
    WIDTH,
    MarkdownTable,
    Section,
    render_markdown,
    render_text,
)

MEAN = Mean(0.5, 0.25, 0.75, 10)
SECTIONS = [
    Section("Run a", facts=[("n", "5"), ("graph", "store")], depth=1),
    Section(
        "Scores",
        table=MarkdownTable(("tier", "F1"), [("all", MEAN), ("a|b", "–")]),
        notes=["A note."],
    ),
    Section("Why?", depth=3),
]


def test_text_reads_like_this() -> None:
    assert (
        render_text(SECTIONS)
        == """\
Run a
═════
n      5
graph  store

Scores
──────
tier                    F1
────  ────────────────────
all   0.500 [0.250, 0.750]
a|b                      –

A note.

Why?"""
    )


def test_markdown_reads_like_this() -> None:
    assert (
        render_markdown(SECTIONS)
        == r"""# Run a

- **n**: 5
- **graph**: store

## Scores

| tier | F1 |
|---|---:|
| all | 0.500 [0.250, 0.750] |
| a\|b | – |

A note.

### Why?"""
    )


def test_intervals_go_below_and_names_wrap_where_a_row_is_too_wide() -> None:
    header = ("tier", *("precision",) * 7)
    rows = [("independent + annotated, and more of the kind", *(MEAN,) * 7)]
    text = render_text([Section("x", table=MarkdownTable(header, rows))]).splitlines()[4:]
    assert text[0].startswith("independent  ")
    assert text[0].count("0.500") == 7
    assert text[1].count("0.250–0.750") == 7
    assert text[1].startswith("+ ")


def test_line_breaks_end_no_item_of_markdown() -> None:
    section = Section("why\n# not?", facts=[("error", "at line 1:\n\n# SELECT")])
    assert render_markdown([section]) == "## why # not?\n\n- **error**: at line 1: # SELECT"


words = st.text(st.characters(categories=["L", "N", "P", "Zs"]), max_size=30)


@given(st.lists(st.tuples(words, words), min_size=1, max_size=3), words)
def test_text_keeps_to_the_width(facts: list[tuple[str, str]], title: str) -> None:
    text = render_text([Section(f"title {title}", facts, notes=[title * 9])])
    assert all(len(line) <= WIDTH for line in text.splitlines())


@given(st.lists(st.lists(words, min_size=3, max_size=3), min_size=1, max_size=3))
def test_markdown_rows_have_as_many_cells_as_the_header(rows: list[list[str]]) -> None:
    lines = render_markdown([Section("x", table=MarkdownTable(("a", "b", "c"), rows))]).split("\n")[
        2:
    ]
    assert len(lines) == 2 + len(rows)
    assert all(line.replace(r"\\", "").replace(r"\|", "").count("|") == 4 for line in lines)
