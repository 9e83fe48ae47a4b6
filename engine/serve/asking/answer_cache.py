"""The answers that were given last, so that a server repeats itself.

What else decides an answer, such as the graph and the model, does not change while a server runs.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace

from kbqa.engine.serve.asking.served import Served


class AnswerCache:
    """Answers by question and topics; of too many, the one least lately asked for is forgotten.

    Args:
        size: Answers that are kept.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._answers: OrderedDict[Hashable, Served] = OrderedDict()

    def get(self, key: Hashable) -> Served | None:
        """Return an answer that is known."""
        if key not in self._answers:
            return None
        self._answers.move_to_end(key)
        return self._answers[key]

    def put(self, key: Hashable, served: Served) -> None:
        """Remember an answer; but not one that the graph failed, which may do better."""
        if served.answer.reason == "graph":
            return
        self._answers[key] = replace(served, is_cached=True)
        self._answers.move_to_end(key)
        if len(self._answers) > self._size:
            self._answers.popitem(last=False)
