"""The prompts by which a language model reads triples, and the nodes that its answers name.

The prompts are in our words: one example, triples or paths, the question, and answers on lines that
begin with ``ans:``. Only nodes of the triples that it was shown can be answers.

Source: SubgraphRAG's prompt and released code, for the reply's form and the second call; Path
Pooling §4.1 and appendix A.4.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from kbqa.engine.answer import term_text
from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.reading import clip_unread, is_no_answer, plain_lines
from kbqa.engine.deciding.session import Session
from kbqa.engine.methods.options import check_counts
from kbqa.engine.retrieval.pooling import PoolingSettings, Shown
from kbqa.engine.retrieval.retrieval import RetrievedTriple
from kbqa.engine.retrieval.retriever import ScorerName
from kbqa.kb.names import normalise
from kbqa.sparql.terms import Term

ReaderName = Literal["llm", "kernels"]
PromptForm = Literal["triples", "paths"]
PromptOrder = Literal["ascending", "descending", "edges"]

_Prompt = Annotated[
    PromptForm,
    "How the general model is shown triples: each on its own, or as paths where one begins with "
    "the end of the one before it.",
]
_Order = Annotated[
    PromptOrder,
    "Where a prompt has the best triples: last, next to the question; first; or at both ends.",
]
_FollowUp = Annotated[
    bool, "Whether the general model is asked once more if its reply has no answer."
]


@dataclass(frozen=True)
class SubgraphSettings:
    """The settings of `subgraph`. Source of the defaults: SubgraphRAG's code; `shown` is ours."""

    triples: Annotated[int, "Triples that are retrieved, at most."] = 100
    scorer: Annotated[
        ScorerName,
        "What scores triples: a scorer that was trained, or the similarity of the question and the "
        "relation alone.",
    ] = "trained"
    scorer_file: Annotated[
        Path | None,
        "The retriever.json that `kbqa train-retriever` wrote; by default the one that ships with "
        "kbqa.",
    ] = None
    shown: Annotated[
        Shown,
        "Whether a fact that a relation and its reverse state is retrieved once, or twice as in "
        "the papers.",
    ] = "once"
    reader: Annotated[
        ReaderName | None,
        "Who reads the triples: the general model; or, with kernels, nobody: the paths of the best "
        "triples are run as queries. By default the general model if there is one.",
    ] = None
    prompt: _Prompt = "triples"
    order: _Order = "descending"
    follow_up: _FollowUp = True
    max_tokens: Annotated[int, "The most tokens of a reply."] = 4000
    candidates: Annotated[int, "Paths that are run as queries if nobody reads, at most."] = 5

    def __post_init__(self) -> None:
        check_counts(self, "triples", "max_tokens", "candidates")


@dataclass(frozen=True)
class PathPoolingSettings(PoolingSettings, SubgraphSettings):
    """The settings of `path-pooling`. Source of the defaults: Path Pooling, A.4."""

    prompt: _Prompt = "paths"
    order: _Order = "ascending"
    follow_up: _FollowUp = False

    def __post_init__(self) -> None:
        SubgraphSettings.__post_init__(self)
        PoolingSettings.__post_init__(self)
        self.check_count(self.triples)


_SYSTEM = """\
Answer the question from the {form} below, which were retrieved from the Freebase knowledge graph. \
First reason in a few short sentences. Then write each answer on a line of its own that begins \
with "ans:", with the name exactly as it is written below. If they do not hold the answer, write \
"ans: none"."""

_FOLLOW_UP = """\
Write the answers alone: each on a line of its own that begins with "ans:", with the name exactly \
as it is written above. Give your best guess from the {form} above."""

