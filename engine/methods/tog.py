"""Think-on-Graph: a beam search in which a language model scores relations, then entities.

In each hop every entity of the frontier asks once which relations to follow, in both directions,
with a score each; every chosen relation that leads to several entities asks for their scores. The
product of both scores decides which triples are kept, over all entities. Then it is asked whether
the triples kept so far answer the question. If they never do, the answer is given without them,
after reasoning (CoT), as in the paper.

Without a language model, the embedder scores relations and entities by their similarity to the
question, and chance scores all alike; neither ever judges that the triples suffice, so the search
ends at the deepest hop.

Where the released program fails or cannot be repeated, this one differs:

- Following a relation backwards works; there its arguments were swapped, and nothing was found.
- A relation that an entity has in both directions is offered twice, with arrows, and not taken as
  outgoing alone. The relation just followed is left out in the opposite direction for each path by
  its own direction, and not by one direction for all.
- Entities and their names stay together; entities without a name and literals are kept.
- An entity that two triples lead to is explored once, from the better of them.
- Many entities are drawn by the content of what is drawn, with a seed (`drawn_by_content`).
- Prompts hold no examples, and answers are asked for one a line.
- After Yes without a name that can be read, the answer is asked for from the triples.

Source: Think-on-Graph (Sun et al. 2024), §2, its appendix of prompts, whose words are ours here,
and its released code; ToG-R is `prune=random`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Message, ReplySampling
from kbqa.engine.deciding.choosing import written_prompt
from kbqa.engine.deciding.reading import (
    Picked,
    Verdict,
    all_unread,
    read_list,
    read_scores,
    read_verdict,
)
from kbqa.engine.deciding.session import SEED, Session, Stop
from kbqa.engine.graph_walk import Walk, drawn_by_content, first_to_each
from kbqa.engine.methods import check_counts, check_temperature, walking_method
from kbqa.engine.methods.walking import Followed, Offer, answer_from, walk_on
from kbqa.sparql.terms import Term

RELATIONS = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. `->` \
follows a relation forwards, `<-` backwards. Choose at most {width} of the relations below that \
lead from the entity towards the answer, and rate how much each contributes by a score from 0 to \
1; the scores add up to 1. Reply with NONE, or with a relation and its score a line, the best \
first, such as:
-> people.person.parents: 0.7

Question: {question}
Entity: {entity}
Relations:
{relations}
"""

ENTITIES = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. The \
relation below leads from an entity to those that are listed. Rate how much each of them \
contributes to the answer by a score from 0 to 1; the scores add up to 1. Reply with the number of \
every entity and its score, one a line, such as:
1: 0.7

Question: {question}
Entity: {entity}
Relation: {relation}
Entities:
{entities}
"""

CHECK = """\
Below are triples of the Freebase knowledge graph. Can the question be answered from them and what \
you know? Reply with Yes or No on the first line. After Yes, write the names of all answers, one a \
line, as in the triples.

Question: {question}
Triples:
{triples}
"""

ANSWER = """\
Answer the question from these triples of the Freebase knowledge graph and what you know. Reply \
with the names of all answers alone, one a line, as in the triples, or with NONE if there is none.

