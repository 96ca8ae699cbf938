"""The server: `create_app(config)` makes the web application, `serve_app(config)` serves it until it is stopped."""

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
from kvviz.sessions.limits import Limits
from kvviz.sessions.registry import Sessions
from kvviz.sources.controls import AddRequest
from kvviz.sources.library import Library
from kvviz.sources.loader import Load, LoadStatus
from kvviz.sources.run_factory import load_model
from kvviz.web.assets import find_assets
from kvviz.web.guard import Guard, SecurityHeaders
from kvviz.web.plotly import plotly_route
from kvviz.web.prefix import Prefix, check_root_path
from kvviz.web.replies import add_error_handlers
from kvviz.web.routes import api_routes
from kvviz.web.socket import serve_websocket
from kvviz.web.static import PageFiles, register_media_types
from kvviz.web.traces_routes import add_traces

DEFAULT_PORT = 8000
#: How many ports after the default one are tried before any free one is taken.
NUM_PORTS = 20
#: Larger websocket messages than this close the connection (1009); smaller ones that are too large get an error.
MAX_FRAME_FACTOR = 16

#: Short, and the default model answers it well and comes to an end.
FIRST_PROMPT = "Explain in two sentences why leaves are green."


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where to listen, what to show and for whom.

    `port` None: a free one near 8000. `root_path` is the path under which a proxy shows the server. `model` (None: the
    default one) and `dtype` are for the loader; `replay_path` shows one file and loads no model. `recordings_dir` None:
    the shipped recordings. `first_prompt` waits in every new live session; None: nothing does. Raises `ConfigError`
    if `root_path` is not a path.
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


def create_app(
    config: ServerConfig, load: Load | None = None, on_model_status: Callable[[LoadStatus], None] | None = None
) -> FastAPI:
    """The web application. `load` brings the model (None: recordings only); it is called in a thread at start-up.

    `on_model_status` is told, in that thread, how far loading is.
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
    """Serve until interrupted. `on_url` gets the page's address once it can be opened.

    Without `load`, the model of `config` is loaded, or none when `replay_path` is given. Raises `ConfigError` when the
    address cannot be listened on.
    """
    listener = bind(config.host, config.port)
    url = page_url(config, listener)
    app = create_app(config, load or _default_load(config), on_model_status)
    server = uvicorn.Server(uvicorn_config(app, config))
    if on_url:  # the socket listens already, so whoever comes now is only kept waiting for a moment
        on_url(url)
    if config.open_browser:
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    with listener, contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def uvicorn_config(app: ASGIApp, config: ServerConfig) -> uvicorn.Config:
    """How the application is served: no compression (frames do not shrink and a loopback is fast), bounded messages."""
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
    """A listening socket on `port`, or for None on a free one near 8000. Raises `ConfigError` when that fails."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port or 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(
            f"The host to listen on must be a name or address of this machine, but {host!r} is not known "
            f"({error.strerror}); use 127.0.0.1 for this machine only, or 0.0.0.0 for the network.",
            setting="host",
        ) from error
    wanted = [port] if port is not None else [*range(DEFAULT_PORT, DEFAULT_PORT + NUM_PORTS), 0]
    reason = ""
    for number in wanted:
        listener = socket.socket(family, kind, protocol)
        if os.name == "posix":  # elsewhere the option would let two servers share the port
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
        f"Expected to listen on {host} port {port}, but it cannot be had ({reason}); choose another --port, or none.",
        setting="port",
    )


def page_url(config: ServerConfig, listener: socket.socket) -> str:
    """The address of the page on this machine."""
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
