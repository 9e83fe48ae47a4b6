"""The predicates and terms that a synthetic dump shares with Freebase."""

from tools.make.generated.lines import END
from tools.make.generated.schema import Schema

NS = "http://rdf.freebase.com/ns/"
KEY = "http://rdf.freebase.com/key/"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"

RDF_TYPE = RDF + "type"
LABEL = RDFS + "label"
NAME = NS + "type.object.name"
TYPE = NS + "type.object.type"
OBJECT_KEY = NS + "type.object.key"
INSTANCE = NS + "type.type.instance"
ALIAS = NS + "common.topic.alias"
DESCRIPTION = NS + "common.topic.description"
NOTABLE_TYPES = NS + "common.topic.notable_types"
NOTABLE_FOR = NS + "common.topic.notable_for"
EQUIVALENT_PAGE = NS + "common.topic.topic_equivalent_webpage"
OFFICIAL_PAGE = NS + "common.topic.official_website"
KEY_TITLE = KEY + "wikipedia.en_title"
KEY_ID = KEY + "wikipedia.en_id"
KEY_IMDB = KEY + "authority.imdb.name"

DOMAIN = RDFS + "domain"
RANGE = RDFS + "range"
INVERSE_OF = OWL + "inverseOf"
INCLUDED_TYPES = NS + "freebase.type_hints.included_types"
MEDIATOR = NS + "freebase.type_hints.mediator"
EXPECTED_TYPE = NS + "type.property.expected_type"
MASTER_PROPERTY = NS + "type.property.master_property"
REVERSE_PROPERTY = NS + "type.property.reverse_property"
PROPERTY_SCHEMA = NS + "type.property.schema"
UNIQUE = NS + "type.property.unique"
PROPERTIES = NS + "type.type.properties"

_FIXED = (
    RDF_TYPE,
    LABEL,
    DOMAIN,
    RANGE,
    INVERSE_OF,
    NAME,
    TYPE,
    OBJECT_KEY,
    INSTANCE,
    ALIAS,
    DESCRIPTION,
    NOTABLE_TYPES,
    NOTABLE_FOR,
    EQUIVALENT_PAGE,
    OFFICIAL_PAGE,
    KEY_TITLE,
    KEY_ID,
    KEY_IMDB,
    INCLUDED_TYPES,
    MEDIATOR,
    EXPECTED_TYPE,
    MASTER_PROPERTY,
    REVERSE_PROPERTY,
    PROPERTY_SCHEMA,
    UNIQUE,
    PROPERTIES,
)


def iri(text: str) -> bytes:
    """Write an IRI."""
    return f"<{text}>".encode()


def iri_object(text: str) -> bytes:
    """Write an IRI as the object that ends a line."""
    return iri(text) + END


class Vocabulary:
    """Numbers of predicates: the schema's properties first, with the same numbers."""

    def __init__(self, schema: Schema) -> None:
        names = [NS + stated.id for stated in schema.properties] + list(_FIXED)
        self.predicates = [b"\t" + iri(name) + b"\t" for name in names]
        self._fixed = {name: len(schema.properties) + at for at, name in enumerate(_FIXED)}

    def __getitem__(self, name: str) -> int:
        return self._fixed[name]
