"""Static files, with media types from a table of our own: a system's registry may call a script plain text."""

from __future__ import annotations

import mimetypes
import os
from pathlib import PurePath

from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".jpg": "image/jpeg",
    ".js": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".md": "text/markdown",
    ".mjs": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".txt": "text/plain",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".kvviz": "application/zip",
}


def register_media_types() -> None:
    """Have `mimetypes` answer from the same table, for whatever else asks it."""
    for suffix, media_type in MEDIA_TYPES.items():
        mimetypes.add_type(media_type, suffix)


class PageFiles(StaticFiles):
    """Files of the page. Browsers ask each time whether theirs is still right, so an upgrade is never half loaded."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """One file, or 304 when the browser has it."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = "no-cache"
        if isinstance(response, FileResponse):
            media_type = MEDIA_TYPES.get(PurePath(full_path).suffix.lower(), "application/octet-stream")
            charset = "; charset=utf-8" if media_type.startswith("text/") else ""
            response.headers["Content-Type"] = media_type + charset
        return response
