"""A lens on a stage without the shell: the site that serves it, frames made up for a log, and how a lens is shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import numpy as np

from kvviz.log.packs import encode_pack
from kvviz.web.plotly import SCRIPT, find_plotly
from tests.support.accessibility import LOOKS
from tests.support.browser import Watched, ask, static_root

Log = tuple[dict[str, Any], list[list[Any]]]

LENSES = ("cache", "attention", "pages", "batch", "memory", "compare")

SHEETS = ("tokens", "reset", "components", *(f"lenses/{name}" for name in ("lens", *LENSES, "experiments")))

SIZE = {"width": 1100, "height": 700}

HTML = f"""<!doctype html><html lang="en" data-theme="dark"><head><title>lenses</title>
{"".join(f'<link rel="stylesheet" href="/static/css/{name}.css">' for name in SHEETS)}
<script type="module" src="/tests/support/lens_page.js"></script></head>
<body><main><h1 class="visually-hidden">lens</h1><div id="stage"></div></main></body></html>"""


class Attention:
    """Frames that a server would send for a log: made-up weights that add up to 1, kept to be compared with."""

    def __init__(self, header: dict[str, Any], records: list[list[Any]]) -> None:
        self.layers = header["model"]["num_layers"]
        self.heads = header["model"]["num_query_heads"]
        self.written: dict[int, tuple[int, int, int]] = {}  # the first of each step's batch
        self.parts: dict[tuple[int, int], tuple[int, int]] = {}
        self.missing: set[int] = set()
        self.asked: list[str] = []
        step = 0
        for _, _, event in records:
            if event["type"] == "step_started":
                step = event["step"]
            elif event["type"] == "kv_written":
                part = event["positions"][0], len(event["positions"])
                self.written.setdefault(step, (event["request_id"], *part))
                self.parts[step, event["request_id"]] = part

    def weights(self, step: int, layer: int, request: int | None = None) -> np.ndarray:
        """[heads, tokens], each row as bytes give it back."""
        request = self.written[step][0] if request is None else request
        start, count = self.parts[step, request]
        values = np.random.default_rng([step, layer, request]).gamma(0.5, size=(self.heads, start + count)) + 0.01
        rows, scale = _bytes(values / values.sum(axis=1, keepdims=True))
        weights: np.ndarray = rows * scale[:, None]
        return weights

    def mean(self, step: int, request: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        return _bytes(np.stack([self.weights(step, layer, request).mean(axis=0) for layer in range(self.layers)]))

    def answer(self, path: str) -> tuple[int, bytes]:
        """Status and body for a path below the session."""
        self.asked.append(path)
        kind, _, rest = path.partition("/")
        name, _, query = rest.partition("?")
        asked = dict(part.split("=") for part in query.split("&") if part)
        layer = int(asked.get("layer", 0))
        if kind == "norms":
            norms = self._norms(int(name))
            about = {"kind": "norms", "request_id": int(name)}
            return 200, encode_pack(about, {"key_norm": norms, "value_norm": norms})
        step = int(name) if name.isdigit() else -1
        if step not in self.written or step in self.missing:
            return 404, json.dumps({"code": "dropped", "message": "not cached"}).encode()
        request = int(asked.get("request", self.written[step][0]))
        if (step, request) not in self.parts:
            return 404, json.dumps({"code": "not_in_step", "message": "not in this step"}).encode()
        start, count = self.parts[step, request]
        about = {"step": step, "log_id": "a", "request_id": request, "layer": layer, "num_tokens": start + count}
        about |= {"start": start, "num_new": count, "bin": 1}
        rows, scale = _bytes(self.weights(step, layer, request))
        if kind == "frames":
            mean, mean_scale = self.mean(step, request)
            norms = self._norms(request)[:, start : start + count]
            arrays = {"mean": mean, "mean_scale": mean_scale, "heads": rows, "heads_scale": scale}
            return 200, encode_pack({"kind": "step", **about}, {**arrays, "key_norm": norms, "value_norm": norms})
        if kind == "heads":
            return 200, encode_pack({"kind": "heads", **about}, {"heads": rows, "heads_scale": scale})
        if kind == "triangle":
            square = np.tril(np.ones((count, start + count)), start) + 0.0
            weights, weights_scale = _bytes(square / square.sum(axis=1, keepdims=True))
            return 200, encode_pack({"kind": "triangle", **about}, {"weights": weights, "weights_scale": weights_scale})
        position = int(asked["position"])
        weight = self.weights(step, layer, request)[:, position].astype(np.float32)
        dot = np.full(self.heads, 10.0, np.float32)
        return 200, encode_pack(
            {"kind": "scores", **about}, {"dot": dot, "scaled": dot * np.float32(0.35), "weight": weight}
        )

    def _norms(self, request: int) -> np.ndarray:
        ends = [start + count for (_, owner), (start, count) in self.parts.items() if owner == request]
        return np.random.default_rng(request).uniform(1, 9, (self.layers, max(ends, default=0))).astype(np.float16)


def _bytes(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = (rows.max(axis=-1) / 255).astype(np.float32)
    return np.round(rows / scale[:, None]).astype(np.uint8), scale


class Site(ThreadingHTTPServer):
    """Serves the scripts (which the browser may keep) and the frames of one `Attention`, and nothing else."""

    attention: Attention | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Answers(SimpleHTTPRequestHandler):
    """What a `Site` answers."""

    extensions_map: ClassVar = {**SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript"}

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, directory=str(static_root().parent))

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        """The page, a frame, or a file."""
        assert isinstance(self.server, Site)
        frames = self.path.removeprefix("/api/sessions/s/")
        if self.path == "/":
            self._send(200, HTML.encode(), "text/html; charset=utf-8")
        elif self.path == "/favicon.ico":
            self._send(204, b"", "image/x-icon")
        elif self.path == f"/vendor/{SCRIPT}":
            self._send(200, (find_plotly() / SCRIPT).read_bytes(), "text/javascript")
        elif frames != self.path and self.server.attention is not None:
            self._send(*self.server.attention.answer(frames), "application/octet-stream")
        else:
            super().do_GET()

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve_site() -> Iterator[Site]:
    server = Site(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


class LensPage:
    """The one page of a `Site`, which is loaded once and emptied before each test."""

    def __init__(self, browser: Any, site: Site) -> None:
        self.site = site
        self.page = browser.new_page(viewport=SIZE)
        self.watched = Watched(self.page, site.host)
        self._load()

    def as_new(self) -> None:
        """Nothing on the stage, nothing under the mouse, the size and the looks of the beginning."""
        self.site.attention = None
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.mouse.move(-1, -1)
        if self.page.viewport_size != SIZE:
            self.page.set_viewport_size(SIZE)
        try:
            self.page.evaluate("leave()")
        except Exception:  # a test before this one has broken or left the page
            self._load()
        self.watched.clear()

    def _load(self) -> None:
        self.page.goto(f"http://{self.site.host}/")
        self.page.wait_for_function("window.ready")


def show(page: Any, log: Log, lens: str, size: tuple[int, int] = (1060, 600)) -> None:
    """A lens over a log, on a stage of that size."""
    header, records = log
    ask(page, "setup", {"header": header, "records": records, "lens": lens, "size": size})


def show_in(page: Any, log: Log, lens: str, look: str) -> None:
    """The same on the whole of a window of one of the `LOOKS`, less the bars of the shell."""
    width, height, theme, projector = LOOKS[look]
    page.set_viewport_size({"width": width, "height": height})
    looks = {"theme": theme, "projector": "on" if projector else "off"}
    page.evaluate("(looks) => Object.assign(document.documentElement.dataset, looks)", looks)
    show(page, log, lens, (width - 40, height - 340))