_EXAMPLE: Sequence[tuple[str, str, str]] = (
    ("Kenya", "location.country.currency_used", "Kenyan shilling"),
    ("Nairobi", "location.location.containedby", "Kenya"),
    ("Lake Albert", "location.location.partially_containedby", "Uganda"),
    ("Lake Victoria", "location.location.partially_containedby", "Kenya"),
    ("Lake Victoria", "location.location.partially_containedby", "Uganda"),
    ("White Nile", "geography.river.origin", "Lake Victoria"),
)
_EXAMPLE_QUESTION = "Which countries share the lake that the White Nile flows out of?"
_EXAMPLE_REPLY = """\
The White Nile flows out of Lake Victoria. Lake Victoria lies partly in Kenya and partly in Uganda.
ans: Kenya
ans: Uganda"""


def reading_prompt(
    question: str, triples: Sequence[RetrievedTriple], name: Callable[[Term], str], form: PromptForm
) -> tuple[Message, ...]:
    """Ask for answers from triples, which are in the order in which they are shown."""
    shown = [(each.subject, each.relation, each.object) for each in triples]
    return (
        Message("system", _SYSTEM.format(form=form)),
        Message("user", _asked(_EXAMPLE_QUESTION, _EXAMPLE, str, form)),
        Message("assistant", _EXAMPLE_REPLY),
        Message("user", _asked(question, shown, name, form)),
    )


def follow_up(prompt: Sequence[Message], form: PromptForm) -> tuple[Message, ...]:
    """Ask once more for answers alone. As in SubgraphRAG, the first reply is not shown again."""
    return (*prompt, Message("user", _FOLLOW_UP.format(form=form)))


def in_order(best_first: Iterable[RetrievedTriple], order: PromptOrder) -> list[RetrievedTriple]:
    """Put triples in the order of a prompt. Source: Path Pooling §4.3.3.

    With ``edges`` the best is the first, the second best the last, the third best the second, and
    so on.
    """
    triples = list(best_first)
    if order == "edges":
        return triples[::2] + triples[1::2][::-1]
    return triples if order == "descending" else triples[::-1]


def _asked(
    question: str,
    triples: Iterable[tuple[Term, str, Term]],
    name: Callable[[Term], str],
    form: PromptForm,
) -> str:
    """Write triples and the question.

    >>> print(_asked("Who?", [("A", "r", "B"), ("B", "s", "C"), ("D", "r", "A")], str, "paths"))
    Paths:
    A -> r -> B -> s -> C
    D -> r -> A
    <BLANKLINE>
    Question: Who?
    """
    lines: list[str] = []
    last: Term | None = None
    for subject, relation, object_ in triples:
        begin, end = name(subject), name(object_)
        if form == "triples":
            lines.append(f"({begin}, {relation}, {end})")
        elif subject == last:
            lines[-1] += f" -> {relation} -> {end}"
        else:
            lines.append(f"{begin} -> {relation} -> {end}")
        last = object_
    return "\n".join([f"{form.capitalize()}:", *lines, "", f"Question: {question}"])


_ANSWER = re.compile(r"(?:^|(?<=\s))\W{0,4}ans(?:wers?)?\s?:", re.IGNORECASE)


class ReadAnswers(NamedTuple):
    """The nodes of triples that a language model named, and names that are none of them."""

    answers: tuple[Term, ...]
    unmatched: tuple[str, ...] = ()


def read_triples(
    session: Session, triples: Sequence[RetrievedTriple], settings: SubgraphSettings
) -> ReadAnswers | None:
    """Have the language model read triples, given best first; None if no call is left."""
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
    r"""Read the answers of a reply, each after an ``ans:``, on one line or several.

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
) -> ReadAnswers:
    """Find the nodes of triples, given best first, that answers name.

    An answer is the name or id of nodes or a literal's text. If no node has it, it means those of
    the only name that contains it or that it contains, word by word. Of several nodes of a name,
    those in the best triples count, and a topic only if it is the only one.
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
    return ReadAnswers(tuple(answers), tuple(unmatched))


def _contained(text: str, by_key: Mapping[str, list[Term]]) -> list[Term]:
    """Return the nodes of the only name that contains a text or is contained in it."""
    found = [key for key in by_key if f" {key} " in f" {text} " or f" {text} " in f" {key} "]
    return by_key[found[0]] if text and len(found) == 1 else []
