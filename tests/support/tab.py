"""The fixtures of all tests in a browser: one Chromium and one page for a process, which each test gets as new.

A page that goes to an address again costs a quarter of a new one, as long as the browser keeps the scripts; so the
servers here let it keep them, and those that a test starts for itself take turns at one port.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest

from kvviz.web.app import ServerConfig
from tests.support.browser import open_browser
from tests.support.lens_site import LensPage, Site, serve_site
from tests.support.page_view import View
from tests.support.running import Running, running

DESK = {"width": 1280, "height": 800}


class KeptScripts:
    """Around an application: the browser keeps scripts and styles without asking whether they are still right."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def pass_on(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                others = [(name, value) for name, value in message["headers"] if name.lower() != b"cache-control"]
                message = {**message, "headers": [*others, (b"cache-control", b"max-age=3600")]}
            await send(message)

        kept = scope["type"] == "http" and any(part in scope["path"] for part in ("/static/", "/vendor/"))
        await self.app(scope, receive, pass_on if kept else send)


class Tab:
    """The page that the tests of a process share, and others beside it for as long as a test lasts."""

    def __init__(self, browser: Any) -> None:
        self.context = browser.new_context(viewport=DESK, accept_downloads=True)
        self.page = self.context.new_page()

    def as_new(self) -> Any:
        """Blank, without routes, stored looks, permissions or another size."""
        for page in self.context.pages:
            if page is not self.page:
                page.close()
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.evaluate("() => { try { localStorage.clear(); sessionStorage.clear(); } catch { return; } }")
        self.page.goto("about:blank")
        self.page.emulate_media(reduced_motion="no-preference")
        self.page.mouse.move(-1, -1)
        self.context.clear_permissions()
        if self.page.viewport_size != DESK:
            self.page.set_viewport_size(DESK)
        return self.page


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with open_browser() as chromium:
        yield chromium


@pytest.fixture(scope="session")
def _tab(browser: Any) -> Tab:
    return Tab(browser)


@pytest.fixture
def tab(_tab: Tab) -> Any:
    """The shared page, blank."""
    return _tab.as_new()


@pytest.fixture
def open_view(tab: Any) -> Iterator[Callable[[str], View]]:
    """Opens the visualizer at an address: the first time in the shared page, then in others beside it."""
    views: list[View] = []

    def open_at(url: str) -> View:
        views.append(View(tab.context.new_page() if views else tab, url))
        return views[-1]

    yield open_at
    for view in views:
        view.watched.leave()


@pytest.fixture(scope="session")
def plain_server() -> Iterator[Running]:
    """A server of the shipped recordings, without a model. Its state is nobody's: start another to change it."""
    with running(ServerConfig(), wrap=KeptScripts) as server:
        yield server


@pytest.fixture(scope="session")
def own_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture
def serve(tab: Any, own_port: int) -> Callable[..., AbstractContextManager[Running]]:
    """`running`, where one server follows another at the same port, so that the browser has the scripts already.

    The page of the test before is gone by then, and does not connect again.
    """
    return partial(running, wrap=KeptScripts, port=own_port)


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    with serve_site() as site:
        yield site


@pytest.fixture(scope="session")
def _lens_page(browser: Any, site: Site) -> LensPage:
    return LensPage(browser, site)


@pytest.fixture
def lens_page(_lens_page: LensPage) -> Iterator[Any]:
    """A page with the scripts and an empty stage. What it logs as an error, or asks elsewhere, fails the test."""
    _lens_page.as_new()
    yield _lens_page.page
    assert [error for error in _lens_page.watched.errors if "404" not in error] == []
    assert _lens_page.watched.foreign == []
