"""KnowPath: the model's own inference paths guide its exploration of the graph.

First the model answers from memory and gives the path that it reasons along: a hint for what
follows. Then each round lengthens the walks of each topic's subgraph by a hop: relations are chosen
for each entity reached, then entities among those that the relations lead to. After each round the
model judges whether the walks that became longer, and what it knows, answer the question. If no
round does, the answer from memory stands; its stage is ``fallback``.

Without a language model nothing is answered from memory and nothing is judged. The embedder takes
the relations most similar to the question, and the first entities that the best of them lead to;
chance takes any; both do so in all rounds.

What the paper leaves open is read so: memory and judgement are asked at temperature 0, as only
exploration has another; a chosen entity lengthens every walk that leads to it; the question's own
topic entities are explored, not those that the model names.

Source: KnowPath, §2 and appendices A, B, F and G.
"""

from collections.abc import Mapping, Sequence

from kbqa.engine.answer import Answer
from kbqa.engine.deciding.answering import Said
from kbqa.engine.deciding.direct import answer_directly
from kbqa.engine.deciding.session import Found, Session
from kbqa.engine.deciding.trace import Stop
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.exploring.walks import Walk
from kbqa.engine.methods.knowpath.exploration import MAX_WALKS, Exploration
from kbqa.engine.methods.knowpath.prompts import check_prompt, paths_prompt, written_path
from kbqa.engine.methods.knowpath.replies import (
    MAX_HINT_LETTERS,
    MAX_HINTS,
    Thought,
    Verdict,
    read_thought,
    read_verdict,
)
from kbqa.engine.methods.knowpath.settings import KnowpathSettings

PATHS_TOKENS = 1024
"""Most tokens of the reply from memory, which lists triples."""

LIMITS: Mapping[str, object] = {
    "paths_tokens": PATHS_TOKENS,
    "max_walks": MAX_WALKS,
    "max_hints": MAX_HINTS,
    "max_hint_letters": MAX_HINT_LETTERS,
}
"""What decides the answers besides the settings, by name."""


def answer_question(
    session: Session, settings: KnowpathSettings, embedder: Embedder | None
) -> Answer:
    """Answer the question of a session as KnowPath does; raises as `Method.answer` does.

    Args:
        session: The question's.
        settings: How to explore.
        embedder: Orders entities; None for the order of their ids.
    """
    return _Question(session, settings).answer(embedder)


class _Question:
    """One question: what the model remembers of it, and how the exploration goes."""

    def __init__(self, session: Session, settings: KnowpathSettings) -> None:
        self._session, self._settings = session, settings
        self._thought = Thought()

    def answer(self, embedder: Embedder | None) -> Answer:
        """Ask for paths from memory, explore until the walks suffice, and answer."""
        session, ablated = self._session, self._settings.ablate
        if "paths" not in ablated:
            self._thought = self._remember()
        if "subgraph" in ablated:
            return self._fall_back("direct", stage="direct")
        hint = () if "hint" in ablated else self._thought.hint
        exploration = Exploration(session, self._settings, hint, embedder)
        stop: Stop = "depth"
        for hop in range(1, self._settings.depth + 1):
            if not exploration.go_on(hop):
                stop = exploration.why_ended
                break
            verdict = self._judge(exploration.walks, hop)
            if verdict.names:
                return session.finish(
                    Found(
                        exploration.walks,
                        "enough",
                        Said(verdict.names),
                        details=self._details,
                        dead_ends=exploration.dead_ends,
                    )
                )
        walks = [*exploration.walks, *exploration.dead_ends]
        if session.has_language_model:
            return self._fall_back(stop, walks)
        return session.finish(Found(walks, stop))

    def _remember(self) -> Thought:
        """Ask for an answer and its path from memory."""
        session = self._session
        prompt = paths_prompt(session.question, self._settings.triples)
        reply = session.ask("paths", prompt, max_tokens=PATHS_TOKENS)
        if reply is None:
            reply = session.ask("paths", prompt, max_tokens=PATHS_TOKENS, is_last=True)
        thought = Thought() if reply is None else read_thought(reply, session.question)
        session.not_understood(thought.unread)
        return thought

    def _judge(self, walks: Sequence[Walk], hop: int) -> Verdict:
        """Ask whether the walks answer the question, and how."""
        session, around = self._session, self._session.neighbourhood
        names = around.names(node for walk in walks for node in walk.nodes)
        paths = [written_path(walk, names.__getitem__) for walk in walks]
        prompt = check_prompt(session.question, paths)
        reply = session.ask("check", prompt, hop=hop)
        if reply is None and "paths" not in self._settings.ablate:
            # The last call is free for this, as falling back on what is remembered needs none.
            reply = session.ask("check", prompt, hop=hop, is_last=True)
        if reply is None:
            return Verdict()
        verdict = read_verdict(reply, session.question, list(dict.fromkeys(names.values())))
        session.not_understood(verdict.unread)
        return verdict

    def _fall_back(
        self, stop: Stop, walks: Sequence[Walk] = (), *, stage: str = "fallback"
    ) -> Answer:
        """Answer from memory: none of the walks proves it."""
        said: Said | None = Said(self._thought.names)
        if "paths" in self._settings.ablate:
            said = answer_directly(self._session, reason=True)
        return self._session.finish(Found(walks, stop, said, stage, self._details))

    @property
    def _details(self) -> Mapping[str, object]:
        return {"hint": list(self._thought.hint), "remembered": list(self._thought.names)}
