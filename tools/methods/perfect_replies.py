"""What a perfect chooser replies to the prompts of methods, by the rendered prompt alone.

To walking methods: it follows the gold main path. At a node of the path it names the next relation,
and among nodes those that lead to gold answers, as many different ones as it can. It says that a
question can be answered only if the prompt shows the whole path to a gold answer, and it names only
gold answers that stand at the end of such a path in the prompt. From memory it knows nothing.

To methods that retrieve: it names a gold answer only if it is an end of a triple in the prompt. Of
several sets of gold answers, as WebQSP has one for each parse, it takes the one of which the prompt
shows the largest share.

To the router: asked to choose some paths, it names those that are the gold path or its beginning,
the longest first; asked for the best one, the gold path. If there is none, it names none, and the
embedder's first is taken. Topics are identified by name, and two names of one edge count as one.
Asked for a blueprint, it repeats the question for each hop of the gold path: it knows how far to
go, and plans nothing else.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kbqa.engine.graph_walk import RelationPath
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Hop

READING = "which were retrieved from the Freebase knowledge graph"
"""Words that only the prompts of methods that retrieve have."""

_START = "This is the start of the path."
_NOTHING = "nothing yet"
_ROUTER = (
    "Break the question into the steps by which",
    "A question is to be answered by following",
)
_FIELD = re.compile(r"^([A-Z][A-Za-z ]{2,40}):[ ]?(.*)$", re.MULTILINE)
_OPTION = re.compile(r"^(\d+)\. (.*)$")
_HOP = re.compile(r" (->|<-) (\S+) (?:->|<-) ")
_RELATION = re.compile(r"(?:(->|<-) )?([a-z0-9_]+(?:\.[a-z0-9_]+)+)")
_TRIPLE = re.compile(r"(?:- )?\((.*?), ([a-z0-9_]+(?:\.[A-Za-z0-9_]+)+), (.*)\)")
_MOST = re.compile(r"\bat most (\d+)\b|, (\d+) at most,")
_OFFERED_PATH = re.compile(r"^(\d+)\. (.*?) ((?:->|<-) \S+ (?:->|<-) \?.*)$", re.MULTILINE)
_OFFERED_HOP = re.compile(r"(->|<-) (\S+) (?:->|<-) \?")


class Prompt(NamedTuple):
    """A rendered prompt: all messages, one after the other."""

    text: str

    @property
    def question(self) -> str:
        """The question, which is the last one of the prompt."""
        return self.field("Question")

    def field(self, name: str) -> str:
        """Return what follows a name on its last line; empty if no line begins with it."""
        found = [text for key, text in _FIELD.findall(self.text) if key == name]
        return found[-1].strip() if found else ""

    def lines(self, name: str) -> list[str]:
        """Return the lines below a heading, without their numbers, up to a line that has none."""
        _, _, rest = self.text.rpartition(f"\n{name}:\n")
        return [_OPTION.sub(r"\2", line) for line in rest.splitlines() if line.strip()]

    def says(self, words: str) -> bool:
        """Return whether the prompt has these words."""
        return words in self.text

    @property
    def most(self) -> int:
        """How many options may be chosen."""
        match = _MOST.search(self.text)
        return int(match[1] or match[2]) if match else 1


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a question: the edges of its gold path, and every node on it by name.

    `worths` has, for each depth, the gold answers that are behind the nodes of a name; at the end,
    these themselves.
    """

    schema: GraphSchema | None = None
    edges: tuple[Hop, ...] = ()
    worths: Sequence[Mapping[str, frozenset[str]]] = ({},)

    @property
    def hops(self) -> int:
        """How many hops the path has."""
        return len(self.edges)

    def is_topic(self, name: str) -> bool:
        """Return whether the path starts at an entity of this name."""
        return one_line(name) in self.worths[0]

    def depths(self, name: str) -> list[int]:
        """List how many hops nodes of this name are from the topic."""
        return [depth for depth, worth in enumerate(self.worths) if one_line(name) in worth]

    def worth(self, name: str, depths: Iterable[int]) -> frozenset[str]:
        """Return the gold answers behind the nodes of a name at any of some depths."""
        found = (self.worths[d].get(one_line(name)) for d in depths if d < len(self.worths))
        return frozenset[str]().union(*(answers for answers in found if answers))

    def is_answer(self, name: str) -> bool:
        """Return whether a gold answer at the end of the path has this name."""
        return bool(self.worth(name, [self.hops]))

    def is_edge(self, hop: Hop, depth: int) -> bool:
        """Return whether a hop, by either of its names, is the path's at this depth."""
        return self._canonical([hop]) == self.edges[depth : depth + 1] != ()

    def begins_with(self, hops: Sequence[Hop]) -> bool:
        """Return whether the path begins with these hops."""
        return self._canonical(hops) == self.edges[: len(hops)]

    def is_path(self, hops: Sequence[Hop]) -> bool:
        """Return whether these hops are the whole path."""
        return len(hops) == self.hops and self.begins_with(hops)

    def _canonical(self, hops: Sequence[Hop]) -> tuple[Hop, ...]:
        return tuple(hops) if self.schema is None else self.schema.canonical(hops)


