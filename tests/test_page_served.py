"""The page as it is served: on loopback, on a LAN name over plain http, and behind two kinds of proxies."""

from __future__ import annotations

from itertools import product
from operator import itemgetter
from typing import Any

import pytest

from kvviz.web.app import ServerConfig
from kvviz.web.assets import find_assets
from tests.support.accessibility import faults_of
from tests.support.browser import Watched
from tests.support.lens_site import Site
from tests.support.running import ProxyPath, Running, running
from tests.support.sample import sampled

PREFIX = "/proxy/8000"
HOSTS = ("127.0.0.1", "stage.lan")
PROXIES = ("none", "strips", "keeps")

pytestmark = pytest.mark.skipif(
    not list(find_assets().recordings.glob("*.kvviz")), reason="there is no shipped recording to show"
)


@pytest.mark.parametrize(
    ("host", "proxy"),
    sampled(product(HOSTS, PROXIES), group=itemgetter(1), always=[("127.0.0.1", "none"), ("stage.lan", "none")]),
)
def test_the_page_works_under_every_address(tab: Any, host: str, proxy: str) -> None:
    config = ServerConfig(allow_hosts=("stage.lan",), root_path="" if proxy == "none" else PREFIX)

    def wrap(app: Any) -> Any:
        return app if proxy == "none" else ProxyPath(app, PREFIX, strips=proxy == "strips")

    with running(config, wrap=wrap) as server:
        watched = Watched(tab, f"{host}:{server.port}")
        sockets: list[str] = []
        listener = lambda socket: sockets.append(socket.url)  # noqa: E731
        tab.on("websocket", listener)
        path = "/" if proxy == "none" else f"{PREFIX}/"
        tab.goto(f"http://{host}:{server.port}{path}")
        tab.wait_for_selector("html[data-ready=yes]", timeout=60_000)
        tab.wait_for_function("() => kvviz.ctx.log.lastSeq > 0", timeout=60_000)
        assert sockets[0].startswith(f"ws://{host}:{server.port}{path}ws")
        assert tab.evaluate("isSecureContext") == (host == "127.0.0.1")
        assert (watched.errors, watched.foreign) == ([], [])
        watched.leave()
        tab.remove_listener("websocket", listener)


def test_a_refused_host_reads_as_a_sentence(tab: Any, plain_server: Running) -> None:
    response = tab.goto(f"http://stage.lan:{plain_server.port}/")
    assert response.status == 421
    assert "start it with --allow-host stage.lan" in tab.inner_text("body")


def test_what_asks_another_host_or_is_hard_to_reach_is_noticed(tab: Any, site: Site) -> None:
    """Of what other tests find nothing, there is something to be found."""
    watched = Watched(tab, site.host)
    tab.goto(f"http://{site.host}/")
    tab.evaluate(
        """() => new Promise((done) => { const image = new Image(); image.onerror = done;
          image.src = 'http://example.org/x.png'; document.getElementById('stage').append(image); })"""
    )
    assert watched.foreign == ["http://example.org/x.png"]
    assert len(watched.errors) == 1
    assert [rule for rule, _ in faults_of(tab, "#stage")] == ["image-alt"]
    watched.leave()
