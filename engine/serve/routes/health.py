"""How the server is: for load balancers, for Prometheus, and for people."""

from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from kbqa.engine.serve.metrics import Metrics
from kbqa.engine.serve.problems import for_clients
from kbqa.engine.serve.records import InfoRecord
from kbqa.engine.serve.routes.parts import TheService
from kbqa.engine.serve.settings import MAX_HOPS, MAX_PATH, MAX_QUERY, MAX_QUESTION, MAX_ROWS

router = APIRouter(tags=["server"])


async def metrics_of(request: Request) -> Metrics:
    """Return the metrics of the application."""
    metrics = request.app.state.metrics
    assert isinstance(metrics, Metrics)
    return metrics


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Say that the process is alive."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(service: TheService) -> JSONResponse:
    """Say whether questions can be asked; 503 while the model loads or the graph is down."""
    is_up = await service.is_graph_up()
    is_ready = is_up and service.state == "ready"
    record = {"model": service.state, "graph": "up" if is_up else "down"}
    headers = {} if is_ready else {"Retry-After": "5"}
    return JSONResponse(record, 200 if is_ready else 503, headers)


@router.get("/metrics")
async def metrics(
    service: TheService, counted: Annotated[Metrics, Depends(metrics_of)]
) -> Response:
    """Return metrics for Prometheus."""
    counted.queue_depth.set(service.waiting)
    return Response(counted.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/api/v1/info")
async def info(service: TheService) -> InfoRecord:
    """Say what the server is: its method, model, graph and limits."""
    engine = service.engine if service.state == "ready" else None
    settings = service.settings
    identity = await service.look_up(lambda graph, _: graph.identity())
    return InfoRecord(
        version=version("kbqa"),
        state=service.state,
        method=None if engine is None else engine.method.name,
        model=None if engine is None else engine.resources.generator_name,
        graph=for_clients(dict(identity.settings), service.graph.description),
        limits={
            "question_bytes": MAX_QUESTION,
            "path_characters": MAX_PATH,
            "path_hops": MAX_HOPS,
            "query_characters": MAX_QUERY,
            "rows": MAX_ROWS,
            "deadline_s": settings.deadline_s,
            "query_timeout_s": settings.query_timeout_s,
            "queue": settings.queue,
            "batch_size": settings.batch_size,
            "unsure_below": settings.unsure_below,
        },
    )