Question: {question}
Triples:
{triples}
"""


@dataclass(frozen=True, slots=True)
class TogSettings:
    """How Think-on-Graph answers; each setting says its meaning."""

    width: Annotated[int, "Relations scored for an entity, and triples kept after each hop."] = 3
    depth: Annotated[int, "Hops, at most."] = 3
    temperature: Annotated[
        float, "Of the replies that score relations and entities; the others have 0."
    ] = 0.4
    sample: Annotated[int, "Entities drawn of a relation that leads to many."] = 5
    sample_from: Annotated[int, "Entities from which a relation leads to many."] = 20
    prune: Annotated[
        Literal["llm", "random"],
        "Whether the chooser scores entities, or they are drawn by chance without a call, as in "
        "ToG-R.",
    ] = "llm"
    seed: Annotated[int, "Seed of everything drawn by chance."] = SEED

    def __post_init__(self) -> None:
        check_counts(self, "width", "depth", "sample", "sample_from")
        check_temperature(self.temperature)


SCORING_TOKENS = 256
ANSWER_TOKENS = 512
"""Most tokens of a reply: scores, and the answers, of which there may be many."""

LIMITS: Mapping[str, object] = {"scoring_tokens": SCORING_TOKENS, "answer_tokens": ANSWER_TOKENS}


class _ThinkOnGraph:
    """The search for one question."""

    def __init__(self, session: Session, settings: TogSettings) -> None:
        self._session, self._settings = session, settings
        self._around = session.neighbourhood
        self._kept: list[Walk] = []
        width = settings.width
        sampling: ReplySampling = {
            "max_tokens": SCORING_TOKENS,
            "temperature": settings.temperature,
        }
        read = partial(read_relation_scores, width=width)
        self._relations = Offer(RELATIONS, read, width, sampling=sampling)
        self._entities = Offer(ENTITIES, read_entity_scores, sampling=sampling)

    def answer(self) -> Answer:
        """Walk until the triples suffice, and answer from them; if they never do, without them."""
        stop, said = self._walk()
        prompt = self._about_triples(ANSWER)
        return answer_from(self._session, self._kept, stop, said, prompt, max_tokens=ANSWER_TOKENS)

    def _walk(self) -> tuple[Stop, tuple[str, ...]]:
        """Return why walking ended, and the answers if the triples suffice."""
        budget = self._session.asked.budget
        frontier = tuple(map(Walk, self._session.topics))
        for hop in range(1, self._settings.depth + 1):
            frontier = self._longer(frontier, hop)
            self._kept += frontier
            if budget.is_exhausted:
                return "budget", ()
            if not frontier:
                return "nothing", ()
            verdict = self._verdict(hop)
            if verdict.is_enough:
                return "enough", verdict.names
            if budget.is_exhausted:
                return "budget", ()
        return "depth", ()

    def _verdict(self, hop: int) -> Verdict:
        """Ask whether the triples kept so far suffice."""
        prompt = self._about_triples(CHECK)
        reply = self._session.ask("check", prompt, hop=hop, max_tokens=ANSWER_TOKENS)
        if reply is None:
            return Verdict(False)
        verdict = read_verdict(reply, self._session.names_on(self._kept))
        self._session.not_understood(verdict.unread)
        return verdict

    def _about_triples(self, template: str) -> tuple[Message, ...]:
        triples = "\n".join(self._session.drawn_triples(self._kept))
        return written_prompt(template, question=self._session.question, triples=triples)

    def _longer(self, walks: Sequence[Walk], hop: int) -> tuple[Walk, ...]:
        """Continue walks by a hop, and keep those with the best triples."""
        walks = first_to_each(walks)
        offers = self._relations, self._leading_to, self._entities
        longer = walk_on(self._session, walks, hop, *offers)
        # The last digits of a cosine depend on the batch.
        best = sorted((each for each in longer if each[1] > 0), key=lambda each: -round(each[1], 6))
        kept = best[: self._settings.width]
        self._session.clipped(len(best) - len(kept))
        return tuple(walk for walk, _ in kept)

    def _leading_to(self, followed: Sequence[Followed]) -> list[Followed]:
        """Find where relations lead; all nodes are taken where there is nothing to decide."""
        found = [each for each in map(self._some, followed) if each.nodes]
        self._around.names(node for each in found for node in each.nodes)
        return [
            each if self._is_offered(each.nodes) else each._replace(taken=_alike(len(each.nodes)))
            for each in found
        ]

    def _some(self, followed: Followed) -> Followed:
        """Look up what a relation leads to; many nodes are drawn from."""
        settings, (walk, hop) = self._settings, followed[:2]
        nodes, hidden = self._around.tails(walk.end, hop)
        most = settings.sample if len(nodes) >= settings.sample_from else len(nodes)
        if most < len(nodes) or settings.prune == "random":
            question = self._session.question
            drawn = drawn_by_content(nodes, most, settings.seed, question, walk.end, hop)
            nodes, hidden = drawn, hidden + len(nodes) - len(drawn)
        return followed._replace(nodes=nodes, hidden=hidden)

    def _is_offered(self, nodes: Sequence[Term]) -> bool:
        if self._settings.prune == "random" or len(nodes) == 1:
            return False
        return not all(map(self._around.is_nameless, nodes))


def read_relation_scores(reply: str, options: Sequence[str], width: int) -> Picked:
    """Read at most `width` relations with their scores."""
    picked = read_scores(reply, options, width, is_loose=True)
    if picked.chosen or picked.unread:
        return picked
    return Picked((), (), all_unread(reply))


def read_entity_scores(reply: str, options: Sequence[str]) -> Picked:
    """Read a score for each entity: by number or name, or a list in the entities' order.

    If scores are missing or too many, all are equal, and the reply counts as not understood.
    """
    size = len(options)
    listed = read_list(reply)
    if listed is None:
        listed = ((reply.strip().splitlines() or [""])[-1].rpartition(":")[2]).split(",")
    scores = _scores(listed)
    if len(scores) == size:
        return Picked(tuple(range(size)), scores)
    picked = read_scores(reply, options, size)
    if len(picked.chosen) == size:
        return picked
    return replace(_alike(size), unread=all_unread(reply))


def _alike(size: int) -> Picked:
    return Picked(tuple(range(size)), (1.0 / size,) * size)


def _scores(texts: Sequence[str]) -> tuple[float, ...]:
    """Read texts as scores, clipped to [0, 1]; none if one of them is no number."""
    try:
        scores = tuple(map(float, texts))
    except ValueError:
        return ()
    if any(score != score for score in scores):  # not a number
        return ()
    return tuple(min(max(score, 0.0), 1.0) for score in scores)


TOG = walking_method(
    "tog", TogSettings, LIMITS, lambda session, chosen: _ThinkOnGraph(session, chosen).answer()
)
