"""Valid input that fuzzing starts from: a small store, texts, and a writer of scripted paths."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kbqa.engine.engine import Engine
from kbqa.engine.writing.generate import Candidate, Progress, Request
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile
from kbqa.kb.open import open_graph
from kbqa.sparql.terms import FREEBASE_NS

if TYPE_CHECKING:
    from fastapi import FastAPI

    from kbqa.engine.serve.service import Service

# Subject, relation, object; an object that starts with a quote is a literal.
_GRAPH = """
m.03_r3 type.object.name "Jamaica"@en
m.03_r3 type.object.name "Jamaika"@de
m.03_r3 type.object.type location.country
m.03_r3 location.country.currency_used m.04xc2m
m.03_r3 location.country.capital m.03yl7
m.03_r3 location.statistical_region.population m.0pop1
m.0pop1 measurement_unit.dated_integer.number "2695867"
m.0pop1 measurement_unit.dated_integer.year "2009"^^<http://www.w3.org/2001/XMLSchema#gYear>
m.04xc2m type.object.name "Jamaican dollar"@en
m.04xc2m type.object.type finance.currency
m.03yl7 type.object.name "Kingston"@en
m.03yl7 type.object.type location.citytown
m.03yl7 location.location.containedby m.03_r3
m.06w2sn5 type.object.name "Justin Bieber"@en
m.06w2sn5 common.topic.alias "J. \\"Biebs\\" Bieber"@en
m.06w2sn5 type.object.type people.person
m.06w2sn5 people.person.gender m.05zppz
m.06w2sn5 people.person.date_of_birth "1994-03-01"^^<http://www.w3.org/2001/XMLSchema#date>
m.06w2sn5 people.person.sibling_s m.0gxnnwp
m.0gxnnwp people.sibling_relationship.sibling m.0gxnnwq
m.0gxnnwq type.object.name "Jaxon Bieber"
m.0gxnnwq people.person.gender m.05zppz
m.05zppz type.object.name "Male"@en
location.country.currency_used type.object.name "Currency Used"@en
location.country.currency_used type.property.schema location.country
location.country.currency_used type.property.expected_type finance.currency
location.country.currency_used type.property.reverse_property finance.currency.countries_used
people.sibling_relationship freebase.type_hints.mediator "true"
"""


def dump_lines() -> list[str]:
    """Return the small graph as lines of a dump."""
    lines = []
    for line in _GRAPH.strip().splitlines():
        subject, relation, value = line.split(" ", 2)
        end = value if value.startswith('"') else f"<{FREEBASE_NS}{value}>"
        lines.append(f"<{FREEBASE_NS}{subject}>\t<{FREEBASE_NS}{relation}>\t{end}\t.\n")
    return lines


def small_store(folder: Path) -> Path:
    """Load the small graph into a new store."""
    dump = folder / "dump.nt"
    dump.write_text("".join(dump_lines()), encoding="utf-8")
    load_freebase([dump], folder / "store", rules=profile("full"))
    return folder / "store"


QUESTIONS = (
    "what is jamaican money called?",
    "who is the brother of Justin Bieber",
    "how many people live in Jamaica in 2009?",
    'which country has the capital "Kingston"',
    "is Justin Bieber male or female, and born before 1995-01-01?",
)

WRITTEN = (
    "Main Path:\n Jamaica -[location , country , currency used]-> ?x",
    "Main Path:\n Justin Bieber -[people , person , sibling s]-> ?y\n"
    " ?y -[people , sibling relationship , sibling]-> ?x\n"
    "Entity Restrictions:\n ?x -[people , person , gender]-> Male",
    "Main Path:\n Jamaica -[location , statistical region , population]-> ?x\n"
    "Numeric Restrictions:\n ?x -[measurement unit , dated integer , year]-> ?sk0\n"
    "  ORDER BY DESC(?sk0)\n  LIMIT 1",
    "Main Path:\n location , country -[R[type , object , type]]-> ?x\n"
    "Further Restrictions:\n  no ?x -[location , country , currency used]-> Euro\n  count",
    "Jamaica -> location.country.capital",
    "Jamaica -> location.country.capital\n?x = Kingston\nask",
)

PATHS = (
    *WRITTEN,
    "Justin Bieber -> people.person.sibling_s -> people.sibling_relationship.sibling\n"
    "?x -> people.person.gender = Male",
    "China (-> film.film.country <- film.actor.film | <- people.person.nationality)\n"
    "?x -> people.person.date_of_birth ?born\n?x no -> people.person.spouse_s\n"
    "?x -> government.politician.offices {-> government.office.title = [Mayor], "
    "-> office.to > 2001}\n[World War II] -> time.event.end_date < ?born\nlargest 3 ?born",
    "ns:location.country <- type.object.type\n"
    "?x no -> location.country.currency_used = Euro\ncount",
    'Kenya (m.019rg5) -> a.b\n?1 -> c.d {= A | -> e.f != B} or none\n?x reads "Lima"@en\n'
    "distinct from none\nanswers in de",
    "m.0a -> a.b\nmost 2 after 1 with ties ?x -> c.d\nany language",
    "m.0a -> a.b ({?0 -> c.d >= 2010-12-31^^date} -> e.f | <- g.h) -> i.j\n"
    "?x is not ?1\ncount bindings",
    "Main Path:\n Kenya -[a , b]-> ?c\n ?c -[R[c , d]]-> ?x\nTime Restrictions:\n"
    " ?c -[e , from]-> ?from <= 2010-01-01\n ?c -[e , to]-> ?to >= 2010-01-01",
)

_CAPITAL = "SELECT DISTINCT ?x WHERE { ns:m.03_r3 ns:location.country.capital ?x . "
QUERIES = (
    "PREFIX ns: <http://rdf.freebase.com/ns/>\nSELECT DISTINCT ?x\nWHERE {\n"
    "FILTER (?x != ns:m.03_r3)\n"
    "FILTER (!isLiteral(?x) OR lang(?x) = '' OR langMatches(lang(?x), 'en'))\n"
    "ns:m.03_r3 ns:location.country.capital ?x .\n}\n",
    _CAPITAL + "FILTER(NOT EXISTS {?x ns:a.from ?f} || EXISTS {?x ns:a.from ?f . "
    'FILTER(xsd:datetime(?f) <= "2010-12-31"^^xsd:dateTime)}) }',
    _CAPITAL + "?x ns:a.b ?n } ORDER BY DESC(xsd:integer(?n)) LIMIT 1 OFFSET 2",
    _CAPITAL + "{ ?x ns:a.b ns:m.0a } UNION { ?x ns:a.c ?y . ?y ns:a.d 'x'@en } }",
    _CAPITAL + "OPTIONAL { ?x ns:a.b ?o } FILTER(!bound(?o)) FILTER(?x != ns:m.0a) }",
    "SELECT (COUNT(DISTINCT ?x) AS ?n) { ns:m.03_r3 ns:location.country.capital ?x }",
    "ASK { ns:m.03_r3 ns:location.country.capital ns:m.03yl7 }",
    "SELECT ?x { ?x ns:type.object.type ns:people.person . { SELECT (MAX(?d) AS ?m) "
    "{ ?y ns:people.person.date_of_birth ?d } } ?x ns:people.person.date_of_birth ?m }",
    "SELECT ?x ?y { VALUES ?x { ns:m.03_r3 UNDEF } ?x ns:a/^ns:b* ?y BIND(STR(?y) AS ?z) }",
    "SELECT * { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }",
    "SELECT * FROM <http://127.0.0.1:9/> { GRAPH ?g { ?s ?p ?o } }",
    "INSERT DATA { ns:m.0a ns:a.b ns:m.0c }",
    "DELETE WHERE { ?s ?p ?o }",
    "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }",
    "DESCRIBE ns:m.03_r3",
)

FORMULAS = (
    "(JOIN (R location.country.capital) m.019rg5)",
    "(AND people.person (JOIN people.person.gender m.05zppz))",
    "(ARGMAX (JOIN a.b m.0a) c.d)",
    "(COUNT (AND a.b (lt c.d 2010-12-31^^http://www.w3.org/2001/XMLSchema#date)))",
    "(ge a.b 12^^http://www.w3.org/2001/XMLSchema#integer)",
)


class ScriptedWriter:
    """Writes the same texts for each question, the likeliest first."""

    name = "scripted"
    suggested_relations = 0

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def generate(
        self,
        requests: Sequence[Request],
        n: int = 5,
        *,
        ends_at: float | None = None,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Return the texts as candidates; see `Generator.generate`."""
        written = [Candidate(text, -0.5 - at, 9) for at, text in enumerate(self.texts[:n])]
        return [list(written) for _ in requests]


@contextmanager
def scripted_engine(store: Path) -> Iterator[Engine]:
    """Open an engine over a store for which `WRITTEN` is written."""
    writer, settings = ScriptedWriter(*WRITTEN), {"judge": "confidence"}
    with open_graph(store) as graph, Engine(graph, writer, settings=settings) as engine:
        yield engine


@contextmanager
def scripted_app(store: Path) -> "Iterator[tuple[FastAPI, Service]]":
    """Make what `kbqa serve` runs, with such an engine."""
    from kbqa.engine.serve.app import make_app
    from kbqa.engine.serve.guard import Access, Metrics
    from kbqa.engine.serve.served import Settings
    from kbqa.engine.serve.service import Service

    with open_graph(store) as aside:
        metrics = Metrics()
        service = Service(lambda: scripted_engine(store), aside, Settings(), metrics)
        yield make_app(service, metrics, Access(), openai=True), service
