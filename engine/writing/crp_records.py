"""CRPs as a model wrote them, in the JSON records of candidates."""

from collections.abc import Mapping

from kbqa.sparql.errors import CrpSyntaxError
from kbqa.sparql.forms import is_routerkgqa, read_crp, render_crp, render_routerkgqa


def written_record(text: str) -> dict[str, str | None]:
    """Make the record of a text that a model wrote.

    Returns:
        The text as it is, under ``routerkgqa``, or under ``crp`` if it is in our form. The other
        key holds the other form of what can be read of it, or None if that form cannot express it.
        A text that cannot be read at all is under ``routerkgqa``.
    """
    try:
        crp = read_crp(text).crp
    except CrpSyntaxError:
        return {"crp": None, "routerkgqa": text}
    if is_routerkgqa(text):
        return {"crp": render_crp(crp), "routerkgqa": text}
    return {"crp": text, "routerkgqa": render_routerkgqa(crp)}


def written_text(record: Mapping[str, object]) -> str:
    """Return the text of a CRP in a record: RouterKGQA's form, else ours.

    Most models write RouterKGQA's form, and reading the original again shows what could not be
    read.

    Raises:
        TypeError: The record holds no text.
    """
    for key in ("routerkgqa", "crp"):
        if isinstance(text := record.get(key), str):
            return text
    raise TypeError("neither routerkgqa nor crp is a text")
