"""Lanes as sessions of a server: one for each lane, and a comparison lives while somebody watches one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvviz.api import compare_loaded
from kvviz.sessions.limits import Limits
from kvviz.sources.run_factory import open_loaded
from kvviz.web.app import ServerConfig
from tests.support.compared import LANES, compared, loaded
from tests.support.running import Running, running


@pytest.fixture
def server() -> Iterator[Running]:
    open_model = open_loaded(loaded(), frame_bytes=2**24, max_pool_bytes=2**26)
    limits = Limits(max_live_sessions=2, replaceable_s=0.0)
    with running(ServerConfig(first_prompt=None, limits=limits), lambda progress: open_model) as server:
        yield server


def test_a_lane_that_many_open_at_once_is_one_session(server: Running, tmp_path: Path) -> None:
    compare_loaded(loaded(), "fox", ["mqa"], tmp_path / "run.kvviz", max_new_tokens=2)
    data = (tmp_path / "run.kvviz").read_bytes()
    answer = httpx.post(f"{server.url}/api/recordings", content=data, trust_env=False).json()
    sessions = server.sessions

    async def open_together() -> list[Any]:
        await sessions.end(sessions.by_id[answer["session_id"]])
        return await asyncio.gather(*(sessions.find(f"{answer['session_id']}.1") for _ in range(6)))

    assert len({id(session) for session in server.on_loop(open_together())}) == 1


@pytest.mark.parametrize("number", ["01", "١", "1.1", "0", "-1", "100"])
def test_a_lane_has_one_id(server: Running, number: str) -> None:
    with server.connect() as page:
        compared(page)
    assert httpx.get(f"{server.url}/api/sessions/live.1/norms/0", trust_env=False).status_code == 200
    other = httpx.get(f"{server.url}/api/sessions/live.{number}/norms/0", trust_env=False)
    assert (other.status_code, other.json()["code"]) == (404, "no_such_session")


def test_a_comparison_lives_while_somebody_watches_a_lane(server: Running) -> None:
    with server.connect("?session=new") as page:
        session_id = page.until_type("hello")["session_id"]
        page.do("start", config={"lanes": LANES})
        lane = server.connect(f"?session={session_id}.1")
        lane.until_type("hello")
    with lane:
        with server.connect("?session=new") as late:
            assert late.until_type("error")["code"] == "too_many_sessions"
        lane.do("add_request", prompt="fox", max_new_tokens=2)
    with server.connect("?session=new") as late:
        assert late.until_type("hello")["session_id"] != session_id
