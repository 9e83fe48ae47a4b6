"""Serve a general model that knows the right paths: an upper bound for every choice.

    python -m tools.methods.perfect_chooser --questions FILE --store DIR --port 8900 &
    kbqa eval --questions FILE --store DIR --llm http://127.0.0.1:8900/v1 --output bound.jsonl ...

It speaks OpenAI's protocol, so a run with it works like any other, and it goes by the rendered
prompt alone. It reports a fourth of the letters as tokens. Every figure made with it is an upper
bound and nothing else. It replies

- to walking methods: it follows the gold main path. At a node of the path it names the next
  relation, and among nodes those that lead to gold answers, as many different ones as it can. It
  says that a question can be answered only if the prompt shows the whole path to a gold answer, and
  names only gold answers that stand at the end of such a path in the prompt. From memory it knows
  nothing.
- to methods that retrieve: it names a gold answer only if it is an end of a triple in the prompt.
  Of several sets of gold answers, as WebQSP has one for each parse, it takes the one of which the
  prompt shows the largest share.
- to repair: asked to choose some paths, it names those that are the gold path or its beginning, the
  longest first; asked for the best one, the gold path. If there is none, it names none, and the
  embedder's first is taken. Asked for a blueprint, it repeats the question for each hop of the gold
  path: it knows how far to go, and plans nothing else.

Topics are identified by name, and two names of one edge count as one.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import click

from kbqa.engine.evaluation.scores import normalise_answer
from kbqa.engine.graph_walk import Neighbourhood, RelationPath, relation_path
from kbqa.engine.linking.ground import name_topics
from kbqa.engine.questions.question_sets import Question, convert_queries, read_questions
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.terms import LiteralTerm, Term, is_well_formed, term_text
from tools.options import FILE, STORE

MODEL = "perfect chooser (upper bound)"

_LETTERS_A_TOKEN = 4
_READING = "which were retrieved from the Freebase knowledge graph"  # said by those that retrieve
_REPAIR = (
    "Break the question into the steps by which",
    "A question is to be answered by following",
)
_ALL = 10**7
_FIELD = re.compile(r"^([A-Z][A-Za-z ]{2,40}):[ ]?(.*)$", re.MULTILINE)
_OPTION = re.compile(r"^(\d+)\. (.*)$")
_HOP = re.compile(r" (->|<-) (\S+) (?:->|<-) ")
_RELATION = re.compile(r"(?:(->|<-) )?([a-z0-9_]+(?:\.[a-z0-9_]+)+)")
_TRIPLE = re.compile(r"(?:- )?\((.*?), ([a-z0-9_]+(?:\.[A-Za-z0-9_]+)+), (.*)\)")
_MOST = re.compile(r"\bat most (\d+)\b|, (\d+) at most,")
_OFFERED_PATH = re.compile(r"^(\d+)\. (.*?)( (?:->|<-) \S+\.\S+ (?:->|<-) .*)$", re.MULTILINE)


class Prompt(NamedTuple):
    """A rendered prompt: all messages, one after the other."""

    text: str

    @property
    def question(self) -> str:
        """The question, which is the last one of the prompt."""
        return self.field("Question")

    def says(self, words: str) -> bool:
        """Return whether the prompt has these words."""
        return words in self.text

    def field(self, name: str) -> str:
        """Return what follows a name on its last line; empty if no line begins with it."""
        found = [text for key, text in _FIELD.findall(self.text) if key == name]
        return found[-1].strip() if found else ""

    def lines(self, name: str) -> list[str]:
        """Return the lines below a heading, without their numbers."""
        _, found, rest = self.text.rpartition(f"\n{name}:\n")
        lines = rest.splitlines() if found else ()
        return [_OPTION.sub(r"\2", line) for line in lines if line.strip()]

    def triples(self) -> list[tuple[str, str, str]]:
        """Return the triples below their heading."""
        matches = map(_TRIPLE.fullmatch, self.lines("Triples"))
        return [(match[1], match[2], match[3]) for match in matches if match]

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

    schema: GraphSchema
    edges: tuple[Hop, ...] = ()
    worths: Sequence[Mapping[str, frozenset[str]]] = ({},)

    def is_topic(self, name: str) -> bool:
        """Return whether the path starts at an entity of this name."""
        return _one_line(name) in self.worths[0]

    def depths(self, name: str) -> list[int]:
        """List how many hops nodes of this name are from the topic."""
        return [depth for depth, worth in enumerate(self.worths) if _one_line(name) in worth]

    def worth(self, name: str, depths: Iterable[int]) -> frozenset[str]:
        """Return the gold answers behind the nodes of a name at any of some depths."""
        found = (self.worths[d].get(_one_line(name)) for d in depths if d < len(self.worths))
        return frozenset[str]().union(*(answers for answers in found if answers))

    def is_answer(self, name: str) -> bool:
        """Return whether a gold answer at the end of the path has this name."""
        return bool(self.worth(name, [len(self.edges)]))

    def is_edge(self, hop: Hop, depth: int) -> bool:
        """Return whether a hop, by either of its names, is the path's at this depth."""
        return self.schema.canonical([hop]) == self.edges[depth : depth + 1] != ()

    def begins_with(self, hops: Sequence[Hop]) -> bool:
        """Return whether the path begins with these hops."""
        return self.schema.canonical(hops) == self.edges[: len(hops)]

    def is_path(self, hops: Sequence[Hop]) -> bool:
        """Return whether these hops are the whole path."""
        return len(hops) == len(self.edges) and self.begins_with(hops)


