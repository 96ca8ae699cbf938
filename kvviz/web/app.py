"""The server: `create_app(config)` creates the web application, `serve_app(config)` serves it until stopped."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request, WebSocket
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.templating import Jinja2Templates
from starlette.types import ASGIApp

from kvviz.errors import ConfigError
from kvviz.messages import shown
from kvviz.sessions.limits import Limits
from kvviz.sessions.registry import Sessions
from kvviz.sources.controls import AddRequest
from kvviz.sources.library import Library
from kvviz.sources.loader import Load, LoadStatus
from kvviz.sources.run_factory import load_model
from kvviz.web.assets import find_assets
from kvviz.web.guard import Guard, SecurityHeaders, check_hosts
from kvviz.web.plotly import plotly_route
from kvviz.web.prefix import Prefix, check_root_path
from kvviz.web.replies import add_error_handlers
from kvviz.web.routes import api_routes
from kvviz.web.socket import serve_websocket
from kvviz.web.static import PageFiles, register_media_types
from kvviz.web.traces_routes import add_traces

DEFAULT_PORT = 8000
#: Ports that are tried, from the default one on, before any free one is used.
NUM_PORTS = 20
#: Websocket messages above this × `max_message_bytes` close the connection (1009). Smaller ones above the limit get an
#: error.
MAX_FRAME_FACTOR = 16

#: Short, and the default model gives a good, complete answer.
FIRST_PROMPT = "Explain in two sentences why leaves are green."


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of a server. Raises `ConfigError` if `root_path` is not a path.

    - `port`: None: a free one near 8000.
    - `root_path`: the path under which a proxy serves the application.
    - `allow_hosts`: additional accepted values of the Host header.
    - `model`, `dtype`: what to load; None: the default model.
    - `recordings_dir`: None: the included recordings.
    - `replay_path`: show this recording only, and load no model.
    - `first_prompt`: waits in every new live session; None: no prompt.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    root_path: str = ""
    allow_hosts: tuple[str, ...] = ()
    model: str | None = None
    dtype: str = "float32"
    recordings_dir: Path | None = None
    replay_path: Path | None = None
    first_prompt: str | None = FIRST_PROMPT
    open_browser: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_root_path(self.root_path)
        check_hosts(self.allow_hosts)


def create_app(
    config: ServerConfig, load: Load | None = None, on_model_status: Callable[[LoadStatus], None] | None = None
) -> FastAPI:
    """Create the web application.

    `load` loads the model, in a thread at startup; None: recordings only. `on_model_status` is called in that thread
    with the loading progress.
    """
    register_media_types()
    assets = find_assets()
    recordings_dir = config.recordings_dir or assets.recordings
    library = Library(None if config.replay_path else recordings_dir, config.replay_path)
    first_prompt = AddRequest(command="add_request", prompt=config.first_prompt) if config.first_prompt else None
    sessions = Sessions(library, config.limits, load, first_prompt)
    if on_model_status:
        sessions.on_model_status = on_model_status

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await sessions.start()
        yield
        await traces.close()
        await sessions.close()

    app = FastAPI(
        title="kvviz",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(Guard, host=config.host, allow_hosts=config.allow_hosts),
            Middleware(Prefix, root_path=config.root_path),
        ],
    )
    app.state.sessions = sessions
    add_error_handlers(app)
    app.include_router(api_routes(sessions))
    traces = add_traces(app)
    app.include_router(plotly_route())
    _add_pages(app, assets.templates)
    app.mount("/static", PageFiles(directory=assets.static, check_dir=False))

    @app.websocket("/ws")
    async def ws(websocket: WebSocket) -> None:
        await serve_websocket(websocket, sessions)

    return app


def _add_pages(app: FastAPI, templates_dir: Path) -> None:
    templates = Jinja2Templates(directory=templates_dir)

    def answer(request: Request, template: str) -> Response:
        response = templates.TemplateResponse(request, template)
        response.headers["Cache-Control"] = "no-cache"
        return response

    @app.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return answer(request, "index.html")

    @app.api_route("/calculator", methods=["GET", "HEAD"])
    async def calculator_page(request: Request) -> Response:
        return answer(request, "calculator.html")

    @app.api_route("/traces", methods=["GET", "HEAD"])
    async def traces_page(request: Request) -> Response:
        return answer(request, "traces.html")

    @app.api_route("/favicon.ico", methods=["GET", "HEAD"])
    async def no_icon() -> Response:
        return Response(status_code=204)


def serve_app(
    config: ServerConfig,
    load: Load | None = None,
    *,
    on_url: Callable[[str], None] | None = None,
    on_model_status: Callable[[LoadStatus], None] | None = None,
) -> None:
    """Serve until interrupted. `on_url` is called with the page's URL once the socket is listening.

    Without `load`, the model of `config` is loaded, or none if `replay_path` is set. Raises `ConfigError` if the server
    can't listen on the address.
    """
    listener = bind(config.host, config.port)
    url = page_url(config, listener)
    app = create_app(config, load or _default_load(config), on_model_status)
    server = uvicorn.Server(uvicorn_config(app, config))
    if on_url:  # the socket is already listening, so early connections just wait for a moment
        on_url(url)
    if config.open_browser:
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    with listener, contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def uvicorn_config(app: ASGIApp, config: ServerConfig) -> uvicorn.Config:
    """The uvicorn settings: bounded messages, and no compression, since frames don't compress well."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        ws="websockets-sansio",
        ws_max_size=MAX_FRAME_FACTOR * config.limits.max_message_bytes,
        ws_per_message_deflate=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=3,
    )


def bind(host: str, port: int | None) -> socket.socket:
    """A listening socket on `port`, or on a free port near 8000 if None. Raises `ConfigError` if it fails."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port or 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not a valid name"
        raise ConfigError(
            f"The host {shown(host)} is not a name or address of this machine ({reason}); use 127.0.0.1 for this "
            "machine only, or 0.0.0.0 for the network.",
            setting="host",
        ) from error
    wanted = [port] if port is not None else [*range(DEFAULT_PORT, DEFAULT_PORT + NUM_PORTS), 0]
    reason = ""
    for number in wanted:
        listener = socket.socket(family, kind, protocol)
        if os.name == "posix":  # on Windows, this option would let two servers share the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address[0], number, *address[2:]))
            listener.listen(128)
        except OSError as error:
            listener.close()
            reason = str(error.strerror)
        else:
            return listener
    raise ConfigError(
        f"Can't listen on {host} port {port} ({reason}); choose another --port, or omit it.",
        setting="port",
    )


def page_url(config: ServerConfig, listener: socket.socket) -> str:
    """The URL of the page on this machine."""
    port = listener.getsockname()[1]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(config.host, config.host)
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"http://{host}:{port}/"


def _default_load(config: ServerConfig) -> Load | None:
    if config.replay_path is not None:
        return None
    limits = config.limits
    return load_model(config.model, config.dtype, frame_bytes=limits.frame_bytes, max_pool_bytes=limits.max_pool_bytes)
