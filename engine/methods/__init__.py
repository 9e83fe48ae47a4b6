"""Methods: from a question to an answer. One file each; this is the table of them.

The module of a method has a `kbqa.engine.resources.MethodMaker` under the method's name, in
capitals.
"""

from typing import NamedTuple


class LazyMethod(NamedTuple):
    """The module of a method, imported when it is chosen, and what it does in a line."""

    module: str
    summary: str


METHODS = {
    "kbqa": LazyMethod(
        "kbqa.engine.methods.kbqa",
        "kbqa's own: as routerkgqa, and a search of the graph adds paths, and a judge chooses",
    ),
    "routerkgqa": LazyMethod(
        "kbqa.engine.methods.routerkgqa",
        "RouterKGQA: a small model writes paths, the graph runs them, repair finds what is missing",
    ),
    "bpc": LazyMethod(
        "kbqa.engine.methods.bpc",
        "Bounded Path Context: walks whose next hop is chosen by the last hops alone",
    ),
    "knowpath": LazyMethod(
        "kbqa.engine.methods.knowpath",
        "KnowPath: the model's own paths guide it through a subgraph of each topic",
    ),
    "trace": LazyMethod(
        "kbqa.engine.methods.trace",
        "TRACE: paths of relations are followed by narratives, and by what ended paths teach",
    ),
    "tog": LazyMethod(
        "kbqa.engine.methods.tog",
        "Think-on-Graph: relations and entities are scored, and the best triples of each hop kept",
    ),
    "pog": LazyMethod(
        "kbqa.engine.methods.pog",
        "Plan-on-Graph: sub-objectives, a memory and reversals steer walks of any width",
    ),
    "subgraph": LazyMethod(
        "kbqa.engine.methods.retrieval",
        "SubgraphRAG: the best triples around the topics are retrieved and read",
    ),
    "path-pooling": LazyMethod(
        "kbqa.engine.methods.retrieval",
        "Path Pooling: as subgraph, with scores pooled along paths before triples are chosen",
    ),
    "io": LazyMethod(
        "kbqa.engine.methods.direct", "A floor: a language model answers at once, without the graph"
    ),
    "cot": LazyMethod(
        "kbqa.engine.methods.direct",
        "A floor: a language model reasons and answers, without the graph",
    ),
}
DEFAULT_METHOD = "kbqa"
