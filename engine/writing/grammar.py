"""The grammar of RouterKGQA's text form of a CRP and of its extension, piece by piece.

For any text that can still become a CRP, it gives the ways to continue: one of several texts, or
free text of some form, such as a name. It knows nothing of tokens. Its pieces begin with a blank or
a line break, because there every tokenizer begins a new token.

`KnownRelations` lets paths go anywhere, `PathWalk` only where the graph leads from the nodes that a
path has reached. That is looked up when a model has written the path.

Source: RouterKGQA §3.1 and the published data; the grammar covers all but 29 of its 8,220 texts.
Following the graph while writing is ours: RouterKGQA verifies a path afterwards (§3.2).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kbqa.engine.graph_walk import PathEnds
from kbqa.kb.graph import Graph
from kbqa.kb.names import decode_name
from kbqa.sparql.crp import Entity, Hop
from kbqa.sparql.forms import relation_id, relation_text
from kbqa.sparql.terms import LiteralTerm, Term, is_well_formed

MAX_HOPS = 6  # of a main path; the published ones have five at most

# Relations for names and types: in 4 of the 6,617 main paths of webqsp.train and cwq.dev, and at
# nearly every node.
_DESCRIBES = "type."

_AT_ONCE = 20  # nodes that are followed together; mostly the first of them leads to an answer

_TITLE = "Main Path:"
_HEADERS = (
    "\nEntity Restrictions:",
    "\nNumeric Restrictions:",
    "\nString Restrictions:",
    "\nFurther Restrictions:",  # in the extended form only
)
_ENTITY, _NUMERIC, _STRING, _FURTHER = range(4)
ANSWER, _PIVOT = "?x", "?c"
INNER = (_PIVOT, "?y", "?k", "?z", "?y2", "?k2", "?y3", "?k3")  # nodes before the answer
MAX_LIMIT = 20
_MAX_FREE = 200  # characters of a name or a filter

_ARROW = re.compile(
    r" -\[(?P<inverse>R\[)?(?P<relation>\w+(?: \w+)*(?: , \w+(?: \w+)*)+)\](?(1)\])->"
)
_VARIABLE = re.compile(r" \?[a-z]+\d*")
_FILTER_START = "\n  FILTER ("
_OPERATOR = r"(?:<=|>=|<|>|=)"
_NUMERIC_FILTER = re.compile(
    rf"\n  FILTER \((?:(?P<plain>\?\w+) {_OPERATOR} \"[-+0-9.:TZ]+\""
    rf"|xsd:integer\((?P<cast>\?\w+)\) {_OPERATOR} [0-9]+)\)"
)
_TEST = re.compile(
    r"\n  (?P<variable>\?\w+) (?:!?= [^?\s][^\n]*|(?:<=|>=|!=|<|>|=) (?P<other>\?\w+))"
)
_TEST_START = re.compile(r"\n(?: (?: (?:\?(?:\w+(?: (?:[<>!]?=?(?: [^\n]*)?)?)?)?)?)?)?")
_STRING_FILTER = re.compile(
    r"\n  FILTER \((?:str\((?P<cast>\?\w+)\)|(?P<plain>\?\w+)) = \"[^\n]+\"\)"
)


class TextSet:
    """Texts of which one may follow. A set equals only itself, so work on it can be cached."""

    __slots__ = ("__weakref__", "ends_line", "texts")

    def __init__(self, texts: Sequence[str], *, ends_line: bool = False) -> None:
        self.texts = texts
        self.ends_line = ends_line  # a line break follows each of them


def arrow(hop: Hop) -> str:
    """Write a hop as it appears between two nodes.

    >>> arrow(Hop("film.actor.film", inverse=True))
    ' -[R[film , actor , film]]->'
    """
    text = relation_text(hop.relation)
    return f" -[R[{text}]]->" if hop.inverse else f" -[{text}]->"


def is_sayable(relation: str) -> bool:
    """Return whether a relation can be written in words and read again.

    >>> is_sayable("film.actor.film"), is_sayable("http://example.org/p.q")
    (True, False)
    """
    text = arrow(Hop(relation))
    is_read = _ARROW.fullmatch(text) is not None and _read_arrow(text).relation == relation
    return is_read and is_well_formed(relation)


def topic_line(name: str) -> str:
    """Write the name of the topic, as it begins the main path's first line."""
    return f"\n {name}"


_MEMBERS = TextSet([arrow(Hop("type.object.type", inverse=True))])


