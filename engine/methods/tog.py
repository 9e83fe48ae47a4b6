"""Think-on-Graph: a beam search in which a language model scores relations, then entities.

In each hop every entity of the frontier asks once which relations to follow, in both directions,
with a score each; every chosen relation that leads to several entities asks for their scores. The
product of both scores decides which triples are kept, over all entities. Then it is asked whether
the triples kept so far answer the question. If they never do, the answer is given without them,
after reasoning (CoT), as in the paper.

Without a language model, the embedder scores relations and entities by their similarity to the
question, and chance scores all alike; neither ever judges that the triples suffice, so the search
goes on to the deepest hop.

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

Source: Think-on-Graph (Sun et al. 2024), §2, and its released code; ToG-R is `prune=random`.

What a language model is asked by Think-on-Graph, in our words, and how it scores entities.

Source: Think-on-Graph, §2 and its appendix of prompts, for what is asked; without its examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.choosing import Choice, numbered
from kbqa.engine.deciding.reading import (
    Picked,
    Verdict,
    clip_unread,
    read_list,
    read_names,
    read_scores,
    read_verdict,
)
from kbqa.engine.deciding.session import SEED, Session, Step, Stop
from kbqa.engine.graph_walk import (
    Walk,
    arrow,
    drawn_by_content,
    drawn_triple,
    first_to_each,
    hops_onward,
    triples_of,
)
from kbqa.engine.methods.direct import answer_directly
from kbqa.engine.methods.options import check_counts, check_temperature, walking_method
from kbqa.sparql.crp import Hop
from kbqa.sparql.english import relation_words
from kbqa.sparql.terms import Term

_RELATIONS = """\
A question is answered by following relations of the Freebase knowledge graph, hop by hop. `->` \
follows a relation forwards, `<-` backwards. Choose at most {width} of the relations below that \
lead from the entity towards the answer, and rate how much each contributes by a score from 0 to \
1; the scores add up to 1. Reply with a relation and its score a line, the best first, such as:
-> people.person.parents: 0.7

Question: {question}
Entity: {entity}
Relations:
{relations}
"""

_ENTITIES = """\
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

_CHECK = """\
Below are triples of the Freebase knowledge graph. Can the question be answered from them and what \
you know? Reply with Yes or No on the first line. After Yes, write the names of all answers, one a \
line, as in the triples.

Question: {question}
Triples:
{triples}
"""

_ANSWER = """\
Answer the question from these triples of the Freebase knowledge graph and what you know. Reply \
with the names of all answers alone, one a line, as in the triples.

Question: {question}
Triples:
{triples}
"""


def relations_prompt(
    question: str, entity: str, relations: Sequence[str], width: int
) -> tuple[Message, ...]:
    """Ask for scores of the relations of an entity."""
    prompt = _RELATIONS.format(
        width=width, question=question, entity=entity, relations=numbered(relations)
    )
    return (Message("user", prompt),)


def entities_prompt(
    question: str, entity: str, relation: str, entities: Sequence[str]
) -> tuple[Message, ...]:
    """Ask for scores of the entities that a relation leads to."""
    prompt = _ENTITIES.format(
        question=question, entity=entity, relation=relation, entities=numbered(entities)
    )
    return (Message("user", prompt),)


def check_prompt(question: str, triples: Sequence[str]) -> tuple[Message, ...]:
    """Ask whether triples suffice, and then for the answers."""
    return (Message("user", _CHECK.format(question=question, triples="\n".join(triples))),)


def answer_prompt(question: str, triples: Sequence[str]) -> tuple[Message, ...]:
    """Ask for the answers from triples."""
    return (Message("user", _ANSWER.format(question=question, triples="\n".join(triples))),)


def read_relation_scores(reply: str, options: Sequence[str], width: int) -> Picked:
    """Read at most `width` relations with their scores."""
    picked = read_scores(reply, options, width, is_loose=True)
    if picked.chosen or picked.unread:
        return picked
    return Picked((), (), clip_unread([reply.strip() or "(empty)"]))


