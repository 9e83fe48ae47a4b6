"""Reduce a name to the key that it is found by, and list other keys that may mean the same."""

import re
import unicodedata
from typing import NamedTuple
from urllib.parse import unquote

_FOLDED = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"}
)
# Translates an ASCII text: its letters to lower case, its digits to themselves, the rest to blanks.
_ASCII_WORDS = bytes(c if chr(c).isalnum() else ord(" ") for c in range(128)).lower() + bytes(128)

_PERCENT_ENCODED = re.compile(r"%[0-9a-f]{2}", re.IGNORECASE)
_APOSTROPHE = re.compile(r" ?['’ʼ`´](?=s\b)|['’ʼ`´]")
_POSSESSIVE = re.compile(r" ?['’ʼ`´]s?$", re.IGNORECASE)
_ANY_APOSTROPHE = re.compile(r"['’ʼ`´]")
_NOT_A_WORD = re.compile(r"[\W_]+")
_INITIALS = re.compile(r"\b(?:[^\W\d_] )+[^\W\d_]\b")
_SAINT = re.compile(r"\bst (?=\w)")

_HISSING = ("s", "x", "z", "ch", "sh")
_VOWELS = "aeiou"
_SHORTEST_STEM = 3

_MARKS = "#*!@%"
_SYMBOLS = ("Sm", "Sc", "So")


class Readings(NamedTuple):
    """The keys that a text may mean."""

    key: str
    shorter: tuple[str, ...]  # without a possessive, or in the singular; the most likely first
    plural: str | None  # if it may have one

    @property
    def keys(self) -> tuple[str, ...]:
        """All of them."""
        return (self.key, *self.shorter, *([self.plural] if self.plural else []))


def decode_name(name: str) -> str:
    """Decode a name that was stored percent-encoded; others stay as they are.

    >>> decode_name("Shaquille O%27Neal"), decode_name("100% Wolf")
    ("Shaquille O'Neal", '100% Wolf')
    """
    return unquote(name) if _PERCENT_ENCODED.search(name) else name


def normalise(text: str) -> str:
    """Remove from a name its case, accents, punctuation and leading "the".

    Initials are joined, but not digits; ``&`` is read as "and", ``St.`` before a name as "Saint",
    and apostrophes are removed. Percent-encoded names are decoded. A name without any letter or
    digit is kept as it is.

    >>> normalise("The  Schindler's List"), normalise("J. R. R. Tolkien"), normalise("Beyoncé")
    ('schindlers list', 'jrr tolkien', 'beyonce')
    """
    folded = text.casefold()
    if "%" in folded and _PERCENT_ENCODED.search(folded):
        folded = unquote(folded).casefold()
    if not folded.isascii():
        decomposed = unicodedata.normalize("NFKD", folded).casefold()
        folded = "".join(c for c in decomposed if not unicodedata.combining(c))
        folded = folded.translate(_FOLDED)
    if "&" in folded:
        folded = folded.replace("&", " and ")
    is_ascii = folded.isascii()
    if not is_ascii or "'" in folded or "`" in folded:
        # Single spaces, because the expression would try each space of a long run.
        folded = _APOSTROPHE.sub("", " ".join(folded.split()))
    # Nearly all names are ASCII, and a table of bytes takes a quarter of the expression's time.
    if is_ascii:
        parts = folded.encode().translate(_ASCII_WORDS).decode().split()
    else:
        parts = _NOT_A_WORD.sub(" ", folded).split()
    words = " ".join(parts)
    if 1 in map(len, parts):
        words = _INITIALS.sub(lambda run: run.group().replace(" ", ""), words)
    if "st " in words:
        words = _SAINT.sub("saint ", words)
    if words := words.removeprefix("the "):
        return words
    # An index cannot hold NUL or lone surrogates, which JSON can contain.
    return " ".join(text.encode(errors="ignore").decode().replace("\0", " ").split())


def symbols(text: str) -> str:
    """Return the symbols of a name, which its key lacks: ``++`` of C++, ``#`` of C#.

    Punctuation is left out, because people write it in several ways.
    """
    text = unicodedata.normalize("NFKC", decode_name(text))
    return "".join(c for c in text if c in _MARKS or unicodedata.category(c) in _SYMBOLS)


def read_name(text: str) -> Readings:
    """Return the keys that a text may mean.

    A possessive is ``'s``, or the lone ``s`` that is left if apostrophes were removed. Singular and
    plural are those of the last word, by the endings "-s", "-es" and "-ies" without exceptions.

    >>> read_name("Kenya's").shorter, read_name("two galaxies").shorter
    (('kenya',), ('two galaxy', 'two galaxie'))
    """
    key = normalise(text)
    return Readings(key, _shorter(text, key), _plural(key))


def _shorter(text: str, key: str) -> tuple[str, ...]:
    if _ANY_APOSTROPHE.search(text):
        bare = normalise(_POSSESSIVE.sub("", " ".join(text.split())))
        if bare != key:
            return (bare,) if bare else ()
    if key.endswith(" s"):
        return (key[:-2],)
    if not key.endswith("s") or key.endswith("ss") or len(_last_word(key)) <= _SHORTEST_STEM:
        return ()
    if key.endswith("ies"):
        return (key[:-3] + "y", key[:-1])
    if key.endswith("es") and key[:-2].endswith(_HISSING):
        return (key[:-2], key[:-1])
    return (key[:-1],)


def _plural(key: str) -> str | None:
    last = _last_word(key)
    if len(last) < _SHORTEST_STEM or not last.isalpha():
        return None
    if last.endswith("y") and last[-2] not in _VOWELS:
        return key[:-1] + "ies"
    return key + ("es" if last.endswith(_HISSING) else "s")


def _last_word(key: str) -> str:
    return key[key.rfind(" ") + 1 :]
