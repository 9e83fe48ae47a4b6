r"""Lines with the defects that are known of Freebase's dumps, one maker for each kind.

Sources stand in notes/freebase-dump.md, whose numbers the kinds' comments give.
"""

from collections.abc import Callable
from random import Random

_NS = b"<http://rdf.freebase.com/ns/"
_XSD = b"^^<http://www.w3.org/2001/XMLSchema#"


def _with(predicate: bytes, value: bytes) -> Callable[[bytes], bytes]:
    return lambda subject: subject + b"\t" + _NS + predicate + b">\t" + value + b"\t.\n"


def _named(value: bytes) -> Callable[[bytes], bytes]:
    return _with(b"type.object.name", value)


def _paged(iri: bytes) -> Callable[[bytes], bytes]:
    return _with(b"common.topic.official_website", b"<" + iri + b">")


def _line(form: bytes) -> Callable[[bytes], bytes]:
    """Make lines of a form in which ``S`` stands for the subject's id without brackets."""
    return lambda subject: form.replace(b"S", subject[1:-1], 1)


_BORN = b"people.person.date_of_birth"
_GENDER = _NS + b"people.person.gender>"
_MALE = _NS + b"m.05zppz>"

DEFECTS: dict[str, Callable[[bytes], bytes]] = {
    # 2: separators and ends of line
    "spaces for tabs": _line(b"<S>    " + _GENDER + b"   " + _MALE + b"    .\n"),
    "no final dot": _line(b"<S>\t" + _GENDER + b"\t" + _MALE + b"\n"),
    "dot glued to the object": _line(b"<S>\t" + _GENDER + b"\t" + _MALE + b".\n"),
    "carriage return": _line(b"<S>\t" + _GENDER + b"\t" + _MALE + b"\t.\r\n"),
    "blank line": lambda _: b"\n",
    "comment": lambda _: b"# a comment\n",
    # 3: earlier formats
    "Turtle's prefixed names": lambda subject: (
        b"ns:" + subject[len(_NS) : -1] + b"\tns:people.person.gender\tns:m.05zppz.\n"
    ),
    "namespace of :BaseKB": lambda subject: (
        subject.replace(b"rdf.freebase", b"rdf.basekb")
        + b"\t<http://rdf.basekb.com/ns/people.person.gender>\t<http://rdf.basekb.com/ns/m.05zppz>.\n"
    ),
    "predicates joined over a mediator": _with(
        b"award.award_nominee.award_nominations..award.award_nomination.award_nominee", _MALE
    ),
    "exploded key": _line(
        b'<S>\t<http://rdf.freebase.com/key/key.wikipedia.en>\t"Sunday_VS_Magazine$003A_2"\t.\n'
    ),
    # 4, 10: predicates
    "id as a predicate": _with(b"m.0106fvn0", b'"12"'),
    "dollar in a predicate": _with(b"user.test.default_domain.price$0024", b'"12"'),
    "empty object": _line(b"<S>\t" + _GENDER + b"\t\t.\n"),
    # 5: numbers and truth values
    "bare number": _with(b"people.person.height_meters", b"4.5"),
    "bare truth value": _with(b"people.person.is_known", b"true"),
    "datatype as a prefixed name": _with(b"sports.pro_athlete.number", b'"1"^^xsd:int'),
    # 6: dates
    "time of day as a dateTime": _with(_BORN, b'"T00:00"' + _XSD + b"dateTime>"),
    "year and month as a gYear": _with(_BORN, b'"-0410-09"' + _XSD + b"gYear>"),
    "year zero": _with(_BORN, b'"0000-08-27"' + _XSD + b"date>"),
    "year and month as a dateTime": _with(_BORN, b'"2001-06"' + _XSD + b"dateTime>"),
    "thirtieth of February": _with(_BORN, b'"1999-02-30"' + _XSD + b"date>"),
    # 7: escapes and encodings
    "escape \\x": _named(rb'"Webov\xfd prohl\xed\u017ee\u010d"@en'),
    "escape that there is not": _named(rb'"C\:\games"@en'),
    "escaped surrogate pair": _named(rb'"Ace \uD83C\uDCA1"@en'),
    "escaped half of a surrogate pair": _named(rb'"Ace \uD83C"@en'),
    "Latin-1": _named('"Mine Güngör"@en'.encode("latin-1")),
    # 8, 9: characters and lengths
    "control character": _named(b'"end\x1aof file"@en'),
    "literal of 70,000 bytes": _with(b"common.document.text", b'"' + b"word " * 14_000 + b'"@en'),
    "character beyond the first plane": _named('"𝄞 Clef"@en'.encode()),
    # 11, 12, 13: IRIs
    "key escape in an IRI": _paged(b"http://www.ranker.com/review/arnold$002F493404"),
    "Latin-1 in percent signs": _paged(b"http://en.wikipedia.org/wiki/Mine_G%FCng%F6r"),
    "percent signs escaped twice": _paged(b"http://en.wikipedia.org/wiki/Round_%2526_Round"),
    "two IRIs in one": _paged(b"http://www.michaelnugent.comhttp://twitter.com/micknugent"),
    "space in an IRI": _paged(b"http://www.example.com/a page"),
    "braces in an IRI": _paged(b"http://www.example.com/{id}|^`"),
    "broken percent sign": _paged(b"http://www.example.com/100%"),
    "backslash in an IRI": _paged(rb"http://www.example.com\index"),
    # 18, 19: what stands for no value, and tags
    "no value": _line(
        b"<S>\t" + _NS + b"freebase.valuenotation.has_no_value>\t" + _MALE + b"\t.\n"
    ),
    "underscore in a language tag": _named('"山水"@zh_TW'.encode()),
    # Not seen in a dump, but met in files made of one
    "literal as the subject": lambda _: b'"a"\t' + _GENDER + b"\t" + _MALE + b"\t.\n",
    "two terms": _line(b"<S>\t" + _GENDER + b"\t.\n"),
    "four terms": _line(b"<S>\t" + _GENDER + b"\t" + _MALE + b"\t" + _MALE + b"\t.\n"),
    "unclosed literal": _named(b'"Jaxon'),
    "cut line": lambda subject: subject + b"\t<http://rdf.free\n",
}
"""Makes, for a subject's term, one line with a defect."""

_KINDS = tuple(DEFECTS)


class DefectMaker:
    """Makes a random defect for each subject it is called with."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def __call__(self, subject: bytes) -> tuple[str, bytes]:
        """Return the kind and the line."""
        kind = self._random.choice(_KINDS)
        return kind, DEFECTS[kind](subject)
