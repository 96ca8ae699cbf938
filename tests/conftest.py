"""What all tests share: the default model, loaded once per run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as when serving on few cores; read when torch is imported
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes side by side leave each other a core

if TYPE_CHECKING:
    from kvviz.model.loading import LoadedModel

#: Fixtures of tests that drive a browser.
pytest_plugins = ("tests.support.browser", "tests.support.lens_site")

#: Files that take minutes: they come first, so that no process is left with one of them at the end.
LONGEST = (
    "test_sweep",
    "test_timing",
    "test_page_live",
    "test_calculator_models",
    "test_compare_page",
    "test_scenarios_live",
    "test_page_core",
    "test_default_model",
    "test_lenses",
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "weights: needs the default model's weights (fetched when they are missing)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONGEST)
    for item in items:
        if "default_model" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.weights)


@pytest.fixture(scope="session")
def default_model() -> LoadedModel:
    """SmolLM2-135M-Instruct in float32, brought the way a first start brings it. Shared: do not change it."""
    from kvviz.model.loading import load

    return load(None, "float32", lambda state, fraction, message: None)
