"""The grammar in EBNF against texts: by lark, and, where vLLM is installed, by what vLLM reads."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import LarkError
from test_grammar import EXTENDED, EXTENDED_WRONG, TEXTS, WRONG, is_whole, relations_in

from kbqa.engine.writing.ebnf import write_ebnf

Accepts = Callable[[str], bool]

# Which variables are known is beyond a context-free grammar.
BEYOND = {"unknown variable"}
RELATIONS = ["location.country.capital", "a.b", "a.b_c", "c_d.e", "c.d", "e.f", "e.g"]
_VARIABLE = re.compile(r"\?\w+")
_NOTATION = re.compile(
    r'(?P<literal>"(?:[^"\\]|\\.)*")|(?P<class>\[(?:[^\]\\]|\\.)+\])'
    r"|\{(?P<least>\d+),(?P<most>\d+)\}|::="
)


def _by_lark(ebnf: str) -> Accepts:
    """Translate into lark's form of the same notation, and let it read."""

    def translated(part: re.Match[str]) -> str:
        if part["class"]:
            return f"/{part['class']}/"
        if part["least"]:
            return f"~{part['least']}..{part['most']}"
        return part["literal"] or ":"

    parser = Lark(_NOTATION.sub(translated, ebnf), start="root")

    def accepts(text: str) -> bool:
        try:
            parser.parse(text)
        except LarkError:
            return False
        return True

    return accepts


def _by_xgrammar(ebnf: str) -> Accepts:
    """Let vLLM's own library read."""
    import xgrammar

    compiled = xgrammar.GrammarCompiler(
        xgrammar.TokenizerInfo([b"\xff", b"</s>"], stop_token_ids=[1])
    ).compile_grammar(ebnf)

    def accepts(text: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiled)
        return matcher.accept_string(text) and matcher.accept_token(1)

    return accepts


@pytest.fixture(
    scope="module",
    params=[_by_lark, pytest.param(_by_xgrammar, marks=pytest.mark.vllm)],
    ids=["lark", "xgrammar"],
)
def reader(request: pytest.FixtureRequest) -> Callable[[str], Accepts]:
    return request.param


@pytest.fixture(scope="module")
def accepts(reader) -> Accepts:
    return reader(write_ebnf(RELATIONS))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_can_be_said_may_be_written(accepts: Accepts, text: str) -> None:
    assert accepts(text)


WITHIN = {name: text for name, text in WRONG.items() if name not in BEYOND}


@pytest.mark.parametrize("text", WITHIN.values(), ids=WITHIN)
def test_what_is_no_path_may_not(accepts: Accepts, text: str) -> None:
    assert not accepts(text)


@pytest.fixture(scope="module")
def accepts_extended(reader) -> Accepts:
    return reader(write_ebnf([*RELATIONS, "type.object.type"], is_extended=True))


@pytest.mark.parametrize("text", [*TEXTS.values(), *EXTENDED.values()], ids=[*TEXTS, *EXTENDED])
def test_what_the_extended_form_says_may_be_written(accepts_extended: Accepts, text: str) -> None:
    assert accepts_extended(text)


# A context-free grammar knows neither which variables there are nor whether an order came before.
BEYOND_EXTENDED = (
    "order of an unknown node",
    "a count of what is ordered",
    "ties without an order",
)
WITHIN_EXTENDED = {
    name: text for name, text in EXTENDED_WRONG.items() if name not in BEYOND_EXTENDED
}


@pytest.mark.parametrize("text", WITHIN_EXTENDED.values(), ids=WITHIN_EXTENDED)
def test_what_is_no_path_in_the_extended_form_may_not(accepts_extended: Accepts, text: str) -> None:
    assert not accepts_extended(text)


@pytest.mark.parametrize("text", EXTENDED.values(), ids=EXTENDED)
def test_routerkgqas_form_does_not_say_it(accepts: Accepts, text: str) -> None:
    assert not accepts(text)


def _knows_its_variables(text: str) -> bool:
    """Tell whether variables are new where a line ends in them, and not new elsewhere."""
    known: set[str] = set()
    for line in text.split("\n"):
        before, _, end = line.partition("]->")
        if not known.issuperset(_VARIABLE.findall(before)) or end[1:] in known:
            return False
        known.update(_VARIABLE.findall(end))
    return True


@given(st.data())
def test_the_language_is_that_of_the_stepwise_grammar(
    accepts: Accepts, data: st.DataObject
) -> None:
    """Cut and join the texts at random: what the two say differs by unknown variables alone."""
    lines = sorted({line for text in TEXTS.values() for line in text.split("\n")[1:]})
    count = data.draw(st.integers(1, 6))
    text = "\n".join(["Main Path:", *(data.draw(st.sampled_from(lines)) for _ in range(count))])
    assert is_whole(text) == (accepts(text) and _knows_its_variables(text))


@pytest.mark.parametrize("name", ["a-[b", "a -b", "-", "a - [b", "a\xa0b", "?"], ids=repr)
def test_names_are_alike(accepts: Accepts, name: str) -> None:
    text = f"Main Path:\n {name} -[a , b]-> ?x"
    assert accepts(text) == is_whole(text)


def test_other_relations_are_not_written(reader) -> None:
    accepts = reader(write_ebnf(RELATIONS))
    main, line = "Main Path:\n K -[{}]-> ?x", "\nEntity Restrictions:\n ?x -[{}]-> E"
    assert accepts(main.format("R[a , b c]"))
    assert not accepts(main.format("R[a , c]"))
    assert accepts(main.format("a , b") + line.format("a , b c"))
    assert not accepts(main.format("a , b") + line.format("a , c"))
    assert not accepts(main.format("a , b") + line.format("R[a , b]"))


def test_published_paths_may_be_written(reader, shared: Path) -> None:
    with gzip.open(shared / "data/qa/webqsp.test-half.jsonl.gz", "rt", encoding="utf-8") as rows:
        texts = [json.loads(row).get("crp_routerkgqa") or "" for row in rows]
    some = [text for text in texts if is_whole(text)][::20]  # lark takes its time
    assert len(some) > 30
    accepts = reader(write_ebnf(sorted({one for text in some for one in relations_in(text)})))
    assert [text for text in some if not accepts(text)] == []
