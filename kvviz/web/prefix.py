"""Serving under a path, behind a proxy that strips the prefix or one that doesn't."""

from __future__ import annotations

import re

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kvviz.errors import ConfigError

#: Path segments without a query, a fragment or a host.
_ROOT_PATH = re.compile(r"/?|(/[^/?#\\\s]+)+/?")


def check_root_path(root_path: str) -> None:
    """Raise `ConfigError` unless `root_path` is empty or a URL path."""
    if not _ROOT_PATH.fullmatch(root_path):
        raise ConfigError(
            f"A root path must start with / and have no scheme, host or query, such as /kvviz "
            f"(got {root_path[:100]!r}).",
            setting="root_path",
        )


class Prefix:
    """Strips `root_path` from request paths that start with it.

    Proxies that strip it themselves need nothing, since the page uses relative URLs only.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app = app
        self._root = "/" + root_path.strip("/") if root_path.strip("/") else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._root and scope["type"] in ("http", "websocket"):
            path = scope["path"]
            if path == self._root and scope["type"] == "http":
                query = scope["query_string"].decode("latin-1")
                where = f"{self._root}/" + (f"?{query}" if query else "")
                await RedirectResponse(where, 308)(scope, receive, send)
                return
            if path.startswith(f"{self._root}/"):
                rest = path[len(self._root) :]
                scope = {**scope, "path": rest, "raw_path": None, "root_path": ""}
        await self._app(scope, receive, send)
