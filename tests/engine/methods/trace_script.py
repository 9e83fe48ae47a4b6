"""A scripted language model that acts on the prompts of TRACE, and questions put to the method."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from kbqa.engine.answer import Answer
from kbqa.engine.asked import Asked, Budget, ChooserName
from kbqa.engine.chat.cache import CountedChat
from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.session import Session, Walkers
from kbqa.engine.methods.trace import TraceAnswering
from kbqa.engine.methods.trace_search import TraceSettings
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Entity

QUESTION = "what {is} it\nthat 'we' ask of Kenya?"
_KINDS = {
    "Sentence:": "narrate",
    "Choose from the list below the relations": "relations",
    "Score how": "rank",
    "Summary:": "summarise",
    "Advice:": "generalise",
    "Which of the entities": "answer",
}


class Prompt(NamedTuple):
    """A prompt, as far as scripts act on it."""

    text: str

    @property
    def kind(self) -> str:
        """Which step it belongs to."""
        [kind] = [kind for words, kind in _KINDS.items() if words in self.text]
        return kind

    @property
    def options(self) -> list[str]:
        """The options, as they are numbered."""
        return re.findall(r"^\d+\. (.*)$", self.text, re.MULTILINE)

    def line(self, name: str) -> str:
        """The rest of the last line that begins with a name."""
        return re.findall(rf"^{name}: (.*)$", self.text, re.MULTILINE)[-1]

    @property
    def walked(self) -> tuple[str, ...]:
        """The relations walked so far, which the narrative of a `Guide` quotes."""
        return tuple(re.findall(r"\[(.*?)\]", self.line("Context")))


class Guide:
    """Proposes what a tree says, scores by relation, and quotes relations in narratives.

    Args:
        tree: The relations that are proposed after those walked; none if they are not in it.
        scores: Of relations; 0.9 for others.
        instead: Replies of some kinds of steps, in their place.
    """

    def __init__(
        self,
        tree: Mapping[tuple[str, ...], Sequence[str]] | Callable[[Prompt], Sequence[str]],
        scores: Mapping[str, float] | None = None,
        **instead: str,
    ) -> None:
        self._tree, self._scores, self._instead = tree, scores or {}, instead

    def __call__(self, messages: Sequence[Message]) -> str:
        prompt = Prompt(messages[-1].content)
        if prompt.kind in self._instead:
            return self._instead[prompt.kind]
        match prompt.kind:
            case "narrate":
                walked = prompt.line("Relations so far").split(", ")
                return "Narrative " + " ".join(f"[{bare(each)}]" for each in walked)
            case "relations":
                tree = self._tree
                found = tree(prompt) if callable(tree) else tree.get(prompt.walked, ())
                return json.dumps(list(found))
            case "rank":
                bares = map(bare, prompt.options)
                return json.dumps({each: self._scores.get(each, 0.9) for each in bares})
            case kind:
                return f"The {kind} is\nthis."


def bare(option: str) -> str:
    """An option without its arrow."""
    return option.removeprefix("-> ").removeprefix("<- ")


class Outcome(NamedTuple):
    """An answer, its trace as a record, and the prompts that led to it."""

    answer: Answer
    trace: dict[str, Any]
    prompts: list[Prompt]

    def of(self, kind: str) -> list[str]:
        """The prompts of one kind of step."""
        return [prompt.text for prompt in self.prompts if prompt.kind == kind]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the prompts, in order."""
        return [prompt.kind for prompt in self.prompts]

    @property
    def names(self) -> list[str]:
        """The names of the answers."""
        return sorted(each.name for each in self.answer.answers)

    @property
    def walked(self) -> list[list[str]]:
        """The relations of the trajectories that ended."""
        return [[relation for relation, _ in each["hops"]] for each in self.trace["trajectories"]]


class AskTrace:
    """Asks a question of TRACE."""

    def __init__(self, scripted_chat: Any) -> None:
        self._scripted_chat = scripted_chat

    def __call__(
        self,
        graph: Graph,
        reply_to: Callable[[Sequence[Message]], str] | None,
        *topics: Entity,
        question: str = QUESTION,
        budget: int | None = None,
        chooser: ChooserName = "llm",
        **settings: Any,
    ) -> Outcome:
        chat = self._scripted_chat(reply_to=reply_to)
        with closing(graph.names()) as names:
            walkers = Walkers(graph, names, chooser, 30)
            counted = CountedChat(chat) if reply_to is not None else None
            asked = Asked(question, topics, chat=counted, budget=Budget(budget))
            answer = TraceAnswering(Session(walkers, asked), TraceSettings(**settings)).answer()
        assert chooser != "llm" or asked.budget.spent == answer.usage.calls == len(chat.prompts)
        return Outcome(answer, answer.trace.to_dict(), [Prompt(text) for text in chat.prompts])
