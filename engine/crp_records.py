"""CRPs as a model wrote them, in the JSON records of candidates."""

from collections.abc import Mapping

from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.text import read_crp, render_crp


def written_record(text: str) -> dict[str, str | None]:
    """Make the record of a text that a model wrote.

    Returns:
        ``routerkgqa``, the text as it is, since that is the form in which models write; and
        ``crp``, our form of what can be read of it, None where nothing can.
    """
    try:
        return {"crp": render_crp(read_crp(text).crp), "routerkgqa": text}
    except CrpSyntaxError:
        return {"crp": None, "routerkgqa": text}


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
