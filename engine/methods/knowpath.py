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

Source: KnowPath, §2 (its exploration is §2.3 and algorithm 1, its written paths are algorithm 2)
and appendices A, B, F and G. The words of the prompts are ours; replies are read in the form that
they ask for, and in the paper's.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.choosing import Choice, numbered, written_prompt
from kbqa.engine.deciding.reading import (
    Verdict,
    clip_unread,
    field_of,
    names_within,
    read_choice,
    read_names,
    read_record,
    read_yes,
    without_refusals,
)
from kbqa.engine.deciding.session import SEED, Session, Stop
from kbqa.engine.graph_walk import Walk, drawn_hop
from kbqa.engine.methods import (
    changed_settings,
    check_counts,
    check_temperature,
    walking_method,
)
from kbqa.engine.methods.direct import answer_directly
from kbqa.sparql.crp import Hop
from kbqa.sparql.english import relation_words
from kbqa.sparql.terms import Term

_SYSTEM = "You answer questions with the help of the Freebase knowledge graph. Reply in the form \
that is asked for, with nothing before or after it."

_PATHS = """\
Answer the question from memory. First find the entities that it is about.{list_triples} Then give \
the answer, and the path of relations that leads from those entities to it. Reply with JSON alone, \
without answers if you know none:
{{{triples_form}"path": ["entity -> relation -> entity -> ..."], "answers": ["name", ...]}}

Question: {question}
"""

_LIST_TRIPLES = " Then list {count} facts that bear on the question, the most relevant first."

RELATIONS = """\
A question is answered by exploring the Freebase knowledge graph from a topic entity. Choose at \
most {most} of the relations below that lead towards the answer, the most relevant first. `->` \
follows a relation forwards, `<-` backwards. Reply with JSON alone, names or numbers, or [] if \
none does:
{{"Relations": ["...", ...]}}

Question: {question}
Topic entity: {topic}
{hint}Explored from: {entities}
Relations:
{relations}
"""

ENTITIES = """\
A question is answered by exploring the Freebase knowledge graph from a topic entity. The chosen \
relations lead to the entities below. Choose at most {most} of them that answer the question or \
lead towards the answer, the most relevant first. Reply with JSON alone, names or numbers, or [] \
if none does:
{{"Entities": ["...", ...]}}

Question: {question}
Topic entity: {topic}
{hint}Chosen relations: {relations}
Entities:
{entities}
"""

CHECK = """\
Below are paths of the Freebase knowledge graph. `->` and `<-` give the direction of each \
relation. Decide whether the question can be answered from them and from what you know yourself. \
If it can, name all answers, written as in the paths. Reply with JSON alone:
{{"Answerable": true or false, "Response": "the answer in a sentence", "Answers": ["name", ...]}}

Question: {question}
Paths:
{paths}
"""


@dataclass(frozen=True, slots=True)
class KnowpathSettings:
    """How KnowPath answers; each setting says its meaning."""

    depth: Annotated[int, "Rounds of exploration, at most; each goes one hop further."] = 3
    temperature: Annotated[
        float,
        "Of the replies that choose relations and entities. With temperature above 0 a model may "
        "reply differently in each run.",
    ] = 0.4
    triples: Annotated[int, "Triples that the model lists from memory before it answers."] = 15
    relations: Annotated[int, "Relations chosen in one decision, at most."] = 7
    entities: Annotated[int, "Entities of a subgraph that each round goes on from, at most."] = 7
    shown: Annotated[int, "Entities offered of those that one relation leads to, at most."] = 40
    order: Annotated[
        Literal["stable", "embedder"],
        "Which entities are offered if there are more: the first by id, or the most similar.",
    ] = "stable"
    calls: Annotated[
        Literal["entity", "subgraph"],
        "Choose relations for each entity, as the released code does, or for a whole subgraph, "
        "as the text of the paper says.",
    ] = "entity"
    mediators: Annotated[
        Literal["keep", "drop"],
        "Nodes without a name: keep them, or drop them, and literals and ids other than m., as the "
        "released code does.",
    ] = "keep"
    ablate: Annotated[
        tuple[Literal["hint", "paths", "subgraph"], ...],
        "Parts left out: the hint in prompts, the paths from memory altogether, or the graph.",
    ] = ()
    seed: Annotated[int, "Seed of everything drawn by chance."] = SEED

    def __post_init__(self) -> None:
        check_counts(self, "depth", "relations", "entities", "shown")
        check_counts(self, "triples", least=0)
        check_temperature(self.temperature)


