"""What all tests share: the default model, loaded once, and Chromium, or the reason why a test must skip."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kvviz.model.loading import LoadedModel


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "weights: needs the default model's weights (fetched when they are missing)")
    config.addinivalue_line("markers", "browser: needs Chromium")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "default_model" in names:
            item.add_marker(pytest.mark.weights)
        if "chromium_path" in names:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def default_model() -> LoadedModel:
    """SmolLM2-135M-Instruct in float32, brought the way a first start brings it. Shared: do not change it."""
    from kvviz.model.loading import load

    return load(None, "float32", lambda state, fraction, message: None)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Where Chromium is; without it a test skips, or fails where `CI` is set."""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if found := shutil.which(name):
            return found
    message = "Chromium is not installed, so the page cannot be tested"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
