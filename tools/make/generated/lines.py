"""Lines of a block, gathered column by column and written subject by subject.

Defects are those of Freebase's dumps; the comments number them as
tests/kb/loading/test_cleaning.py does.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

END = b"\t.\n"
_REPEATED = 0.0035


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a dump."""

    text: bytes
    lines: int
    defects: Counter[str]  # how many of them have a defect, by kind


class Lines:
    """The lines of some subjects, in any order at first."""

    def __init__(self, subjects: Sequence[bytes], predicates: Sequence[bytes]) -> None:
        self._subjects = subjects
        self._predicates = predicates
        self._of: list[Ints] = []
        self._relations: list[Ints] = []
        self._objects: list[bytes] = []

    def add(self, subjects: Ints, predicates: Ints | int, objects: Sequence[bytes]) -> None:
        """Add a line for each object; they end in `END` already."""
        self._of.append(subjects)
        self._relations.append(np.broadcast_to(predicates, subjects.shape))
        self._objects += objects

    def block(
        self, random: np.random.Generator, defect_rate: float, seed: str, limit: int | None
    ) -> Block:
        """Write the lines, at most `limit`, with a share of lines with defects.

        `random` decides the order of a subject's lines, and which are repeated; `seed` the defects.
        """
        count = len(self._objects)
        subjects, relations = np.concatenate(self._of), np.concatenate(self._relations)
        repeated = random.integers(0, count, int(count * _REPEATED + random.random()))
        bad = random.integers(0, count, int(count * defect_rate + random.random()))
        chosen = np.concatenate([np.arange(count), repeated, bad])
        order = np.argsort(subjects[chosen] + random.random(len(chosen)))[:limit]
        picked = chosen[order]
        subject_terms, predicate_terms, objects = self._subjects, self._predicates, self._objects
        lines = [
            subject_terms[subject] + predicate_terms[relation] + objects[line]
            for subject, relation, line in zip(
                subjects[picked].tolist(), relations[picked].tolist(), picked.tolist(), strict=True
            )
        ]
        kinds: Counter[str] = Counter()
        drawn = Random(seed)
        for place in np.flatnonzero(order >= count + len(repeated)).tolist():
            kind = drawn.choice(_KINDS)
            lines[place] = DEFECTS[kind].make(subject_terms[subjects[picked[place]]])
            kinds[kind] += 1
        return Block(b"".join(lines), len(lines), kinds)


Fate = Literal["legal", "repaired", "rejected", "skipped"]


class Defect(NamedTuple):
    """A kind of defect: what a loader ought to do with such a line, and its form.

    A ``legal`` line is odd, but valid N-Triples apart from its spacing; a ``skipped`` one states
    nothing. In the form, ``<S>`` is the subject's term and ``SUBJECT`` its id.
    """

    fate: Fate
    form: bytes

    def make(self, subject: bytes) -> bytes:
        """Make a line, with its end, for a subject's term."""
        id_ = subject[len(_NS) : -1]
        return self.form.replace(b"<S>", subject, 1).replace(b"SUBJECT", id_, 1)


_NS = b"<http://rdf.freebase.com/ns/"
_XSD = b"^^<http://www.w3.org/2001/XMLSchema#"
_GENDER = _NS + b"people.person.gender>"
_MALE = _NS + b"m.05zppz>"


def _with(predicate: bytes, value: bytes) -> bytes:
    return b"<S>\t" + _NS + predicate + b">\t" + value + b"\t.\n"


def _named(value: bytes) -> bytes:
    return _with(b"type.object.name", value)


def _paged(iri: bytes) -> bytes:
    return _with(b"common.topic.official_website", b"<" + iri + b">")


def _born(text: bytes, datatype: bytes) -> bytes:
    return _with(b"people.person.date_of_birth", b'"' + text + b'"' + _XSD + datatype + b">")


def _gendered(form: bytes) -> bytes:
    """Write the gender for ``<G>`` and male for ``<M>``."""
    return form.replace(b"<G>", _GENDER).replace(b"<M>", _MALE)


_legal, _repaired, _rejected, _skipped = (partial(Defect, fate) for fate in get_args(Fate))

