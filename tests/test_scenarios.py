"""The recordings that ship: each shows its mechanic, its digests are right, and the page shows the events' figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from kvviz.errors import RequestError
from kvviz.experiments.scenarios import RECORDINGS, SCENARIOS, find_scenario
from kvviz.log.recording import Recording
from kvviz.log.world import World
from kvviz.web.app import ServerConfig
from tests.browser import Watched, open_browser
from tests.running import Running, running, wait_for
from tests.scenario_page import Records, check_page, events


def lookups(records: Records) -> list[dict[str, Any]]:
    return events(records, "prefix_looked_up")


def most_together(records: Records) -> int:
    return max(len(event["chunks"]) for event in events(records, "step_scheduled"))


def largest_chunk_beside_decodes(records: Records) -> int:
    """Most prompt tokens of one request in a step in which others decode."""
    sizes = [0]
    for event in events(records, "step_scheduled"):
        if any(chunk["kind"] == "decode" for chunk in event["chunks"]):
            sizes += [chunk["num_tokens"] for chunk in event["chunks"] if chunk["kind"] == "prefill"]
    return max(sizes)


#: What a viewer must get to see in each.
SHOWS: dict[str, Callable[[Records], bool]] = {
    "first-minute": lambda records: bool(events(records, "block_evicted") and events(records, "miss_measured")),
    "long-prompt": lambda records: (
        sum(chunk["kind"] == "prefill" for event in events(records, "step_scheduled") for chunk in event["chunks"]) == 3
    ),
    "shared_prompt": lambda records: (
        [look["num_hit_tokens"] > 0 for look in lookups(records)] == [False, True, True, True]
        and most_together(records) == 4
    ),
    "changed_letter": lambda records: (
        lookups(records)[1]["num_hit_tokens"] > lookups(records)[2]["num_hit_tokens"]
        and lookups(records)[2]["reason"]["code"] == "differs"
    ),
    "changed_dtype": lambda records: (
        lookups(records)[0]["reason"]["code"] == "other_keys"
        and lookups(records)[0]["reason"]["keys"] == ["dtype"]
        and lookups(records)[1]["num_hit_tokens"] > 0
    ),
    "long_prompt_chunked": lambda records: 0 < largest_chunk_beside_decodes(records) <= 32,
    "long_prompt_whole": lambda records: largest_chunk_beside_decodes(records) > 128,
    "preempt_recompute": lambda records: (
        {event["reason"]["code"] for event in events(records, "request_preempted")} == {"recompute"}
    ),
    "preempt_swap": lambda records: (
        bool(events(records, "blocks_swapped_out")) and bool(events(records, "blocks_swapped_in"))
    ),
    "fork_tree": lambda records: (
        len(events(records, "request_forked")) == 3 and len(events(records, "block_copied")) >= 3
    ),
    "offload": lambda records: bool(events(records, "block_offloaded")) and bool(events(records, "block_fetched")),
    "twelve_users": lambda records: len(events(records, "request_added")) == 12 and most_together(records) >= 6,
    "tenant_salts": lambda records: (
        [look["num_hit_tokens"] > 0 for look in lookups(records)] == [False, False, True]
        and lookups(records)[1]["reason"]["keys"] == ["salt"]
    ),
}
NAMES = [scenario.name.partition("-")[2] for scenario in SCENARIOS]


def recorded(name: str) -> tuple[dict[str, Any], Records]:
    recording = Recording.open(RECORDINGS / f"{find_scenario(name).name}.kvviz")
    try:
        return recording.header, list(recording.records())
    finally:
        recording.close()


def test_every_scenario_is_described_and_ships() -> None:
    assert set(NAMES) == set(SHOWS)
    assert {path.stem for path in RECORDINGS.glob("*.kvviz")} == {scenario.name for scenario in SCENARIOS}
    with pytest.raises(RequestError, match="There is no scenario 'x'; there are first-minute, "):
        find_scenario("x")


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_shows_its_mechanic_and_folds(name: str) -> None:
    header, records = recorded(name)
    assert SHOWS[name](records)
    assert header["title"] == find_scenario(name).title
    world = World(header["pool"]["num_blocks"], header["pool"]["block_size"])
    for record in records:
        world.apply(record)
        assert world.broken is None
        assert world.check is None or world.check["ok"]
    assert all(request.state == "finished" for request in world.requests.values())


def test_a_preempted_request_keeps_its_tokens() -> None:
    for name in ("preempt_recompute", "preempt_swap"):
        _, records = recorded(name)
        lengths: Counter[int] = Counter()
        for _, _, event in records:
            lengths[event.get("request_id", -1)] += event["type"] == "token_sampled"
            if event["type"] == "request_preempted":
                assert event["reason"]["num_generated"] == lengths[event["request_id"]] > 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ServerConfig(recordings_dir=RECORDINGS)) as server:
        yield server


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_figures_of_the_events(name: str, browser: Any, server: Running) -> None:
    """Each recording in the page: every digest, what the pool holds after some steps, and who is in the batch."""
    header, records = recorded(name)
    sessions = {entry["id"]: entry["session_id"] for entry in httpx.get(f"{server.url}/api/recordings").json()}
    session = next(session for known, session in sessions.items() if name in known)
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    watched = Watched(page, server.url.split("/")[2])
    page.goto(f"{server.url}/?session={session}&lens=pages&step=0")
    wait_for(lambda: page.evaluate("() => kvviz.ctx.log.lastSeq >= 0 && !kvviz.ctx.log.isLoading"))
    check_page(page, header, records)
    assert watched.errors == []
    assert watched.foreign == []
    page.close()
