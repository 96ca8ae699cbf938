"""Imports point one way: events ← engine ← model ← sources ← sessions ← server ← commands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvviz

PACKAGE = Path(kvviz.__file__).parent

#: Layers from the left; a module is in the first one whose names begin its own. What is not named is at the very left.
LAYERS = (
    (),
    ("engine",),
    ("model",),
    ("sources",),
    ("session", "sessions"),
    ("server", "web"),
    ("__main__", "api", "bench", "cli", "doctor", "scenarios", "terminal"),
)

#: Which packages may be imported where, by the first part of a module's name.
ONLY_IN = {
    "torch": {"model", "bench"},
    "transformers": {"model", "api", "bench", "scenarios"},
    "fastapi": {"web", "server"},
    "starlette": {"web", "server"},
    "uvicorn": {"server"},
    "asyncio": {"session", "sessions", "web", "server"},
    "typer": {"cli"},
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts), path


def imported(path: Path) -> Iterator[str]:
    """Names of all modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(module: str) -> int:
    first = module.partition(".")[0]
    return next((number for number, names in enumerate(LAYERS) if first in names), 0)


@pytest.mark.parametrize(("module", "path"), list(modules()))
def test_imports_point_left(module: str, path: Path) -> None:
    if module == "__init__":
        pytest.skip("the package's front shows the functions of the right-most layer")
    for name in imported(path):
        first, _, rest = name.partition(".")
        if first == "kvviz" and rest:
            assert layer(rest) <= layer(module), f"{module} imports {name}"
        else:
            assert module.partition(".")[0] in ONLY_IN.get(first, {module.partition(".")[0]}), f"{module}: {name}"
