"""Ask a question, or run a path that somebody wrote."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from kbqa.engine.serve.asking.served import DEFAULT_MAX_ANSWERS
from kbqa.engine.serve.browsing import explain_path, path_of_query
from kbqa.engine.serve.records import (
    AnswerRecord,
    AskBody,
    MaxAnswers,
    PathBody,
    PathRecord,
    QueryBody,
    Question,
    RunPathBody,
    TimeoutS,
    Topics,
)
from kbqa.engine.serve.routes.parts import PROBLEMS, TheService, TheVisit, answer_response

router = APIRouter(prefix="/api/v1", responses=PROBLEMS)

_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "model": AnswerRecord,
        "description": "The answer; or, with `Accept: text/event-stream`, events: `queued`, "
        "`linked`, `written` and `stage`, then one `answer` or `error`.",
    }
}


@router.post("/ask", tags=["questions"], responses=_ANSWER)
async def ask(body: AskBody, request: Request, service: TheService, visit: TheVisit) -> Response:
    """Answer a question. That there is no answer is a result, not an error."""
    return await answer_response(
        request,
        service,
        visit,
        lambda watch: service.ask(
            body.question, body.topics, deadline_s=body.timeout_s, watch=watch
        ),
        body.max_answers,
        with_lines=body.lines,
    )


@router.get("/ask", tags=["questions"], responses=_ANSWER)
async def ask_by_url(
    q: Annotated[Question, Query()],
    request: Request,
    service: TheService,
    visit: TheVisit,
    topic: Annotated[Topics, Query()] = [],  # noqa: B006 - FastAPI copies defaults
    timeout_s: Annotated[TimeoutS, Query()] = None,
    max_answers: Annotated[MaxAnswers, Query()] = DEFAULT_MAX_ANSWERS,
) -> Response:
    """Answer a question, for curl: as POST does."""
    body = AskBody(question=q, topics=topic, timeout_s=timeout_s, max_answers=max_answers)
    return await ask(body, request, service, visit)


@router.post("/paths/run", tags=["paths"], responses=_ANSWER)
async def run_path(
    body: RunPathBody, request: Request, service: TheService, visit: TheVisit
) -> Response:
    """Run a path that somebody wrote or edited, without the model; events as for a question."""
    return await answer_response(
        request,
        service,
        visit,
        lambda watch: service.run_path(
            body.path,
            body.question,
            body.topics,
            client=visit.client,
            relax=body.relax,
            deadline_s=body.timeout_s,
            watch=watch,
        ),
        body.max_answers,
    )


@router.post("/paths/check", tags=["paths"])
async def check_path(body: PathBody, service: TheService) -> PathRecord:
    """Read a path and return it in all its forms; no graph is asked."""
    return await service.look_up(lambda *_: explain_path(body.path))


@router.post("/paths/from-sparql", tags=["paths"])
async def path_from_sparql(body: QueryBody, service: TheService, visit: TheVisit) -> PathRecord:
    """Return the path that says the same as a query."""
    return await service.run_for(visit.client, lambda: path_of_query(body.query))