class KnownRelations:
    """Paths may take any relation of a graph that can be written in words, and start anywhere."""

    topics: Sequence[TextSet] | None = None  # starts of main paths, as lines; None for any
    others: TextSet | None = None  # starts of triples outside the main path; None for any

    def __init__(self, relations: Iterable[str], *, is_extended: bool = False) -> None:
        self.is_extended = is_extended
        sayable = list(filter(is_sayable, relations))
        forward = TextSet([arrow(Hop(relation)) for relation in sayable])
        self._both = TextSet(
            [arrow(Hop(relation, inverse)) for relation in sayable for inverse in (False, True)]
        )
        self.restrictions = self._both if is_extended else forward  # arrows of constraints
        # In the extended form, the classes that relations belong to may be topics.
        domains = sorted({relation.rpartition(".")[0] for relation in sayable})
        self.classes = TextSet([topic_line(relation_text(one)) for one in domains if "." in one])

    def hops(self, topic: str, path: tuple[Hop, ...]) -> TextSet:
        """Return the arrows that may continue a path from a topic, given by its name."""
        return self._both

    def may_end(self, topic: str, path: tuple[Hop, ...], pivot: int) -> bool:
        """Return whether a main path may end, at the answers.

        The node after `pivot` hops is no answer: ``?c``, or else the topic.
        """
        return True

    def may_go_on(self, topic: str, path: tuple[Hop, ...]) -> bool:
        """Return whether a main path may have another hop."""
        return True


class PathWalk:
    """The main paths of one question may go where the graph leads from its topics.

    A path through a hub may be missed if few of the hub's many nodes have the next relation. No
    path follows names or types. In the extended form, a path may start from a class; it goes to the
    members, and is not walked.
    """

    def __init__(self, graph: Graph, topics: Sequence[Entity], known: KnownRelations) -> None:
        self._ends, self._known = PathEnds(graph), known
        self.is_extended, self.restrictions = known.is_extended, known.restrictions
        self._starts = _mids_by_name(topics)
        hops = self._ends.hops_of_each([mid for mids in self._starts.values() for mid in mids])
        self._hops: dict[tuple[str, tuple[Hop, ...]], TextSet] = {
            (name, ()): _arrows(hop for mid in mids for hop in hops[mid])
            for name, mids in self._starts.items()
        }
        self.others = TextSet(
            [topic_line(name) for name in self._starts if self.hops(name, ()).texts]
        )
        self.topics = (self.others, known.classes) if self.is_extended else (self.others,)

    @property
    def has_topics(self) -> bool:
        """Whether a path can start from any topic, and its name can be written."""
        return bool(self.others.texts)

    def hops(self, topic: str, path: tuple[Hop, ...]) -> TextSet:
        """Return the arrows of the nodes at a path's end."""
        if topic not in self._starts:
            return self._known.hops(topic, path) if path else _MEMBERS
        key = (topic, path)
        if key not in self._hops:
            self._hops[key] = _arrows(self._ends.hops(self._starts[topic], path))
        return self._hops[key]

    def may_end(self, topic: str, path: tuple[Hop, ...], pivot: int) -> bool:
        """Return whether the path leads to anything that may be an answer."""
        if topic not in self._starts:
            return True
        return self._leads_to_answer(self._entities(topic, path[:pivot]), path[pivot:])

    def may_go_on(self, topic: str, path: tuple[Hop, ...]) -> bool:
        """Return whether the path leads to an entity."""
        return topic not in self._starts or bool(self._entities(topic, path))

    def mids(self, topic: str, path: tuple[Hop, ...], pivot: int) -> tuple[str, ...]:
        """Return the topics of a name from which a finished path leads to an answer."""
        starts = self._starts.get(topic, ())
        if len(starts) < 2:
            return tuple(starts)  # it was walked, so it leads there
        self._ends.fetch_each(starts, path[:pivot] or path)
        return tuple(
            mid
            for mid in starts
            if self._leads_to_answer(self._ends.nodes([mid], path[:pivot]), path[pivot:])
        )

    def _leads_to_answer(self, nodes: Sequence[str], path: tuple[Hop, ...]) -> bool:
        for at in range(0, len(nodes), _AT_ONCE):
            some = nodes[at : at + _AT_ONCE]
            self._ends.fetch_each(some, path)
            ends = ((node, end) for node in some for end in self._ends.terms([node], path))
            if any(end != node and _may_answer(end) for node, end in ends):
                return True
        return False

    def _entities(self, topic: str, path: tuple[Hop, ...]) -> list[str]:
        return self._ends.nodes(self._starts[topic], path)


Steps: TypeAlias = KnownRelations | PathWalk
"""Where the paths of a question may lead."""


