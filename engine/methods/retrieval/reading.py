r"""Have a language model read triples, and find the nodes that its answers name.

Only nodes of the triples that it was shown can be answers. A line that names none of them is no
answer; the trace has it.

Source: SubgraphRAG's released code, for the reply's form and the second call; Path Pooling §4.1.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kbqa.engine.answer import term_text
from kbqa.engine.deciding.reading import clip_unread, is_no_answer, plain_lines
from kbqa.engine.deciding.session import Session
from kbqa.engine.methods.retrieval.prompts import follow_up, in_order, reading_prompt
from kbqa.engine.methods.retrieval.settings import SubgraphSettings
from kbqa.engine.retrieval.retrieval import RetrievedTriple
from kbqa.kb.names.keys import normalise
from kbqa.sparql.terms import Term

_ANSWER = re.compile(r"(?:^|(?<=\s))\W{0,4}ans(?:wers?)?\s?:", re.IGNORECASE)


class Read(NamedTuple):
    """What a language model answered.

    Attributes:
        answers: Nodes of the triples, in the order of the reply.
        unmatched: What it named that is none of them.
    """

    answers: tuple[Term, ...]
    unmatched: tuple[str, ...] = ()


def read_triples(
    session: Session, triples: Sequence[RetrievedTriple], settings: SubgraphSettings
) -> Read | None:
    """Have the language model read triples.

    Args:
        session: The question's.
        triples: Best first.
        settings: How they are shown.

    Returns:
        What it answered; None if no call is left.

    Raises:
        ModelError: The model failed.
        GraphError: The graph does not answer.
        DeadlineExceeded: The question's deadline has passed.
    """
    nodes = [node for each in triples for node in (each.subject, each.object)]
    names = session.neighbourhood.names(nodes)
    shown = in_order(triples, settings.order)
    prompt = reading_prompt(session.question, shown, names.__getitem__, settings.prompt)
    limit = settings.max_tokens
    reply = session.ask("answer", prompt, max_tokens=limit, is_last=True)
    if reply is None:
        return None
    said = said_answers(reply)
    if settings.follow_up and not said:
        session.not_understood(clip_unread(plain_lines(reply)[-1:]))
        again = follow_up(prompt, settings.prompt)
        reply = session.ask("answer", again, max_tokens=limit, is_last=True) or ""
        said = said_answers(reply)
    topics = {topic.mid for topic in session.topics}
    read = match_answers(said, triples, names, topics)
    if not said:
        session.not_understood(clip_unread(plain_lines(reply)[-1:] or ["(empty)"]))
    else:
        session.not_understood(clip_unread(read.unmatched))
    return read


def said_answers(reply: str) -> list[str]:
    r"""Read the answers of a reply: what follows each ``ans:``, on one line or several.

    >>> said_answers("It is in Kenya.\n**ans:** Nairobi\nans: Mombasa. ans: none")
    ['Nairobi', 'Mombasa']
    """
    said: dict[str, None] = {}
    for line in reply.splitlines():
        for piece in _ANSWER.split(line)[1:]:
            text = "".join(plain_lines(piece)[:1]).strip(" *.;")
            if not is_no_answer(text):
                said[text] = None
    return list(said)


def match_answers(
    said: Sequence[str],
    triples: Sequence[RetrievedTriple],
    names: Mapping[Term, str],
    topics: set[str | None],
) -> Read:
    """Find the nodes of triples that answers name.

    A name means the nodes that have it; if no node does, those of the only name that contains it or
    that it contains, word by word. Of several nodes of a name, those in the best triples count, and
    a topic only if it is the only one.

    Args:
        said: Names, ids or texts of literals.
        triples: Those that were shown, best first.
        names: Of their nodes.
        topics: Ids of the topics.
    """
    rank: dict[Term, int] = {}
    score: dict[Term, float] = {}
    for each in triples:
        for node in (each.subject, each.object):
            rank.setdefault(node, len(rank))
            score.setdefault(node, each.score if each.pooled is None else each.pooled)
    by_key: dict[str, list[Term]] = {}
    for node in sorted(rank, key=rank.__getitem__):
        for key in {normalise(names[node]), normalise(term_text(node))} - {""}:
            by_key.setdefault(key, []).append(node)
    answers: dict[Term, None] = {}
    unmatched = []
    for text in said:
        nodes = by_key.get(normalise(text)) or _contained(normalise(text), by_key)
        nodes = [node for node in nodes if node not in topics] or nodes
        best = max((score[node] for node in nodes), default=0.0)
        answers.update((node, None) for node in nodes if score[node] == best)
        if not nodes:
            unmatched.append(text)
    return Read(tuple(answers), tuple(unmatched))


def _contained(text: str, by_key: Mapping[str, list[Term]]) -> list[Term]:
    """Return the nodes of the only name that contains a text or is contained in it."""
    found = [key for key in by_key if f" {key} " in f" {text} " or f" {text} " in f" {key} "]
    return by_key[found[0]] if text and len(found) == 1 else []
