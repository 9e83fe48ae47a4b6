"""CRPs as a model wrote them, in the JSON records of candidates."""

from collections.abc import Mapping

from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.routerkgqa import render_routerkgqa
from kbqa.sparql.text import is_routerkgqa, read_crp, render_crp


def written_record(text: str) -> dict[str, str | None]:
    """Make the record of a text that a model wrote.

    Returns:
        The text as it is, under ``routerkgqa``, or under ``crp`` where it is in our form, and
        beside it the other form of what can be read of it: None where that cannot say it. A text of
        which nothing can be read stands under ``routerkgqa``.
    """
    try:
        crp = read_crp(text).crp
    except CrpSyntaxError:
        return {"crp": None, "routerkgqa": text}
    if is_routerkgqa(text):
        return {"crp": render_crp(crp), "routerkgqa": text}
    return {"crp": text, "routerkgqa": render_routerkgqa(crp)}


def written_text(record: Mapping[str, object]) -> str:
    """Find the text of a CRP in a record: what a model wrote, else our form.

    What was written goes first, because reading it tells what could not be read.

    Raises:
        TypeError: The record holds no text.
    """
    for key in ("routerkgqa", "crp"):
        if isinstance(text := record.get(key), str):
            return text
    raise TypeError("neither routerkgqa nor crp is a text")
