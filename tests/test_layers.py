"""Imports follow the layers that each package's docstring declares, and the declared layers have no circle.

A package's docstring says `May import: …` (parts of kvviz) and, where a library is restricted, `Libraries: …`. Every
import counts, also those inside functions and those for types alone. The modules beside the packages are declared here.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Libraries that a package may import only when its docstring names them.
RESTRICTED = (
    "asyncio",
    "fastapi",
    "gguf",
    "rich",
    "safetensors",
    "starlette",
    "torch",
    "transformers",
    "typer",
    "uvicorn",
)
#: The modules beside the packages, with what they may import.
MODULES_BESIDE = {
    "errors": set(),
    "version": set(),
    "messages": set(),
    "config": {"errors", "messages"},
    "events": set(),
    "api": {"comparison", "config", "errors", "events", "log", "model", "sources", "web", "transformers"},
    "__main__": {"commands"},
    "": {"api", "config", "engine", "errors", "log", "version"},
}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "kvviz").rglob("*.py"))
}


def part_of(module: str) -> str:
    """`engine` for `kvviz.engine.blocks`; empty for `kvviz` itself."""
    return module.split(".")[1] if "." in module else ""


def declared(part: str) -> set[str]:
    """The parts of kvviz and the restricted libraries that a part may import."""
    if part in MODULES_BESIDE:
        return MODULES_BESIDE[part]
    docstring = ast.get_docstring(ast.parse(MODULES[f"kvviz.{part}"].read_text(encoding="utf-8"))) or ""
    named = re.search(r"^May import: ([^.]+)\.$", docstring, re.MULTILINE)
    assert named, f"the docstring of kvviz/{part}/__init__.py says no 'May import: …'"
    libraries = re.search(r"^Libraries: ([^.]+)\.$", docstring, re.MULTILINE)
    return {name for found in (named, libraries) if found for name in re.split(r",\s+", found[1])}


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
def test_imports_are_declared(module: str) -> None:
    here = part_of(module)
    for name, line in imports_of(module):
        top = name.split(".")[0]
        if top == "kvviz":
            assert name in MODULES, f"{module}:{line} imports {name}, which does not exist"
            assert part_of(name) in declared(here) | {here}, f"{module}:{line} imports {name}"
        elif top in RESTRICTED:
            assert top in declared(here), f"{module}:{line} imports {name}"


def test_declared_layers_have_no_circle() -> None:
    parts = {part_of(module) for module in MODULES} - {""}
    graph = {part: declared(part) & parts for part in parts}
    assert len(list(TopologicalSorter(graph).static_order())) == len(parts)


def test_no_module_name_stands_twice() -> None:
    """Except for a package's namesake inside it, and for the files of commands, which bear the commands' names."""
    names = Counter(
        module.rpartition(".")[2]
        for module, path in MODULES.items()
        if path.name != "__init__.py" and not module.startswith("kvviz.commands.")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_rules_see_every_kind_of_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "world.py"
    path.write_text(
        "import torch.nn\nfrom kvviz import web, __version__\nfrom . import digest\nfrom ..web import routes\n"
        "from kvviz.model.tokens import TokenizerText\ndef f():\n    from kvviz import sessions\n"
    )
    monkeypatch.setitem(MODULES, "kvviz.log.world", path)
    assert [name for name, _ in imports_of("kvviz.log.world")] == [
        "torch.nn",
        "kvviz.web",
        "kvviz.version",
        "kvviz.log.digest",
        "kvviz.web.routes",
        "kvviz.model.tokens",
        "kvviz.sessions",
    ]
    with pytest.raises(AssertionError, match=r"imports torch\.nn"):
        test_imports_are_declared("kvviz.log.world")
    path.write_text("from kvviz import web\n")
    with pytest.raises(AssertionError, match=r"imports kvviz\.web"):
        test_imports_are_declared("kvviz.log.world")


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import kvviz.engine, kvviz.log.recording, kvviz.log.world", "torch transformers fastapi starlette typer"),
        ("import kvviz; kvviz.Engine, kvviz.EngineConfig, kvviz.Recording", "torch transformers fastapi starlette"),
        ("import kvviz.commands.main", "torch transformers"),
        ("import kvviz.web.app, kvviz.sources.recorded", "torch transformers"),
    ],
)
def test_heavy_libraries_come_only_when_needed(statement: str, absent: str) -> None:
    program = f"import sys\n{statement}\nprint(*(name for name in {absent.split()} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_tests_import_no_other_and_use_no_private_names() -> None:
    """Attributes of the code are ruff's (SLF); here are imports, and names in the texts of `setattr`."""
    wrong = []
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvviz"):
                names = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.test_"):
                names = ["_another_test"]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
                names = [part.value for part in node.args if isinstance(part, ast.Constant)]
            wrong += [(path.name, name) for name in names if re.search(r"(^|\.)_[a-z]", str(name), re.IGNORECASE)]
    assert wrong == []
