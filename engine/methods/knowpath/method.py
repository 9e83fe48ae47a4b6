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
from dataclasses import asdict

from kbqa.engine.answer import Answer
from kbqa.engine.deciding.answering import Said
from kbqa.engine.deciding.direct import answer_directly
from kbqa.engine.deciding.session import Found, Session, Walkers
from kbqa.engine.deciding.trace import Stop
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.exploring.walks import Walk
from kbqa.engine.method import Asked
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
from kbqa.engine.writing.generate import Candidate

PATHS_TOKENS = 1024
"""Most tokens of the reply from memory, which lists triples."""


class KnowPath:
    """Answers questions as KnowPath does.

    Args:
        walkers: What all questions share.
        settings: How it explores.
        embedder: Orders entities; None for the order of their ids.
    """

    name = "knowpath"

    def __init__(
        self, walkers: Walkers, settings: KnowpathSettings, embedder: Embedder | None
    ) -> None:
        self._walkers, self._settings, self._embedder = walkers, settings, embedder

    def settings(self) -> Mapping[str, object]:
        """Return what decides the answers, for manifests."""
        limits = {
            "max_walks": MAX_WALKS,
            "max_hints": MAX_HINTS,
            "max_hint_letters": MAX_HINT_LETTERS,
        }
        return {**asdict(self._settings), **limits, **self._walkers.settings()}

    def write(self, asked: Sequence[Asked]) -> list[list[Candidate]]:
        """Write nothing: the graph is explored."""
        return [[] for _ in asked]

    def answer(self, asked: Asked) -> Answer:
        """Answer a question; see `Method.answer`."""
        session, ablated = self._walkers.begin(asked), self._settings.ablate
        thought = Thought() if "paths" in ablated else self._remember(session)
        if "subgraph" in ablated:
            return self._fall_back(session, thought, "direct", stage="direct")
        hint = () if "hint" in ablated else thought.hint
        exploration = Exploration(session, self._settings, hint, self._embedder)
        stop: Stop = "depth"
        for hop in range(1, self._settings.depth + 1):
            if not exploration.go_on(hop):
                stop = exploration.why_ended
                break
            verdict = self._judge(session, exploration.walks, hop)
            if verdict.names:
                return session.finish(
                    Found(
                        exploration.walks,
                        "enough",
                        Said(verdict.names),
                        details=self._details(thought),
                        dead_ends=exploration.dead_ends,
                    )
                )
        walks = [*exploration.walks, *exploration.dead_ends]
        if session.has_language_model:
            return self._fall_back(session, thought, stop, walks)
        return session.finish(Found(walks, stop))

    def _remember(self, session: Session) -> Thought:
        """Ask for an answer and its path from memory."""
        prompt = paths_prompt(session.question, self._settings.triples)
        reply = session.ask("paths", prompt, max_tokens=PATHS_TOKENS)
        if reply is None:
            reply = session.ask("paths", prompt, max_tokens=PATHS_TOKENS, is_last=True)
        thought = Thought() if reply is None else read_thought(reply, session.question)
        session.not_understood(thought.unread)
        return thought

    def _judge(self, session: Session, walks: Sequence[Walk], hop: int) -> Verdict:
        """Ask whether the walks answer the question, and how."""
        around = session.neighbourhood
        names = {
            node: " ".join(name.split())
            for node, name in around.names(node for walk in walks for node in walk.nodes).items()
        }
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
        self,
        session: Session,
        thought: Thought,
        stop: Stop,
        walks: Sequence[Walk] = (),
        *,
        stage: str = "fallback",
    ) -> Answer:
        """Answer from memory: none of the walks proves it."""
        said: Said | None = Said(thought.names)
        if "paths" in self._settings.ablate:
            said = answer_directly(session, reason=True)
        return session.finish(Found(walks, stop, said, stage, self._details(thought)))

    def _details(self, thought: Thought) -> Mapping[str, object]:
        return {"hint": list(thought.hint), "remembered": list(thought.names)}