def _may_answer(end: Term) -> bool:
    """Return whether queries keep a node; they drop texts in other languages than English."""
    language = end.language if isinstance(end, LiteralTerm) else None
    return language is None or language.lower().split("-")[0] == "en"


def _arrows(hops: Iterable[Hop]) -> TextSet:
    telling = (hop for hop in hops if not hop.relation.startswith(_DESCRIBES))
    return TextSet(sorted({arrow(hop) for hop in telling if is_sayable(hop.relation)}))


def _mids_by_name(topics: Sequence[Entity]) -> Mapping[str, list[str]]:
    starts: dict[str, list[str]] = {}
    for topic in topics:
        name = decode_name(topic.name or "")
        is_writable = name == name.strip() != "" and "\n" not in name and "-[" not in name
        if topic.mid is not None and is_writable and name[0] != "?":
            starts.setdefault(name, []).append(topic.mid)
    return starts


class OneOf(NamedTuple):
    """One of several texts may follow, and then the options that `then` returns for it."""

    texts: TextSet
    then: Callable[[str], "Options"]


class Region(NamedTuple):
    """Free text may follow."""

    goes_on: Callable[[str], bool]  # whether the text so far can still become complete
    is_done: Callable[[str], bool]  # whether it is complete; it may still continue
    then: Callable[[str], "Options"]  # what may follow a complete text


class Options(NamedTuple):
    """What may follow: any of these."""

    choices: tuple[OneOf, ...] = ()
    region: Region | None = None
    may_end: bool = False


def start(steps: Steps) -> Options:
    """Return how a CRP may begin."""
    return Options((OneOf(_TITLES, lambda _: _topic(steps)),))


_TITLES = TextSet((_TITLE,), ends_line=True)
_SECTIONS = {
    (first, last): TextSet(_HEADERS[first:last], ends_line=True)
    for last in (_FURTHER, len(_HEADERS))
    for first in range(last)
}
# Lines of the extended form about all answers, and about answers that are in an order.
_ABOUT_ALL = TextSet(["\n  count", "\n  ask"])
_ABOUT_ORDERED = TextSet(
    [
        *("\n  ask", "\n  with ties", "\n  by number"),
        *(f"\n  after {n}" for n in range(1, MAX_LIMIT)),
    ]
)
_LIMITS = TextSet([f"\n  LIMIT {n}" for n in range(1, MAX_LIMIT + 1)])


class _Known(NamedTuple):
    names: tuple[str, ...]  # of nodes
    is_ordered: bool = False


def _topic(steps: Steps) -> Options:
    def then(name: str) -> Options:
        return _hop(steps, name.strip(), (), ())

    if (topics := steps.topics) is not None:
        return Options(tuple(OneOf(texts, then) for texts in topics))
    return Options(region=Region(_may_be_topic, _is_topic, then))


def _hop(steps: Steps, topic: str, path: tuple[Hop, ...], used: tuple[str, ...]) -> Options:
    def then(text: str) -> Options:
        return _node(steps, topic, (*path, _read_arrow(text)), used)

    return _arrow_options(steps.hops(topic, path), then)


def _node(steps: Steps, topic: str, path: tuple[Hop, ...], used: tuple[str, ...]) -> Options:
    """Return the names of the node that a path has reached: the answer, or an inner node."""

    def then(text: str) -> Options:
        name = text[1:]
        if name == ANSWER:
            return _after_line(steps, _Known((*used, name)), 0)
        line = TextSet((f"\n {name}",))
        return Options((OneOf(line, lambda _: _hop(steps, topic, path, (*used, name))),))

    pivot = used.index(_PIVOT) + 1 if _PIVOT in used else 0
    names = [ANSWER] if steps.may_end(topic, path, pivot) else []
    if len(path) < MAX_HOPS and steps.may_go_on(topic, path):
        names += [name for name in INNER if name not in used]
    return Options((OneOf(TextSet([f" {name}" for name in names]), then),) if names else ())


def _after_line(steps: Steps, known: _Known, section: int) -> Options:
    """Return what may follow the main path, with `section` 0, or the section before `section`."""

    def then(header: str) -> Options:
        return _line(steps, known, _HEADERS.index(header), None)

    last = len(_HEADERS) if steps.is_extended else _FURTHER
    if section == last:
        return Options(may_end=True)
    return Options((OneOf(_SECTIONS[section, last], then),), may_end=True)


