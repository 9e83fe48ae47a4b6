"""Find entities, and look around from them."""

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from kbqa.engine.serve.browsing import (
    MAX_OFFSET,
    describe_entity,
    find_entities,
    list_neighbours,
    list_relations,
)
from kbqa.engine.serve.records import (
    EntityRecord,
    FoundEntity,
    LinkedRecord,
    NeighboursRecord,
    RelationsRecord,
    TextBody,
)
from kbqa.engine.serve.routes.parts import PROBLEMS, TheService
from kbqa.kb.graph import Direction

router = APIRouter(prefix="/api/v1", tags=["entities"], responses=PROBLEMS)

TheMid = Annotated[str, Path(max_length=200)]


@router.post("/link")
async def link(body: TextBody, service: TheService) -> list[LinkedRecord]:
    """Find the entities that a text mentions, best first."""
    found = await service.link(body.text)
    return [
        LinkedRecord(mid=each.mid, name=each.name, mention=each.mention, score=each.score)
        for each in found
    ]


@router.get("/entities")
async def entities(
    q: Annotated[str, Query(min_length=1, max_length=200)],
    service: TheService,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> list[FoundEntity]:
    """Find entities by a name that may be incomplete or mistyped, best first."""
    return await service.look_up(partial(find_entities, name=q, limit=limit))


@router.get("/entities/{mid}")
async def entity(mid: TheMid, service: TheService) -> EntityRecord:
    """Return an entity's name and types, and how many triples it has."""
    return await service.look_up(partial(describe_entity, mid=mid))


@router.get("/entities/{mid}/relations")
async def relations(
    mid: TheMid,
    service: TheService,
    direction: Literal["out", "in", "both"] = "both",
    contains: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> RelationsRecord:
    """List the relations of an entity with their counts, those that leave it first."""
    way = None if direction == "both" else direction
    find = partial(list_relations, mid=mid, direction=way, contains=contains, limit=limit)
    return await service.look_up(find)


@router.get("/entities/{mid}/neighbours")
async def neighbours(
    mid: TheMid,
    relation: Annotated[str, Query(max_length=200)],
    service: TheService,
    direction: Direction = "out",
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
) -> NeighboursRecord:
    """List some of what one relation leads to; `truncated` says that there are more."""
    find = partial(
        list_neighbours,
        mid=mid,
        relation=relation,
        direction=direction,
        limit=limit,
        offset=offset,
    )
    return await service.look_up(find)
