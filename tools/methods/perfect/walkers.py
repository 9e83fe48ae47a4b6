"""What a perfect chooser replies to the prompts of the walking methods.

It goes by the rendered prompt alone. It follows the gold main path: at a node of the path it names
the next relation, and among nodes those that lead to gold answers, as many different ones as it
can. It says that a question can be answered only if the prompt shows the whole path to a gold
answer, and it names only gold answers that stand at the end of such a path in the prompt. From
memory it knows nothing.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from kbqa.sparql.crp import Hop
from tools.methods.perfect.known import Known, best_of
from tools.methods.perfect.rendered import (
    TRIPLE,
    Prompt,
    WrittenPath,
    numbers_of,
    read_path,
    read_relation,
    read_relations,
)

_START = "This is the start of the path."
_NOTHING = "nothing yet"


def reply_to(prompt: Prompt, known: Sequence[Known]) -> str | None:
    """Reply to the prompt of a walking method; None if it is of no method that is known here.

    What is known of a later parse counts if the first ones find nothing in the prompt.
    """
    for words, reply in _REPLIES.items():
        if prompt.says(words):
            nothing = reply(prompt, None)
            replies = (reply(prompt, each) for each in known)
            return next((each for each in replies if each != nothing), nothing)
    return None


def _bpc_relations(prompt: Prompt, known: Known | None) -> str:
    options = prompt.lines("Relations")
    at = _depths(prompt.field("Current entity"), _last_hop(prompt), known)
    return "\n".join(_relations(options, at, known)) or "STOP"


def _bpc_entities(prompt: Prompt, known: Known | None) -> str:
    options, hop = prompt.lines("Entities"), read_relation(prompt.field("Relation"))
    at = _depths(prompt.field("Current entity"), _last_hop(prompt), known)
    at = [depth for depth in at if known is not None and known.is_edge(hop, depth)]
    return "\n".join(_entities(options, at, known, prompt.most)) or "none"


def _bpc_check(prompt: Prompt, known: Known | None) -> str:
    return "YES" if _answers(prompt.lines("Paths"), known) else "NO"


def _bpc_answer(prompt: Prompt, known: Known | None) -> str:
    return "\n".join(_answers(prompt.lines("Paths"), known)) or "none"


def _knowpath_memory(prompt: Prompt, known: Known | None) -> str:
    return json.dumps({"triples": [], "path": [], "answers": []})


def _knowpath_relations(prompt: Prompt, known: Known | None) -> str:
    chosen: list[str] = []
    if known is not None and known.is_topic(prompt.field("Topic entity")):
        entities = prompt.field("Explored from").split("; ")
        at = sorted({depth for entity in entities for depth in known.depths(entity)})
        chosen = _relations(prompt.lines("Relations"), at, known)
    return json.dumps({"Relations": chosen})


def _knowpath_entities(prompt: Prompt, known: Known | None) -> str:
    chosen: list[str] = []
    if known is not None and known.is_topic(prompt.field("Topic entity")):
        hops = map(read_relation, prompt.field("Chosen relations").split("; "))
        at = sorted({d for hop in hops for d in range(known.hops) if known.is_edge(hop, d)})
        chosen = _entities(prompt.lines("Entities"), at, known, prompt.most)
    return json.dumps({"Entities": chosen})


def _knowpath_check(prompt: Prompt, known: Known | None) -> str:
    names = _answers(prompt.lines("Paths"), known)
    return json.dumps({"Answerable": bool(names), "Response": "; ".join(names), "Answers": names})


def _trace_narrate(prompt: Prompt, known: Known | None) -> str:
    return f"Followed so far: {prompt.field('Relations so far')}."


def _trace_propose(prompt: Prompt, known: Known | None) -> str:
    hops = () if _START in prompt.text else read_relations(prompt.field("Context"))
    chosen: list[str] = []
    if known is not None and known.is_topic(prompt.field("The path starts at")):
        options = prompt.lines("Relations")
        if known.begins_with(hops):
            next_ = [o for o in options if known.is_edge(read_relation(o), len(hops))]
            chosen = next_[: prompt.most]
    return json.dumps(chosen)


def _trace_rank(prompt: Prompt, known: Known | None) -> str:
    path = prompt.field("Path so far")
    hops = () if path == _NOTHING else read_relations(path)
    scores = {}
    for option in prompt.lines("Relations"):
        is_right = known is not None and known.is_topic(prompt.field("The path starts at"))
        if is_right and known is not None:
            is_right = known.begins_with((*hops, read_relation(option)))
        scores[option] = 1.0 if is_right else 0.0
    return json.dumps(scores)


def _trace_words(prompt: Prompt, known: Known | None) -> str:
    return "Follow the relations that the question asks for."


def _trace_answer(prompt: Prompt, known: Known | None) -> str:
    hops = read_relations(prompt.field("Path"))
    if known is None or not known.is_path(hops):
        return "none"
    return "\n".join(filter(known.is_answer, prompt.lines("Entities"))) or "none"


def _tog_relations(prompt: Prompt, known: Known | None) -> str:
    entity = prompt.field("Entity")
    at = [] if known is None else [d for d in known.depths(entity) if known.worth(entity, d)]
    chosen = _relations(prompt.lines("Relations"), at, known)
    return "\n".join(f"{relation}: 1.0" for relation in chosen) or "none"


def _tog_entities(prompt: Prompt, known: Known | None) -> str:
    options, hop = prompt.lines("Entities"), read_relation(prompt.field("Relation"))
    scores = [0.0] * len(options)
    if known is not None:
        at = [d for d in known.depths(prompt.field("Entity")) if known.is_edge(hop, d)]
        covered: frozenset[str] = frozenset()
        worths = _worths(options, at, known)
        for option in best_of(worths):
            scores[option] = 0.3 if worths[option] <= covered else 1.0
            covered |= worths[option]
    return "\n".join(f"{number}: {score}" for number, score in enumerate(scores, 1))


def _tog_check(prompt: Prompt, known: Known | None) -> str:
    names = _answers_of_triples(prompt.lines("Triples"), known)
    return "\n".join(["Yes", *names] if names else ["No"])


def _tog_answer(prompt: Prompt, known: Known | None) -> str:
    return "\n".join(_answers_of_triples(prompt.lines("Triples"), known)) or "none"


def _pog_plan(prompt: Prompt, known: Known | None) -> str:
    return json.dumps([prompt.question])


def _pog_relations(prompt: Prompt, known: Known | None) -> str:
    at = [] if known is None else known.depths(prompt.field("Entity"))
    return json.dumps(_relations(prompt.lines("Relations"), at, known))


def _pog_entities(prompt: Prompt, known: Known | None) -> str:
    options, hop = prompt.lines("Entities"), read_relation(prompt.field("Relation"))
    depths = [] if known is None else known.depths(prompt.field("Entity"))
    at = [depth for depth in depths if known is not None and known.is_edge(hop, depth)]
    return json.dumps(_entities(options, at, known, len(options)))


def _pog_remember(prompt: Prompt, known: Known | None) -> str:
    return "{}"


def _pog_check(prompt: Prompt, known: Known | None) -> str:
    names = _answers_of_triples(prompt.lines("Triples"), known)
    verdict = {"Sufficient": "Yes" if names else "No", "Answer": names or None}
    return json.dumps({"A": verdict, "R": ""})


def _pog_reflect(prompt: Prompt, known: Known | None) -> str:
    return json.dumps({"Add": "No", "Reason": ""})


def _pog_earlier(prompt: Prompt, known: Known | None) -> str:
    # Nothing leads on from the end of the path.
    depths = range(known.hops if known is not None else 0)
    options = prompt.lines("Earlier entities")
    worths = [_worth(option, depths, known) for option in options]
    return json.dumps(numbers_of(best_of(worths), options))


def _from_memory(prompt: Prompt, known: Known | None) -> str:
    return "Answer:\nunknown"


_REPLIES: Mapping[str, Callable[[Prompt, Known | None], str]] = {
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


def _last_hop(prompt: Prompt) -> WrittenPath | None:
    """Return the last hop that a history shows; None if it shows none."""
    _, _, history = prompt.text.partition("\nHistory:")
    lines = history.partition("\nCurrent entity:")[0].strip().splitlines()
    path = read_path(re.sub(r"^Hop \d+: ", "", lines[-1])) if lines else None
    return path if path is not None and path.hops else None


def _depths(entity: str, last: WrittenPath | None, known: Known | None) -> list[int]:
    """List how far an entity may be from the topic, by its name and the hop that led there."""
    if known is None:
        return []
    depths = known.depths(entity)
    if last is not None:
        return [depth for depth in depths if depth and known.is_edge(last.hops[-1], depth - 1)]
    return depths


def _relations(options: Sequence[str], depths: Sequence[int], known: Known | None) -> list[str]:
    """Choose the relations that lead on from any of some depths."""
    if known is None:
        return []
    hops = [read_relation(option) for option in options]
    right = [at for at, hop in enumerate(hops) if any(known.is_edge(hop, d) for d in depths)]
    return [options[at] for at in right]


def _entities(
    options: Sequence[str], depths: Sequence[int], known: Known | None, most: int
) -> list[str]:
    """Choose the nodes, one hop from any of some depths, that lead to the most answers."""
    if known is None or not depths:
        return []
    return numbers_of(best_of(_worths(options, depths, known), most), options)


def _worths(options: Sequence[str], depths: Sequence[int], known: Known) -> list[frozenset[str]]:
    """List the gold answers behind nodes that are one hop from any of some depths."""
    return [_worth(name, [depth + 1 for depth in depths], known) for name in options]


def _worth(name: str, depths: Iterable[int], known: Known | None) -> frozenset[str]:
    """Return the gold answers behind the nodes of a name at any of some depths."""
    if known is None:
        return frozenset()
    return frozenset[str]().union(*(known.worth(name, depth) for depth in depths))


def _answers(paths: Sequence[str], known: Known | None) -> list[str]:
    """List the gold answers at the ends of written paths, which start at the left or right."""
    if known is None:
        return []
    names: dict[str, None] = {}
    for path in map(read_path, paths):
        for way in (path, path.turned):
            is_gold = known.is_topic(way.nodes[0]) and known.is_path(way.hops)
            if is_gold and known.is_answer(way.nodes[-1]):
                names[way.nodes[-1]] = None
    return list(names)


def _answers_of_triples(lines: Sequence[str], known: Known | None) -> list[str]:
    """List the gold answers to which triples lead along the whole path.

    Triples are listed hop by hop, so a walk takes each later than the last. Without that, triples
    of several walks would join to paths that are longer than the walks.
    """
    if known is None:
        return []
    triples = [match.groups() for line in lines if (match := TRIPLE.fullmatch(line))]
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
