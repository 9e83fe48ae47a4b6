"""A page about the API, made from its OpenAPI description; it loads nothing."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader

router = APIRouter(include_in_schema=False)

_TEMPLATES = Environment(
    loader=PackageLoader("kbqa.engine.serve", "routes"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """List the routes, with what they take and return."""
    template = _TEMPLATES.get_template("docs.html")
    return HTMLResponse(template.render(api=request.app.openapi()))
