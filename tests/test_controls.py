"""What the page's controls say to the engine: exactly these commands, from the drawer, the tape and the scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from kvviz.log.recording_writer import write_recording
from kvviz.web.app import ServerConfig
from tests.support.page_logs import make_log
from tests.support.page_model import page_load
from tests.support.page_view import View
from tests.support.running import Running, running
from tests.support.tab import KeptScripts

SCENARIOS = (
    "shared_prompt",
    "changed_letter",
    "changed_dtype",
    "long_prompt_chunked",
    "long_prompt_whole",
    "preempt_recompute",
    "preempt_swap",
    "fork_tree",
    "offload",
    "twelve_users",
    "tenant_salts",
)

#: Commands are kept and answered here, and none reaches the engine.
LISTEN = """() => {
  window.said = [];
  kvviz.transport.send = async (command) => {
    window.said.push(command);
    return {request_id: 0, log_id: 'x', ok: true};
  };
  window.head = () => kvviz.ctx.timeline.keyframes.at(kvviz.ctx.timeline.head);
}"""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings; one is of a scenario."""
    directory = tmp_path_factory.mktemp("recordings")
    for seed, name in enumerate(("1-first", "12-twelve_users")):
        header, records = make_log(num_requests=3, seed=seed)
        title = {**header, "source": "recording", "title": name}
        write_recording(directory / f"{name}.kvviz", title, [orjson.dumps(record) for record in records])
    return directory


@pytest.fixture(scope="module")
def live(recordings: Path) -> Iterator[Running]:
    config = ServerConfig(recordings_dir=recordings, first_prompt="why does it keep keys and values")
    with running(config, page_load(forward_s=0.002), wrap=KeptScripts) as server:
        yield server


@pytest.fixture
def view(open_view: Any, live: Running) -> Iterator[View]:
    view = open_view(f"{live.url}/?session=live")
    view.until(lambda state: state["kind"] == "live" and state["model"]["state"] == "ready")
    if view.state()["head"] == 0:
        view.run_to_the_end()
    view.page.evaluate(LISTEN)
    yield view
    errors = list(view.watched.errors)
    view.close()
    assert errors == []


def said(view: View) -> list[dict[str, Any]]:
    return list(view.page.evaluate("window.said"))


def test_a_prompt_alone_says_nothing_that_is_usual(view: View) -> None:
    view.press("KeyD")
    view.page.fill("#prompt", "hello")
    view.page.click("form button[type=submit]")
    view.page.wait_for_selector("#drawer", state="hidden")
    assert view.page.evaluate("document.activeElement.className").endswith("play-button")  # Space pauses what runs now
    add = next(command for command in said(view) if command["command"] == "add_request")
    assert add["prompt"] == "hello"
    assert not {"priority", "num_samples"} & set(add)
    assert [command["command"] for command in said(view)] == ["add_request", "set_rate", "play"]


def test_the_drawer_says_samples_priority_and_the_settings_of_the_run(view: View) -> None:
    page = view.page
    view.press("KeyD")
    page.fill("#prompt", "hello")
    page.fill("#set-num_samples", "3")
    page.fill("#set-priority", "-2")
    page.get_by_text("Many requests", exact=True).click()
    page.fill("#set-max_running", "4")
    page.fill("#set-token_budget", "40")
    page.fill("#set-num_host_blocks", "24")
    page.select_option("#set-order", "priority")
    page.select_option("#set-preemption", "swap")
    page.select_option("#set-eviction", "lfu")
    page.uncheck("#set-chunked_prefill")
    page.check("#set-offload")
    assert page.inner_text("form button[type=submit]") == "Restart with these settings"
    page.click("form button[type=submit]")
    page.wait_for_selector("#drawer", state="hidden")
    start, *others = said(view)
    assert [command["command"] for command in others] == ["set_rate", "play"]
    config = start["config"]
    assert start["command"] == "start"
    assert {name: config[name] for name in list(config)[6:]} == {
        "max_running": 4,
        "token_budget": 40,
        "chunked_prefill": False,
        "order": "priority",
        "preemption": "swap",
        "eviction": "lfu",
        "num_host_blocks": 24,
        "offload": True,
    }
    assert [(one["prompt"], one["num_samples"], one["priority"]) for one in start["requests"]] == [("hello", 3, -2)]


