"""The words of kbqa's own text form, which its reader and its writer must see alike.

What can be read without marks is written without them; everything else stands in brackets or
quotes, with backslash escapes.
"""

import re

# Blanks and digits are matched possessively throughout: no text takes more than linear time.
MID = re.compile(r"[mg]\.[0-9a-z_]++(?![\w.])")
PLAIN_ID = re.compile(r"[A-Za-z0-9_.]++")
FULL_IRI = re.compile(
    r"[A-Za-z][A-Za-z0-9+.\-]*+://[^\s<>\"{}|^`\\\x00-\x20\x7f-\x9f\ud800-\udfff]*+"
)
LANGUAGE_TAG = re.compile(r"[A-Za-z0-9]++(?:-[A-Za-z0-9]++)*+")
# What a name without brackets may hold inside of braces and parentheses, and on a line of its own.
# There, parentheses may be part of it, unless an id stands in them.
_NAME_PART = r"(?:[^\[\](){}<>|\\^\-]|-(?!>))"
SHORT_RAW_NAME = re.compile(_NAME_PART.replace("[^", "[^,") + "++")
RAW_NAME = re.compile(
    rf"{_NAME_PART}++(?:\((?!\s*+(?:[mg]\.|ns:)){_NAME_PART}*+\){_NAME_PART}*+)*+"
)
OR_NONE = re.compile(r"(?<!\s)(?:^|\s++)or\s++none\Z", re.IGNORECASE)

_PLAIN_VALUE = re.compile(
    r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?"  # a number
    r"|-?\d{4,}+(?:-\d\d(?:-\d\d(?:T[\d:.]++)?)?)?(?:Z|[-+]\d\d:\d\d)?",  # a date
    re.ASCII,
)
# Control characters, other ends of lines, and surrogates, which no file can hold.
_HIDDEN = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_PLAIN_NAME = re.compile(rf"\w[^\[\](){{}}<>|\\^{_HIDDEN}]*+")
_IN_BRACKETS = re.compile(rf"[{_HIDDEN}\\\]]")
_IN_QUOTES = re.compile(rf'[{_HIDDEN}\\"]')
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_ESCAPES = {character: f"\\{letter}" for letter, character in _ESCAPED.items()}


def is_plain_value(text: str) -> bool:
    """Tell whether a text is seen to be a number or date, so that it needs no quotes.

    >>> is_plain_value("2010-12-31"), is_plain_value("-1.5e3"), is_plain_value("Male")
    (True, True, False)
    """
    return _PLAIN_VALUE.fullmatch(text) is not None


def is_plain_name(text: str) -> bool:
    """Tell whether a name can be taken for nothing else, so that it needs no brackets.

    >>> is_plain_name("Washington, D.C."), is_plain_name("1984"), is_plain_name("Pi (film)")
    (True, False, False)
    """
    return (
        _PLAIN_NAME.fullmatch(text) is not None
        and text == text.rstrip()
        and not (is_plain_value(text) or MID.match(text) or text.startswith("ns:"))
        and OR_NONE.search(text) is None
    )


def bracketed(text: str) -> str:
    r"""Write any text in brackets.

    >>> print(bracketed("a [b]\n"))
    [a [b\]\n]
    """
    return f"[{_IN_BRACKETS.sub(_escape, text)}]"


def quoted(text: str) -> str:
    """Write any text in quotes."""
    return f'"{_IN_QUOTES.sub(_escape, text)}"'


def unescaped(text: str) -> str:
    """Read what stands between brackets or quotes."""
    return _ESCAPE.sub(_unescape, text)


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if character.isprintable():
        return f"\\{character}"
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


def _unescape(match: re.Match[str]) -> str:
    code, character = match.groups()
    if code is not None:
        return chr(int(code, 16))
    return _ESCAPED.get(character, character)
