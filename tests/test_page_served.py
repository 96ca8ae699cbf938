"""The page as it is served: on loopback, on a LAN name over plain http, and behind two kinds of proxies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvviz.web.app import ServerConfig
from kvviz.web.assets import find_assets
from tests.support.browser import ARGUMENTS, Watched, require_browser
from tests.support.running import ProxyPath, running

PREFIX = "/proxy/8000"

pytestmark = pytest.mark.skipif(
    not list(find_assets().recordings.glob("*.kvviz")), reason="there is no shipped recording to show"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = require_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        names = "--host-resolver-rules=MAP stage.lan 127.0.0.1"
        chromium = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, names])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "stage.lan"])
@pytest.mark.parametrize("proxy", ["none", "strips", "keeps"])
def test_the_page_works_under_every_address(browser: Any, host: str, proxy: str) -> None:
    config = ServerConfig(allow_hosts=("stage.lan",), root_path="" if proxy == "none" else PREFIX)

    def wrap(app: Any) -> Any:
        return app if proxy == "none" else ProxyPath(app, PREFIX, strips=proxy == "strips")

    with running(config, wrap=wrap) as server:
        page = browser.new_page()
        watched = Watched(page, f"{host}:{server.port}")
        failed: list[str] = []
        page.on("response", lambda response: failed.append(response.url) if response.status >= 400 else None)
        sockets: list[str] = []
        page.on("websocket", lambda socket: sockets.append(socket.url))
        path = "/" if proxy == "none" else f"{PREFIX}/"
        page.goto(f"http://{host}:{server.port}{path}")
        page.wait_for_selector("html[data-ready=yes]", timeout=60_000)
        page.wait_for_function("kvviz.ctx.log.lastSeq > 0", timeout=60_000)
        assert sockets[0].startswith(f"ws://{host}:{server.port}{path}ws")
        assert page.evaluate("isSecureContext") == (host == "127.0.0.1")
        assert (watched.errors, watched.foreign, failed) == ([], [], [])
        page.close()


def test_a_refused_host_reads_as_a_sentence(browser: Any) -> None:
    with running(ServerConfig()) as server:
        page = browser.new_page()
        response = page.goto(f"http://stage.lan:{server.port}/")
        assert response.status == 421
        assert "start it with --allow-host stage.lan" in page.inner_text("body")
        page.close()
