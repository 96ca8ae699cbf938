"""Phrases that a reader stumbles over don't come back into the page's texts and the documents."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BANNED = re.compile(
    r"\b(some|no|every)body\b|\bput out\b|\blet in\b|\bthrown? away\b|\bby lot\b|\btells?\b|\bis (acted|brought)\b"
    r"|\bnumbers of an?\b|(?<!there )\bis no(?= [a-z])(?! longer)|\bbrings?\b|\bbrought\b|\btold\b"
    r"|\bcarr(y|ies|ied) out\b|\bbytes a token\b|\bso many\b|\blook(s|ed)? back\b|\bscales counted\b"
    r"|\bcannot be (had|said)\b|\b(is|are) not known\b|(?<![\w{`?&])cards?\b(?![\w`}=]|\.\w)",
    re.IGNORECASE,
)
QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|`((?:[^`\\]|\\.)*)`")
#: Modules with prompts for the model, whose words are free.
PROMPTS = {"calibration.py", "needle.py", "page.py", "scenarios.py", "timing.py"}
#: The texts of the page, and the documents.
TEXTS = [
    *sorted((ROOT / "static" / "js" / "strings").glob("*.js")),
    *sorted((ROOT / "templates").glob("*.html")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "static" / "js" / "LAYERS.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def texts_of(path: Path) -> list[tuple[int, str]]:
    """Line number and text; of a catalogue only what stands in quotes."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix != ".js":
        return list(enumerate(lines, 1))
    return [(number, text) for number, line in enumerate(lines, 1) for text in map("".join, QUOTED.findall(line))]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_no_banned_phrase(path: Path) -> None:
    found = [(number, hit[0]) for number, text in texts_of(path) for hit in BANNED.finditer(text)]
    assert found == []


def python_texts(path: Path) -> list[tuple[int, str]]:
    """Line number and text of every docstring, comment, and string of three or more words."""
    source = path.read_text(encoding="utf-8")
    has_prompts = path.name in PROMPTS
    found = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.append((getattr(node, "lineno", 1), ast.get_docstring(node) or ""))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not has_prompts:
            found += [(node.lineno, node.value)] if node.value.count(" ") > 1 else []
    return found


@pytest.mark.parametrize(
    "package", sorted({path.parent for path in (ROOT / "kvviz").rglob("*.py")}), ids=lambda path: path.name
)
def test_no_banned_phrase_in_python(package: Path) -> None:
    found = [
        (path.name, number, hit[0])
        for path in sorted(package.glob("*.py"))
        for number, text in python_texts(path)
        for hit in BANNED.finditer(text)
    ]
    assert found == []


COMMENT = re.compile(r"/\*(.*?)\*/|(?<![:'\"`])//([^\n]*)", re.DOTALL)
#: Code, types, and names of parameters and custom properties, whose words are free.
NAMES = re.compile(r"`[^`]*`|@(param|property|typedef|type|returns|import)\b\s*(\{[^*]*\})?\s*\[?\w*|--[\w-]+")


def comments_of(path: Path) -> list[tuple[int, str]]:
    """Line number and text of every comment of a script or stylesheet."""
    source = path.read_text(encoding="utf-8")
    return [
        (source.count("\n", 0, comment.start()) + 1, NAMES.sub(" ", comment[1] or comment[2] or ""))
        for comment in COMMENT.finditer(source)
    ]


@pytest.mark.parametrize("folder", ["js", "css"])
def test_no_banned_phrase_in_comments_of_the_page(folder: str) -> None:
    paths = [path for path in sorted((ROOT / "static" / folder).rglob("*")) if path.suffix in (".css", ".js", ".ts")]
    assert len(paths) > 10
    found = [
        (str(path.relative_to(ROOT)), number, hit[0])
        for path in paths
        for number, text in comments_of(path)
        for hit in BANNED.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "Nothing is acted.",
        "It tells why.",
        "Nobody uses it.",
        "It is no block.",
        "It fits on two cards.",
        "128 bytes a token",
        "Its size is not known.",
        "A layer looks back over its window.",
    ],
)
def test_banned_phrases_are_found(text: str) -> None:
    assert BANNED.search(text)
