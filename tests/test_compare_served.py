"""A comparison on the server, each lane as a session of its own, and what it leaves: a recording with its lanes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvviz.api import compare_loaded
from kvviz.comparison.figures import lane_figures
from kvviz.errors import RecordingError
from kvviz.log.recording import Recording
from kvviz.log.world import World
from kvviz.sources.run_factory import open_loaded
from kvviz.web.app import ServerConfig
from tests.support.command import run_command
from tests.support.compared import LANES, compared, loaded
from tests.support.running import Running, Socket, running
from tests.support.small_models import small_model
from tests.support.small_tokenizers import letters_tokenizer


@pytest.fixture(scope="module")
def server():
    open_model = open_loaded(loaded(), frame_bytes=2**24, max_pool_bytes=2**26)
    with running(ServerConfig(first_prompt=None), lambda progress: open_model) as server:
        yield server


def header_of(page: Socket) -> dict[str, Any]:
    return page.hellos[-1]["header"]


def refused(page: Socket, command: str, **fields: Any) -> str:
    reply = page.ask(command, **fields)
    assert reply["type"] == "error", reply
    return str(reply["message"])


def fold(header: dict[str, Any], records: list[Any]) -> World:
    world = World(header["pool"]["num_blocks"], header["pool"]["block_size"])
    for record in records:
        world.apply(record)
    return world


def test_a_run_with_lanes_is_a_comparison(server: Running) -> None:
    with server.connect() as page:
        compared(page)
        assert [lane["spec"] for lane in header_of(page)["lanes"]] == ["gqa", *LANES]
        assert {"gqa", "int4", "h2o", "no-cache"} <= {choice["name"] for choice in header_of(page)["lane_choices"]}
        figures = lane_figures(header_of(page), page.records)
        assert [lane["num_tokens"] for lane in figures] == [6, 6, 6]
        world = fold(header_of(page), page.records)
        assert world.broken is None
        assert (world.check or {})["ok"]


def test_each_lane_is_a_session_with_its_own_log(server: Running) -> None:
    with server.connect() as page:
        compared(page)
        for index in (1, 2):
            with server.connect(f"?session=live.{index}") as lane:
                lane.until_status(lambda status: status["play"]["idle"])
                lane.until_seq(lane.hellos[-1]["head_seq"])
                assert header_of(lane)["lane"]["spec"] == LANES[index - 1]
                assert header_of(lane)["model"]["layers"][0]["key_shape"][0] == (1 if index == 1 else 2)
                kinds = {record[2]["type"] for record in lane.records}
                assert ("kv_forgotten" in kinds) is (index == 2)
                world = fold(header_of(lane), lane.records)
                assert world.broken is None
                assert (world.check or {})["ok"]


def test_a_saved_comparison_has_its_lanes(server: Running, tmp_path: Path) -> None:
    with server.connect() as page:
        compared(page)
        data = httpx.get(f"{server.url}/api/sessions/live/recording", trust_env=False).content
        recording = Recording.open(data)
        assert [lane.header["lane"]["spec"] for lane in recording.lanes] == LANES
        assert lane_figures(recording.header, recording.records()) == lane_figures(header_of(page), page.records)
        for lane in recording.lanes:
            world = fold(lane.header, list(lane.records()))
            assert (world.check or {})["ok"]
            assert lane.step_frame(lane.num_steps - 1).heads.shape[0] == 4


def test_a_recording_that_lies_about_its_lanes_is_refused(tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "run.kvviz"
    compare_loaded(loaded(), "fox", ["mqa"], path, max_new_tokens=2)
    for lanes in ([{}] * 9, {"1": {}}, [1, 2], [{}] * 3):
        other = tmp_path / "other.kvviz"
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
            for name in old.namelist():
                content = old.read(name)
                if name == "header.json":
                    content = json.dumps({**json.loads(content), "lanes": lanes}).encode()
                new.writestr(name, content)
        with pytest.raises(RecordingError, match=r"lanes"):
            Recording.open(other)


def test_the_command_prints_what_the_recording_holds(tmp_path: Path) -> None:
    model = tmp_path / "model"
    small_model("llama").save_pretrained(model)
    letters_tokenizer().save_pretrained(model)
    output = tmp_path / "run.kvviz"
    arguments = ["fox", "--lane", "gqa", "--lane", "int8,group=16", "--model", str(model), "--max-new-tokens", "5"]
    code, out, err = run_command("compare", *arguments, "--json", "-o", output)
    assert code == 0, err
    printed = json.loads(out)
    recording = Recording.open(output)
    assert printed["reference"] == "gqa"
    assert printed["lanes"] == lane_figures(recording.header, recording.records())
    wanted = {
        "name",
        "bytes_per_token",
        "kv_projections",
        "ms_per_token",
        "mean_kl",
        "top1_agreement",
        "first_divergence",
        "max_abs_logit_diff",
    }
    assert all(wanted <= set(lane) for lane in printed["lanes"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hello", "--lane", "int5"], "Unknown lane"),
        (["", "--lane", "int4"], "The prompt is empty"),
        (["hello", "--lane", "int4,group=7"], "divide"),
        (["hello", "--lane", "offload=0"], "from 1 to"),
    ],
)
def test_wrong_lanes_end_with_a_sentence(arguments: list[str], words: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    small_model("llama").save_pretrained(model)
    letters_tokenizer().save_pretrained(model)
    code, _, error = run_command("compare", *arguments, "--model", model)
    assert code == 2
    assert words in " ".join(error.split())
    assert "Traceback" not in error


def test_wrong_commands_in_a_comparison_are_refused(server: Running) -> None:
    with server.connect() as page:
        assert "Unknown lane" in refused(page, "start", config={"lanes": ["int5"]})
        for spec in ("small=60000", "offload=60000"):
            assert "the limit for the pool is" in refused(page, "start", config={"lanes": [spec]})
        compared(page)
        assert "can't be forked" in refused(page, "fork", request_id=0, position=44)
        assert "single sample" in refused(page, "add_request", prompt="fox", num_samples=2)
        page.do("start", config={})
        assert "start one with lanes" in refused(page, "add_request", prompt="", needle=True)
