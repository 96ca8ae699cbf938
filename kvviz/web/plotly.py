"""Serves the script of plotly from the installed Python package, so the page needs no other host."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from kvviz.errors import MissingError
from kvviz.web.static import PageFiles

#: File name of the script, in the package and under `/vendor/`.
SCRIPT = "plotly.min.js"


def find_plotly() -> Path:
    """The directory with the script in the installed package, found without importing it.

    Raises `MissingError` if there is none.
    """
    spec = find_spec("plotly")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        directory = Path(package) / "package_data"
        if (directory / SCRIPT).is_file():
            return directory
    raise MissingError(
        "Charts need the Python package plotly, which is missing or incomplete; "
        "run pip install --force-reinstall plotly, then reload the page.",
        code="no_plotly",
    )


def plotly_route() -> APIRouter:
    """The route of the script: served like a static file, or 404 with an explanation if it is missing."""
    router = APIRouter()

    @router.api_route(f"/vendor/{SCRIPT}", methods=["GET", "HEAD"])
    async def script(request: Request) -> Response:
        files = PageFiles(directory=find_plotly(), follow_symlink=True)
        return await files.get_response(SCRIPT, request.scope)

    return router
