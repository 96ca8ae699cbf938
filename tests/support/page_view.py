"""The visualizer in a browser, with short names for what tests ask of it."""

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
    """An open page of the visualizer."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.watched = Watched(page, url.split("/")[2])
        page.goto(url)
        page.wait_for_selector("html[data-ready=yes]")

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
        return self.folds([position])[0]

    def folds(self, positions: list[int]) -> list[str]:
        """The same of many positions, folded in this order."""
        return list(
            self.page.evaluate(
                "async (all) => { const {toCheckpoint} = await import('./static/js/core/checkpoint.js');"
                " return all.map((k) => JSON.stringify(toCheckpoint(kvviz.ctx.timeline.keyframes.at(k)))); }",
                positions,
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
        """End the test of this page: it has asked no other host."""
        self.watched.leave()
        assert self.watched.foreign == []
