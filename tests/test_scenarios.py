"""The recordings that ship: each shows its mechanic, its digests are right, and the page shows the events' figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kvviz.errors import RequestError
from kvviz.experiments.scenarios import RECORDINGS, SCENARIOS, find_scenario
from kvviz.log.recording import Recording
from kvviz.log.world import World
from kvviz.web.app import ServerConfig
from tests.support.browser import Watched
from tests.support.running import Running, running, wait_for
from tests.support.scenario_page import Records, check_page
from tests.support.scenario_shows import SHOWS
from tests.support.tab import KeptScripts

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
    with pytest.raises(RequestError, match=r"Unknown scenario 'x'; choose one of first-minute, "):
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
def server() -> Iterator[Running]:
    with running(ServerConfig(recordings_dir=RECORDINGS), wrap=KeptScripts) as server:
        yield server


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_figures_of_the_events(name: str, tab: Any, server: Running) -> None:
    """Each recording in the page: every digest, what the pool holds after some steps, and who is in the batch."""
    header, records = recorded(name)
    sessions = {entry["id"]: entry["session_id"] for entry in httpx.get(f"{server.url}/api/recordings").json()}
    session = next(session for known, session in sessions.items() if name in known)
    page = tab
    page.set_viewport_size({"width": 1280, "height": 800})
    watched = Watched(page, server.url.split("/")[2])
    page.goto(f"{server.url}/?session={session}&lens=pages&step=0")
    wait_for(lambda: page.evaluate("() => kvviz.ctx.log.lastSeq >= 0 && !kvviz.ctx.log.isLoading"))
    check_page(page, header, records)
    assert watched.errors == []
    assert watched.foreign == []
    watched.leave()