def read_entity_scores(reply: str, options: Sequence[str]) -> Picked:
    r"""Read a score for each entity: by number or name, or all in a list in the entities' order.

    If scores are missing or too many, all are equal, and the reply counts as not understood.

    >>> read_entity_scores("1: 0.2\n2: 0.8", ["Paris", "Paris"])
    Picked(chosen=(1, 0), scores=(0.8, 0.2), unread=(), stops=False)
    >>> read_entity_scores("Score: 0.2, 0.8", ["Paris", "Nice"]).scores
    (0.2, 0.8)
    >>> read_entity_scores("Paris", ["Paris", "Nice"])
    Picked(chosen=(0, 1), scores=(0.5, 0.5), unread=('Paris',), stops=False)
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
    return Picked(
        tuple(range(size)), (1.0 / size,) * size, clip_unread([reply.strip() or "(empty)"])
    )


def _scores(texts: Sequence[str]) -> tuple[float, ...]:
    """Read texts as scores, clipped to [0, 1]; none if one of them is no number."""
    try:
        scores = tuple(map(float, texts))
    except ValueError:
        return ()
    if any(score != score for score in scores):  # not a number
        return ()
    return tuple(min(max(score, 0.0), 1.0) for score in scores)


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

LIMITS: Mapping[str, object] = {
    "scoring_tokens": SCORING_TOKENS,
    "answer_tokens": ANSWER_TOKENS,
}
"""What decides the answers besides the settings, by name."""


class Followed(NamedTuple):
    """A relation that is followed from the end of a walk, its score, and where it leads."""

    walk: Walk
    hop: Hop
    score: float
    nodes: tuple[Term, ...] = ()
    hidden: int = 0


class Scored(NamedTuple):
    """A longer walk, with the score of its last triple."""

    walk: Walk
    score: float


def answer_question(session: Session, settings: TogSettings) -> Answer:
    """Answer the question of a session as Think-on-Graph does; raises as `Method.answer` does."""
    return _Question(session, settings).answer()


class _Question:
    """The walks of one question."""

    def __init__(self, session: Session, settings: TogSettings) -> None:
        self._session, self._settings = session, settings
        self._around = session.neighbourhood
        self._kept: list[Walk] = []

    def answer(self) -> Answer:
        """Walk until the triples suffice, then answer from them; else without them."""
        stop, verdict = self._walk()
        said: tuple[str, ...] | None = None
        stage = "explored"
        if verdict is not None and verdict.names:
            said = verdict.names
        elif self._kept and stop != "depth":
            said = self._said_from_triples()
        else:
            said = answer_directly(self._session, reason=True, max_tokens=ANSWER_TOKENS)
            stage = "fallback" if self._session.has_language_model else stage
        return self._session.finish(self._kept, stop, said, stage=stage)

    def _walk(self) -> tuple[Stop, Verdict | None]:
        """Return why walking ended, and the verdict if the triples suffice."""
        budget = self._session.asked.budget
        frontier = tuple(map(Walk, self._session.topics))
        for hop in range(1, self._settings.depth + 1):
            frontier = self._longer(frontier, hop)
            self._kept += frontier
            if budget.is_exhausted:
                return "budget", None
            if not frontier:
                return "nothing", None
            verdict = self._verdict(hop)
            if verdict is not None and verdict.is_enough:
                return "enough", verdict
            if budget.is_exhausted:
                return "budget", None
        return "depth", None

    def _longer(self, walks: Sequence[Walk], hop: int) -> tuple[Walk, ...]:
        """Continue walks by a hop, and keep those with the best triples."""
        followed = self._followed(first_to_each(walks), hop)
        scored = [each for each in self._scored(followed, hop) if each.score > 0]
        # The last digits of a cosine depend on the batch.
        best = sorted(scored, key=lambda each: -round(each.score, 6))
        kept = best[: self._settings.width]
        self._session.clipped(len(best) - len(kept))
        return tuple(each.walk for each in kept)

    def _followed(self, walks: Sequence[Walk], hop: int) -> list[Followed]:
        """Have relations scored for each walk; those that lead nowhere are left out."""
        self._around.fetch_hops(walk.end for walk in walks)
        offers = [hops_onward(self._around, walk) for walk in walks]
        self._around.names(node for walk in walks for node in walk.nodes)
        choices = [self._relations(*each, hop) for each in zip(walks, offers, strict=True)]
        decided = self._session.choose_all(choices)
        chosen = [
            Followed(walk, hops[option], score)
            for walk, hops, picked in zip(walks, offers, decided, strict=False)
            for option, score in zip(picked.chosen, picked.scores, strict=True)
        ]
        self._around.fetch_tails((each.walk.end, each.hop) for each in chosen)
        followed = map(self._leading_to, chosen)
        return [each for each in followed if each.nodes]

    def _leading_to(self, followed: Followed) -> Followed:
        """Look up where a relation leads; many nodes are drawn from."""
        settings, (walk, hop) = self._settings, followed[:2]
        nodes, hidden = self._around.tails(walk.end, hop)
        most = len(nodes)
        if len(nodes) >= settings.sample_from:
            most = settings.sample
        if most < len(nodes) or settings.prune == "random":
            drawn = drawn_by_content(
                nodes, most, settings.seed, self._session.question, walk.end, hop
            )
            nodes, hidden = drawn, hidden + len(nodes) - len(drawn)
        return followed._replace(nodes=nodes, hidden=hidden)

    def _scored(self, followed: Sequence[Followed], hop: int) -> list[Scored]:
        """Have the nodes of each relation scored, where there is something to decide."""
        self._around.names(node for each in followed for node in each.nodes)
        weights: list[dict[int, float]] = []
        asked: list[int] = []
        for at, each in enumerate(followed):
            weights.append(dict.fromkeys(range(len(each.nodes)), 1.0 / len(each.nodes)))
            if self._has_choice(each):
                asked.append(at)
            else:
                self._note(each, hop)
        decided = self._session.choose_all([self._entities(followed[at], hop) for at in asked])
        for at in asked[len(decided) :]:
            weights[at] = {}
        for at, picked in zip(asked, decided, strict=False):
            weights[at] = dict(zip(picked.chosen, picked.scores, strict=True))
        return [
            Scored(each.walk.then(each.hop, each.nodes[node]), each.score * weight)
            for each, weighed in zip(followed, weights, strict=True)
            for node, weight in weighed.items()
        ]

    def _has_choice(self, followed: Followed) -> bool:
        if self._settings.prune == "random" or len(followed.nodes) == 1:
            return False
        return not all(map(self._around.is_nameless, followed.nodes))

    def _note(self, followed: Followed, hop: int) -> None:
        """Record nodes that are taken without a decision, with equal scores."""
        names = tuple(map(self._around.name, followed.nodes))
        scores = (1.0 / len(names),) * len(names)
        at = self._drawn(followed)
        self._session.steps.append(
            Step("entities", hop, at, names, followed.hidden, names, scores, is_decision=False)
        )

    def _relations(self, walk: Walk, hops: Sequence[Hop], hop: int) -> Choice:
        width, question = self._settings.width, self._session.question
        options = tuple(f"{arrow(each)} {each.relation}" for each in hops)

        def read(reply: str) -> Picked:
            return read_relation_scores(reply, options, width)

        return Choice(
            kind="relations",
            hop=hop,
            at=self._session.drawn(walk),
            options=options,
            meanings=tuple(relation_words(each.relation) for each in hops),
            most=width,
            prompt=relations_prompt(question, self._around.name(walk.end), options, width),
            read=read,
            max_tokens=SCORING_TOKENS,
            temperature=self._settings.temperature,
        )

    def _entities(self, followed: Followed, hop: int) -> Choice:
        options = tuple(map(self._around.name, followed.nodes))
        entity = self._around.name(followed.walk.end)
        relation = f"{arrow(followed.hop)} {followed.hop.relation}"
        return Choice(
            kind="entities",
            hop=hop,
            at=self._drawn(followed),
            options=options,
            meanings=options,
            most=len(options),
            prompt=entities_prompt(self._session.question, entity, relation, options),
            read=lambda reply: read_entity_scores(reply, options),
            hidden=followed.hidden,
            max_tokens=SCORING_TOKENS,
            temperature=self._settings.temperature,
        )

    def _drawn(self, followed: Followed) -> str:
        hop = followed.hop
        return f"{self._session.drawn(followed.walk)} {arrow(hop)} {hop.relation}"

    def _verdict(self, hop: int) -> Verdict | None:
        """Ask whether the triples kept so far suffice; None if no language model judges."""
        prompt = check_prompt(self._session.question, self._triples())
        reply = self._session.ask("check", prompt, hop=hop, max_tokens=ANSWER_TOKENS)
        if reply is None:
            return None
        verdict = read_verdict(reply, self._known())
        self._session.not_understood(verdict.unread)
        return verdict

    def _said_from_triples(self) -> tuple[str, ...] | None:
        prompt = answer_prompt(self._session.question, self._triples())
        reply = self._session.ask("answer", prompt, max_tokens=ANSWER_TOKENS, is_last=True)
        if reply is None:
            return None
        names, unread = read_names(reply, self._known())
        self._session.not_understood(unread)
        return tuple(names)

    def _triples(self) -> list[str]:
        return [drawn_triple(step, self._around.name) for step in triples_of(self._kept)]

    def _known(self) -> list[str]:
        return [self._around.name(node) for walk in self._kept for node in walk.nodes]


TOG = walking_method("tog", TogSettings, LIMITS, answer_question)
