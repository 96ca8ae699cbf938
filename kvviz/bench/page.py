"""The page's cost in the browser while the model decodes, from a Chromium trace.

The default model runs at full speed, and the page (1440 × 900) plays at 4× from the model's position. There are two
scenes: the Cache lens at 2,048 tokens of context in a pool of 512 blocks, and the Pages lens with 16 requests in a pool
of 1,024. The work of an animation frame is the total time of the main thread's tasks between two frames, including time
spent waiting for a core. Needs the `test` extra (Playwright) and Chromium.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from websockets.sync.client import ClientConnection, connect

from kvviz.errors import KvvizError

SECONDS = 10
LATE_MS = 25
CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A workload and the lens that shows it. It has more prompts than run at once, since requests finish."""

    lens: str
    config: dict[str, Any]
    prompts: tuple[str, ...]
    num_prefill_steps: int


SCENES = (
    Scene("cache", {"num_blocks": 512, "prefill_chunk": 256, "max_running": 1}, ("the sea " * 1_024,) * 60, 9),
    Scene(
        "pages",
        {"num_blocks": 1_024, "prefill_chunk": 256, "token_budget": 512, "max_running": 16},
        tuple(f"Tell me story number {number}. " * 20 for number in range(160)),
        8,
    ),
)


@dataclass(frozen=True, slots=True)
class PageResult:
    """Main-thread work per animation frame in ms, and the fraction of frames later than `LATE_MS`.

    `model_steps`: steps of the model during the measurement.
    """

    lens: str
    num_frames: int
    work_median_ms: float
    work_p95_ms: float
    late_share: float
    model_steps: int


def find_chromium() -> str:
    """The path of a Chromium or Chrome. Raises `KvvizError` if there is none."""
    for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"):
        if path := shutil.which(name):
            return path
    raise KvvizError(
        "Measuring the page needs Chromium, which was not found; install it and try again.", code="no_browser"
    )


def measure_page() -> list[PageResult]:
    """Start a server and measure the page in each scene, for `SECONDS` seconds.

    Raises `KvvizError` without Playwright or Chromium, or if the page doesn't draw.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise KvvizError(
            'Measuring the page needs Playwright; install it with: pip install "kvviz[test]"', code="no_playwright"
        ) from error
    executable = find_chromium()
    with _server() as url, sync_playwright() as playwright:
        with connect(url.replace("http", "ws", 1) + "ws", max_size=None) as socket:
            _Session(socket).wait_for_model()
        browser = playwright.chromium.launch(executable_path=executable, args=list(CHROMIUM_ARGUMENTS))
        results = [_measure_scene(scene, url, browser) for scene in SCENES]
        browser.close()
        return results


def _measure_scene(scene: Scene, url: str, browser: Any) -> PageResult:
    with connect(url.replace("http", "ws", 1) + "ws", max_size=None) as socket:
        session = _Session(socket)
        session.command("start", config=scene.config)
        session.command("set_rate", steps_per_second=None)
        for prompt in scene.prompts:
            session.command("add_request", prompt=prompt, template=False, max_new_tokens=4_000)
        session.command("play")
        session.wait_for_steps(scene.num_prefill_steps + 4)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{url}?lens={scene.lens}")
        page.wait_for_selector(".speed")
        page.select_option(".speed", "4")
        page.wait_for_timeout(2_000)
        page.evaluate("() => { const {timeline} = kvviz.ctx; timeline.seek(timeline.head - 1); timeline.play(); }")
        page.wait_for_timeout(2_000)
        session.drain()
        before = session.num_steps
        browser.start_tracing(
            page=page, categories=["devtools.timeline", "disabled-by-default-devtools.timeline", "toplevel"]
        )
        page.wait_for_timeout(SECONDS * 1_000)
        trace = json.loads(browser.stop_tracing())
        page.close()
        session.drain()
        return _read(scene.lens, trace["traceEvents"], session.num_steps - before)


def _read(lens: str, events: list[dict[str, Any]], model_steps: int) -> PageResult:
    """Find the main thread that runs animation frames, and sum up its tasks between frames."""
    fired = [event for event in events if event.get("name") == "FireAnimationFrame"]
    if len(fired) < 10:
        raise KvvizError(
            "The page drew fewer than ten frames, too few to measure; check that Chromium works.", code="no_frames"
        )
    thread = (fired[0]["pid"], fired[0]["tid"])
    starts = sorted(event["ts"] for event in fired if (event["pid"], event["tid"]) == thread)
    tasks = [
        (event["ts"], event.get("dur", 0))
        for event in events
        if event.get("name") == "RunTask" and (event["pid"], event["tid"]) == thread
    ]
    work = [0.0] * len(starts)
    index = 0
    for ts, duration in sorted(tasks):
        while index + 1 < len(starts) and starts[index + 1] <= ts + duration / 2:
            index += 1
        work[index] += duration / 1_000
    intervals = [(after - before) / 1_000 for before, after in pairwise(starts)]
    return PageResult(
        lens=lens,
        num_frames=len(starts),
        work_median_ms=statistics.median(work),
        work_p95_ms=statistics.quantiles(work, n=20)[-1],
        late_share=sum(interval > LATE_MS for interval in intervals) / len(intervals),
        model_steps=model_steps,
    )


@contextmanager
def _server() -> Iterator[str]:
    """Run a kvviz server, and yield its URL."""
    command = [sys.executable, "-m", "kvviz", "serve", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "http://" in line:
                yield next(word for word in line.split() if word.startswith("http://"))
                break
    finally:
        process.terminate()
        process.wait(10)


class _Session:
    """A minimal websocket client for the measurement."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.num_steps = 0
        self._next_id = 1

    def command(self, name: str, **fields: Any) -> None:
        """Send a command and wait for the reply. Raises `KvvizError` if it is rejected."""
        self._next_id += 1
        self.socket.send(json.dumps({"id": self._next_id, "command": name, **fields}))
        while True:
            message = self._receive()
            if message.get("id") == self._next_id:
                if message["type"] == "error":
                    raise KvvizError(message["message"], code=message["code"])
                return

    def wait_for_model(self, seconds: float = 300) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            message = self._receive()
            if message.get("type") == "status" and message["model"]["state"] in ("ready", "failed"):
                return

    def wait_for_steps(self, count: int) -> None:
        while self.num_steps < count:
            self._receive()

    def drain(self) -> None:
        while True:
            try:
                self._receive(timeout=0.01)
            except TimeoutError:
                return

    def _receive(self, timeout: float = 60) -> dict[str, Any]:
        data = self.socket.recv(timeout)
        if isinstance(data, bytes):
            return {}
        message: dict[str, Any] = json.loads(data)
        if message.get("type") == "hello":
            self.num_steps = 0
        for _, _, event in message.get("records", ()):
            if event["type"] == "step_finished":
                self.num_steps = event["step"]
        return message
