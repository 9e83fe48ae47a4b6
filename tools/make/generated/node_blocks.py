"""Blocks of ordinary nodes: topics with names, keys and facts, and the mediators between them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tools.make.generated.lines import END, Ints, Lines
from tools.make.generated.plan import NO_COUNTRY, Plan
from tools.make.generated.schema import NS, Fixed, Kind, Schema, iri_object
from tools.make.generated.values import Values
from tools.make.generated.words import COUNTRIES, GENDERS, LANGUAGES

NODES_A_BLOCK = 15_000

_HUBS = [iri_object(NS + mid) for mid, _ in (*COUNTRIES, *GENDERS, *LANGUAGES)]
_FIRST_GENDER = len(COUNTRIES)
_FIRST_LANGUAGE = _FIRST_GENDER + len(GENDERS)
_TOPIC = iri_object(NS + "common.topic")

# Averages for a topic or mediator; with these a node has a little over 22 lines.
_FACTS = 13
_MEDIATOR_FACTS = 8
_ENGLISH_NAMED = 0.95
_FOREIGN_NAMES = 2.2
_ENGLISH_ALIASES = 0.55
_FOREIGN_ALIASES = 0.15
_KEYS = 2
_DESCRIBED = 0.33
_DESCRIBED_ELSEWHERE = 0.15
_WITH_PAGE = 0.5
_WITH_SITE = 0.12
_NOTABLE = 0.9
_NOTABLE_FOR = 0.3
_LOCAL = 0.45
_WITH_LANGUAGE = 0.85
_ENGLISH = 0.75


class _Block:
    """A block that is being made; places are numbers of nodes within it."""

    def __init__(
        self, plan: Plan, number: int, random: np.random.Generator, predicates: Sequence[bytes]
    ) -> None:
        first = number * NODES_A_BLOCK
        nodes = np.arange(first, min(first + NODES_A_BLOCK, plan.node_count))
        fives = np.arange(first // 5, nodes[-1] // 5 + 1)
        topics = (fives[:, None] * 3 + np.arange(3)).ravel()
        mediators = (fives[:, None] * 2 + np.arange(2)).ravel()
        self.random = random
        self.lines = Lines(plan.terms(nodes), predicates)
        self.own = plan.terms(nodes, b">" + END)
        self.topics = plan.topic_nodes(topics) - first
        self.topic_types, self.countries = plan.topic_types(topics)
        self.mediators = plan.mediator_nodes(mediators) - first
        self.mediator_types = plan.mediator_types(mediators)
        order = np.argsort(self.topic_types, kind="stable")
        self._by_type, self._sorted_types = self.topics[order], self.topic_types[order]

    def some(self, places: Ints, share: float) -> Ints:
        """Choose some places at random."""
        return places[self.random.random(len(places)) < share]

    def several(self, places: Ints, mean: float) -> Ints:
        """Repeat each place by a Poisson draw."""
        return np.repeat(places, self.random.poisson(mean, len(places)))

    def draw(self, table: Sequence[bytes], count: int) -> list[bytes]:
        """Draw from a table."""
        return [table[at] for at in self.random.integers(0, len(table), count).tolist()]

    def of_type(self, types: Ints) -> Ints:
        """Choose a topic of this block for each type; -1 if there is none."""
        first = np.searchsorted(self._sorted_types, types, side="left")
        count = np.searchsorted(self._sorted_types, types, side="right") - first
        chosen = first + (self.random.random(len(types)) * count).astype(np.int64)
        found = self._by_type[np.minimum(chosen, len(self._by_type) - 1)]
        return np.where(count > 0, found, -1)


class NodeBlocks:
    """Makes blocks of `NODES_A_BLOCK` nodes each."""

    def __init__(self, schema: Schema, plan: Plan, values: Values) -> None:
        self._plan, self._values = plan, values
        self._number, self._predicates = schema.fixed, schema.predicates
        self._kinds = np.array([int(stated.kind) for stated in schema.properties])
        self._expected = np.array([stated.expected for stated in schema.properties])
        self._reverse = np.array([stated.reverse for stated in schema.properties])
        self._topic_facts = _Choices([node.plain for node in schema.topics])
        self._mediator_facts = _Choices([node.plain for node in schema.mediators])
        self._includes = np.full((len(schema.topics), 2), -1)
        for at, node in enumerate(schema.topics):
            self._includes[at, : len(node.includes)] = node.includes
        self._countries = np.array([node.country for node in schema.topics])
        self._languages = np.array([node.language for node in schema.topics])
        self._forth = np.array([node.mediators[0] for node in schema.mediators])
        self._topic_types = [iri_object(NS + node.id) for node in schema.topics]
        self._mediator_types = [iri_object(NS + node.id) for node in schema.mediators]
        notable = plan.popular_nodes(np.arange(len(schema.topics)) % plan.topic_count)
        self._notable = plan.terms(notable, b">" + END)

    def lines(self, number: int, random: np.random.Generator) -> Lines:
        """Make the lines of a block."""
        block = _Block(self._plan, number, random, self._predicates)
        self._add_names(block)
        self._add_keys(block)
        self._add_pages(block)
        self._add_types(block)
        self._add_topic_facts(block)
        self._add_mediators(block)
        return block.lines

    def _english(self, block: _Block, count: int, end: bytes = b'"@en' + END) -> list[bytes]:
        values = self._values
        tails = block.draw(values.name_tails, count)
        plain = block.random.random(count) < 0.6
        return [
            first + last + (b"" if is_plain else tail) + end
            for first, last, tail, is_plain in zip(
                block.draw(values.first_words, count),
                block.draw(values.last_words, count),
                tails,
                plain.tolist(),
                strict=True,
            )
        ]

    def _add_names(self, block: _Block) -> None:
        named = block.some(block.topics, _ENGLISH_NAMED)
        called = block.several(block.topics, _FOREIGN_NAMES)
        # Mediators have no names, except for a few odd ones, as in Freebase.
        odd = block.some(block.mediators, 0.01)
        spans = block.random.integers(1, 10**8, (len(odd), 2)).tolist()
        odd_names = [b'"8 + [%d,%d]"@en' % (one, other) + END for one, other in spans]
        for places, names in (
            (named, self._english(block, len(named))),
            (called, block.draw(self._values.foreign_names, len(called))),
            (odd, odd_names),
        ):
            block.lines.add(places, self._number[Fixed.NAME], names)
            block.lines.add(places, self._number[Fixed.LABEL], names)
        also = block.some(block.topics, _ENGLISH_ALIASES)
        block.lines.add(also, self._number[Fixed.ALIAS], self._english(block, len(also)))
        elsewhere = block.some(block.topics, _FOREIGN_ALIASES)
        aliases = block.draw(self._values.foreign_names, len(elsewhere))
        block.lines.add(elsewhere, self._number[Fixed.ALIAS], aliases)

    def _add_keys(self, block: _Block) -> None:
        for predicate, path, share in (
            (Fixed.KEY_TITLE, b'"/wikipedia/en_title/', 0.5),
            (Fixed.KEY_ID, b'"/wikipedia/en_id/', 0.4),
            (Fixed.KEY_IMDB, b'"/authority/imdb/name/', 0.1),
        ):
            places = block.several(block.topics, _KEYS * share / 2)
            if predicate == Fixed.KEY_TITLE:
                keys = block.draw(self._values.key_words, len(places))
            else:
                numbers = block.random.integers(10**4, 10**8, len(places)).tolist()
                form = b"nm%07d" if predicate == Fixed.KEY_IMDB else b"%d"
                keys = [form % number for number in numbers]
            objects = [path + key + b'"' + END for key in keys]
            block.lines.add(places, self._number[Fixed.OBJECT_KEY], objects)
            block.lines.add(places, self._number[predicate], [b'"%b"%b' % (k, END) for k in keys])

    def _add_pages(self, block: _Block) -> None:
        described = block.some(block.topics, _DESCRIBED)
        starts = self._english(block, len(described), b" is a work of reference.")
        some = [block.draw(self._values.sentences, len(described)) for _ in range(4)]
        texts = [b"".join(parts) + b'"@en' + END for parts in zip(starts, *some, strict=True)]
        block.lines.add(described, self._number[Fixed.DESCRIPTION], texts)
        elsewhere = block.some(block.topics, _DESCRIBED_ELSEWHERE)
        foreign = block.draw(self._values.foreign_names, len(elsewhere))
        block.lines.add(elsewhere, self._number[Fixed.DESCRIPTION], foreign)
        for predicate, form, share in (
            (
                Fixed.EQUIVALENT_PAGE,
                b"<http://en.wikipedia.org/wiki/index.html?curid=%d>",
                _WITH_PAGE,
            ),
            (Fixed.OFFICIAL_PAGE, b"<http://www.site%d.example/>", _WITH_SITE),
        ):
            places = block.some(block.topics, share)
            numbers = block.random.integers(10**4, 10**8, len(places)).tolist()
            objects = [form % number + END for number in numbers]
            block.lines.add(places, self._number[predicate], objects)

    def _add_types(self, block: _Block) -> None:
        types, places = block.topic_types, block.topics
        stated = [(places, [_TOPIC] * len(places))]
        stated.append((places, [self._topic_types[at] for at in types.tolist()]))
        for column in self._includes.T:
            included = column[types]
            has = included >= 0
            objects = [self._topic_types[at] for at in included[has].tolist()]
            stated.append((places[has], objects))
        own = [self._mediator_types[at] for at in block.mediator_types.tolist()]
        stated.append((block.mediators, own))
        for subjects, objects in stated:
            block.lines.add(subjects, self._number[Fixed.TYPE], objects)
            block.lines.add(subjects, self._number[Fixed.RDF_TYPE], objects)
        notable = block.random.random(len(places)) < _NOTABLE
        objects = [self._notable[at] for at in types[notable].tolist()]
        block.lines.add(places[notable], self._number[Fixed.NOTABLE_TYPES], objects)
        famous = block.some(places, _NOTABLE_FOR)
        for_what = block.random.choice(block.mediators, len(famous)).tolist()
        block.lines.add(famous, self._number[Fixed.NOTABLE_FOR], [block.own[at] for at in for_what])

    def _add_topic_facts(self, block: _Block) -> None:
        types, places, random = block.topic_types, block.topics, block.random
        lies = block.countries != NO_COUNTRY
        hubs = [_HUBS[at] for at in block.countries[lies].tolist()]
        block.lines.add(places[lies], self._countries[types[lies]], hubs)
        speaks = (self._languages[types] >= 0) & (random.random(len(places)) < _WITH_LANGUAGE)
        other = random.integers(1, len(LANGUAGES), int(speaks.sum()))
        chosen = np.where(random.random(len(other)) < _ENGLISH, 0, other) + _FIRST_LANGUAGE
        hubs = [_HUBS[at] for at in chosen.tolist()]
        block.lines.add(places[speaks], self._languages[types[speaks]], hubs)

        drawn = block.several(np.arange(len(places)), _FACTS)
        own = types[drawn]
        included = self._includes[:, 0][own]
        lent = (included >= 0) & (random.random(len(drawn)) < 0.3)
        types_drawn = np.where(lent, included, own)
        properties = self._topic_facts.draw(types_drawn, random.random(len(drawn)))
        self._add_facts(block, places[drawn], properties)

    def _add_mediators(self, block: _Block) -> None:
        types = block.mediator_types
        forth = self._forth[types]
        back = self._reverse[forth]
        owners = block.of_type(self._expected[back])
        anybody = block.random.choice(block.topics, len(owners))
        owners = np.where(owners >= 0, owners, anybody)
        block.lines.add(block.mediators, back, [block.own[at] for at in owners.tolist()])
        block.lines.add(owners, forth, [block.own[at] for at in block.mediators.tolist()])
        drawn = block.several(np.arange(len(types)), _MEDIATOR_FACTS)
        properties = self._mediator_facts.draw(types[drawn], block.random.random(len(drawn)))
        self._add_facts(block, block.mediators[drawn], properties)

    def _add_facts(self, block: _Block, places: Ints, properties: Ints) -> None:
        # A node states a value once; only links may have several.
        once = np.unique(places * len(self._kinds) + properties)
        places, properties = once // len(self._kinds), once % len(self._kinds)
        kinds = self._kinds[properties]
        for kind, table in self._values.of.items():
            has = kinds == kind
            objects = block.draw(table, int(has.sum()))
            block.lines.add(places[has], properties[has], objects)
        gendered = kinds == Kind.GENDER
        genders = block.random.integers(0, 3, int(gendered.sum())) % 2 + _FIRST_GENDER
        objects = [_HUBS[at] for at in genders.tolist()]
        block.lines.add(places[gendered], properties[gendered], objects)
        linked = kinds == Kind.LINK
        self._add_links(block, places[linked], properties[linked])

    def _add_links(self, block: _Block, places: Ints, properties: Ints) -> None:
        more = block.random.poisson(0.6, len(places)) + 1
        places, properties = np.repeat(places, more), np.repeat(properties, more)
        local = block.of_type(self._expected[properties])
        is_local = (local >= 0) & (block.random.random(len(local)) < _LOCAL)
        is_local &= local != places
        ends = local[is_local]
        objects = [block.own[at] for at in ends.tolist()]
        block.lines.add(places[is_local], properties[is_local], objects)
        back = self._reverse[properties[is_local]]
        paired = back >= 0
        objects = [block.own[at] for at in places[is_local][paired].tolist()]
        block.lines.add(ends[paired], back[paired], objects)
        afar = ~is_local
        ranks = self._plan.popular_ranks(block.random.random(int(afar.sum())))
        objects = self._plan.terms(self._plan.popular_nodes(ranks), b">" + END)
        for at in np.flatnonzero(ranks < len(_HUBS)).tolist():
            objects[at] = _HUBS[ranks[at]]
        block.lines.add(places[afar], properties[afar], objects)


class _Choices:
    """Lists of properties to draw from, one for each type; the first are the most likely."""

    def __init__(self, lists: Sequence[Sequence[int]]) -> None:
        self._counts = np.array([len(one) for one in lists])
        self._starts = np.concatenate([[0], np.cumsum(self._counts)[:-1]])
        self._flat = np.array([number for one in lists for number in one])

    def draw(self, of: Ints, draws: NDArray[np.float64]) -> Ints:
        """Draw from the list of each type, with draws in [0, 1)."""
        at = (draws**1.5 * self._counts[of]).astype(np.int64)
        drawn: Ints = self._flat[self._starts[of] + at]
        return drawn
