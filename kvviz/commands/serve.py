"""`kvviz serve`: serves the page with a live model."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from kvviz.commands.options import AllowHost, Dtype, Host, Model, NoOpen, Port, RootPath
from kvviz.commands.terminal import LoadingLine, stderr

if TYPE_CHECKING:
    from kvviz.sources.loader import LoadStatus
    from kvviz.web.app import ServerConfig

#: With this many cores or fewer, a browser and the model keep all of them busy.
FEW_CORES = 4


def serve(
    host: Host = "127.0.0.1",
    port: Port = None,
    root_path: RootPath = "",
    allow_host: AllowHost = None,
    model: Model = None,
    dtype: Dtype = "float32",
    no_open: NoOpen = False,
) -> None:
    """Serve the page: a recording first, the live model once it is loaded."""
    from kvviz.model.loading import check_dtype
    from kvviz.web.app import ServerConfig

    run_server(
        ServerConfig(
            host=host,
            port=port,
            root_path=root_path,
            allow_hosts=tuple(allow_host or ()),
            model=model,
            dtype=check_dtype(dtype),
            open_browser=not no_open and browser_name() is not None,
        )
    )


def has_screen() -> bool:
    return not sys.platform.startswith("linux") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def browser_name() -> str | None:
    """The browser that can open a window on this machine; None without a display or a browser."""
    import webbrowser

    if not has_screen():
        return None
    try:
        return type(webbrowser.get()).__name__
    except webbrowser.Error:
        return None


def run_server(config: ServerConfig) -> None:
    """Serve until interrupted, and show the model's loading progress."""
    if (os.cpu_count() or 1) <= FEW_CORES:
        # Waiting threads must not spin on the core that the browser needs: on two cores, a step took 3-4 times as long
        # without this. Without a browser it costs a third, so `record` and `bench` don't set it.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from kvviz.web.app import serve_app

    console = stderr()
    line = LoadingLine(console)

    def on_url(url: str) -> None:
        typer.echo(f"kvviz is running at {url} (Ctrl-C to stop)")

    def on_model_status(status: LoadStatus) -> None:
        if status.state in ("ready", "failed"):
            line.close()
            style = "red" if status.state == "failed" else ""
            console.print(escape(status.message), style=style, soft_wrap=True)
        else:
            line.update(status.state, status.progress, status.message)

    with line:
        serve_app(config, on_url=on_url, on_model_status=on_model_status)