class PerfectChooser:
    """Replies to prompts by the gold paths and the gold answers of questions.

    Each path is followed through the graph when its question is first asked for.
    """

    def __init__(self, questions: Iterable[Question], graph: Graph) -> None:
        self._graph, self._schema = graph, GraphSchema(graph)
        self._questions = {_one_line(question.text): question for question in questions}
        paths = gold_paths(self._questions.values(), graph)
        self.paths = {_one_line(text): path for text, path in paths.items()}
        self._known: dict[str, list[Known]] = {}
        self._lock = Lock()

    def reply(self, text: str) -> str:
        """Answer a prompt of a method."""
        prompt = Prompt(text)
        if prompt.says(_READING):
            return self._read(prompt)
        if any(map(prompt.says, _REPAIR)):
            return self._repair(prompt)
        for reply in (_bpc, _knowpath, _trace, _tog, _pog, _from_memory):
            nothing = reply(prompt, Known(self._schema))
            if nothing is not None:
                # What is known of a later parse counts if the first ones find nothing.
                known = self._know(prompt.question)
                replies = (reply(prompt, each) for each in known)
                return next((each for each in replies if each and each != nothing), nothing)
        click.echo(f"No method is known that asks: {text[:200]}", err=True)
        return "none"

    def _read(self, prompt: Prompt) -> str:
        """Reply to a method that retrieves: name the gold answers that are shown."""
        shown = {name for triple in prompt.triples() for name in triple[::2]}
        # Every second part of a path is a relation.
        shown |= {name for line in prompt.lines("Paths") for name in line.split(" -> ")[::2]}
        asked = self._questions.get(prompt.question)
        around = Neighbourhood(self._graph, self._schema)
        found, largest = list[str](), 0.0
        for golds in asked.golds if asked else ():
            terms = [gold if is_well_formed(gold) else LiteralTerm(gold) for gold in golds]
            names = around.names(terms)
            named = [names[term] for term in terms if names[term] in shown]
            if (share := len(named) / max(len(terms), 1)) > largest:
                found, largest = named, share
        return "\n".join(f"ans: {name}" for name in dict.fromkeys(found)) or "ans: none"

    def _repair(self, prompt: Prompt) -> str:
        """Reply to a prompt of `kbqa.engine.running.repair`."""
        path, canonical = self.paths.get(prompt.question), self._schema.canonical
        gold = () if path is None else (str(path.topic), *canonical(path.hops))
        offered = {
            int(number): (topic, *canonical(_hops(_HOP, hops)))
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

    def _know(self, question: str) -> list[Known]:
        """Return what is known of a question: once for each parse, as each has its answers.

        First comes the parse that the path answers best, with the fewest answers.
        """
        asked, path = self._questions.get(question), self.paths.get(question)
        if asked is None or path is None:
            return []
        topics = {topic.mid for topic in asked.topics}
        if topics and path.topic.mid not in topics:
            return []
        with self._lock:
            if question not in self._known:
                self._known[question] = self._follow(asked, path)
            return self._known[question]

    def _follow(self, asked: Question, path: RelationPath) -> list[Known]:
        """Follow a gold path through the nodes that a method is shown, once for each parse."""
        [topic], edges = path.starts, self._schema.canonical(path.hops)
        around = Neighbourhood(self._graph, self._schema)

        @cache
        def after(node: Term, depth: int) -> Sequence[Term]:
            """Return the nodes that the next hop of the path leads to."""
            for hop in around.hops(node):
                if self._schema.canonical([hop]) == edges[depth : depth + 1]:
                    return around.tails(node, hop).terms
            return ()

        @cache
        def ends(node: Term, depth: int) -> frozenset[str]:
            """Return where the rest of the path leads from a node, as answers are compared."""
            if depth == len(edges):
                return frozenset({normalise_answer(term_text(node))})
            return frozenset[str]().union(*(ends(each, depth + 1) for each in after(node, depth)))

        def known(wanted: frozenset[str]) -> Known:
            """Map every node on the path, by its name, to the answers that are behind it."""
            nodes: set[Term] = {topic}
            worths: list[dict[str, frozenset[str]]] = []
            for depth in range(len(edges) + 1):
                worth: dict[str, frozenset[str]] = {}
                for node, name in around.names(nodes).items():
                    worth[name] = worth.get(name, frozenset()) | (wanted & ends(node, depth))
                worths.append(worth)
                if depth < len(edges):
                    nodes = {end for node in nodes for end in after(node, depth)}
            names = (each.name for each in asked.topics if each.mid == topic)
            worths[0].update((_one_line(name), wanted & ends(topic, 0)) for name in names if name)
            return Known(self._schema, edges, worths)

        def misses(wanted: frozenset[str]) -> tuple[float, int]:
            """Return the share of answers that the path misses, and how many there are."""
            return 1 - len(wanted & ends(topic, 0)) / max(len(wanted), 1), len(wanted)

        parses = [frozenset(map(normalise_answer, golds)) for golds in asked.golds]
        return [known(each) for each in sorted(parses, key=misses) or [frozenset()]]


def gold_paths(questions: Iterable[Question], graph: Graph) -> dict[str, RelationPath]:
    """Collect the gold main paths of questions, by their texts, if they are chains of relations."""
    queries = {question.text: question.sparql for question in questions if question.sparql}
    crps = convert_queries(queries.values())
    golds = {}
    for text, query in queries.items():
        if isinstance(crp := crps[query], Crp) and (path := relation_path(crp)) is not None:
            [topic] = name_topics(graph, [Entity(mid=path.topic.mid)])
            golds[text] = RelationPath(topic, path.hops)
    return golds


def _bpc(prompt: Prompt, known: Known) -> str | None:
    if prompt.says("of the relations below that lead from the current entity"):
        return "\n".join(_relations(prompt, _depths(prompt, known), known)) or "STOP"
    if prompt.says("relation below leads to several entities. Choose at most"):
        hop = _hop(prompt.field("Relation"))
        at = [depth for depth in _depths(prompt, known) if known.is_edge(hop, depth)]
        return "\n".join(_entities(prompt, at, known)) or "none"
    if prompt.says("Can the question be answered from them? Reply with YES"):
        return "YES" if _answers(prompt, known) else "NO"
    if prompt.says("Answer the question from these paths of the Freebase"):
        return "\n".join(_answers(prompt, known)) or "none"
    return None


def _knowpath(prompt: Prompt, known: Known) -> str | None:
    chosen: list[str] = []
    is_topic = known.is_topic(prompt.field("Topic entity"))
    if prompt.says("Answer the question from memory. First find the entities"):
        return json.dumps({"triples": [], "path": [], "answers": []})
    if prompt.says("of the relations below that lead towards the answer, the most"):
        if is_topic:
            entities = prompt.field("Explored from").split("; ")
            at = [depth for entity in entities for depth in known.depths(entity)]
            chosen = _relations(prompt, at, known)
        return json.dumps({"Relations": chosen})
    if prompt.says("relations lead to the entities below. Choose at most"):
        if is_topic:
            hops = [_hop(each) for each in prompt.field("Chosen relations").split("; ")]
            depths = range(len(known.edges))
            at = [depth for depth in depths if any(known.is_edge(hop, depth) for hop in hops)]
            chosen = _entities(prompt, at, known)
        return json.dumps({"Entities": chosen})
    if prompt.says("Decide whether the question can be answered from them and"):
        names = _answers(prompt, known)
        said = "; ".join(names)
        return json.dumps({"Answerable": bool(names), "Response": said, "Answers": names})
    return None


def _trace(prompt: Prompt, known: Known) -> str | None:
    is_topic = known.is_topic(prompt.field("The path starts at"))
    if prompt.says("Put the relations followed so far into one short sentence"):
        return f"Followed so far: {prompt.field('Relations so far')}."
    if prompt.says("that are most likely to be the next step towards"):
        is_start = prompt.says("This is the start of the path.")
        hops = () if is_start else _hops(_RELATION, prompt.field("Context"))
        is_on_path = is_topic and known.begins_with(hops)
        chosen = _relations(prompt, [len(hops)], known) if is_on_path else []
        return json.dumps(chosen[: prompt.most])
    if prompt.says("well each of the relations below continues the path"):
        path = prompt.field("Path so far")
        hops = () if path == "nothing yet" else _hops(_RELATION, path)
        ways = {each: (*hops, _hop(each)) for each in prompt.lines("Relations")}
        scores = {name: float(is_topic and known.begins_with(way)) for name, way in ways.items()}
        return json.dumps(scores)
    if prompt.says("Say in one or two short sentences what this attempt") or prompt.says(
        "Find what they have in common: which kinds of relations"
    ):
        return "Follow the relations that the question asks for."
    if prompt.says("Which of the entities at its end answer the question?"):
        is_whole = known.is_path(_hops(_RELATION, prompt.field("Path")))
        ends = filter(known.is_answer, prompt.lines("Entities")) if is_whole else ()
        return "\n".join(ends) or "none"
    return None


def _tog(prompt: Prompt, known: Known) -> str | None:
    if prompt.says("lead from the entity towards the answer, and rate how"):
        entity = prompt.field("Entity")
        at = [depth for depth in known.depths(entity) if known.worth(entity, [depth])]
        return "\n".join(f"{each}: 1.0" for each in _relations(prompt, at, known)) or "none"
    if prompt.says("listed. Rate how much each of them contributes to the"):
        worths = _worths(prompt, _on_edge(prompt, known), known)
        scores = [0.0] * len(worths)
        covered: frozenset[str] = frozenset()
        for option in best_of(worths):
            scores[option] = 0.3 if worths[option] <= covered else 1.0
            covered |= worths[option]
        return "\n".join(f"{number}: {score}" for number, score in enumerate(scores, 1))
    if prompt.says("Below are triples of the Freebase knowledge graph. Can the question"):
        names = _answers(prompt, known)
        return "\n".join(["Yes", *names] if names else ["No"])
    if prompt.says("Answer the question from these triples of the Freebase"):
        return "\n".join(_answers(prompt, known)) or "none"
    return None


def _pog(prompt: Prompt, known: Known) -> str | None:
    if prompt.says("Break the question into the sub-objectives by which"):
        return json.dumps([prompt.question])
    if prompt.says("Choose as few of the relations below as possible that"):
        return json.dumps(_relations(prompt, known.depths(prompt.field("Entity")), known))
    if prompt.says("listed. Choose as few of them as possible that are the"):
        return json.dumps(_entities(prompt, _on_edge(prompt, known), known, _ALL))
    if prompt.says("Keep a memory of what is known about each sub-objective"):
        return "{}"
    if prompt.says("Can the question be answered from the memory and the triples"):
        names = _answers(prompt, known)
        verdict = {"Sufficient": "Yes" if names else "No", "Answer": names or None}
        return json.dumps({"A": verdict, "R": ""})
    if prompt.says("Should entities that were met earlier be added to"):
        return json.dumps({"Add": "No", "Reason": ""})
    if prompt.says("Choose as few as possible of the entities below, which were met earlier"):
        options = prompt.lines("Earlier entities")  # nothing leads on from the end of the path
        worths = [known.worth(option, range(len(known.edges))) for option in options]
        return json.dumps(numbers_of(best_of(worths), options))
    return None


def _from_memory(prompt: Prompt, _: Known) -> str | None:
    return "Answer:\nunknown" if prompt.says("Answer the question from what you know.") else None


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
    hop = _hop(prompt.field("Relation"))
    return [d for d in known.depths(prompt.field("Entity")) if known.is_edge(hop, d)]


def _relations(prompt: Prompt, depths: Sequence[int], known: Known) -> list[str]:
    """Choose the relations that lead on from any of some depths."""
    options = prompt.lines("Relations")
    return [each for each in options if any(known.is_edge(_hop(each), at) for at in depths)]


def _entities(
    prompt: Prompt, depths: Sequence[int], known: Known, most: int | None = None
) -> list[str]:
    """Choose the nodes, one hop from any of some depths, that lead to the most answers."""
    chosen = best_of(_worths(prompt, depths, known), most or prompt.most)
    return numbers_of(chosen, prompt.lines("Entities"))


def _worths(prompt: Prompt, depths: Sequence[int], known: Known) -> list[frozenset[str]]:
    """List the gold answers behind the nodes, one hop from any of some depths."""
    further = [depth + 1 for depth in depths]
    return [known.worth(name, further) for name in prompt.lines("Entities")]


def _answers(prompt: Prompt, known: Known) -> list[str]:
    """List the gold answers to which paths or triples of the prompt lead along the whole path."""
    names: dict[str, None] = {}
    for nodes, hops in map(read_path, prompt.lines("Paths")):  # they start at the left or right
        turned = tuple(hop.back for hop in reversed(hops))
        for start, way, end in ((nodes[0], hops, nodes[-1]), (nodes[-1], turned, nodes[0])):
            if known.is_topic(start) and known.is_path(way):
                names[end] = None
    # Triples are listed hop by hop, so a walk takes each later than the last. Without that, triples
    # of several walks would join to paths that are longer than the walks.
    triples = prompt.triples()
    starts = dict.fromkeys(name for triple in triples for name in triple[::2])
    walks = {(name, -1): None for name in starts if known.is_topic(name)}
    for depth in range(len(known.edges)):
        longer: dict[tuple[str, int], None] = {}
        for start, last in walks:
            for at, (subject, relation, object_) in enumerate(triples[last + 1 :], last + 1):
                for left, end, inverse in ((subject, object_, False), (object_, subject, True)):
                    if left == start and known.is_edge(Hop(relation, inverse), depth):
                        longer[end, at] = None
        walks = longer
    names.update((name, None) for name, _ in walks)
    return [name for name in names if known.is_answer(name)]


def best_of(worths: Iterable[frozenset[str]], most: int = _ALL) -> list[int]:
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


def _hop(text: str) -> Hop:
    """Read a relation with its arrow, or without one if it is followed forwards."""
    arrow, _, relation = text.rpartition(" ")
    return Hop(relation, arrow == "<-")


def _hops(form: re.Pattern[str], text: str) -> tuple[Hop, ...]:
    """Read all relations that a text names, in order."""
    return tuple(Hop(relation, arrow == "<-") for arrow, relation in form.findall(text))


def _one_line(name: str) -> str:
    return " ".join(name.split())


def make_server(reply: Callable[[str], str], port: int) -> ThreadingHTTPServer:
    """Make a server of a general model, on loopback; port 0 takes any free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = "\n".join(message["content"] for message in body["messages"])
            text = reply(prompt)
            asked, said = (len(each) // _LETTERS_A_TOKEN + 1 for each in (prompt, text))
            usage = {"prompt_tokens": asked, "completion_tokens": said}
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            completion = {"id": "reply", "object": "chat.completion", "created": 0, "model": MODEL}
            total = {**usage, "total_tokens": asked + said}
            self._send({**completion, "choices": [choice], "usage": total})

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 – as in the base
            pass

        def _send(self, record: Mapping[str, object]) -> None:
            body = json.dumps(record).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


@click.command(help=__doc__)
@click.option("--questions", "files", type=FILE, required=True, multiple=True)
@STORE
@click.option("--port", default=8900, show_default=True)
def main(files: Sequence[Path], store: Path, port: int) -> None:
    """Serve until interrupted."""
    with closing(open_graph(store)) as graph:
        chooser = PerfectChooser((each for file in files for each in read_questions(file)), graph)
        server = make_server(chooser.reply, port)
        click.echo(
            f"{len(chooser.paths)} gold paths; http://127.0.0.1:{server.server_port}/v1", err=True
        )
        server.serve_forever()


if __name__ == "__main__":
    main()
