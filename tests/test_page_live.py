"""The page against a live server in Chromium: play, step, seek, run, continue, evict, reconnect, lie, and access."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from kvviz.log.recording_writer import write_recording
from kvviz.sessions.limits import Limits
from kvviz.web.app import ServerConfig
from tests.support.accessibility import LOOKS, faults_of
from tests.support.browser import Watched
from tests.support.page_logs import make_log
from tests.support.page_model import page_load
from tests.support.page_view import View
from tests.support.running import Running, running, wait_for
from tests.support.tab import KeptScripts


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a true recording and one in which a single event was altered."""
    directory = tmp_path_factory.mktemp("recordings")
    header, records = make_log(num_requests=6)
    header = {**header, "source": "recording", "title": "True"}
    write_recording(directory / "1-true.kvviz", header, [orjson.dumps(record) for record in records])
    sampled = [record for record in records if record[2]["type"] == "token_sampled"]
    sampled[7][2]["token_id"] += 1
    write_recording(directory / "2-altered.kvviz", header, [orjson.dumps(record) for record in records])
    return directory


@pytest.fixture
def live(serve: Any, recordings: Path) -> Iterator[Running]:
    config = ServerConfig(recordings_dir=recordings, first_prompt="why does it keep keys and values")
    with serve(config, page_load(forward_s=0.002)) as server:
        yield server


@pytest.fixture(scope="module")
def replay(recordings: Path) -> Iterator[Running]:
    """A server with recordings only."""
    with running(ServerConfig(recordings_dir=recordings), wrap=KeptScripts) as server:
        yield server


@pytest.fixture
def view(open_view: Any, live: Running) -> Iterator[View]:
    view = open_view(f"{live.url}/")
    view.until(lambda state: state["kind"] == "live")
    yield view
    errors = [error for error in view.watched.errors if "410 (Gone)" not in error]
    view.close()
    assert errors == []


def test_live_log_waits_before_its_first_step_and_a_key_plays_the_prefill(view: View) -> None:
    start = view.state()
    assert (start["head"], start["position"]) == (0, 0)
    assert "wait" in view.page.inner_text(".caption-text")
    view.press("ArrowRight")
    state = view.until(lambda state: state["position"] == 1 and not state["moving"])
    assert state["head"] == 1
    assert "verified" in view.page.inner_text("#proof")
    assert "step 1" in view.page.inner_text("#proof")


def test_behind_the_head_keys_move_only_the_cursor(view: View) -> None:
    head = view.run_to_the_end()["head"]
    assert head > 10
    view.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
    assert view.state()["position"] == head - 3
    view.press("ArrowRight")
    state = view.until(lambda state: state["position"] == head - 2 and not state["moving"])
    assert state["head"] == head
    assert not state["pinned"]
    view.press("Shift+ArrowRight", "Shift+ArrowRight")
    assert 0 < view.state()["progress"] < 1
    assert view.page.evaluate("kvviz.ctx.ui.layer") == 1
    view.press("End")
    assert view.state()["position"] == head
    view.press("Home")
    assert view.state()["position"] == 0


def test_play_and_pause_go_to_the_engine_and_on_again(view: View) -> None:
    view.press("Space")
    view.until(lambda state: state["playing"] and state["head"] >= 2)
    view.press("Space")
    state = view.until(lambda state: not state["playing"])
    time.sleep(0.5)
    assert view.state()["head"] - state["head"] <= 1
    view.press("Space")
    view.until(lambda state: state["playing"] and state["head"] > state["position"] >= 2)