PATHS_TOKENS = 1024  # of the reply from memory, which lists triples
MAX_WALKS = 64  # that a round keeps of a subgraph; more exist only if many ways lead to few ends
MAX_HINTS = 3  # paths from memory that count; a prompt of the paper has one
MAX_HINT_LETTERS = 500  # of a path from memory that are shown

LIMITS: Mapping[str, object] = {
    "paths_tokens": PATHS_TOKENS,
    "max_walks": MAX_WALKS,
    "max_hints": MAX_HINTS,
    "max_hint_letters": MAX_HINT_LETTERS,
}


class Thought(NamedTuple):
    """The model's memory of a question: paths as it wrote them, and its answers."""

    hint: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


_Way: TypeAlias = tuple[Term, Hop]
"""A hop that was chosen, and the node of the frontier that it leaves."""


class _KnowPath:
    """The memory of one question, and its exploration."""

    def __init__(self, session: Session, settings: KnowpathSettings) -> None:
        self._session, self._settings = session, settings
        self._around = session.neighbourhood
        self._thought = Thought()
        # The walks of each topic's subgraph, as the last round left them.
        self._walks: list[list[Walk]] = [[Walk(topic)] for topic in session.topics]
        # Walks that a round did not lengthen, those of the last round first.
        self._dead_ends: list[Walk] = []

    def answer(self) -> Answer:
        """Ask for paths from memory, explore until the walks suffice, and answer."""
        session, ablated = self._session, self._settings.ablate
        if "paths" not in ablated:
            self._thought = self._remember()
        if "subgraph" in ablated:
            return self._fall_back("direct", stage="direct")
        stop: Stop = "depth"
        for hop in range(1, self._settings.depth + 1):
            if (ended := self._explore(hop)) is not None:
                stop = ended
                break
            if answers := self._judge(hop):
                found, details = self._explored, self._details
                return session.finish(
                    found, "enough", answers, details=details, dead_ends=self._dead_ends
                )
        walks = [*self._explored, *self._dead_ends]
        if session.has_language_model:
            return self._fall_back(stop, walks)
        return session.finish(walks, stop)

    @property
    def _explored(self) -> list[Walk]:
        """The walks that the last round has lengthened."""
        return [walk for walk in chain(*self._walks) if walk.steps]

    @property
    def _details(self) -> Mapping[str, object]:
        return {"hint": list(self._thought.hint), "remembered": list(self._thought.names)}

    def _fall_back(
        self, stop: Stop, walks: Sequence[Walk] = (), *, stage: str = "fallback"
    ) -> Answer:
        """Answer from memory: none of the walks proves it."""
        said: tuple[str, ...] | None = self._thought.names
        if "paths" in self._settings.ablate:
            said = answer_directly(self._session, reason=True)
        return self._session.finish(walks, stop, said, stage=stage, details=self._details)

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

    def _judge(self, hop: int) -> tuple[str, ...]:
        """Ask whether the walks answer the question, and how; return the answers, if any."""
        session = self._session
        names = self._around.names(node for walk in self._explored for node in walk.nodes)
        paths = "\n".join(written_path(walk, names.__getitem__) for walk in self._explored)
        prompt = _asked(CHECK, question=session.question, paths=paths)
        reply = session.ask("check", prompt, hop=hop)
        if reply is None and "paths" not in self._settings.ablate:
            # The last call is free for this, as falling back on what is remembered needs none.
            reply = session.ask("check", prompt, hop=hop, is_last=True)
        if reply is None:
            return ()
        verdict = read_judgement(reply, session.question, list(dict.fromkeys(names.values())))
        session.not_understood(verdict.unread)
        return verdict.names

    def _explore(self, hop: int) -> Stop | None:
        """Lengthen walks by a hop; return why exploration ends, or None if a walk became longer."""
        ways, was_offered = self._choose_ways(hop)
        longer = self._choose_ends(ways, hop)
        ended = []
        for before, after in zip(self._walks, longer, strict=True):
            kept = {Walk(walk.topic, walk.steps[:-1]) for walk in after}
            ended += [walk for walk in before if walk.steps and walk not in kept]
        self._dead_ends = [*ended, *self._dead_ends]
        self._walks = list(map(_first_walks, longer))
        self._session.clipped(sum(map(len, longer)) - sum(map(len, self._walks)))
        if self._explored:
            return None
        if self._session.asked.budget.is_exhausted:
            return "budget"
        return "stopped" if was_offered else "nothing"

    def _choose_ways(self, hop: int) -> tuple[list[list[_Way]], bool]:
        """Choose what to follow in each subgraph; also return whether anything was offered."""
        around = self._around
        frontiers = [list(dict.fromkeys(walk.end for walk in walks)) for walks in self._walks]
        around.fetch_hops(chain(*frontiers))
        groups = []
        for number, frontier in enumerate(frontiers):
            singly = [[node] for node in frontier]
            for nodes in [frontier] if self._settings.calls == "subgraph" else singly:
                found = {each for node in nodes for each in around.hops(node)}
                hops = sorted(found, key=lambda each: (each.relation, each.inverse))
                groups.append((number, nodes, hops))
        around.names(node for walk in chain(*self._walks) for node in walk.nodes)
        choices = [
            self._choice(
                "relations",
                number,
                hop,
                "; ".join(map(self._identified, nodes)),
                tuple(map(drawn_hop, hops)),
                tuple(relation_words(each.relation) for each in hops),
                entities="; ".join(map(around.name, nodes)),
            )
            for number, nodes, hops in groups
        ]
        ways: list[list[_Way]] = [[] for _ in self._walks]
        picked = self._session.choose_all(choices)
        # Fewer are picked if the calls are spent.
        for (number, nodes, hops), each in zip(groups, picked, strict=False):
            ways[number] += [
                (node, hops[at])
                for at in each.chosen
                for node in nodes
                if hops[at] in around.hops(node)
            ]
        return ways, any(choice.options for choice in choices)

    def _choice(
        self,
        kind: Literal["relations", "entities"],
        number: int,
        hop: int,
        at: str,
        options: tuple[str, ...],
        meanings: tuple[str, ...],
        hidden: int = 0,
        **fields: str,
    ) -> Choice:
        """Offer relations or entities of a subgraph; fields are what else the prompt shows."""
        settings, is_loose = self._settings, kind == "relations"
        most = settings.relations if is_loose else settings.entities
        return Choice(
            kind=kind,
            hop=hop,
            at=at,
            options=options,
            most=most,
            prompt=_asked(
                RELATIONS if is_loose else ENTITIES,
                most=most,
                question=self._session.question,
                topic=self._around.name(self._topic(number)),
                hint=self._hint(),
                **{kind: numbered(options)},
                **fields,
            ),
            read=partial(read_choice, most=most, is_loose=is_loose),
            meanings=meanings,
            hidden=hidden,
            sampling={"temperature": settings.temperature},
        )

    def _choose_ends(self, ways: Sequence[Sequence[_Way]], hop: int) -> list[list[Walk]]:
        """Choose entities; return the walks of each subgraph that became longer."""
        self._around.fetch_tails(chain(*ways))
        offers, choices = [], []
        for number, followed in enumerate(ways):
            offered, hidden = self._offered(followed)
            offers.append(offered)
            at, options = self._identified(self._topic(number)), map(self._around.name, offered)
            # What the relation means, not the entity's name: vectors of names would have to be made
            # for each question, which took five times as long and found no more.
            meanings = tuple(relation_words(ways[0][1].relation) for ways in offered.values())
            relations = "; ".join(dict.fromkeys(drawn_hop(step) for _, step in followed))
            choices.append(
                self._choice(
                    "entities",
                    number,
                    hop,
                    at,
                    tuple(options),
                    meanings,
                    hidden,
                    relations=relations,
                )
            )
        longer: list[list[Walk]] = [[] for _ in ways]
        for number, picked in enumerate(self._session.choose_all(choices)):
            nodes = list(offers[number])
            longer[number] = [
                walk.then(step, nodes[at])
                for at in picked.chosen
                for left, step in offers[number][nodes[at]]
                for walk in self._walks[number]
                if walk.end == left
            ]
        return longer

    def _offered(self, ways: Sequence[_Way]) -> tuple[dict[Term, list[_Way]], int]:
        """Find the nodes that are offered, each with the ways to it, and how many are hidden."""
        offered: dict[Term, list[_Way]] = {}
        hidden = 0
        for way in ways:
            tails = self._around.tails(*way)
            nodes: Sequence[Term] = tails.terms
            if self._settings.mediators == "drop":
                self._around.names(nodes)
                mids = [node for node in nodes if isinstance(node, str) and node.startswith("m.")]
                nodes = [mid for mid in mids if not self._around.is_nameless(mid)]
            shown = self._ordered(nodes)[: self._settings.shown]
            hidden += len(tails.terms) + tails.hidden - len(shown)
            for node in shown:
                offered.setdefault(node, []).append(way)
        self._around.names(offered)
        return offered, hidden

    def _ordered(self, nodes: Sequence[Term]) -> Sequence[Term]:
        """Put the nodes that are most similar to the question first, if a setting says so."""
        if self._settings.order == "stable" or len(nodes) <= self._settings.shown:
            return nodes
        names = self._around.names(nodes)
        return [nodes[at] for at in self._session.similar_first([names[n] for n in nodes])]

    def _topic(self, number: int) -> str:
        return self._session.topics[number].mid or ""

    def _hint(self) -> str:
        """Write the line of prompts that shows the paths from memory, if any."""
        hint = () if "hint" in self._settings.ablate else self._thought.hint
        return f"Path from memory, perhaps wrong: {'; '.join(hint)}\n" if hint else ""

    def _identified(self, node: Term) -> str:
        """Tell a node from others of its name."""
        name = self._around.name(node)
        return name if name == node or not isinstance(node, str) else f"{name} ({node})"


