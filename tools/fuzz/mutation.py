"""Damage texts, bytes and JSON by chance, and cut files."""

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any

HOSTILE = (
    *("", " ", "\n", "\0", "\t", "\\", '"', "'", "[", "]", "{", "}", "(", ")", "<", ">", "|", "@"),
    *("->", "<-", "?x", "?0", "?99999999999", "_:b", "^^", "=", "!=", "m.0a", "ns:", "%zz", "#"),
    *("\u2028", "\x85", "\u202e", "İ", "ß", "ﬁ", "é" * 3, "\U0001f600", "\ufeff", "\ufffe"),
    *("NaN", "1e999", "-1", "0", "9" * 400, "null", "true", "1980", "-0044-03-15", "2010-02-31"),
    *("a" * 3000, "((((" * 300, "{" * 2000, "[" * 2000, "OPTIONAL {", "SERVICE", "LIMIT -1"),
)
"""Pieces of text with which readers have trouble."""

_ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e300, 10**30, "", "x", "m.0a", "\0", "\udc80", "9" * 400),
    *([], {}, [None], [[]], {"": None}, {"schema_version": 99}, [1, "a", None], "a" * 3000),
)
"""Values that a JSON file seldom has where another is expected."""

_EVERY_BYTE = 64 * 1024
_PLACES = 1000


def mutated_text(random: Random, texts: Sequence[str]) -> str:
    """Take one of some texts and change it, up to four times."""
    text = random.choice(texts)
    for _ in range(random.randint(0, 4)):
        start = random.randint(0, len(text))
        end = min(len(text), start + random.choice((0, 0, 1, 1, 3, 10, 100)))
        match random.randrange(5):
            case 0:
                piece = random.choice(HOSTILE)
            case 1:
                piece = chr(random.choice((random.randrange(128), random.randrange(0xD800))))
            case 2:
                piece = text[start:end] * 2
            case 3:
                other = random.choice(texts)
                begin = random.randint(0, len(other))
                piece = other[begin : begin + random.randint(0, 60)]
            case _:
                piece = ""
        text = text[:start] + piece + text[end:]
    return text


def mutated_bytes(random: Random, content: bytes) -> bytes:
    """Change a few bytes, most often single bits."""
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(len(changed)) if changed else 0
        match random.randrange(5):
            case 0 | 1:
                if changed:
                    changed[at] ^= 1 << random.randrange(8)
            case 2:
                changed[at : at + random.choice((1, 4, 100))] = b""
            case 3:
                changed[at:at] = random.choice(HOSTILE).encode("utf-8", "surrogatepass")
            case _:
                changed[at : at + 4] = random.randbytes(4)
    return bytes(changed)


def mutated_json(random: Random, value: Any) -> Any:
    """Put an odd value in place of a part of a JSON value, or take the part out."""
    value = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 2))):
        holders = list(_holders(value))
        if not holders:
            return random.choice(_ODD_VALUES)
        holder = random.choice(holders)
        key = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        match random.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[random.choice(("x", "", "schema_version"))] = random.choice(_ODD_VALUES)
            case _:
                holder[key] = copy.deepcopy(random.choice(_ODD_VALUES))
    return value


def mutated_json_text(random: Random, text: str) -> bytes:
    """Put odd values into a JSON text, or into one line of JSON Lines; damage any other text."""
    try:
        changed = json.dumps(mutated_json(random, json.loads(text)), indent=1)
    except ValueError:
        lines = text.splitlines()
        at = random.randrange(len(lines)) if lines else 0
        try:
            lines[at] = json.dumps(mutated_json(random, json.loads(lines[at])))
        except (ValueError, IndexError):
            return mutated_bytes(random, text.encode("utf-8", "surrogatepass"))
        changed = "\n".join(lines) + "\n"
    return changed.encode("utf-8", "surrogatepass")


def cuts(size_bytes: int) -> Sequence[int]:
    """List where a file is cut: at each byte up to 64 kB, and at a thousand places above."""
    if size_bytes <= _EVERY_BYTE:
        return range(size_bytes)
    above = size_bytes - _EVERY_BYTE
    step = max(1, above // _PLACES)
    return [*range(_EVERY_BYTE), *range(_EVERY_BYTE, size_bytes, step)]


def _holders(value: Any) -> "list[Any]":
    """List the objects and arrays of a JSON value that hold something."""
    found = []
    rest = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, dict | list) and each:
            found.append(each)
            rest += each.values() if isinstance(each, dict) else each
    return found
