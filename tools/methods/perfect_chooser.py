"""Serve a general model that knows the right paths: an upper bound for every choice.

    python -m tools.methods.perfect_chooser --questions FILE --store DIR --port 8900 &
    kbqa eval --questions FILE --store DIR --llm http://127.0.0.1:8900/v1 --output bound.jsonl ...

It speaks OpenAI's protocol, so a run with it works like any other, and it goes by the rendered
prompt alone; `tools/methods/perfect_replies.py` says what it replies. It reports a fourth of the
letters as tokens. Every figure made with it is an upper bound and nothing else.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

import click

from kbqa.engine.evaluation.scores import normalise_answer
from kbqa.engine.graph_walk import RelationPath, relation_path
from kbqa.engine.linking.ground import name_topics
from kbqa.engine.questions.official import convert_queries
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.kb.graph import Direction, Graph, name_terms
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.terms import LiteralTerm, Term, is_well_formed
from tools.methods.perfect_replies import READING, Known, Prompt, one_line, read, reply_to, route

MODEL = "perfect chooser (upper bound)"

_ALL = 10**7
"""More relations or nodes than anything has."""
_MAX_TAILS = 1000
"""The most nodes of one relation that walking methods look at: the first, sorted."""
_BOOKKEEPING = (
    "common.document.",
    "common.image.",
    "common.licensed_object.",
    "common.topic.",
    "common.webpage.",
    "dataworld.",
    "freebase.",
    "owl#",
    "pipeline.",
    "rdf-schema#",
    "type.",
)
_TELLING = "common.topic.notable_types"
_LETTERS_A_TOKEN = 4


class PerfectChooser:
    """Replies to prompts by the gold paths and the gold answers of questions.

    Each path is followed through the graph when its question is first asked for.
    """

    def __init__(self, questions: Iterable[Question], graph: Graph) -> None:
        self._graph, self._schema = graph, GraphSchema(graph)
        self._questions = {one_line(question.text): question for question in questions}
        paths = gold_paths(self._questions.values(), graph)
        self._paths = {one_line(text): path for text, path in paths.items()}
        self._known: dict[str, list[Known]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._paths)

    def reply(self, prompt: str) -> str:
        """Answer a prompt of a method."""
        rendered = Prompt(prompt)
        question = rendered.question
        if rendered.says(READING):
            return read(rendered, self._named_answers(question))
        for reply in (
            reply_to(rendered, self._know(question)),
            route(rendered, self._paths.get(question), self._schema),
        ):
            if reply is not None:
                return reply
        click.echo(f"No method is known that asks: {prompt[:200]}", err=True)
        return "none"

    def _named_answers(self, question: str) -> list[list[str]]:
        """Return the names of each set of gold answers of a question."""
        if question not in self._questions:
            return []
        sets = [list(map(_term, golds)) for golds in self._questions[question].golds]
        names = name_terms(self._graph, [term for terms in sets for term in terms])
        return [[one_line(names[term]) for term in terms] for terms in sets]

    def _know(self, question: str) -> list[Known]:
        """Return what is known of a question: once for each parse, as each has its answers.

        First comes the parse that the path answers best, with the fewest answers.
        """
        asked, path = self._questions.get(question), self._paths.get(question)
        if asked is None or path is None:
            return []
        topics = {topic.mid for topic in asked.topics}
        if topics and path.topic.mid not in topics:
            return []
        with self._lock:
            if question not in self._known:
                follow = _Follower(self._graph, self._schema, path)
                parses = [frozenset(map(normalise_answer, golds)) for golds in asked.golds]
                parses.sort(key=follow.misses)
                self._known[question] = [
                    follow.known(asked, each) for each in parses or [frozenset()]
                ]
            return self._known[question]


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


class _Follower:
    """Follows a gold path through the nodes that a method is shown."""

    def __init__(self, graph: Graph, schema: GraphSchema, path: RelationPath) -> None:
        assert path.topic.mid is not None
        self._graph, self._schema, self._topic = graph, schema, path.topic.mid
        self._edges = schema.canonical(path.hops)
        self._after = cache(self._look_up_after)
        self._ends = cache(self._look_up_ends)

    def known(self, question: Question, wanted: frozenset[str]) -> Known:
        """Return every node on the path by its name, with the answers that are behind it."""
        nodes: set[Term] = {self._topic}
        worths: list[dict[str, frozenset[str]]] = []
        for depth in range(len(self._edges) + 1):
            worth: dict[str, frozenset[str]] = {}
            for node, name in name_terms(self._graph, nodes).items():
                behind = wanted & self._ends(node, depth)
                worth[one_line(name)] = worth.get(one_line(name), frozenset()) | behind
            worths.append(worth)
            if depth < len(self._edges):
                nodes = {end for node in nodes for end in self._after(node, depth)}
        names = (topic.name for topic in question.topics if topic.mid == self._topic)
        behind = frozenset[str]().union(*worths[0].values())
        worths[0].update((one_line(name), behind) for name in names if name)
        return Known(self._schema, self._edges, worths)

    def misses(self, wanted: frozenset[str]) -> tuple[float, int]:
        """Return the share of answers that the path does not lead to, and how many there are."""
        found = wanted & self._ends(self._topic, 0)
        return 1 - len(found) / max(len(wanted), 1), len(wanted)

    def _look_up_ends(self, node: Term, depth: int) -> frozenset[str]:
        """Return where the rest of the path leads from a node, as answers are compared."""
        if depth == len(self._edges):
            return frozenset({normalise_answer(_text(node))})
        parts = (self._ends(after, depth + 1) for after in self._after(node, depth))
        return frozenset[str]().union(*parts)

    def _look_up_after(self, node: Term, depth: int) -> list[Term]:
        """Return the nodes that the next hop of the path leads to: the first, sorted."""
        if isinstance(node, LiteralTerm) or not is_well_formed(node):
            return []
        hop = self._name_at(node, self._edges[depth])
        if hop is None:
            return []
        found = self._graph.neighbours(node, hop.relation, "in" if hop.inverse else "out", _ALL)
        return sorted(set(found), key=lambda term: (_text(term), str(term)))[:_MAX_TAILS]

    def _name_at(self, node: str, edge: Hop) -> Hop | None:
        """Return the name by which a node's edge is shown; the outgoing one if it has two."""
        ways: tuple[Direction, ...] = ("out", "in")
        for direction in ways:
            hops = [
                Hop(relation, direction == "in")
                for relation in sorted(self._graph.relations(node, direction, _ALL))
                if "." in relation
                and (relation == _TELLING or not relation.startswith(_BOOKKEEPING))
            ]
            for hop, own in zip(hops, self._schema.canonical(hops), strict=True):
                if own == edge:
                    return hop
        return None