def _first_walks(walks: Sequence[Walk]) -> list[Walk]:
    """Keep `MAX_WALKS` walks of a subgraph in their order, the first to each end first."""
    met: dict[Term, int] = {}
    ranked = []
    for walk in walks:
        met[walk.end] = met.get(walk.end, 0) + 1
        ranked.append((met[walk.end], walk))
    kept = {walk for _, walk in sorted(ranked, key=lambda each: each[0])[:MAX_WALKS]}
    return [walk for walk in walks if walk in kept]


def _asked(template: str, **fields: object) -> tuple[Message, ...]:
    return Message("system", _SYSTEM), *written_prompt(template, **fields)


def paths_prompt(question: str, triples: int) -> tuple[Message, ...]:
    """Ask for triples, an answer and the path to it, all from memory; 0 triples are not listed."""
    return _asked(
        _PATHS,
        list_triples=_LIST_TRIPLES.format(count=triples) if triples else "",
        triples_form='"triples": [["entity", "relation", "entity"], ...], ' if triples else "",
        question=question,
    )


def written_path(walk: Walk, name: Callable[[Term], str]) -> str:
    """Write a walk as algorithm 2 does.

    A walk whose first hop leaves the topic grows to the right. One whose first hop enters the topic
    grows to the left, so that the topic stands last. An arrow always points at the object.

    >>> from kbqa.sparql.crp import Entity
    >>> walk = Walk(Entity("Kenya", "m.k")).then(Hop("a.b", True), "m.1").then(Hop("c.d"), "m.2")
    >>> written_path(walk, {"m.k": "Kenya", "m.1": "Nairobi", "m.2": "Eve"}.__getitem__)
    'Eve <- c.d <- Nairobi -> a.b -> Kenya'
    """
    grows_left = bool(walk.steps) and walk.steps[0].inverse
    path = name(walk.nodes[0])
    for step in walk.steps:
        # Read from the left, a hop forwards is `<-` where the path grows to the left.
        way = "->" if step.inverse == grows_left else "<-"
        reached = name(step.reached)
        if grows_left:
            path = f"{reached} {way} {step.relation} {way} {path}"
        else:
            path = f"{path} {way} {step.relation} {way} {reached}"
    return path


