"""Chromium for tests of the page: a said reason to skip where there is none, a failure under CI."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
    # No other host is reached; a name stands for this machine as it would on a network.
    "--host-resolver-rules=MAP stage.lan 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


def find_chromium() -> str | None:
    """Path of a Chromium, or None. First the one without windows: theirs cost more than the pages."""
    for name in ("chromium-headless-shell", "/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    return None


def require_browser() -> str:
    """Path of a Chromium. Skips the test where there is none, or fails it when `CI` is true."""
    path = find_chromium()
    if path is None or not _has_playwright():
        missing = "Chromium" if path is None else "playwright"
        reason = f"{missing} is not installed, so the page cannot be tested here"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def _has_playwright() -> bool:
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def open_browser() -> Iterator[Any]:
    """A running Chromium as a Playwright `Browser`."""
    path = require_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield chromium
        finally:
            chromium.close()


def ask(page: Any, function: str, value: Any = None) -> Any:
    """What a JavaScript function answers to a value. Both travel as JSON: Playwright takes long to encode a log."""
    text = page.evaluate(
        f"async (text) => JSON.stringify(await ({function})(JSON.parse(text)) ?? null)", json.dumps(value)
    )
    return json.loads(text)


class Watched:
    """A page with what went wrong on it: console errors, page errors, requests to another host (which all fail)."""

    def __init__(self, page: Any, host: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self._host = host
        self._listeners: dict[str, Callable[[Any], None]] = {
            "console": lambda message: self.errors.append(message.text) if message.type == "error" else None,
            "pageerror": lambda error: self.errors.append(str(error)),
            "requestfailed": lambda request: self._failed(request.url),
        }
        for name, listener in self._listeners.items():
            page.on(name, listener)

    def clear(self) -> None:
        self.errors.clear()
        self.foreign.clear()

    def leave(self) -> None:
        """Note no more."""
        for name, listener in self._listeners.items():
            self.page.remove_listener(name, listener)
        self._listeners.clear()

    def _failed(self, url: str) -> None:
        if not url.startswith(("data:", "blob:")) and f"//{self._host}" not in url:
            self.foreign.append(url)


def static_root() -> Path:
    """Where the page's scripts are, from a checkout."""
    return Path(__file__).resolve().parents[2] / "static"
