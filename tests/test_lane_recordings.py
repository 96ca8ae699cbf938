"""Recordings of comparisons that somebody has changed, and figures and texts that do not fit."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvviz.api import compare_loaded
from kvviz.commands import compare as comparing
from kvviz.comparison.figures import lane_figures
from kvviz.errors import RecordingError
from kvviz.log import recording
from kvviz.log.recording import Recording
from tests.support.compared import loaded

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recordings") / "run.kvviz"
    compare_loaded(loaded(), "fox", ["mqa", "int8,group=16"], path, max_new_tokens=3)
    return path


def changed(path: Path, to: Path, change: Change, member: str = "header.json") -> Path:
    """The recording with another header."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(to, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == member:
                header = json.loads(content)
                change(header)
                content = json.dumps(header).encode()
            new.writestr(name, content)
    return to


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda header: header["lanes"][1].pop("spec"), "lanes.1.spec"),
        (lambda header: header["lanes"][2].update(bytes_per_token=None), "lanes.2.bytes_per_token"),
        (lambda header: header["lanes"][0].update(exact="yes"), "lanes.0.exact"),
        (lambda header: header["lanes"][0].update(options={"recent": "16"}), "lanes.0.options.recent"),
        (lambda header: header["lanes"].reverse(), "lanes out of order"),
        (lambda header: header["lanes"].append({**header["lanes"][0], "index": 3}), "no lanes/3/header.json"),
        (lambda header: header.update(lanes="mqa"), "wrong lanes"),
    ],
)
def test_lanes_that_are_not_what_kvviz_writes_are_refused(
    path: Path, tmp_path: Path, change: Change, said: str
) -> None:
    Recording.open(path).close()
    with pytest.raises(RecordingError) as refused:
        Recording.open(changed(path, tmp_path / "other.kvviz", change))
    assert said in refused.value.message


def test_a_lane_of_a_recording_says_which_it_is(path: Path, tmp_path: Path) -> None:
    other = changed(path, tmp_path / "other.kvviz", lambda header: header.update(lane=7), "lanes/1/header.json")
    with pytest.raises(RecordingError, match="wrong lane "):
        Recording.open(other)


def test_all_lanes_together_are_as_long_as_one_log_may_be(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Recording.open(path)
    lengths = [len(one.lines) for one in (whole, *whole.lanes)]
    whole.close()
    monkeypatch.setattr(recording, "MAX_RECORDS", sum(lengths))
    Recording.open(path).close()
    monkeypatch.setattr(recording, "MAX_RECORDS", sum(lengths) - 1)
    assert max(lengths) < sum(lengths) - 1
    with pytest.raises(RecordingError, match="lanes of the recording are too large"):
        Recording.open(path)


def test_a_perplexity_beyond_all_numbers_is_no_figure(path: Path) -> None:
    whole = Recording.open(path)
    records = list(whole.records())
    for _, _, event in records:
        if event["type"] == "lane_measured":
            event["nll"] = 800.0 if event["lane"] == 1 else 2.0
    figures = lane_figures(whole.header, records)
    whole.close()
    assert [lane["perplexity"] for lane in figures] == [math.exp(2.0), None, math.exp(2.0)]
    json.dumps(figures, allow_nan=False)


def test_a_text_moves_no_cursor(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    whole = Recording.open(path)
    figures = lane_figures(whole.header, whole.records())
    whole.close()
    for lane in figures:
        lane["text"] = "sky \x1b[2J\x07 [red]blue[/red]\n\u202eé🌈"
    comparing.print_table(figures)
    out = capsys.readouterr().out
    assert out.count("mqa: sky \\x1b[2J\\x07 [red]blue[/red] \\u202eé🌈") == 1
    assert "\x1b[2J" not in out