def test_a_number_out_of_range_is_refused_in_place_also_when_folded_away(view: View) -> None:
    view.press("KeyD")
    view.page.fill("#prompt", "hello")
    view.page.get_by_text("Many requests", exact=True).click()
    view.page.fill("#set-max_running", "0")
    view.page.get_by_text("Many requests", exact=True).click()
    view.page.evaluate("document.querySelector('#drawer form').noValidate = true")
    view.page.click("form button[type=submit]")
    assert "Max running requests must be a number from 1 to 1024." in view.page.inner_text("#drawer .form-message")
    assert view.page.is_visible("#set-max_running")
    assert said(view) == []


def test_a_candidate_branches_off_there(view: View) -> None:
    page = view.page
    request = page.evaluate("""() => {
      const {id, promptLength, maxNewTokens, tokens} = [...head().requests.values()][0];
      kvviz.ctx.ui.set({requestId: id});
      return {id, prompt: promptLength, max: maxNewTokens, tokens};
    }""")
    end = len(request["tokens"])
    for position, more in ((end - 3, {}), (end - 1, {"max_new_tokens": request["max"] + 16})):
        page.evaluate("(position) => kvviz.tape.choose(position)", position)
        candidates = page.evaluate(
            "([id, position]) => head().requests.get(id).candidates.get(position)", [request["id"], position]
        )
        assert page.locator(".candidate-chosen").inner_text().endswith("chosen")
        branches = page.locator(".candidates .candidate-branch")
        assert branches.count() == len(candidates) - 1
        branches.nth(1).click()
        chosen = request["tokens"][position]
        other = [candidate["token_id"] for candidate in candidates if candidate["token_id"] != chosen][1]
        fork = {"command": "fork", "request_id": request["id"], "position": position, "token_id": other, **more}
        assert said(view)[-1] == fork
        assert page.is_hidden("#popover")
        assert view.state()["pinned"]
    page.evaluate("kvviz.ctx.ui.clear()")
    page.evaluate("(position) => kvviz.tape.choose(position)", end - 4)
    page.get_by_role("button", name="Branch here and sample again").click()
    assert said(view)[-1] == {
        "command": "fork",
        "request_id": request["id"],
        "position": end - 4,
        "token_id": None,
    }


def test_a_scenario_is_named_to_the_engine_and_shown_in_its_lens(view: View) -> None:
    for name in SCENARIOS:
        view.press("KeyD")
        view.page.click(f"[data-scenario={name}]")
        view.page.wait_for_selector("#drawer", state="hidden")
        assert {"command": "scenario", "name": name} in said(view)
        assert view.state()["lens"] in ("pages", "batch")
    assert view.page.locator("[data-scenario]").count() == len(SCENARIOS)


def test_while_replaying_a_scenario_opens_its_recording(open_view: Any, serve: Any, recordings: Path) -> None:
    with serve(ServerConfig(recordings_dir=recordings)) as server:
        view = open_view(f"{server.url}/")
        first = view.page.evaluate("kvviz.ctx.log.sessionId")
        view.press("KeyD")
        view.page.wait_for_selector("[data-scenario=twelve_users]:enabled")
        assert view.page.locator("[data-scenario]:disabled").count() == len(SCENARIOS) - 1
        assert "no recording available" in view.page.inner_text("[data-scenario=offload]")
        view.page.click("[data-scenario=twelve_users]")
        view.until(lambda state: view.page.evaluate("kvviz.ctx.log.sessionId") != first)
        assert "12-twelve_users" in view.page.evaluate("kvviz.ctx.log.sessionId")
        assert view.state()["lens"] == "batch"
        view.close()


def test_empty_batch_leads_to_the_scenarios(view: View) -> None:
    view.press("Digit4")
    view.page.evaluate("kvviz.ctx.ui.set({drawerOpen: true, drawerAt: 'scenarios'})")
    view.page.wait_for_selector("#drawer:not([hidden])")
    assert view.page.evaluate("document.activeElement.dataset.scenario") == "shared_prompt"
    assert view.page.evaluate("document.activeElement.getBoundingClientRect().top < innerHeight")
