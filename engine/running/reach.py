"""Check whether a CRP's main path exists in the graph and, if not, at which hop it breaks.

Source: RouterKGQA §3.2, "Reachability verification".
"""

import time

from kbqa.kb.graph import Graph
from kbqa.sparql.compiler.compile import compile_skeleton, compile_skeleton_prefixes
from kbqa.sparql.crp import Crp, Hop, Step, path_relations
from kbqa.sparql.errors import GraphError


def is_reachable(graph: Graph, crp: Crp, timeout_s: float) -> bool:
    """Return whether a CRP's main path exists, whatever its constraints.

    Raises:
        UnlinkedName: The topic is not grounded.
        InputError: A relation or id is one that no query can hold.
        GraphError: The graph does not answer.
    """
    return graph.ask(compile_skeleton(crp), timeout_s=timeout_s)


def find_break(graph: Graph, crp: Crp, timeout_s: float) -> str:
    """Describe where an unreachable main path breaks, as in ``breaks at hop 2: …``.

    Args:
        graph: The graph in which it is not reachable.
        crp: With a grounded topic and relations that a query can hold.
        timeout_s: Seconds for all queries together, at most one a hop.
    """
    ends_at = time.monotonic() + timeout_s
    try:
        for hop, query in enumerate(compile_skeleton_prefixes(crp), 1):
            left_s = max(ends_at - time.monotonic(), 0.001)
            if not graph.ask(query, timeout_s=left_s):
                start = str(crp.topic) if hop == 1 else "there"
                return f"breaks at hop {hop}: {_step(crp.path[hop - 1])} leads nowhere from {start}"
    except GraphError as error:
        return f"where it breaks could not be found: {error}"
    return f"leads to nothing but {_excluded(crp)}"


def _step(step: Step) -> str:
    if isinstance(step, Hop):
        return f"{step.relation} backwards" if step.inverse else step.relation
    return f"a fork of {', '.join(path_relations((step,)))}"


def _excluded(crp: Crp) -> str:
    """Name what the answers must not be: nothing else can be wrong with a whole path."""
    excluded = []
    if crp.differs_from is not None:
        excluded.append(str(crp.topic) if crp.differs_from == 0 else "a node of its own way")
    if crp.answer_language is not None:
        excluded.append("texts in other languages")
    return " and ".join(excluded)
