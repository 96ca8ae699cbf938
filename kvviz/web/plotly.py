"""The script that draws charts, out of the installed `plotly` package: no page of kvviz asks another host for it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from kvviz.errors import MissingError
from kvviz.web.static import PageFiles

#: Name of the script, in the package's directory and below `/vendor/` here.
SCRIPT = "plotly.min.js"


def find_plotly() -> Path:
    """The directory of the installed package that holds the script. The package is not imported.

    Raises `MissingError` when there is none.
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
    """The one route of the script, answered as a static file is; 404 with a sentence when it is missing."""
    router = APIRouter()

    @router.api_route(f"/vendor/{SCRIPT}", methods=["GET", "HEAD"])
    async def script(request: Request) -> Response:
        files = PageFiles(directory=find_plotly(), follow_symlink=True)
        return await files.get_response(SCRIPT, request.scope)

    return router