DEFECTS = {
    # 2: separators and ends of line
    "spaces for tabs": _legal(_gendered(b"<S>    <G>   <M>    .\n")),
    "no final dot": _repaired(_gendered(b"<S>\t<G>\t<M>\n")),
    "dot glued to the object": _legal(_gendered(b"<S>\t<G>\t<M>.\n")),
    "carriage return": _legal(_gendered(b"<S>\t<G>\t<M>\t.\r\n")),
    "blank line": _skipped(b"\n"),
    "comment": _skipped(b"# a comment\n"),
    # 3: earlier formats
    "Turtle's prefixed names": _repaired(b"ns:SUBJECT\tns:people.person.gender\tns:m.05zppz.\n"),
    "namespace of :BaseKB": _legal(
        _gendered(_NS + b"SUBJECT>\t<G>\t<M>.\n").replace(b"freebase", b"basekb")
    ),
    "predicates joined over a mediator": _legal(
        _with(b"award.award_nominee.award_nominations..award.award_nomination.award_nominee", _MALE)
    ),
    "exploded key": _legal(
        b'<S>\t<http://rdf.freebase.com/key/key.wikipedia.en>\t"Sunday_VS_Magazine$003A_2"\t.\n'
    ),
    # 4, 10: predicates
    "id as a predicate": _legal(_with(b"m.0106fvn0", b'"12"')),
    "dollar in a predicate": _legal(_with(b"user.test.default_domain.price$0024", b'"12"')),
    "empty object": _rejected(_gendered(b"<S>\t<G>\t\t.\n")),
    # 5: numbers and truth values
    "bare number": _repaired(_with(b"people.person.height_meters", b"4.5")),
    "bare truth value": _repaired(_with(b"people.person.is_known", b"true")),
    "datatype as a prefixed name": _repaired(_with(b"sports.pro_athlete.number", b'"1"^^xsd:int')),
    # 6: dates
    "time of day as a dateTime": _legal(_born(b"T00:00", b"dateTime")),
    "year and month as a gYear": _legal(_born(b"-0410-09", b"gYear")),
    "year zero": _legal(_born(b"0000-08-27", b"date")),
    "year and month as a dateTime": _legal(_born(b"2001-06", b"dateTime")),
    "thirtieth of February": _legal(_born(b"1999-02-30", b"date")),
    # 7: escapes and encodings
    "escape \\x": _repaired(_named(rb'"Webov\xfd prohl\xed\u017ee\u010d"@en')),
    "escape that there is not": _rejected(_named(rb'"C\:\games"@en')),
    "escaped surrogate pair": _repaired(_named(rb'"Ace \uD83C\uDCA1"@en')),
    "escaped half of a surrogate pair": _rejected(_named(rb'"Ace \uD83C"@en')),
    "Latin-1": _rejected(_named('"Mine Güngör"@en'.encode("latin-1"))),
    # 8, 9: characters and lengths
    "control character": _legal(_named(b'"end\x1aof file"@en')),
    "literal of 70,000 bytes": _legal(
        _with(b"common.document.text", b'"' + b"word " * 14_000 + b'"@en')
    ),
    "character beyond the first plane": _legal(_named('"𝄞 Clef"@en'.encode())),
    # 11, 12, 13: IRIs
    "key escape in an IRI": _legal(_paged(b"http://www.ranker.com/review/arnold$002F493404")),
    "Latin-1 in percent signs": _legal(_paged(b"http://en.wikipedia.org/wiki/Mine_G%FCng%F6r")),
    "percent signs escaped twice": _legal(
        _paged(b"http://en.wikipedia.org/wiki/Round_%2526_Round")
    ),
    "two IRIs in one": _legal(_paged(b"http://www.michaelnugent.comhttp://twitter.com/micknugent")),
    "space in an IRI": _repaired(_paged(b"http://www.example.com/a page")),
    "braces in an IRI": _repaired(_paged(b"http://www.example.com/{id}|^`")),
    "broken percent sign": _legal(_paged(b"http://www.example.com/100%")),
    "backslash in an IRI": _repaired(_paged(rb"http://www.example.com\index")),
    # 18, 19: missing values, and tags
    "no value": _legal(_with(b"freebase.valuenotation.has_no_value", _MALE)),
    "underscore in a language tag": _repaired(_named('"山水"@zh_TW'.encode())),
    # Not seen in a dump, but in files derived from one
    "literal as the subject": _rejected(_gendered(b'"a"\t<G>\t<M>\t.\n')),
    "two terms": _rejected(_gendered(b"<S>\t<G>\t.\n")),
    "four terms": _rejected(_gendered(b"<S>\t<G>\t<M>\t<M>\t.\n")),
    "unclosed literal": _rejected(_named(b'"Jaxon')),
    "cut line": _rejected(b"<S>\t<http://rdf.free\n"),
}
"""Every kind, by name."""

_KINDS = tuple(DEFECTS)