def reply_to(prompt: Prompt, known: Sequence[Known]) -> str | None:
    """Reply to the prompt of a walking method; None if it is of no method that is known here.

    What is known of a later parse counts if the first ones find nothing in the prompt.
    """
    for words, reply in _REPLIES.items():
        if prompt.says(words):
            nothing = reply(prompt, Known())
            replies = (reply(prompt, each) for each in known)
            return next((each for each in replies if each != nothing), nothing)
    return None


def read(prompt: Prompt, golds: Sequence[Sequence[str]]) -> str:
    """Reply to a method that retrieves, by the names of each set of gold answers."""
    triples = (_TRIPLE.fullmatch(line) for line in prompt.lines("Triples"))
    shown = {name for triple in triples if triple for name in triple.groups()[::2]}
    # Every second part of a path is a relation.
    shown |= {name for line in prompt.lines("Paths") for name in line.split(" -> ")[::2]}
    found = [([name for name in names if name in shown], len(names)) for names in golds]
    best = max(found, key=lambda each: len(each[0]) / max(each[1], 1), default=([], 0))[0]
    return "\n".join(f"ans: {name}" for name in dict.fromkeys(best)) or "ans: none"


def route(prompt: Prompt, path: RelationPath | None, schema: GraphSchema) -> str | None:
    """Reply to a prompt of `kbqa.engine.methods.repair`; None if it is none."""
    if not any(map(prompt.says, _ROUTER)):
        return None
    gold = () if path is None else (str(path.topic), *schema.canonical(path.hops))
    offered = {
        int(number): (topic, *schema.canonical(_read_offered(hops)))
        for number, topic, hops in _OFFERED_PATH.findall(prompt.text)
    }
    if not offered:
        hops = max(len(gold) - 1, 1)
        return "\n".join(f"{step}. {prompt.question}" for step in range(1, hops + 1))
    right = [number for number, each in offered.items() if each == gold[: len(each)]]
    right.sort(key=lambda number: -len(offered[number]))
    if prompt.says("Choose the best path"):
        right = [number for number in right if offered[number] == gold]
    if prompt.says("Reply with yes"):
        return "yes" if any(offered[number] == gold for number in right) else "no"
    return ", ".join(map(str, right)) or "none"


def _read_offered(path: str) -> tuple[Hop, ...]:
    return tuple(Hop(relation, arrow == "<-") for arrow, relation in _OFFERED_HOP.findall(path))


def _bpc_relations(prompt: Prompt, known: Known) -> str:
    at = _depths(prompt, known)
    return "\n".join(_relations(prompt.lines("Relations"), at, known)) or "STOP"


def _bpc_entities(prompt: Prompt, known: Known) -> str:
    hop = read_relation(prompt.field("Relation"))
    at = [depth for depth in _depths(prompt, known) if known.is_edge(hop, depth)]
    return "\n".join(_entities(prompt.lines("Entities"), at, known, prompt.most)) or "none"


def _bpc_check(prompt: Prompt, known: Known) -> str:
    return "YES" if _answers(prompt.lines("Paths"), known) else "NO"