_ARROW = re.compile(r"\s*(?:-+>|→|⟶)\s*")
_RESPONSE = re.compile(r"\b(?:responses?|answers?)[\"'”]?\s*(?:is|are)?\s*:\s*(.+)", re.I | re.S)
_ANSWERABLE = re.compile(r"\banswerable[\"'”]?\s*:?\s*\W?(?:true|yes)\b", re.I)
_ANSWER_IS = re.compile(r"\banswers?\b.*?(?:\b(?:is|are|was|were)\b|:)\s*(.+)", re.I | re.S)


def read_thought(reply: str, question: str) -> Thought:
    """Read paths and an answer from memory."""
    record = read_record(reply)
    paths = _texts(field_of(record, "path", "paths", "reasoning_path", "reasoning path"))
    if not paths:
        paths = re.split(r'[\n"“”\[\]{}]', reply)
    hint = [" -> ".join(parts) for path in paths if len(parts := _ARROW.split(_line(path))) > 2]
    names = _names(record, reply, question, ())
    unread = [path[MAX_HINT_LETTERS:] for path in hint[:MAX_HINTS]] + hint[MAX_HINTS:]
    if not names:
        unread.append(reply)
    return Thought(
        tuple(path[:MAX_HINT_LETTERS] for path in hint[:MAX_HINTS]),
        tuple(names),
        clip_unread(list(filter(None, unread))),
    )


