"""Reduce a name to the key that it is found by, and say which other keys may mean the same.

Pure text: who bears a key is for `kbqa.kb.names`.
"""

import re
import unicodedata
from urllib.parse import unquote

_FOLDED = str.maketrans(
    {
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "æ": "ae",
        "œ": "oe",
        "ı": "i",
    }
)
_ASCII_WORDS = bytes(c if chr(c).isalnum() else ord(" ") for c in range(128)).lower() + bytes(128)
"""Translation of an ASCII text: its letters in lower case and its digits, blanks for the rest."""

_PERCENT_ENCODED = re.compile(r"%[0-9a-f]{2}")
_APOSTROPHE = re.compile(r" ?['’ʼ`´](?=s\b)|['’ʼ`´]")
_POSSESSIVE = re.compile(r" ?['’ʼ`´]s?$", re.IGNORECASE)
_NOT_A_WORD = re.compile(r"[\W_]+")
_INITIALS = re.compile(r"\b(?:\w )+\w\b")
_SAINT = re.compile(r"\bst (?=\w)")

_HISSING = ("s", "x", "z", "ch", "sh")
_VOWELS = "aeiou"
_SHORTEST_STEM = 3


def normalise(text: str) -> str:
    """Reduce a name to what decides equality: no case, accents, punctuation or leading "the".

    Initials are joined, ``&`` is read as "and", ``St.`` before a name as "Saint", and an apostrophe
    vanishes. What was stored percent-encoded is decoded. A name without any letter or digit stands
    for itself.

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
        # Single blanks, as the expression would try each of a long run.
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
    # Lone surrogates, which JSON can say, and NUL are no text that an index can hold.
    return " ".join(text.encode(errors="ignore").decode().replace("\0", " ").split())


def shorter_keys(text: str) -> list[str]:
    """List the keys of a text without its possessive, or in the singular, the likeliest first.

    A possessive is ``'s``, or the lone ``s`` that is left of it where apostrophes were taken out.
    The singular is that of the last word, by a rule that knows "-s", "-es" and "-ies" and no
    exceptions.

    >>> shorter_keys("Kenya's"), shorter_keys("michener s"), shorter_keys("two galaxies")
    (['kenya'], ['michener'], ['two galaxy', 'two galaxie'])
    """
    key = normalise(text)
    bare = normalise(_POSSESSIVE.sub("", " ".join(text.split())))
    if bare != key:
        return [bare] if bare else []
    if key.endswith(" s"):
        return [key[:-2]]
    if not key.endswith("s") or key.endswith("ss") or len(_last_word(key)) <= _SHORTEST_STEM:
        return []
    forms = [key[:-1]]
    if key.endswith("ies"):
        forms.insert(0, key[:-3] + "y")
    elif key.endswith("es") and key[:-2].endswith(_HISSING):
        forms.insert(0, key[:-2])
    return forms


def plural_keys(text: str) -> list[str]:
    """List the key of a text with its last word in the plural, where it may have one.

    >>> plural_keys("Frisian language"), plural_keys("galaxy"), plural_keys("1984")
    (['frisian languages'], ['galaxies'], [])
    """
    key = normalise(text)
    last = _last_word(key)
    if len(last) < _SHORTEST_STEM or not last.isalpha():
        return []
    if last.endswith("y") and last[-2] not in _VOWELS:
        return [key[:-1] + "ies"]
    return [key + ("es" if last.endswith(_HISSING) else "s")]


def _last_word(key: str) -> str:
    return key[key.rfind(" ") + 1 :]
