"""A scenario in the page: what the lenses say, held against the events."""

from __future__ import annotations

import re
from typing import Any

from kvviz.log.world import World
from tests.support.running import wait_for

Records = list[list[Any]]


def events(records: Records, kind: str) -> list[dict[str, Any]]:
    return [event for _, _, event in records if event["type"] == kind]


def figures(page: Any) -> tuple[int, ...]:
    """Blocks in use and blocks that are free but cached, as the Pages lens says them."""
    text = page.evaluate("() => kvviz.stage.lens?.describe(kvviz.ctx.timeline.scene()) ?? ''")
    said = re.search(r"(\d+) blocks? (?:is|are) in use, (\d+) (?:is|are) free but still cached", text)
    return tuple(map(int, said.groups())) if said else ()


def check_page(page: Any, header: dict[str, Any], records: Records) -> None:
    """Every digest, what the pool holds after some steps, and who is in the batch. The page shows the Pages lens."""
    wait_for(lambda: page.evaluate("() => kvviz.ctx.timeline.keyframes.done"))
    assert page.evaluate("() => kvviz.ctx.timeline.keyframes.wrong") is None
    world = World(header["pool"]["num_blocks"], header["pool"]["block_size"])
    num_steps = len(events(records, "step_finished"))
    wanted = {num_steps // 3, num_steps // 2, num_steps}
    for number, record in enumerate(records):
        world.apply(record)
        last = number + 1 == len(records)
        if world.step not in wanted or not (last or records[number + 1][2]["type"] == "step_started"):
            continue
        in_use = sum(count > 0 for count in world.ref_count)
        cached = sum(world.hash[block_id] is not None for block_id in world.free)
        page.evaluate("(step) => kvviz.ctx.timeline.seek(step, 0)", world.step)
        wait_for(lambda want=(in_use, cached): figures(page) == want, 10)
    writes = events(records, "kv_written")
    for request_id in world.requests:
        page.evaluate("(requestId) => kvviz.ctx.ui.set({requestId})", request_id)
        num_written = sum(len(event["slots"]) for event in writes if event["request_id"] == request_id)
        wait_for(lambda want=f"{num_written:,} with the cache": want in page.inner_text("#caption"), 10)
    page.keyboard.press("4")
    letters = [chr(65 + request_id) for request_id in range(len(events(records, "request_added")))]
    wait_for(lambda: page.evaluate("() => kvviz.stage.name") == "batch")
    named = "() => document.querySelector('#stage').textContent"
    wait_for(lambda: all(f"Request {letter}" in page.evaluate(named) for letter in letters), 10)