def read_judgement(reply: str, question: str, known: Sequence[str]) -> Verdict:
    """Read whether the model can answer, and its answers; it must name one.

    Known are the names that the prompt showed.
    """
    record = read_record(reply)
    verdict = field_of(record, "answerable", "sufficient")
    if verdict is None:
        is_answerable = _ANSWERABLE.search(reply) is not None
        if not is_answerable:
            is_read = re.search(r"\banswerable\b\W*(?:false|no)\b", reply, re.I) is not None
            return Verdict(False, (), () if is_read else clip_unread([reply or "(empty)"]))
    elif not read_yes(verdict):
        return Verdict(False)
    names = _names(record, reply, question, known)
    return Verdict(bool(names), tuple(names), () if names else clip_unread([reply]))


def _names(
    record: Mapping[str, Any] | None, reply: str, question: str, known: Sequence[str]
) -> list[str]:
    """Read the answers of a reply: from its list, or else from its sentence."""
    names = _listed_names(_texts(field_of(record, "answers", "answer")), question, known)
    if names:
        return names
    response = " ".join(_texts(field_of(record, "response", "responses")))
    if record is None and (match := _RESPONSE.search(reply)):
        response = match[1].strip("\"'{}[] \n")
    return _names_of_sentence(response, question, known)


def _listed_names(texts: Sequence[str], question: str, known: Sequence[str]) -> list[str]:
    """Read names, one a text: a comma inside an unknown one does not split it."""
    found: dict[str, None] = {}
    for text in texts:
        read, unread = read_names(_line(text), known)
        if unread:
            read = _names_of_sentence(text, question, known)
        elif len(read) > 1:
            read = [name for name in read if name in known] or [_line(text)]
        found.update(dict.fromkeys(read))
    return list(found)


def _names_of_sentence(text: str, question: str, known: Sequence[str]) -> list[str]:
    """Read the answers that a sentence gives; names in the question itself are none."""
    text = without_refusals(_line(text))
    asked = re.escape(question.rstrip("?. "))
    text = re.sub(rf"{asked}\??", " ", text, flags=re.I) if asked else text
    match = _ANSWER_IS.search(text)
    said = match[1] if match else text
    within = names_within(said, known)
    if within and not match:
        within = [each for each in within if not names_within(question, [each])] or within
    return within or read_names(said.rstrip(". "), known)[0]


def _texts(value: object) -> list[str]:
    """Return the texts of a field that may be a list or one text."""
    if value is None:
        return []
    if isinstance(value, (list, tuple, set)):
        return [" ".join(map(str, v)) if isinstance(v, list) else str(v) for v in value]
    return [str(value)]


def _line(text: str) -> str:
    return " ".join(text.split())


KNOWPATH = walking_method(
    "knowpath",
    KnowpathSettings,
    LIMITS,
    lambda session, chosen: _KnowPath(session, chosen).answer(),
    needs_model=lambda chosen: changed_settings(chosen, ["ablate"]),
    needs_embedder=lambda chosen: chosen.order == "embedder",
)