def _bpc_answer(prompt: Prompt, known: Known) -> str:
    return "\n".join(_answers(prompt.lines("Paths"), known)) or "none"


def _knowpath_memory(prompt: Prompt, known: Known) -> str:
    return json.dumps({"triples": [], "path": [], "answers": []})


def _knowpath_relations(prompt: Prompt, known: Known) -> str:
    chosen: list[str] = []
    if known.is_topic(prompt.field("Topic entity")):
        entities = prompt.field("Explored from").split("; ")
        at = sorted({depth for entity in entities for depth in known.depths(entity)})
        chosen = _relations(prompt.lines("Relations"), at, known)
    return json.dumps({"Relations": chosen})


def _knowpath_entities(prompt: Prompt, known: Known) -> str:
    chosen: list[str] = []
    if known.is_topic(prompt.field("Topic entity")):
        hops = map(read_relation, prompt.field("Chosen relations").split("; "))
        at = sorted({d for hop in hops for d in range(known.hops) if known.is_edge(hop, d)})
        chosen = _entities(prompt.lines("Entities"), at, known, prompt.most)
    return json.dumps({"Entities": chosen})


def _knowpath_check(prompt: Prompt, known: Known) -> str:
    names = _answers(prompt.lines("Paths"), known)
    return json.dumps({"Answerable": bool(names), "Response": "; ".join(names), "Answers": names})


def _trace_narrate(prompt: Prompt, known: Known) -> str:
    return f"Followed so far: {prompt.field('Relations so far')}."


def _trace_propose(prompt: Prompt, known: Known) -> str:
    hops = () if prompt.says(_START) else read_relations(prompt.field("Context"))
    chosen: list[str] = []
    if known.is_topic(prompt.field("The path starts at")) and known.begins_with(hops):
        chosen = _relations(prompt.lines("Relations"), [len(hops)], known)
    return json.dumps(chosen[: prompt.most])


def _trace_rank(prompt: Prompt, known: Known) -> str:
    path = prompt.field("Path so far")
    hops = () if path == _NOTHING else read_relations(path)
    is_topic = known.is_topic(prompt.field("The path starts at"))
    return json.dumps(
        {
            option: float(is_topic and known.begins_with((*hops, read_relation(option))))
            for option in prompt.lines("Relations")
        }
    )


def _trace_words(prompt: Prompt, known: Known) -> str:
    return "Follow the relations that the question asks for."


def _trace_answer(prompt: Prompt, known: Known) -> str:
    if not known.is_path(read_relations(prompt.field("Path"))):
        return "none"
    return "\n".join(filter(known.is_answer, prompt.lines("Entities"))) or "none"


def _tog_relations(prompt: Prompt, known: Known) -> str:
    entity = prompt.field("Entity")
    at = [depth for depth in known.depths(entity) if known.worth(entity, [depth])]
    chosen = _relations(prompt.lines("Relations"), at, known)
    return "\n".join(f"{relation}: 1.0" for relation in chosen) or "none"


def _tog_entities(prompt: Prompt, known: Known) -> str:
    worths = _worths(prompt.lines("Entities"), _on_edge(prompt, known), known)
    scores = [0.0] * len(worths)
    covered: frozenset[str] = frozenset()
    for option in best_of(worths):
        scores[option] = 0.3 if worths[option] <= covered else 1.0
        covered |= worths[option]
    return "\n".join(f"{number}: {score}" for number, score in enumerate(scores, 1))


def _tog_check(prompt: Prompt, known: Known) -> str:
    names = _answers_of_triples(prompt.lines("Triples"), known)
    return "\n".join(["Yes", *names] if names else ["No"])


def _tog_answer(prompt: Prompt, known: Known) -> str:
    return "\n".join(_answers_of_triples(prompt.lines("Triples"), known)) or "none"


def _pog_plan(prompt: Prompt, known: Known) -> str:
    return json.dumps([prompt.question])


def _pog_relations(prompt: Prompt, known: Known) -> str:
    at = known.depths(prompt.field("Entity"))
    return json.dumps(_relations(prompt.lines("Relations"), at, known))


