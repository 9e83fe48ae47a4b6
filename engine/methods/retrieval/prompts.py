"""What a language model is asked when it reads triples, in our words.

Source: the form of SubgraphRAG's prompt and of Path Pooling's (appendix A.4): one example, triples
or paths, the question, and answers on lines that begin with ``ans:``.
"""

from collections.abc import Callable, Iterable, Sequence

from kbqa.engine.chat.model import Message
from kbqa.engine.methods.retrieval.settings import PromptForm, PromptOrder
from kbqa.engine.retrieval.retrieval import RetrievedTriple
from kbqa.sparql.terms import Term

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
    """Render the prompt.

    Args:
        question: With single blanks.
        triples: In the order in which they are shown.
        name: Of a node.
        form: Whether triples are shown on their own or as paths.
    """
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
    """Put triples in the order in which a prompt has them.

    With ``edges`` the best is the first, the second best the last, the third best the second, and
    so on. Source: Path Pooling §4.3.3.
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
