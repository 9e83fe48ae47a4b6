"""Answer questions over Freebase with constraint-aware reasoning paths, each answer with its proof.

    >>> import kbqa
    >>> graph = kbqa.open_graph()  # doctest: +SKIP
    >>> decoding = kbqa.Decoding("graph", graph)  # doctest: +SKIP
    >>> model = kbqa.TransformersGenerator.load(decoding=decoding)  # doctest: +SKIP
    >>> engine = kbqa.Engine(graph, model)  # doctest: +SKIP
    >>> engine.ask("what is the capital of Kenya?").answers  # doctest: +SKIP
    (AnswerEntity(term='m.d4u1bz5r', name='Nairobi'),)

Names are imported when they are first used, so that `import kbqa` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbqa.engine.answer import Answer
    from kbqa.engine.chat.model import ChatModel
    from kbqa.engine.chat.openai_chat import OpenAIChat
    from kbqa.engine.confidence import ConfidenceModel
    from kbqa.engine.decoding import Decoding
    from kbqa.engine.embedder import Embedder
    from kbqa.engine.engine import Engine
    from kbqa.engine.execute import Rules
    from kbqa.engine.generate import Candidate, Generator, Request
    from kbqa.engine.repair.repair import Repairer
    from kbqa.engine.router import Router
    from kbqa.engine.transformers_generator import TransformersGenerator
    from kbqa.kb.graph import Graph
    from kbqa.kb.select_graph import open_graph
    from kbqa.sparql.compile import compile_crp
    from kbqa.sparql.crp import Crp
    from kbqa.sparql.errors import KbqaError
    from kbqa.sparql.from_sparql import crp_from_sparql
    from kbqa.sparql.reading import CrpReading
    from kbqa.sparql.relax import relaxations
    from kbqa.sparql.routerkgqa import parse_routerkgqa, render_routerkgqa
    from kbqa.sparql.text import parse_crp, read_crp, render_crp
    from kbqa.sparql.words import describe_crp

_HOMES = {
    "Answer": "kbqa.engine.answer",
    "Candidate": "kbqa.engine.generate",
    "ChatModel": "kbqa.engine.chat.model",
    "ConfidenceModel": "kbqa.engine.confidence",
    "Crp": "kbqa.sparql.crp",
    "CrpReading": "kbqa.sparql.reading",
    "Decoding": "kbqa.engine.decoding",
    "Embedder": "kbqa.engine.embedder",
    "Engine": "kbqa.engine.engine",
    "Generator": "kbqa.engine.generate",
    "Graph": "kbqa.kb.graph",
    "KbqaError": "kbqa.sparql.errors",
    "OpenAIChat": "kbqa.engine.chat.openai_chat",
    "Repairer": "kbqa.engine.repair.repair",
    "Request": "kbqa.engine.generate",
    "Router": "kbqa.engine.router",
    "Rules": "kbqa.engine.execute",
    "TransformersGenerator": "kbqa.engine.transformers_generator",
    "compile_crp": "kbqa.sparql.compile",
    "crp_from_sparql": "kbqa.sparql.from_sparql",
    "describe_crp": "kbqa.sparql.words",
    "open_graph": "kbqa.kb.select_graph",
    "parse_crp": "kbqa.sparql.text",
    "parse_routerkgqa": "kbqa.sparql.routerkgqa",
    "read_crp": "kbqa.sparql.text",
    "relaxations": "kbqa.sparql.relax",
    "render_crp": "kbqa.sparql.text",
    "render_routerkgqa": "kbqa.sparql.routerkgqa",
}

__all__ = [
    "Answer",
    "Candidate",
    "ChatModel",
    "ConfidenceModel",
    "Crp",
    "CrpReading",
    "Decoding",
    "Embedder",
    "Engine",
    "Generator",
    "Graph",
    "KbqaError",
    "OpenAIChat",
    "Repairer",
    "Request",
    "Router",
    "Rules",
    "TransformersGenerator",
    "compile_crp",
    "crp_from_sparql",
    "describe_crp",
    "open_graph",
    "parse_crp",
    "parse_routerkgqa",
    "read_crp",
    "relaxations",
    "render_crp",
    "render_routerkgqa",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kbqa' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