def _line(steps: Steps, known: _Known, section: int, pending: str | None) -> Options:
    """Begin a line of a section; a pending variable must begin it."""
    subjects = known.names if pending is None else (pending,)

    def restrict(_: str) -> Options:
        return _restriction(steps, known, section)

    def order(_: str) -> Options:
        ordered = known._replace(is_ordered=True)
        return Options((OneOf(_LIMITS, lambda _: _next_line(steps, ordered, section)),))

    choices = [OneOf(TextSet([f"\n {name}" for name in subjects]), restrict)]
    if section == _ENTITY:
        return Options(tuple(choices))
    if section == _FURTHER:
        return _further_line(steps, known, choices)
    if section == _NUMERIC:
        orders = [f"\n  ORDER BY {way}({name})" for name in subjects for way in ("DESC", "ASC")]
        choices.append(OneOf(TextSet(orders, ends_line=True), order))

    def is_filter(text: str) -> bool:
        pattern = _NUMERIC_FILTER if section == _NUMERIC else _STRING_FILTER
        match = pattern.fullmatch(text)
        return match is not None and (match["plain"] or match["cast"]) in subjects

    region = Region(_may_be_filter, is_filter, lambda _: _next_line(steps, known, section))
    return Options(tuple(choices), region)


def _further_line(steps: Steps, known: _Known, choices: list[OneOf]) -> Options:
    """Begin a line of the section that only the extended form has."""

    def after(_: str) -> Options:
        return _next_line(steps, known, _FURTHER)

    def restrict(_: str) -> Options:
        return _restriction(steps, known, _FURTHER)

    def is_test(text: str) -> bool:
        match = _TEST.fullmatch(text)
        if match is None or match["variable"] not in known.names or text != text.rstrip():
            return False
        return match["other"] is None or match["other"] in known.names

    choices.append(OneOf(TextSet([f"\n  no {name}" for name in known.names]), restrict))
    choices.append(OneOf(_ABOUT_ORDERED if known.is_ordered else _ABOUT_ALL, after))
    region = Region(_may_be_test, is_test, after)
    if (others := steps.others) is not None:
        choices.append(OneOf(others, restrict))
    else:
        region = Region(
            lambda text: _may_be_test(text) or _may_be_topic(text),
            lambda text: is_test(text) or _is_topic(text),
            lambda text: after(text) if is_test(text) else restrict(text),
        )
    return Options(tuple(choices), region)


def _next_line(steps: Steps, known: _Known, section: int) -> Options:
    """Return what may follow a line that may end its section."""
    line = _line(steps, known, section, None)
    after = _after_line(steps, known, section + 1)
    return Options((*line.choices, *after.choices), line.region, may_end=True)


def _restriction(steps: Steps, known: _Known, section: int) -> Options:
    def then(text: str) -> Options:
        name = text[1:]
        if name.startswith("?"):
            more = known._replace(names=(*known.names, name))
            if section == _FURTHER:
                return _next_line(steps, more, section)
            return _line(steps, more, section, name)
        return _next_line(steps, known, section)

    def is_object(text: str) -> bool:
        if text.startswith(" ?"):
            return _VARIABLE.fullmatch(text) is not None and text[1:] not in known.names
        return section in (_ENTITY, _FURTHER) and _is_name(text)

    region = Region(_may_be_object, is_object, then)
    return _arrow_options(steps.restrictions, lambda _: Options(region=region))


def _arrow_options(texts: TextSet, then: Callable[[str], Options]) -> Options:
    return Options((OneOf(texts, then),) if texts.texts else ())


def _read_arrow(text: str) -> Hop:
    match = _ARROW.fullmatch(text)
    assert match is not None
    return Hop(relation_id(match["relation"]), inverse=match["inverse"] is not None)


def _may_be_object(text: str) -> bool:
    return (
        text[:1] == " "
        and text[1:2] != " "
        and "\n" not in text
        and " -[" not in text
        and len(text) < _MAX_FREE
    )


def _may_be_topic(text: str) -> bool:
    name = text[1:]
    return text[:1] == "\n" and (not name or (_may_be_object(name) and name[1:2] != "?"))


def _is_topic(text: str) -> bool:
    return _may_be_topic(text) and _is_name(text[1:])


def _is_name(text: str) -> bool:
    return len(text) > 1 and text == f" {text.strip()}" and "\ufffd" not in text


def _may_be_test(text: str) -> bool:
    return _TEST_START.fullmatch(text) is not None and "\ufffd" not in text[:-1]


def _may_be_filter(text: str) -> bool:
    if not text.startswith(_FILTER_START):
        return _FILTER_START.startswith(text)
    return "\n" not in text[1:] and len(text) < _MAX_FREE
