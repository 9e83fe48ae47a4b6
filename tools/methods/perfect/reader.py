"""What a perfect reader replies to methods that retrieve: the gold answers that a prompt shows.

It goes by the rendered prompt alone and names a gold answer only if it is an end of a triple there.
Of several sets of gold answers, as WebQSP has one for each parse, it takes the one of which the
prompt shows the largest share.
"""

from collections.abc import Iterable

from kbqa.engine.questions.question_sets import Question
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import name_terms
from kbqa.sparql.terms import LiteralTerm, Term, is_well_formed
from tools.methods.perfect.known import one_line
from tools.methods.perfect.rendered import TRIPLE, Prompt

ASKED = "which were retrieved from the Freebase knowledge graph"
"""Words that only the prompts of methods that retrieve have."""


class PerfectReader:
    """Knows the names of the gold answers of questions.

    Args:
        questions: The questions.
        graph: Has the names.

    Raises:
        GraphError: The graph does not answer.
    """

    def __init__(self, questions: Iterable[Question], graph: Graph) -> None:
        self._golds: dict[str, list[list[str]]] = {}
        for question in questions:
            terms = [[_term(gold) for gold in golds] for golds in question.golds]
            names = name_terms(graph, [term for each in terms for term in each])
            named = [[one_line(names[term]) for term in each] for each in terms]
            self._golds[" ".join(question.text.split())] = named

    def reply(self, prompt: Prompt) -> str:
        """Reply to a prompt."""
        shown = set(_ends(prompt))
        found = [
            ([name for name in golds if name in shown], len(golds))
            for golds in self._golds.get(prompt.question, [])
        ]
        best = max(found, key=lambda each: len(each[0]) / max(each[1], 1), default=([], 0))[0]
        return "\n".join(f"ans: {name}" for name in dict.fromkeys(best)) or "ans: none"


def _ends(prompt: Prompt) -> Iterable[str]:
    """Yield the names of the nodes of a prompt's triples or paths."""
    for line in prompt.lines("Triples"):
        if match := TRIPLE.fullmatch(line):
            yield from (match[1], match[3])
    for line in prompt.lines("Paths"):
        yield from line.split(" -> ")[::2]  # every second part is a relation


def _term(gold: str) -> Term:
    return gold if is_well_formed(gold) else LiteralTerm(gold)
