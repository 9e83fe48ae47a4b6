"""Answer questions over Freebase with constraint-aware reasoning paths, each answer with its proof.

    >>> import kbqa
    >>> graph = kbqa.open_graph()  # doctest: +SKIP
    >>> decoding = kbqa.Decoding("graph", graph)  # doctest: +SKIP
    >>> model = kbqa.OpenVinoGenerator.load(decoding=decoding)  # doctest: +SKIP
    >>> engine = kbqa.Engine(graph, model)  # doctest: +SKIP
    >>> engine.ask("what is the capital of Kenya?").answers  # doctest: +SKIP
    (AnswerEntity(term='m.d4u1bz5r', name='Nairobi', origin='graph'),)

Names are imported when they are first used, so that `import kbqa` costs nothing. The block of
imports below is the list of them, for type checkers and, read as text, at run time.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbqa.engine.answer import Answer as Answer
    from kbqa.engine.asked import Asked as Asked
    from kbqa.engine.asked import Method as Method
    from kbqa.engine.chat.model import ChatModel as ChatModel
    from kbqa.engine.chat.openai import OpenAIChat as OpenAIChat
    from kbqa.engine.embedding.embedder import Embedder as Embedder
    from kbqa.engine.engine import Conversation as Conversation
    from kbqa.engine.engine import Engine as Engine
    from kbqa.engine.retrieval.retrieval import PoolingSettings as PoolingSettings
    from kbqa.engine.retrieval.retrieval import pool_triples as pool_triples
    from kbqa.engine.running.tried import ConfidenceModel as ConfidenceModel
    from kbqa.engine.writing.generate import Candidate as Candidate
    from kbqa.engine.writing.generate import Generator as Generator
    from kbqa.engine.writing.generate import Request as Request
    from kbqa.engine.writing.openvino import OpenVinoGenerator as OpenVinoGenerator
    from kbqa.engine.writing.steering import Decoding as Decoding
    from kbqa.engine.writing.transformers import TransformersGenerator as TransformersGenerator
    from kbqa.kb.graph import Graph as Graph
    from kbqa.kb.open import open_graph as open_graph
    from kbqa.sparql.compile import compile_crp as compile_crp
    from kbqa.sparql.convert.from_sparql import crp_from_sparql as crp_from_sparql
    from kbqa.sparql.crp import Crp as Crp
    from kbqa.sparql.crp import CrpReading as CrpReading
    from kbqa.sparql.english import describe_crp as describe_crp
    from kbqa.sparql.errors import KbqaError as KbqaError
    from kbqa.sparql.forms import parse_crp as parse_crp
    from kbqa.sparql.forms import parse_routerkgqa as parse_routerkgqa
    from kbqa.sparql.forms import read_crp as read_crp
    from kbqa.sparql.forms import render_crp as render_crp
    from kbqa.sparql.forms import render_routerkgqa as render_routerkgqa
    from kbqa.sparql.relax import relaxations as relaxations

with open(__file__, encoding="utf-8") as _source:  # noqa: PTH123 (pathlib takes longer to import)
    _imports = [line.split() for line in _source if line.startswith("    from kbqa.")]

_HOMES = {words[3]: words[1] for words in _imports}
"""The module of each name: the second word of ``from MODULE import NAME as NAME``."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kbqa' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
