"""How far the writing of CRPs is constrained, and by what.

Level ``none`` allows any text. Level ``schema`` allows only CRPs, and in them only relations of the
graph. Level ``graph`` also makes main paths start from the question's topics, and take at each step
a relation that leads on from the nodes reached so far. So every main path exists in the graph, and
nothing is made up. If the topics of a question are not known, ``graph`` is ``schema``.
"""

from collections.abc import Sequence
from typing import Literal

from kbqa.engine.writing.constraints.crp_grammar import Steps
from kbqa.engine.writing.constraints.path_walk import KnownRelations, PathWalk
from kbqa.engine.writing.generate import DecodingLevel, Request
from kbqa.engine.writing.prompt import PromptFormat
from kbqa.kb.graph import Graph
from kbqa.kb.schema.properties import list_relations
from kbqa.sparql.crp import Hop
from kbqa.sparql.errors import CrpSyntaxError, ModelError
from kbqa.sparql.forms import parse_routerkgqa

CONSTRAINED_FORMS: tuple[Literal["routerkgqa", "extended"], ...] = ("routerkgqa", "extended")
"""The text forms that can be constrained."""


class Decoding:
    """A level, with the graph that it needs.

    Args:
        level: See the module's docstring.
        graph: For the levels ``schema`` and ``graph``.

    Raises:
        ValueError: The level needs a graph, and there is none.
        GraphError: The graph does not answer, or holds no relation.
    """

    def __init__(self, level: DecodingLevel = "none", graph: Graph | None = None) -> None:
        self.level = level
        self.graph = graph
        self.relations: Sequence[str] = ()
        """Ids of the relations that paths may take; none at level ``none``."""
        if level != "none":
            if graph is None:
                raise ValueError(f"decoding by {level} needs a graph")
            self.relations = list_relations(graph)
        self._known = {
            is_extended: KnownRelations(self.relations, is_extended=is_extended)
            for is_extended in (False, True)
        }

    def steps(self, request: Request, crp_format: str = "routerkgqa") -> Steps | None:
        """Return where the paths of a request may lead; None if its texts are not constrained."""
        if self.level == "none" or self.graph is None:
            return None
        known = self._known[crp_format == "extended"]
        if self.level == "graph":
            walk = PathWalk(self.graph, request.topics, known)
            if walk.has_topics:
                return walk
        return known


def check_form(prompt: PromptFormat) -> None:
    """Check that what a model writes can be constrained.

    Raises:
        ModelError: It writes another text form.
    """
    if prompt.crp_format not in CONSTRAINED_FORMS:
        raise ModelError(
            f"the adapter writes paths in the form {prompt.crp_format!r}, which cannot be "
            "constrained. Use --decoding none."
        )


def walked_topics(steps: Steps | None, text: str) -> tuple[str, ...]:
    """Return the mids from which a text's main path leads to answers.

    None if it was not walked, or cannot be read: a count with an order, say, which only the whole
    text shows.

    Args:
        steps: What constrained the text.
        text: A CRP in RouterKGQA's form or its extension.
    """
    if not isinstance(steps, PathWalk):
        return ()
    try:
        crp = parse_routerkgqa(text).crp
    except CrpSyntaxError:
        return ()
    hops = tuple(step for step in crp.path if isinstance(step, Hop))
    return steps.mids(str(crp.topic), hops, crp.differs_from or 0)
