"""The stylesheets: every file is loaded by a page, every class is used, and what several parts share stands once."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CSS = ROOT / "static" / "css"
SHEETS = sorted(CSS.rglob("*.css"))
RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
#: Classes of plotly's own elements.
FOREIGN = re.compile(r"(js-)?plotly|main-svg|draglayer|crisp|user-select-none|cursor-")


def text_of(sheet: Path) -> str:
    return re.sub(r"/\*.*?\*/", "", sheet.read_text("utf-8"), flags=re.DOTALL)


def test_a_page_loads_every_sheet() -> None:
    templates = "".join(path.read_text("utf-8") for path in (ROOT / "templates").glob("*.html"))
    loaded = set(re.findall(r'"([\w/-]+)"', templates))
    assert {sheet.relative_to(CSS).with_suffix("").as_posix() for sheet in SHEETS} <= loaded


def test_every_class_is_on_some_element() -> None:
    sources = [*(ROOT / "static" / "js").rglob("*.js"), *(ROOT / "templates").glob("*.html")]
    text = "".join(path.read_text("utf-8") for path in sources)
    words = set(re.findall(r"[\w-]+", text))
    beginnings = tuple(set(re.findall(r"([\w-]+-)\$\{", text)))  # `lane-ink-${index}`
    for sheet in SHEETS:
        for selector, _ in RULE.findall(text_of(sheet)):
            for name in re.findall(r"\.([a-z][\w-]*)", selector):
                used = name in words or name.startswith(beginnings) or FOREIGN.match(name)
                assert used, f"{sheet.name}: nothing has the class {name}"


def test_no_four_declarations_stand_twice() -> None:
    places = defaultdict(list)
    for sheet in SHEETS:
        for selector, body in RULE.findall(text_of(sheet)):
            declarations = frozenset(" ".join(part.split()) for part in body.split(";") if part.strip())
            if len(declarations) >= 4 and not any(part.startswith("--") for part in declarations):
                places[declarations].append(f"{sheet.name}: {' '.join(selector.split())}")
    assert [where for where in places.values() if len(where) > 1] == []
