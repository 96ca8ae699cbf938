"""Scenarios of the menu, clicked and run live by the default model; the page shows the events' figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvviz.experiments.scenarios import find_scenario
from kvviz.sessions.limits import Limits
from kvviz.sources import worker
from kvviz.sources.run_factory import load_model
from kvviz.web.app import ServerConfig
from tests.support.browser import Watched
from tests.support.running import Running, running, wait_for
from tests.support.sample import sampled
from tests.support.scenario_page import check_page
from tests.support.scenario_shows import SHOWS
from tests.support.tab import KeptScripts

pytestmark = pytest.mark.weights

#: Those of the menu: the other two are recordings of single requests.
LIVE = [name for name in SHOWS if name not in ("first-minute", "long-prompt")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    empty: Path = tmp_path_factory.mktemp("recordings")
    limits = Limits()
    load = load_model(None, "float32", frame_bytes=limits.frame_bytes, max_pool_bytes=limits.max_pool_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "NICENESS", 0)  # other tests beside it must not starve the model
        with running(ServerConfig(recordings_dir=empty), load, wrap=KeptScripts) as server:
            yield server


@pytest.mark.parametrize("name", sampled(LIVE, always=["changed_letter"], per_group=0))
def test_a_scenario_of_the_menu_runs_and_the_page_shows_its_figures(name: str, tab: Any, server: Running) -> None:
    page = tab
    page.set_viewport_size({"width": 1280, "height": 800})
    watched = Watched(page, server.url.split("/")[2])
    page.goto(f"{server.url}/?lens=pages")
    wait_for(lambda: page.evaluate("() => kvviz.ctx.log.kind") == "live")
    log_id = page.evaluate("() => kvviz.ctx.log.logId")
    page.evaluate("() => kvviz.ctx.ui.set({drawerOpen: true, drawerAt: 'scenarios'})")
    page.click(f"[data-scenario={name}]:enabled")
    wait_for(lambda: page.evaluate("() => kvviz.ctx.log.logId") != log_id)
    page.evaluate("() => kvviz.ctx.send({command: 'set_rate', steps_per_second: null})")
    page.evaluate("() => kvviz.ctx.send({command: 'play'})")
    with server.connect() as socket:
        socket.until(lambda message: message["type"] == "status" and message["play"]["idle"], 120)
        header, records = socket.hellos[-1]["header"], socket.records
    assert header["pool"]["num_blocks"] == find_scenario(name).config.num_blocks
    assert SHOWS[name](records)
    wait_for(lambda: page.evaluate("() => kvviz.ctx.log.lastSeq") == records[-1][0], 60)
    page.keyboard.press("Escape")
    page.evaluate("() => kvviz.ctx.ui.set({lens: 'pages', drawerOpen: false})")
    check_page(page, header, records)
    assert watched.errors == []
    assert watched.foreign == []
    watched.leave()
