"""Access control: a known Host, a matching Origin, and security headers."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from html import escape
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvviz.errors import ConfigError
from kvviz.messages import shown

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)

SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


class SecurityHeaders:
    """Adds the security headers to every response, including errors and rejected websockets."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def check_hosts(names: Iterable[str]) -> None:
    """Raise `ConfigError` unless all are host names or addresses, without a port or a wildcard."""
    for name in names:
        parts = _split_host(f"[{name}]" if _address(name) else name)
        if parts is None or parts[1] is not None or "*" in name:
            raise ConfigError(
                f"An allowed host must be a name or an address, without a port or * (got {shown(name)}).",
                setting="allow_hosts",
            )


class Guard:
    """Rejects requests to unknown hosts (421) and from other origins (403), with an explanation.

    Another site's page can make a browser send requests to this server, or resolve its own name to this machine (DNS
    rebinding); the Origin or the Host reveals both. Allowed hosts: loopback names, the address of the connection,
    `host` (the address that the server listens on) and `allow_hosts`. For websockets and requests that make changes,
    the Origin must match the Host. Other requests from another site may only open pages, where the browser says so
    (Sec-Fetch-Site).
    """

    def __init__(self, app: ASGIApp, host: str, allow_hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._names = {_normalised(name) for name in ("localhost", host, *allow_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            refusal = self._refusal(scope)
            if refusal is not None:
                status, sentence = refusal
                await PlainTextResponse(escape(sentence, quote=False) + "\n", status)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = _split_host(hosts[0]) if len(hosts) == 1 else None
        if host is None:
            return 400, "The Host header is missing or malformed; send exactly one, with a name and optionally a port."
        name, port = host
        if not self._is_allowed(name, scope.get("server")):
            return 421, (
                f"This server doesn't accept the host '{name[:100]}'; "
                f"if that is its name, start it with --allow-host {name[:100]}."
            )
        if scope["type"] == "http" and scope["method"] in _SAFE_METHODS:
            opens_page = headers.get("sec-fetch-dest") in ("document", "iframe") and "/api/" not in scope["path"]
            if headers.get("sec-fetch-site", "none") in ("none", "same-origin") or opens_page:
                return None
            return 403, "Other sites can only open kvviz's pages; open kvviz under its own address."
        origins = headers.getlist("origin")
        if not origins:
            if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
                return None
            return 403, "Requests from other sites can't make changes; open kvviz under its own address."
        if len(origins) > 1 or not _same_origin(origins[0], name, port):
            return 403, (
                f"The page is at '{origins[0][:100]}', but sent this request to '{hosts[0][:100]}'; "
                "open kvviz at the server's address, and configure any proxy to forward the Host header."
            )
        return None

    def _is_allowed(self, name: str, server: Any) -> bool:
        if name in self._names:
            return True
        address = _address(name)
        if address is None:
            return False
        return address.is_loopback or (bool(server) and address == _address(str(server[0])))


def _split_host(text: str) -> tuple[str, int | None] | None:
    """Name (lower case, without brackets or a final dot) and port of a Host header; None if it is malformed."""
    if not text or any(character in text for character in "/\\@?#, \t") or not text.isascii():
        return None
    try:
        parts = urlsplit(f"//{text}")
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    return (_normalised(name), port) if name else None


def _same_origin(origin: str, name: str, port: int | None) -> bool:
    try:
        parts = urlsplit(origin)
        origin_name, origin_port = parts.hostname, parts.port
    except ValueError:
        return False
    if parts.scheme not in _DEFAULT_PORTS or not origin_name or parts.path or parts.query or parts.username:
        return False
    default = _DEFAULT_PORTS[parts.scheme]
    return _normalised(origin_name) == name and (origin_port or default) == (port or default)


def _normalised(name: str) -> str:
    return name.strip("[]").rstrip(".").lower()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address
