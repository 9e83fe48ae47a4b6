import pytest

from kbqa.engine.writing.crp_records import written_record, written_text

THEIRS = "Main Path:\n Jamaica -[location , country , capital]-> ?x"
OURS = "Jamaica -> location.country.capital"


@pytest.mark.parametrize(
    ("text", "crp"),
    [(THEIRS, OURS), (f"{THEIRS}\nand so on", OURS), ("nonsense", None), ("", None)],
    ids=["whole", "in part", "not at all", "empty"],
)
def test_a_text_is_kept_beside_what_can_be_read_of_it(text: str, crp: str | None) -> None:
    record = written_record(text)
    assert record == {"crp": crp, "routerkgqa": text}
    assert written_text(record) == text


@pytest.mark.parametrize(
    ("text", "theirs"),
    [(OURS, THEIRS), (f"{OURS}\n?x no -> people.person.gender", None)],
    ids=["both can say it", "more than theirs can say"],
)
def test_a_text_in_our_form_is_kept_as_it_is(text: str, theirs: str | None) -> None:
    assert written_record(text) == {"crp": text, "routerkgqa": theirs}


@pytest.mark.parametrize(
    "record", [{"crp": OURS}, {"crp": OURS, "routerkgqa": None}], ids=["absent", "not sayable"]
)
def test_our_form_serves_where_the_other_is_missing(record: dict[str, str | None]) -> None:
    assert written_text(record) == OURS


@pytest.mark.parametrize("record", [{}, {"crp": None, "routerkgqa": None}, {"crp": 7}])
def test_a_record_without_a_text_is_none(record: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="neither routerkgqa nor crp"):
        written_text(record)
