"""An open page of a server, with short names for what tests ask of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.support.browser import Watched

STATE = """() => {
  const {timeline, log, ui} = kvviz.ctx;
  return {kind: log.kind, head: timeline.head, position: timeline.position, progress: timeline.progress,
    pinned: timeline.pinned, moving: timeline.moving, playing: kvviz.transport.status?.play.playing ?? false,
    finished: timeline.keyframes.at(timeline.head).numFinished,
    wrong: timeline.keyframes.wrong, folded: timeline.keyframes.done, lens: ui.lens,
    connection: kvviz.transport.state, model: kvviz.transport.status?.model,
    takeover: kvviz.takeover.automatic};
}"""


class View:
    """An open page with short names for what tests ask of it."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        self.page = self.context.new_page()
        self.watched = Watched(self.page, url.split("/")[2])
        self.page.goto(url)
        self.page.wait_for_selector("html[data-ready=yes]")

    def state(self) -> dict[str, Any]:
        return dict(self.page.evaluate(STATE))

    def until(self, condition: Callable[[dict[str, Any]], Any], timeout_s: float = 40) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            state = self.state()
            if condition(state):
                return state
            assert time.monotonic() < deadline, f"it did not happen in time: {state}"
            time.sleep(0.03)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def fold(self, position: int) -> str:
        """The page's folded world at a position, as a checkpoint."""
        return str(
            self.page.evaluate(
                "async k => JSON.stringify((await import('./static/js/core/checkpoint.js'))"
                ".toCheckpoint(kvviz.ctx.timeline.keyframes.at(k)))",
                position,
            )
        )

    def run_to_the_end(self) -> dict[str, Any]:
        """Play as fast as the engine can until it has nothing to do."""
        self.page.select_option(".speed", "max")
        if not self.state()["playing"]:
            self.press("Space")
        self.until(lambda state: state["head"] > 0 and not state["playing"] and not state["moving"])
        return self.until(lambda state: state["folded"])

    def close(self) -> None:
        self.context.close()
        assert self.watched.foreign == []