def _pog_entities(prompt: Prompt, known: Known) -> str:
    options = prompt.lines("Entities")
    return json.dumps(_entities(options, _on_edge(prompt, known), known, len(options)))


def _pog_remember(prompt: Prompt, known: Known) -> str:
    return "{}"


def _pog_check(prompt: Prompt, known: Known) -> str:
    names = _answers_of_triples(prompt.lines("Triples"), known)
    verdict = {"Sufficient": "Yes" if names else "No", "Answer": names or None}
    return json.dumps({"A": verdict, "R": ""})


def _pog_reflect(prompt: Prompt, known: Known) -> str:
    return json.dumps({"Add": "No", "Reason": ""})


def _pog_earlier(prompt: Prompt, known: Known) -> str:
    # Nothing leads on from the end of the path.
    options = prompt.lines("Earlier entities")
    worths = [known.worth(option, range(known.hops)) for option in options]
    return json.dumps(numbers_of(best_of(worths), options))


def _from_memory(prompt: Prompt, known: Known) -> str:
    return "Answer:\nunknown"


_REPLIES: Mapping[str, Callable[[Prompt, Known], str]] = {
    "of the relations below that lead from the current entity": _bpc_relations,
    "relation below leads to several entities. Choose at most": _bpc_entities,
    "Can the question be answered from them? Reply with YES": _bpc_check,
    "Answer the question from these paths of the Freebase": _bpc_answer,
    "Answer the question from memory. First find the entities": _knowpath_memory,
    "of the relations below that lead towards the answer, the most": _knowpath_relations,
    "relations lead to the entities below. Choose at most": _knowpath_entities,
    "Decide whether the question can be answered from them and": _knowpath_check,
    "Put the relations followed so far into one short sentence": _trace_narrate,
    "that are most likely to be the next step towards": _trace_propose,
    "well each of the relations below continues the path": _trace_rank,
    "Say in one or two short sentences what this attempt": _trace_words,
    "Find what they have in common: which kinds of relations": _trace_words,
    "Which of the entities at its end answer the question?": _trace_answer,
    "lead from the entity towards the answer, and rate how": _tog_relations,
    "listed. Rate how much each of them contributes to the": _tog_entities,
    "Below are triples of the Freebase knowledge graph. Can the question": _tog_check,
    "Answer the question from these triples of the Freebase": _tog_answer,
    "Break the question into the sub-objectives by which": _pog_plan,
    "Choose as few of the relations below as possible that": _pog_relations,
    "listed. Choose as few of them as possible that are the": _pog_entities,
    "Keep a memory of what is known about each sub-objective": _pog_remember,
    "Can the question be answered from the memory and the triples": _pog_check,
    "Should entities that were met earlier be added to": _pog_reflect,
    "Choose as few as possible of the entities below, which were met earlier": _pog_earlier,
    "Answer the question from what you know.": _from_memory,
}


def _depths(prompt: Prompt, known: Known) -> list[int]:
    """List how far the current entity may be from the topic, by its name and the last hop."""
    depths = known.depths(prompt.field("Current entity"))
    _, _, history = prompt.text.partition("\nHistory:")
    lines = history.partition("\nCurrent entity:")[0].strip().splitlines()
    hops = read_path(re.sub(r"^Hop \d+: ", "", lines[-1]))[1] if lines else ()
    if hops:
        return [depth for depth in depths if depth and known.is_edge(hops[-1], depth - 1)]
    return depths


def _on_edge(prompt: Prompt, known: Known) -> list[int]:
    """List the depths of the prompt's entity at which its relation is the path's."""
    hop = read_relation(prompt.field("Relation"))
    return [d for d in known.depths(prompt.field("Entity")) if known.is_edge(hop, d)]


def _relations(options: Sequence[str], depths: Sequence[int], known: Known) -> list[str]:
    """Choose the relations that lead on from any of some depths."""
    hops = map(read_relation, options)
    right = [any(known.is_edge(hop, depth) for depth in depths) for hop in hops]
    return [option for option, is_right in zip(options, right, strict=True) if is_right]


def _entities(options: Sequence[str], depths: Sequence[int], known: Known, most: int) -> list[str]:
    """Choose the nodes, one hop from any of some depths, that lead to the most answers."""
    return numbers_of(best_of(_worths(options, depths, known), most), options)


