"""Serve a general model that knows the right paths: an upper bound for every choice.

    python -m tools.methods.perfect_chooser --questions FILE --store DIR --port 8900 &
    kbqa eval --questions FILE --store DIR --llm http://127.0.0.1:8900/v1 --output bound.jsonl ...

It speaks OpenAI's protocol, so a run with it works like any other, and it goes by the rendered
prompt alone. `tools/methods/perfect/walkers.py` says what it replies to the walking methods, and
`tools/methods/perfect/reader.py` what it replies to those that retrieve.

To the router it replies as follows. Asked to choose some paths, it names those that are the gold
path or its beginning, the longest first. Asked for the best one, it names the gold path. If there
is none, it names none, and the embedder's first is taken. Topics are identified by name, and two
names of one edge count as one. Asked for a blueprint, it repeats the question for each hop of the
gold path: it knows how far to go, and plans nothing else. It reports a fourth of the letters as
tokens.

Every figure made with it is an upper bound and nothing else.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

import click

from kbqa.engine.graph_walk import RelationPath, relation_path
from kbqa.engine.linking.ground import name_topics
from kbqa.engine.questions.official import convert_queries
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp, Entity, Hop
from tools.methods.perfect.known import Known, all_known
from tools.methods.perfect.reach import GoldPath, Surroundings
from tools.methods.perfect.reach import gold_paths as walkable
from tools.methods.perfect.reader import ASKED, PerfectReader
from tools.methods.perfect.rendered import Prompt
from tools.methods.perfect.walkers import reply_to

MODEL = "perfect chooser (upper bound)"

_QUESTION = re.compile(r"^Question: (.*)$", re.MULTILINE)
_PATH = re.compile(r"^(\d+)\. (.*?) ((?:->|<-) \S+ (?:->|<-) \?.*)$", re.MULTILINE)
_HOP = re.compile(r"(->|<-) (\S+) (?:->|<-) \?")
_ROUTER = (
    "Break the question into the steps by which",
    "A question is to be answered by following",
)
_LETTERS_A_TOKEN = 4


class PerfectChooser:
    """Chooses by the gold paths of known questions.

    Args:
        golds: The gold path of each question, by its words; its topic has its name in the graph.
        schema: The graph's schema.
        know: Returns what is known of a question for walking methods, by its words with single
            blanks; nothing if it has no gold path.
        reader: Replies to methods that retrieve.
    """

    def __init__(
        self,
        golds: Mapping[str, RelationPath],
        schema: GraphSchema,
        know: Callable[[str], Sequence[Known]] = lambda question: (),
        reader: PerfectReader | None = None,
    ) -> None:
        self._schema, self._know, self._reader = schema, know, reader
        self._golds = {
            " ".join(words.split()): (str(gold.topic), *schema.canonical(gold.hops))
            for words, gold in golds.items()
        }

    def reply(self, prompt: str) -> str:
        """Answer a prompt of a method."""
        rendered = Prompt(prompt)
        if self._reader is not None and rendered.says(ASKED):
            return self._reader.reply(rendered)
        walked = reply_to(rendered, self._know(rendered.question))
        if walked is not None:
            return walked
        if not any(map(rendered.says, _ROUTER)):
            click.echo(f"No method is known that asks: {prompt[:200]}", err=True)
            return "none"
        return self._routed(prompt)

    def _routed(self, prompt: str) -> str:
        """Answer a prompt of `kbqa.engine.methods.repair`."""
        asked = _QUESTION.findall(prompt)
        question = asked[-1] if asked else ""
        paths = {
            int(number): (topic, *self._schema.canonical(_hops(hops)))
            for number, topic, hops in _PATH.findall(prompt)
        }
        gold = self._golds.get(question, ())
        if not paths:
            hops = max(len(gold) - 1, 1)
            return "\n".join(f"{step}. {question}" for step in range(1, hops + 1))
        right = [number for number, path in paths.items() if path == gold[: len(path)]]
        right.sort(key=lambda number: -len(paths[number]))
        if "Choose the best path" in prompt:
            right = [number for number in right if paths[number] == gold]
        if "Reply with yes" in prompt:
            return "yes" if any(paths[number] == gold for number in right) else "no"
        return ", ".join(map(str, right)) or "none"


def gold_paths(questions: Iterable[Question], graph: Graph) -> dict[str, RelationPath]:
    """Collect the gold main paths of questions, if they are chains of relations.

    Raises:
        GraphError: The graph does not answer.
    """
    queries = {question.text: question.sparql for question in questions if question.sparql}
    crps = convert_queries(queries.values())
    golds = {}
    for text, query in queries.items():
        if isinstance(crp := crps[query], Crp) and (path := relation_path(crp)) is not None:
            [topic] = name_topics(graph, [Entity(mid=path.topic.mid)])
            golds[text] = RelationPath(topic, path.hops)
    return golds


class GoldKnowledge:
    """Knows the gold paths of questions for walking methods; each is walked when first asked for.

    Args:
        questions: The questions.
        graph: The graph.
    """

    def __init__(self, questions: Iterable[Question], graph: Graph) -> None:
        asked = list(questions)
        self._graph, self._around = graph, Surroundings(graph)
        self._golds = {
            " ".join(question.text.split()): gold
            for question, gold in zip(asked, walkable(asked, self._around.schema), strict=True)
            if isinstance(gold, GoldPath)
        }
        self._known: dict[str, list[Known]] = {}
        self._lock = Lock()

    def __call__(self, question: str) -> list[Known]:
        """Return what is known of a question."""
        if question not in self._golds:
            return []
        with self._lock:
            if question not in self._known:
                self._known[question] = all_known(self._golds[question], self._graph, self._around)
            return self._known[question]


def make_server(reply: Callable[[str], str], port: int, model: str = MODEL) -> ThreadingHTTPServer:
    """Make a server of a general model, on loopback; port 0 takes any free one.

    Args:
        reply: Returns the reply to a prompt.
        port: Of the server.
        model: The model's name.
    """

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


def _hops(path: str) -> tuple[Hop, ...]:
    return tuple(Hop(relation, arrow == "<-") for arrow, relation in _HOP.findall(path))


@click.command(help=__doc__)
@click.option(
    "--questions",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    multiple=True,
    metavar="FILE",
)
@click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option("--port", default=8900, show_default=True)
def main(files: Sequence[Path], store: Path, port: int) -> None:
    """Serve until interrupted."""
    with closing(open_graph(store)) as graph:
        questions = [each for file in files for each in read_questions(file)]
        golds, know = gold_paths(questions, graph), GoldKnowledge(questions, graph)
        reader = PerfectReader(questions, graph)
        server = make_server(PerfectChooser(golds, GraphSchema(graph), know, reader).reply, port)
        click.echo(f"{len(golds)} gold paths; http://127.0.0.1:{server.server_port}/v1", err=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
