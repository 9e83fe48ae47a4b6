import pytest

from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Entity


@pytest.fixture(scope="module")
def kenya(demo: Graph) -> Entity:
    """Its mid is minted, so it is looked up."""
    query = 'SELECT ?x { ?x ns:type.object.name "Kenya"@en . ?x ns:location.country.capital ?y }'
    [[mid]] = demo.select(query).rows
    assert isinstance(mid, str)
    return Entity("Kenya", mid)
