"""The page's modules import as `static/js/LAYERS.md` says: up its table, what a line names, in no circle."""

from __future__ import annotations

import graphlib
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.support.browser import static_root

ROOT = static_root() / "js"
ROW = re.compile(r"^\| `(?P<folder>[^`]+)` \| (?P<holds>[^|]+) \| ?(?P<allowed>[^|]*)\|$", re.M)
ALLOWED = {
    row["folder"]: re.findall(r"`([^`]+)`", row["allowed"]) for row in ROW.finditer((ROOT / "LAYERS.md").read_text())
}
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.js"))
COMMENT = re.compile(r"/\*.*?\*/|^\s*//[^\n]*", re.S | re.M)
#: A relative path to a module in quotes, however it is loaded, but not as a URL. A name may be filled in, a folder not.
IMPORT = re.compile(r"""(?<!new URL\()(['"`])(\.\.?/(?:[\w.-]+/)*(?:[\w.-]|\$\{\w+\})+\.js)\1""")


def imports_of(module: str, source: str) -> Iterator[str]:
    """Paths below `static/js` of the modules that one module imports, in code rather than for a type."""
    for match in IMPORT.finditer(COMMENT.sub("", source)):
        parts: list[str] = []
        for part in (PurePosixPath(module).parent / match[2]).parts:
            if part == "..":
                assert parts, f"{module} imports {match[2]}, which is outside static/js"
                parts.pop()
            else:
                parts.append(part)
        yield "/".join(parts)


def source_of(module: str) -> str:
    return (ROOT / module).read_text(encoding="utf-8")


def folder_of(module: str) -> str:
    return module.rpartition("/")[0]


def check(module: str, source: str) -> None:
    for name in imports_of(module, source):
        assert "$" in name or name in MODULES, f"{module} imports {name}, which does not exist"
        here, there = folder_of(module), folder_of(name)
        assert here == there or there in ALLOWED[here], f"{module} imports {name}, and {here} may not import {there}"


def test_every_folder_has_its_line_and_every_line_its_folder() -> None:
    files = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file() and path.name != "LAYERS.md"]
    assert {path.parent.as_posix() for path in files} == set(ALLOWED)


def test_lines_point_up() -> None:
    folders = list(ALLOWED)
    for index, folder in enumerate(folders):
        assert set(ALLOWED[folder]) <= set(folders[:index]), folder


@pytest.mark.parametrize("module", MODULES)
def test_imports_are_those_of_the_folders_line(module: str) -> None:
    check(module, source_of(module))


def test_no_line_allows_what_nothing_imports() -> None:
    used: dict[str, set[str]] = {folder: set() for folder in ALLOWED}
    for module in MODULES:
        used[folder_of(module)] |= {folder_of(name) for name in imports_of(module, source_of(module))}
    for folder, names in ALLOWED.items():
        assert set(names) == used[folder] - {folder}, folder


def test_no_import_goes_round_in_a_circle() -> None:
    graph = {module: set(imports_of(module, source_of(module))) for module in MODULES}
    list(graphlib.TopologicalSorter(graph).static_order())


def test_the_rules_see_every_kind_of_import() -> None:
    source = """/** @typedef {import('../shell/main.js').Main} Main */
      // import '../shell/keys.js';
      import { Log } from './log.js'; import {
        Ui } from "../ui/store.js";
      export * from '../captions/parts.js';
      const script = new URL('../../../vendor/plotly.min.js', import.meta.url);
      const plot = () => import('../ui/plot.js'), part = `../lenses/experiments/${name}.js`;
    """
    assert list(imports_of("core/frames.js", source)) == [
        "core/log.js",
        "ui/store.js",
        "captions/parts.js",
        "ui/plot.js",
        "lenses/experiments/${name}.js",
    ]
    with pytest.raises(AssertionError, match=r"core may not import ui"):
        check("core/frames.js", "import { Ui } from '../ui/store.js';")
    with pytest.raises(AssertionError, match=r"core/nothing\.js, which does not exist"):
        check("core/frames.js", "import './nothing.js';")
    with pytest.raises(AssertionError, match="outside static/js"):
        check("core/frames.js", "import '../../../css/plot.js';")
