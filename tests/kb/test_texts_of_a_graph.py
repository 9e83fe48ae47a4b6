from collections.abc import Callable

import pytest

from kbqa.kb.graph import html_line, html_name, json_text, one_line, printable, prompt_line


@pytest.mark.parametrize(
    ("write", "text", "written"),
    [
        (printable, "Esc\x1b[2J\u202e\tand\r\nC1\x9b", "Esc�[2J�\tand\nC1�"),
        (one_line, "two\n lines\x00", "two lines�"),
        (json_text, "é\x9b\u202e", '"é\\u009b\\u202e"'),
        (prompt_line, "two\r\n lines\x00\u202e", "two lines"),
        (prompt_line, "x" * 1_000_000, "x" * 199 + "…"),
        (html_line, '<img src="x">', "&lt;img src=&quot;x&quot;&gt;"),
        (html_name, "Nairobi", "<bdi>Nairobi</bdi>"),
    ],
)
def test_a_text_of_the_graph_is_safe_to_show(
    write: Callable[[str], str], text: str, written: str
) -> None:
    assert write(text) == written