def test_scrubbing_playing_and_reconnecting_agree(view: View, live: Running, open_view: Any) -> None:
    head = view.run_to_the_end()["head"]
    folds = view.folds([*range(head + 1)])
    other = open_view(f"{live.url}/?session=live&step={head // 2}")
    other.until(lambda state: state["head"] == head and state["position"] == head // 2)
    assert other.folds([*range(head, -1, -1)]) == folds[::-1]
    other.close()


def test_cut_sockets_lose_and_repeat_nothing(view: View) -> None:
    view.page.select_option(".speed", "16")
    view.press("Space")
    for _ in range(12):
        time.sleep(0.08)
        view.page.evaluate("kvviz.transport.socket?.close()")
        view.page.evaluate("kvviz.transport.retry()")
        view.until(lambda state: state["connection"] == "open")
    view.run_to_the_end()
    dense = "kvviz.ctx.log.records.every((record, index) => record[0] === index)"
    assert view.page.evaluate(dense)
    assert view.state()["wrong"] is None
    view.watched.errors = [error for error in view.watched.errors if "WebSocket" not in error]


def test_a_second_prompt_hits_and_the_conversation_goes_on(view: View) -> None:
    view.run_to_the_end()
    for num_finished in (2, 3):
        view.press("KeyD")
        view.page.fill("#prompt", "the very same question, asked again")
        view.page.fill("#set-max_new_tokens", "6")
        view.page.click("form button[type=submit]")
        view.page.wait_for_selector("#drawer", state="hidden")
        view.until(lambda state, wanted=num_finished: not state["playing"] and state["finished"] == wanted)
    assert view.page.evaluate("kvviz.ctx.log.marks.some(mark => mark.kind === 'hit')")
    view.press("KeyD")
    view.page.fill("#prompt", "and then?")
    view.page.get_by_role("button", name="Continue the conversation").click()
    view.page.wait_for_selector("#drawer", state="hidden")
    view.until(
        lambda state: (
            view.page.evaluate(
                "[...kvviz.ctx.timeline.keyframes.at(kvviz.ctx.timeline.head).requests.values()].at(-1).continues"
            )
            == 2
        )
    )


def test_a_prompt_that_never_fits_offers_to_grow_the_pool(view: View) -> None:
    view.press("KeyD")
    view.page.fill("#set-num_blocks", "4")
    view.page.fill("#prompt", "x" * 150)
    view.page.click("form button[type=submit]")
    grow = view.page.get_by_role("button", name=re.compile(r"Grow the pool to \d+ blocks"))
    grow.wait_for()
    assert "the pool has 4" in view.page.inner_text(".form-error")
    grow.click()
    view.page.wait_for_selector("#drawer", state="hidden")
    view.until(lambda state: state["head"] >= 1)
    assert view.page.evaluate("kvviz.ctx.log.header.pool.num_blocks") > 4


def test_every_eviction_took_the_marked_block_and_is_explained(view: View) -> None:
    view.press("KeyD")
    view.page.get_by_role("button", name=re.compile("Small pool")).click()
    view.page.wait_for_selector("#drawer", state="hidden")
    view.page.select_option(".speed", "max")
    view.until(lambda state: state["head"] > 60 and not state["playing"] and state["folded"], 90)
    found = view.page.evaluate(
        """async () => {
          const {apply} = await import('./static/js/core/reducer.js');
          const {timeline, log} = kvviz.ctx;
          const evicted = [];
          for (let k = 1; k <= timeline.head; k++) {
            const world = timeline.keyframes.at(k - 1).clone();
            const {firstSeq, lastSeq} = log.step(k);
            for (const record of log.records.slice(firstSeq, lastSeq + 1)) {
              if (record[2].type === 'block_evicted') evicted.push([record[2].block_id, world.free[0] ?? null]);
              apply(world, record);
            }
          }
          return evicted;
        }"""
    )
    assert len(found) > 3
    assert all(block == marked for block, marked in found)
    view.press("Home", "PageDown", "PageDown", "PageDown")
    mark = view.page.evaluate("kvviz.ctx.log.marks.find(mark => mark.kind === 'eviction').step")
    view.page.evaluate("step => kvviz.ctx.timeline.seek(step - 1, 0.05)", mark)
    view.page.wait_for_function("() => /evicted/.test(document.querySelector('.caption-text').textContent)")


def test_a_past_entry_whose_slot_was_written_again_is_gone(view: View) -> None:
    view.press("KeyD")
    view.page.get_by_role("button", name=re.compile("Small pool")).click()
    view.page.wait_for_selector("#drawer", state="hidden")
    view.page.select_option(".speed", "max")
    view.until(lambda state: state["head"] > 60 and not state["playing"] and state["folded"], 90)
    view.page.evaluate(
        "kvviz.ctx.timeline.seek(5); kvviz.ctx.ui.pin({kind: 'entry', request: 0, position: 70, layer: 2})"
    )
    view.page.get_by_text(re.compile(r"gone since step \d+")).wait_for()
    view.page.evaluate(
        "kvviz.ctx.timeline.pin(); kvviz.ctx.ui.clear();"
        "kvviz.ctx.ui.pin({kind: 'entry', request: 2, position: 0, layer: 2})"
    )


def test_the_shown_request_is_the_one_that_is_pushed(view: View) -> None:
    """Choosing a request tells the server, whose packs are kept under the request that they are of."""
    view.page.evaluate(
        """async () => {
          const {transport, ctx} = kvviz;
          window.said = [];
          window.pushed = [];
          const [send, onPack] = [transport.send.bind(transport), transport.onPack];
          transport.send = (command) => { said.push(command); return send(command); };
          transport.onPack = (buffer) => {
            onPack(buffer);
            pushed.push([...ctx.frames.packs].at(-1)[0].split(':').map(Number));
          };
          for (const prompt of ['second', 'third']) {
            await ctx.send({command: 'add_request', prompt, max_new_tokens: 30});
          }
          await ctx.send({command: 'step', count: 3});
        }"""
    )
    for request in (2, 1, None):
        head = view.state()["head"]
        view.page.evaluate(
            """async (requestId) => {
              said.length = pushed.length = 0;
              kvviz.ctx.ui.set({requestId});
              await kvviz.ctx.send({command: 'step', count: 1});
            }""",
            request,
        )
        view.until(lambda state, head=head: state["head"] == head + 1)
        view.page.wait_for_function("step => pushed.some((one) => one[1] === step)", arg=head + 1)
        subscribed = view.page.evaluate("said.filter((one) => one.command === 'subscribe').map((one) => one.request)")
        assert subscribed == [request]
        pushed = view.page.evaluate("pushed")
        assert {of for _, step, of, _ in pushed if step == head + 1} == {request or 0}
        assert {of for _, _, of, _ in pushed} == {request or 0}
    assert view.page.evaluate("kvviz.ctx.log.step(kvviz.ctx.log.headStep).chunks.length") == 3


@pytest.mark.parametrize("works", [True, False])
def test_a_long_history_is_fetched_or_else_comes_over_the_socket(
    tab: Any, serve: Any, recordings: Path, works: bool
) -> None:
    """Both ways give every record once, in order, and the same last world."""
    limits = Limits(leap_records=10, fetch_records=25)
    with serve(ServerConfig(recordings_dir=recordings, limits=limits)) as server:
        page, watched = tab, Watched(tab, server.url.split("/")[2])
        asked: list[str] = []

        def answer(route: Any) -> None:
            asked.append(route.request.url)
            route.continue_() if works or len(asked) < 2 else route.fulfill(status=503, body="busy")

        page.route("**/records?*", answer)
        page.goto(server.url)
        wait_for(lambda: page.evaluate("() => kvviz.ctx.log.lastSeq >= 0 && !kvviz.ctx.log.isLoading"))
        seqs, wrong = page.evaluate(
            "() => [kvviz.ctx.log.records.map((record) => record[0]), kvviz.ctx.timeline.keyframes.wrong]"
        )
        assert seqs == list(range(len(seqs)))
        assert len(seqs) > 50
        assert wrong is None
        assert len(asked) == (-(-len(seqs) // 25) if works else 2)
        if works:
            assert watched.errors == []
        watched.leave()


def test_an_altered_event_turns_the_badge_red(open_view: Any, replay: Running) -> None:
    for session, proof in (("1-true", "ok"), ("2-altered", "wrong")):
        view = open_view(f"{replay.url}/?session={session}&step=30")
        view.until(lambda state: state["folded"] and state["position"] == 30)
        view.page.wait_for_selector(f"#proof[data-proof={proof}]")
        if proof == "wrong":
            step = view.state()["wrong"]["step"]
            assert f"wrong · step {step}" in view.page.inner_text("#proof")
            view.page.click("#proof")
            assert "this page computed" in view.page.inner_text("#popover")
        assert view.watched.errors == []
        view.close()


def test_history_can_be_scrubbed_when_the_server_is_gone(open_view: Any, serve: Any, recordings: Path) -> None:
    with serve(ServerConfig(recordings_dir=recordings)) as server:
        view = open_view(f"{server.url}/?session=1-true&step=3")
        view.until(lambda state: state["folded"] and state["head"] > 30)
        before = view.folds([*range(20)])
    view.until(lambda state: state["connection"] == "lost")
    assert "Connection lost" in view.page.inner_text("#banner")
    assert "offline" in view.page.inner_text("#proof")
    view.press("Home", "ArrowRight")
    view.until(lambda state: state["position"] == 1 and not state["moving"])
    assert [
        view.page.evaluate("k => {kvviz.ctx.timeline.seek(k); return kvviz.ctx.timeline.position}", k) for k in (9, 2)
    ] == [9, 2]
    assert before[1] != before[9]
    view.close()


def test_the_recording_plays_by_itself_and_the_live_model_takes_over(
    open_view: Any, serve: Any, recordings: Path
) -> None:
    config = ServerConfig(recordings_dir=recordings, first_prompt="hello")
    gate = threading.Event()
    with serve(config, page_load(gate=gate), waits=False) as server:
        view = open_view(f"{server.url}/")
        state = view.until(lambda state: state["position"] >= 1)
        assert state["kind"] == "recording"
        assert "recording · model loading 43 %" in view.page.inner_text("#proof")
        gate.set()
        state = view.until(lambda state: state["kind"] == "live")
        assert (state["position"], state["progress"]) == (0, 0)
        view.close()


def test_a_hand_keeps_the_recording_and_a_chip_offers_the_live_model(
    open_view: Any, serve: Any, recordings: Path
) -> None:
    config = ServerConfig(recordings_dir=recordings, first_prompt="hello")
    gate = threading.Event()
    with serve(config, page_load(gate=gate), waits=False) as server:
        view = open_view(f"{server.url}/")
        view.press("Space")
        gate.set()
        chip = view.page.get_by_role("button", name=re.compile("go live"))
        chip.wait_for()
        assert view.state()["kind"] == "recording"
        chip.click()
        view.until(lambda state: state["kind"] == "live")
        view.close()


def test_keys_are_left_to_fields_and_can_be_turned_off(view: View) -> None:
    view.press("KeyD")
    view.page.fill("#prompt", "")
    view.page.locator("#prompt").press_sequentially("2 t?")
    assert view.page.input_value("#prompt") == "2 t?"
    assert view.state()["lens"] == "cache"
    view.press("Escape")
    view.page.locator("#drawer").wait_for(state="hidden")  # the field keeps its keys until it is gone
    view.press("Digit2")
    assert view.state()["lens"] == "attention"
    view.press("?")
    view.page.uncheck("#shortcuts")
    view.press("Escape", "Digit3")
    assert view.state()["lens"] == "attention"


def test_everything_works_by_tabbing(view: View) -> None:
    view.run_to_the_end()
    names = []
    for _ in range(60):
        view.press("Tab")
        names.append(
            view.page.evaluate(
                """(() => {
                  const e = document.activeElement;
                  return e.getAttribute('aria-label') || e.title || e.textContent.slice(0, 30) || e.id;
                })()"""
            )
        )
    for name in ("Play", "Step back", "Step forward", "Speed", "Step", "Next event", "Inspector"):
        assert name in names, names
    view.page.focus(".track")
    at = view.state()["position"]
    view.press("ArrowLeft", "ArrowLeft")
    assert view.state()["position"] == at - 2


def test_the_address_holds_the_state(view: View, live: Running, open_view: Any) -> None:
    view.run_to_the_end()
    view.page.evaluate(
        "kvviz.ctx.timeline.seek(4, 0.5); kvviz.ctx.ui.set({lens: 'attention', layer: 3, theme: 'light'});"
        "kvviz.ctx.ui.pin({kind: 'entry', request: 0, position: 2, layer: 3})"
    )
    view.page.wait_for_url(re.compile("select=entry"))
    other = open_view(view.page.url)
    state = other.until(lambda state: state["position"] == 4)
    assert state["progress"] == pytest.approx(0.5, abs=1e-3)
    assert state["lens"] == "attention"
    assert other.page.get_attribute("html", "data-theme") == "light"
    assert other.page.evaluate("kvviz.ctx.ui.selection.pinned") == {
        "kind": "entry",
        "request": 0,
        "position": 2,
        "layer": 3,
    }
    other.close()


LENSES = ("cache", "attention", "pages", "batch", "memory", "compare")
WIDTHS = ((1440, 900), (1920, 1080), (768, 1024), (390, 844), (360, 640))


def show_lens(page: Any, lens: str) -> None:
    """A lens of the page in the midst of a step, as soon as it is drawn and its frames are here."""
    page.evaluate("(lens) => kvviz.ctx.ui.set({lens})", lens)
    page.wait_for_selector(f".lens-{lens}")
    wait_for(
        lambda: page.evaluate(
            "() => kvviz.stage.lens && kvviz.stage.dirty.size + kvviz.ctx.frames.flights.size"
            " + kvviz.ctx.frames.waiting.length === 0"
        )
    )


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing(open_view: Any, tab: Any, replay: Running, look: str) -> None:
    width, height, theme, projector = LOOKS[look]
    tab.set_viewport_size({"width": width, "height": height})
    query = f"theme={theme}{'&projector=on' if projector else ''}"
    view = open_view(f"{replay.url}/?session=1-true&step=14&at=0.5&{query}")
    page = view.page
    show_lens(page, "cache")
    assert faults_of(page) == []
    for lens in LENSES[1:]:
        show_lens(page, lens)
        assert faults_of(page, ".main, .below, .tape") == [], lens
    for key, panel in (("KeyD", "#drawer"), ("?", "#keys")):
        view.press(key)
        page.wait_for_selector(panel)
        assert faults_of(page, panel) == []
        view.press("Escape")
        page.wait_for_selector(panel, state="hidden")
    assert [error for error in view.watched.errors if "404" not in error] == []
    view.close()


@pytest.mark.parametrize("projector", [False, True])
def test_nothing_overflows(open_view: Any, replay: Running, projector: bool) -> None:
    view = open_view(f"{replay.url}/?session=1-true&step=14&at=0.5{'&projector=on' if projector else ''}")
    for lens in LENSES:
        show_lens(view.page, lens)
        for width, height in ((1920, 1080),) if projector else WIDTHS:
            view.page.set_viewport_size({"width": width, "height": height})
            assert view.page.evaluate("document.documentElement.scrollWidth") <= width, (lens, width)
    view.close()


def test_hostile_tokens_are_text(open_view: Any, replay: Running) -> None:
    view = open_view(f"{replay.url}/?session=1-true&step=8&request=0")
    alerts: list[str] = []
    note = lambda dialog: (alerts.append(dialog.message), dialog.dismiss())  # noqa: E731
    view.page.on("dialog", note)
    view.until(lambda state: state["position"] == 8)
    view.page.locator(".tape-strip").focus()
    view.press("Home")
    text = view.page.inner_text(".tape-strip")
    assert "<script>alert(1)</script>" in text
    for sign in ("⏎", "日本", "سلام", "␀", "<|end|>", "👩‍👩‍👧", "f0", "🙂"):
        assert sign in text, sign
    assert view.page.locator(".tape-strip script").count() == 0
    view.page.remove_listener("dialog", note)
    assert alerts == []
    assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    view.close()


def test_reduced_motion_says_the_same_without_moving(open_view: Any, tab: Any, replay: Running) -> None:
    tab.emulate_media(reduced_motion="reduce")
    view = open_view(f"{replay.url}/?session=1-true&step=0")
    view.until(lambda state: state["folded"])
    view.press("ArrowRight")
    seen = set()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        state = view.state()
        seen.add(state["progress"])
        if state["position"] == 1:
            break
    assert view.state()["position"] == 1
    assert seen == {0}
    view.close()


def test_a_part_that_does_not_load_is_said(tab: Any, replay: Running) -> None:
    tab.route("**/static/js/core/reducer.js", lambda route: route.abort())
    tab.goto(f"{replay.url}/")
    tab.wait_for_selector(".boot-failed")
    assert "could not be loaded" in tab.inner_text("#boot")
    tab.unroute_all()
    tab.route("**/static/js/lenses/pages/lens.js", lambda route: route.abort())
    tab.goto(f"{replay.url}/?lens=pages")
    tab.wait_for_selector(".stage-failed")
    assert "Pages" in tab.inner_text(".stage-failed")


def test_without_scripts_the_page_says_so(browser: Any, replay: Running) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{replay.url}/")
    assert "JavaScript" in page.inner_text("body")
    context.close()


def test_a_recording_is_opened_and_saved_and_a_damaged_one_is_refused(
    open_view: Any, live: Running, recordings: Path, tmp_path: Path
) -> None:
    view = open_view(f"{live.url}/")
    view.press("KeyD")
    damaged = tmp_path / "damaged.kvviz"
    damaged.write_bytes((recordings / "1-true.kvviz").read_bytes()[:2000])
    view.page.set_input_files("#recording-file", damaged)
    view.page.get_by_text(re.compile("could not be opened")).wait_for()
    view.page.set_input_files("#recording-file", recordings / "1-true.kvviz")
    view.until(lambda state: state["kind"] == "recording" and state["head"] > 30)
    assert view.page.is_hidden("#drawer")
    view.press("KeyD")
    with view.page.expect_download() as download:
        view.page.get_by_text("Save this session as a recording").click()
    assert download.value.suggested_filename.endswith(".kvviz")
    view.close()


def test_a_link_to_a_session_that_is_gone_falls_back_and_says_so(open_view: Any, live: Running) -> None:
    view = open_view(f"{live.url}/?session=nobody&step=3")
    view.until(lambda state: state["kind"] == "live")
    assert "has ended" in view.page.inner_text("#banner")
    view.close()


def test_a_session_of_ones_own_leaves_the_others_alone(view: View, live: Running) -> None:
    view.run_to_the_end()
    view.press("KeyD")
    view.page.get_by_role("button", name="Start your own session").click()
    view.until(lambda state: state["head"] == 0 and state["connection"] == "open")
    own = view.page.evaluate("kvviz.ctx.log.sessionId")
    assert own != "live"
    view.page.evaluate("kvviz.transport.socket.close(); kvviz.transport.retry()")
    view.until(lambda state: state["connection"] == "open")
    assert view.page.evaluate("kvviz.ctx.log.sessionId") == own


def test_ones_own_prompt_does_not_wait_behind_the_example(view: View) -> None:
    view.press("KeyD")
    view.page.fill("#prompt", "mine")
    view.page.click("form button[type=submit]")
    view.page.wait_for_selector("#drawer", state="hidden")
    view.until(lambda state: state["position"] >= 1)
    assert view.page.evaluate("kvviz.ctx.timeline.scene().after.requests.get(0).prompt") == "mine"


def test_live_region_is_polite_and_slow(open_view: Any, serve: Any, replay: Running) -> None:
    view = open_view(f"{replay.url}/?session=1-true&step=2")
    view.until(lambda state: state["folded"])
    view.page.evaluate(
        "() => {window.said = []; new MutationObserver(() => said.push(performance.now()))"
        ".observe(document.getElementById('live'), {childList: true, characterData: true, subtree: true})}"
    )
    view.page.select_option(".speed", "8")
    view.press("Space")
    time.sleep(5)
    said = json.loads(view.page.evaluate("JSON.stringify(said)"))
    assert said
    assert all(later - earlier > 1900 for earlier, later in pairwise(said[1:]))
    assert view.page.get_attribute("#live", "aria-live") == "polite"
    view.close()
