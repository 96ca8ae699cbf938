"""Static files with fixed media types, since a system's registry may serve scripts as plain text."""

from __future__ import annotations

import mimetypes
import stat
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles
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
    """Register the same types in `mimetypes`, for other code that uses it."""
    for suffix, media_type in MEDIA_TYPES.items():
        mimetypes.add_type(media_type, suffix)


class PageFiles(StaticFiles):
    """The page's files, read on the event loop: they are small, and a thread would wait behind a loading model.

    Browsers revalidate each file, so an upgrade never leaves a mix of versions.
    """

    async def get_response(self, path: str, scope: Scope) -> Response:
        """One file, or 304 if the browser's copy is current. Raises `HTTPException` for anything else."""
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        try:
            full_path, status = self.lookup_path(path)
            if status is None or not stat.S_ISREG(status.st_mode):
                raise HTTPException(404)
            content = Path(full_path).read_bytes()
        except (OSError, ValueError) as error:  # the path is too long, unreadable, or contains a NUL
            raise HTTPException(404) from error
        media_type = MEDIA_TYPES.get(Path(full_path).suffix.lower(), "application/octet-stream")
        etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
        response = Response(content, media_type=media_type, headers={"Cache-Control": "no-cache", "ETag": etag})
        if self.is_not_modified(response.headers, Headers(scope=scope)):
            return NotModifiedResponse(response.headers)
        return response