def _text(term: Term) -> str:
    return term.text if isinstance(term, LiteralTerm) else term


def _term(gold: str) -> Term:
    return gold if is_well_formed(gold) else LiteralTerm(gold)


def make_server(reply: Callable[[str], str], port: int, model: str = MODEL) -> ThreadingHTTPServer:
    """Make a server of a general model, on loopback; port 0 takes any free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send({"object": "list", "data": [{"id": model, "object": "model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = "\n".join(message["content"] for message in body["messages"])
            text = reply(prompt)
            asked, said = (len(each) // _LETTERS_A_TOKEN + 1 for each in (prompt, text))
            message = {"role": "assistant", "content": text}
            self._send(
                {
                    "id": "reply",
                    "object": "chat.completion",
                    "created": 0,
                    "model": model,
                    "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                    "usage": {
                        "prompt_tokens": asked,
                        "completion_tokens": said,
                        "total_tokens": asked + said,
                    },
                }
            )

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


_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(help=__doc__)
@click.option("--questions", "files", type=_FILE, required=True, multiple=True, metavar="FILE")
@click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option("--port", default=8900, show_default=True)
def main(files: Sequence[Path], store: Path, port: int) -> None:
    """Serve until interrupted."""
    with closing(open_graph(store)) as graph:
        chooser = PerfectChooser((each for file in files for each in read_questions(file)), graph)
        server = make_server(chooser.reply, port)
        click.echo(f"{len(chooser)} gold paths; http://127.0.0.1:{server.server_port}/v1", err=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