def _worths(options: Sequence[str], depths: Sequence[int], known: Known) -> list[frozenset[str]]:
    """List the gold answers behind nodes that are one hop from any of some depths."""
    return [known.worth(name, [depth + 1 for depth in depths]) for name in options]


def _answers(paths: Sequence[str], known: Known) -> list[str]:
    """List the gold answers at the ends of written paths, which start at the left or right."""
    names: dict[str, None] = {}
    for nodes, hops in map(read_path, paths):
        turned = tuple(hop.back for hop in reversed(hops))
        for start, way, end in ((nodes[0], hops, nodes[-1]), (nodes[-1], turned, nodes[0])):
            if known.is_topic(start) and known.is_path(way) and known.is_answer(end):
                names[end] = None
    return list(names)


def _answers_of_triples(lines: Sequence[str], known: Known) -> list[str]:
    """List the gold answers to which triples lead along the whole path.

    Triples are listed hop by hop, so a walk takes each later than the last. Without that, triples
    of several walks would join to paths that are longer than the walks.
    """
    triples = [match.groups() for line in lines if (match := _TRIPLE.fullmatch(line))]
    names = dict.fromkeys(name for triple in triples for name in triple[::2])
    walks = {(name, -1): None for name in names if known.is_topic(name)}
    for depth in range(known.hops):
        longer: dict[tuple[str, int], None] = {}
        for start, last in walks:
            for at, (subject, relation, object_) in enumerate(triples[last + 1 :], last + 1):
                for left, end, inverse in ((subject, object_, False), (object_, subject, True)):
                    if left == start and known.is_edge(Hop(relation, inverse), depth):
                        longer[end, at] = None
        walks = longer
    return list(dict.fromkeys(name for name, _ in walks if known.is_answer(name)))


def best_of(worths: Iterable[frozenset[str]], most: int = 10**7) -> list[int]:
    """Choose those that lead to the most answers together, then others that lead to any.

    >>> best_of([frozenset("a"), frozenset("a"), frozenset(), frozenset("bc")], 3)
    [3, 0, 1]
    """
    left = {at: worth for at, worth in enumerate(worths) if worth}
    chosen: list[int] = []
    covered: frozenset[str] = frozenset()
    while left and len(chosen) < most:
        best = max(left, key=lambda at: (len(left[at] - covered), -at))
        covered |= left.pop(best)
        chosen.append(best)
    return chosen


def read_relation(text: str) -> Hop:
    """Read a relation with its arrow, or without one if it is followed forwards.

    >>> read_relation("<- a.b"), read_relation("a.b")
    (Hop(relation='a.b', inverse=True), Hop(relation='a.b', inverse=False))
    """
    arrow, _, relation = text.rpartition(" ")
    return Hop(relation, arrow == "<-")


def read_relations(text: str) -> tuple[Hop, ...]:
    """Read all relations that a text names, in order."""
    return tuple(Hop(relation, arrow == "<-") for arrow, relation in _RELATION.findall(text))


def read_path(text: str) -> tuple[tuple[str, ...], tuple[Hop, ...]]:
    """Read the names of a path's nodes, and its hops, from left to right.

    >>> read_path("Kenya -> a.b -> Nairobi <- c.d <- Eve")[0]
    ('Kenya', 'Nairobi', 'Eve')
    """
    parts = _HOP.split(text)
    hops = (Hop(r, arrow == "<-") for arrow, r in zip(parts[1::3], parts[2::3], strict=True))
    return tuple(parts[0::3]), tuple(hops)


def numbers_of(chosen: Sequence[int], options: Sequence[str]) -> list[str]:
    """Write chosen options: by number, as several may have one name; by name if that is a number.

    >>> numbers_of([1, 0], ["Paris", "Paris"]), numbers_of([0], ["1"])
    (['2', '1'], ['1'])
    """
    written = [str(at + 1) for at in chosen]
    return [options[at] if n in options else n for at, n in zip(chosen, written, strict=True)]


def one_line(name: str) -> str:
    """Return a name with single blanks."""
    return " ".join(name.split())
