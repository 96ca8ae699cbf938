"""What the README says is true: its Python runs, its commands exist, its links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kvviz
from kvviz.commands.main import app
from kvviz.engine.runner import Sample, Segment, StepResult
from tests.support.small_models import small_model
from tests.support.small_tokenizers import byte_level

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


class FixedRunner:
    """A runner that always says 7."""

    window = None
    cache_keys = ("fixed",)
    max_positions = None
    vocab_size = None

    def run(self, step: int, segments: Sequence[Segment]) -> StepResult:
        sample = Sample(token_id=7, candidates=[(7, 1.0)], code="greedy", num_considered=1)
        samples = [sample if segment.sampling else None for segment in segments]
        return StepResult(samples=samples, layers=[0], layer_us=[1], read_us=[2], forward_us=3)

    def fork(self, parent_id: int, request_id: int) -> None:
        """Nothing is kept by request."""

    def forget(self, request_id: int) -> None:
        """Nothing is kept."""


def test_five_lines_make_a_recording_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_model("llama", vocab_size=400).save_pretrained(tmp_path / "model")
    byte_level().save_pretrained(tmp_path / "model")
    served: list[Any] = []
    monkeypatch.setattr("kvviz.api.serve", lambda *arguments: served.append(arguments))
    monkeypatch.chdir(tmp_path)
    assert sum(bool(line) for line in PYTHON[0].splitlines()) == 5
    names: dict[str, Any] = {}
    exec(PYTHON[0].replace("path/to/model", "model"), names)
    assert names["events"][0][2]["type"] == "request_added"
    assert (tmp_path / "sky.kvviz").is_file()
    assert served == [(names["model"], names["tokenizer"])]


def test_the_engine_runs_alone(capsys: pytest.CaptureFixture[str]) -> None:
    exec(PYTHON[1], {"kvviz": kvviz, "runner": FixedRunner()})
    assert capsys.readouterr().out.count("TokenSampled") == 5


def test_commands_exist() -> None:
    named = set(re.findall(r"`kvviz ([a-z]+)", README))
    assert named == {command.callback.__name__ for command in app.registered_commands if command.callback}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (document.parent / target).exists(), target
