"""Imports point left only: events ← engine ← model ← sources ← sessions ← server ← commands.

Every import counts, also those inside functions and those for types alone. A module that is in no layer below is taken
for one of the outermost, where the commands are.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = {
    "events": ("errors", "plain", "version", "limits", "config", "digest", "events", "memory", "traces"),
    "engine": ("engine", "world", "log", "ledger", "frames", "recording"),
    "model": ("model", "scenarios", "experiments"),
    "sources": ("sources",),
    "sessions": ("session", "sessions"),
    "server": ("assets", "web", "server"),
}
ORDER = [*LAYERS, "commands"]
#: Libraries and the layers that may import them.
ALLOWED = {
    "torch": {"model", "commands"},
    "transformers": {"model", "commands"},
    "safetensors": {"model", "commands"},
    "gguf": {"model", "commands"},
    "asyncio": {"sessions", "server", "commands"},
    "fastapi": {"server"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "typer": {"commands"},
    "rich": {"commands"},
}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "kvviz").rglob("*.py"))
}


def layer_of(module: str) -> str:
    """Layer of `kvviz.x.y`, by the name after `kvviz`."""
    name = module.split(".")[1] if "." in module else ""
    return next((layer for layer, names in LAYERS.items() if name in names), "commands")


def imports_of(module: str) -> Iterator[tuple[str, int]]:
    """What a module imports, and in which line."""
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(
                    [*package.split(".")[: len(package.split(".")) - node.level + 1], *filter(None, [base])]
                )
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield (
                    ("kvviz.version" if name == "kvviz.__version__" else name if name in MODULES else base),
                    node.lineno,
                )


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_left(module: str) -> None:
    here = ORDER.index(layer_of(module))
    for name, line in imports_of(module):
        if name.split(".")[0] == "kvviz":
            assert name in MODULES, f"{module}:{line} imports {name}, which does not exist"
            there = ORDER.index(layer_of(name))
            assert there <= here, f"{module}:{line} ({ORDER[here]}) imports {name} ({ORDER[there]})"


@pytest.mark.parametrize("module", MODULES)
def test_libraries_stay_in_their_layer(module: str) -> None:
    for name, line in imports_of(module):
        allowed = ALLOWED.get(name.split(".")[0])
        assert allowed is None or layer_of(module) in allowed, f"{module}:{line} imports {name}"


def test_every_layer_has_its_modules() -> None:
    names = {module.split(".")[1] for module in MODULES if "." in module}
    assert {name for layer in LAYERS.values() for name in layer} <= names


def test_the_rules_see_every_kind_of_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.py"
    path.write_text(
        "import torch.nn\nfrom kvviz import server, __version__\nfrom . import world\nfrom .web import api\n"
        "from kvviz.model.tokens import TokenizerText\ndef f():\n    from kvviz import sessions\n"
    )
    monkeypatch.setitem(MODULES, "kvviz.log", path)
    assert [name for name, _ in imports_of("kvviz.log")] == [
        "torch.nn",
        "kvviz.server",
        "kvviz.version",
        "kvviz.world",
        "kvviz.web.api",
        "kvviz.model.tokens",
        "kvviz.sessions",
    ]
    with pytest.raises(AssertionError, match=r"imports kvviz\.server"):
        test_imports_point_left("kvviz.log")
    with pytest.raises(AssertionError, match=r"imports torch\.nn"):
        test_libraries_stay_in_their_layer("kvviz.log")


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import kvviz.engine, kvviz.recording, kvviz.world", "torch transformers fastapi starlette typer"),
        ("import kvviz; kvviz.Engine, kvviz.EngineConfig, kvviz.Recording", "torch transformers fastapi starlette"),
        ("import kvviz.cli", "torch transformers"),
        ("import kvviz.server, kvviz.sources.recorded", "torch transformers"),
    ],
)
def test_heavy_libraries_come_only_when_needed(statement: str, absent: str) -> None:
    program = f"import sys\n{statement}\nprint(*(name for name in {absent.split()} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
