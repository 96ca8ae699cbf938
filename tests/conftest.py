"""What all tests share: the default model, loaded once per process, and which tests run when."""

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
pytest_plugins = ("tests.support.tab",)

MARKERS = (
    "weights: needs the default model's weights, which are downloaded when they are missing",
    "slow: a browser, the default model, or more than a second; left out by -m 'not slow'",
    "prove: one of an exhaustive set; runs with --prove only (make prove)",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--prove", action="store_true", help="run the exhaustive sets too, not only samples of them")


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "default_model" in fixtures:
            item.add_marker(pytest.mark.weights)
        if item.get_closest_marker("weights") or "browser" in fixtures:
            item.add_marker(pytest.mark.slow)
    if not config.getoption("--prove"):
        proofs = [item for item in items if item.get_closest_marker("prove")]
        config.hook.pytest_deselected(items=proofs)
        items[:] = [item for item in items if not item.get_closest_marker("prove")]


@pytest.fixture(scope="session")
def default_model() -> LoadedModel:
    """SmolLM2-135M-Instruct in float32, downloaded as on a first start. Shared: do not change it."""
    from kvviz.model.loading import load

    return load(None, "float32", lambda state, fraction, message: None)
