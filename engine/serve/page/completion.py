"""Complete a path that somebody types: the relations that the graph has where the text ends.

Only kbqa's own text form is completed, and no alternatives in brackets.
"""

import re

from kbqa.engine.exploring.path_ends import PathEnds
from kbqa.engine.serve.browsing import check_hops
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import Names
from kbqa.sparql.crp import Hop

MAX_RELATIONS = 20
_MEANT = 3
_HOP = re.compile(r"(->|<-)\s*([\w.]+)")
_OPEN_HOP = re.compile(r"(?P<before>.*?)(?P<arrow>->|<-)\s*(?P<begun>[\w.]*)$")
_NODE = re.compile(r"\?(x|\d+)\s*$")
_ENTITY = re.compile(r"\[?(?P<name>[^\]]*?)\]?\s*(?:\((?P<mid>[^()\s]+)\))?$")
_ID = re.compile(r"(?:ns:)?([mg]\.[0-9a-z_]+)")


def complete_relation(graph: Graph, names: Names, *, text: str) -> list[str]:
    """List the relations that may follow the last arrow of a text.

    Args:
        graph: The graph.
        names: Its names.
        text: A path up to the cursor.

    Returns:
        Those that begin like what is typed come first, then those that hold it. Empty if the text
        does not end in a hop, or starts from what the graph does not have.

    Raises:
        InputError: The path has too many hops.
        GraphError: The graph does not answer.
    """
    lines = text.split("\n")
    found = _last_hop(lines[-1])
    if found is None:
        return []
    start, done, arrow, begun = found
    node = _NODE.search(start)
    if node is None:
        starts, hops = _entities(start, names), done
    else:
        path_start, path = _hops(lines[0])
        passed = path if node[1] == "x" else path[: int(node[1])]
        starts, hops = _entities(path_start, names), [*passed, *done]
    check_hops(len(hops))
    ends = PathEnds(graph).hops(starts, hops)
    is_inverse = arrow == "<-"
    relations = [hop.relation for hop in ends if hop.inverse == is_inverse]
    wanted = [each for each in dict.fromkeys(relations) if begun.lower() in each]
    return sorted(wanted, key=lambda each: not each.startswith(begun.lower()))[:MAX_RELATIONS]


def _last_hop(line: str) -> tuple[str, list[Hop], str, str] | None:
    """Split a line at its last arrow: its start, the hops before, the arrow, and what follows."""
    last = max(line.rfind("->"), line.rfind("<-"))
    found = _OPEN_HOP.match(line[last:]) if last >= 0 else None
    if found is None:
        return None
    start, hops = _hops(line[:last])
    return start, hops, found["arrow"], found["begun"]


def _hops(line: str) -> tuple[str, list[Hop]]:
    """Split a line into what it starts from and its hops."""
    hops = [Hop(relation, arrow == "<-") for arrow, relation in _HOP.findall(line)]
    return re.split("->|<-", line, maxsplit=1)[0].strip(), hops


def _entities(text: str, names: Names) -> list[str]:
    """Return the ids that the start of a path may mean, best first."""
    known = _ID.fullmatch(text)
    if known is not None:
        return [known[1]]
    entity = _ENTITY.fullmatch(text)
    if entity is None:
        return []
    if entity["mid"]:
        return [entity["mid"].removeprefix("ns:")]
    return [match.mid for match in names.lookup(entity["name"], _MEANT)] if entity["name"] else []
