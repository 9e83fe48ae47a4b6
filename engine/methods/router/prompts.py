"""What the general model is asked in a repair, and how its replies are read.

Three prompts: for the blueprint, for the best of some paths and, if the model itself decides how
far to search, whether a path already ends at the answers. Readers return nothing for a reply that
cannot be used; the caller decides what happens then.

Source: RouterKGQA §3.3 and appendix A.2 for what is asked; the words are ours.
"""

import re
from collections.abc import Sequence

from kbqa.engine.chat.model import Message
from kbqa.engine.exploring.frontiers import RelationPath
from kbqa.kb.escaping import prompt_line

MAX_STEPS = 5
"""Steps of a blueprint that count; a path has four hops at most."""

_STEP = re.compile(r"^\s*(?:[-*•#]\s*)?(?:step\s*)?(?:\d+\s*[.):]\s*)?(.+?)\s*$", re.IGNORECASE)
_NUMBER = re.compile(r"(?<!\d)\d{1,3}(?!\d)")
_MAX_STEP_LETTERS = 200

_BLUEPRINT = """\
Break the question into the steps by which its answer is found in a knowledge graph, starting from \
the entity that it names. Each step is one short phrase for one relation to follow, such as \
"spouse of the person" or "team that the player plays for". Conditions such as dates, places or \
"largest" are no steps. Most questions need one or two steps, and none more than four. Reply with \
the steps alone, numbered, one a line.

Question: who is the mother of the author of Frankenstein?
1. author of the book
2. mother of the person

Question: what language do they speak in Jamaica?
1. languages spoken in the country

Question: {question}
"""

_CHOICE = """\
A question is to be answered by following relations of the Freebase knowledge graph. Below are \
paths that exist in the graph. `->` follows a relation forwards, `<-` backwards; the path's last \
node would be the answer. Conditions such as dates or "largest" are checked later. Choose \
{how_many}. Reply with the number{plural} alone{order}.

Question: {question}
{blueprint}
{paths}
"""

_JUDGE = """\
A question is to be answered by following relations of the Freebase knowledge graph. `->` follows \
a relation forwards, `<-` backwards. Does the node at the end of any of these paths answer the \
question, apart from conditions such as dates or "largest", which are checked later? Reply with \
yes, or with no if a path must be followed further.

Question: {question}

{paths}
"""


def blueprint_prompt(question: str) -> list[Message]:
    """Ask for the steps by which a question is answered."""
    return [Message("user", _BLUEPRINT.format(question=_line(question)))]


def read_blueprint(reply: str) -> tuple[str, ...]:
    r"""Read the steps of a blueprint; none if the reply has none.

    >>> read_blueprint("1. author of the book\n2) mother of the person\n")
    ('author of the book', 'mother of the person')
    """
    lines = [line for line in reply.splitlines() if line.strip()]
    numbered = [line for line in lines if re.match(r"\s*(?:step\s*)?\d", line, re.IGNORECASE)]
    steps = []
    for line in numbered or lines:
        match = _STEP.match(line)
        if match and re.search(r"[^\W\d]", match[1]):
            steps.append(match[1][:_MAX_STEP_LETTERS])
    return tuple(steps[:MAX_STEPS])


def choice_prompt(
    question: str, steps: Sequence[str], paths: Sequence[RelationPath], wanted: int
) -> list[Message]:
    """Ask for the best paths.

    Args:
        question: The whole question.
        steps: The blueprint; may be empty.
        paths: To choose from; they are numbered from 1.
        wanted: How many to choose, at most.
    """
    blueprint = "".join(f"Step {number}: {step}\n" for number, step in enumerate(steps, 1))
    prompt = _CHOICE.format(
        how_many="the best path" if wanted == 1 else f"up to {wanted} of them",
        plural="" if wanted == 1 else "s",
        order="" if wanted == 1 else ", the best first, such as: 4, 1",
        question=_line(question),
        blueprint=blueprint,
        paths=_numbered(paths),
    )
    return [Message("user", prompt)]


def read_choice(reply: str, count: int, wanted: int) -> list[int]:
    """Read which of `count` paths were chosen: their indexes from 0, in the reply's order.

    If a reply explains itself, its last line with a number counts.

    >>> read_choice("Path 3, then 1 (not 12).", count=10, wanted=2), read_choice("none", 10, 1)
    ([2, 0], [])
    """
    explains = re.search(r"[^\W\d]", reply) is not None
    for line in reversed(reply.splitlines()) if explains else [reply]:
        numbers = dict.fromkeys(int(number) for number in _NUMBER.findall(line))
        chosen = [number - 1 for number in numbers if 1 <= number <= count]
        if chosen:
            return chosen[:wanted]
    return []


def judge_prompt(question: str, paths: Sequence[RelationPath]) -> list[Message]:
    """Ask whether the search has gone far enough."""
    return [Message("user", _JUDGE.format(question=_line(question), paths=_numbered(paths)))]


def read_judgement(reply: str) -> bool:
    """Return whether a reply begins with yes; anything else means no."""
    return bool(re.match(r"\W*yes\b", reply, re.IGNORECASE))


def _numbered(paths: Sequence[RelationPath]) -> str:
    return "\n".join(f"{number}. {written_path(path)}" for number, path in enumerate(paths, 1))


def written_path(path: RelationPath) -> str:
    """Write a path for people and general models.

    >>> from kbqa.sparql.crp import Entity, Hop
    >>> written_path(RelationPath(Entity("Kenya", "m.019rg5"), (Hop("a.b"), Hop("c.d", True))))
    'Kenya -> a.b -> ? <- c.d <- ?'
    """
    arrows = ("<-" if hop.inverse else "->" for hop in path.hops)
    hops = (
        f" {arrow} {hop.relation} {arrow} ?" for arrow, hop in zip(arrows, path.hops, strict=True)
    )
    return f"{prompt_line(str(path.topic))}{''.join(hops)}"


def _line(question: str) -> str:
    return " ".join(question.split())
