"""The page over time: what it says while it waits, when the server starts again, and what a later prompt changes."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from kvviz.commands.main import app
from kvviz.log.recording_writer import write_recording
from kvviz.web.app import ServerConfig
from tests.support.page_logs import make_log
from tests.support.page_model import page_load
from tests.support.page_view import View
from tests.support.running import Running

#: As long as two and a half chunks of prefill; one character is one token.
LONG_PROMPT = "a prompt of some length, which " * 5
RESTARTED = "The server restarted with a new run"
#: Notes in `window.told` every text by which the page calls the cache empty, as soon as it can be seen.
WATCH_FOR_EMPTY = """
window.told = [];
const look = () => {
  for (const part of document.querySelectorAll('.lens-empty, .tape-title, .caption-text')) {
    const seen = part.checkVisibility({visibilityProperty: true}) && part.textContent;
    if (seen && /No request yet|Nothing is cached|Nothing is read|Nothing has happened/.test(seen)) told.push(seen);
  }
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one recording."""
    directory = tmp_path_factory.mktemp("recordings")
    header, records = make_log(num_requests=3)
    header = {**header, "source": "recording", "title": "One"}
    write_recording(directory / "1-one.kvviz", header, [orjson.dumps(record) for record in records])
    return directory


@pytest.fixture
def nothing(tmp_path: Path) -> Path:
    """A directory without recordings."""
    return tmp_path


@pytest.fixture
def live(serve: Any, nothing: Path) -> Iterator[Running]:
    with serve(ServerConfig(recordings_dir=nothing, first_prompt=LONG_PROMPT), page_load()) as server:
        yield server


def close(view: View) -> None:
    """Close a page; lost connections are the only errors it may have had."""
    errors = [error for error in view.watched.errors if "WebSocket" not in error and "ERR_CONNECTION" not in error]
    view.close()
    assert errors == []


def ask(view: View, prompt: str, **settings: str) -> None:
    """Open the drawer, fill in the form, and run."""
    view.page.wait_for_selector("#drawer", state="hidden")
    view.press("KeyD")
    view.page.fill("#prompt", prompt)
    for name, value in settings.items():
        view.page.fill(f"#set-{name}", value)
    view.page.click("form button[type=submit]")


def ask_and_wait(view: View, prompt: str, num_finished: int, **settings: str) -> None:
    """The same at full speed, until that many requests of the log have ended."""
    view.page.select_option(".speed", "max")
    ask(view, prompt, **settings)
    view.page.wait_for_selector("#drawer", state="hidden")
    view.until(lambda state: not state["playing"] and state["finished"] == num_finished and state["folded"])


def beside(tab: Any) -> Any:
    """A page of its own, for scripts that run before the page's and for sockets that are held back."""
    return tab.context.new_page()


def figure(view: View, label: str) -> str:
    """The large figure of the caption bar over a label."""
    return str(view.page.locator(".figure", has_text=label).locator(".figure-value").inner_text())


# A server that starts again.


def test_a_server_that_starts_again_is_told_until_it_is_dismissed(open_view: Any, serve: Any, nothing: Path) -> None:
    config = ServerConfig(recordings_dir=nothing, first_prompt="hello")
    with serve(config, page_load()) as server:
        view = open_view(server.url)
        view.until(lambda state: state["kind"] == "live")
        head = view.run_to_the_end()["head"]
        log_id = view.page.evaluate("kvviz.ctx.log.logId")
    view.until(lambda state: state["connection"] == "lost")
    assert "Connection lost" in view.page.inner_text("#banner")
    with serve(config, page_load()):
        view.page.evaluate("kvviz.transport.retry()")
        state = view.until(lambda state: state["connection"] == "open" and state["folded"])
        view.page.get_by_text(RESTARTED).wait_for()
        assert "Connection lost" not in view.page.inner_text("#banner")
        assert view.page.evaluate("kvviz.ctx.log.logId") != log_id
        assert (state["head"], state["position"]) == (0, 0)
        assert head > 0
        view.page.locator("#banner").get_by_role("button", name="Dismiss").click()
        assert view.page.is_hidden("#banner")
        view.press("ArrowRight")
        view.until(lambda state: state["position"] == 1 and not state["moving"])
        assert view.page.is_hidden("#banner")
        close(view)


def test_the_same_run_after_a_cut_is_no_new_start(open_view: Any, serve: Any, live: Running) -> None:
    view = open_view(live.url)
    view.until(lambda state: state["kind"] == "live")
    view.page.evaluate(
        "window.banners = []; new MutationObserver(() => banners.push(document.getElementById('banner').textContent))"
        ".observe(document.getElementById('banner'), {childList: true, subtree: true, characterData: true})"
    )
    view.page.evaluate("kvviz.transport.socket.onclose({code: 1006, reason: ''})")
    view.page.wait_for_function("() => banners.some(text => text.includes('Connection lost'))")
    view.until(lambda state: state["connection"] == "open")
    assert view.page.is_hidden("#banner")
    assert not any(RESTARTED in text for text in view.page.evaluate("banners"))
    close(view)


def test_a_recording_from_a_server_that_starts_again_is_the_same(open_view: Any, serve: Any, recordings: Path) -> None:
    config = ServerConfig(recordings_dir=recordings)
    with serve(config) as server:
        view = open_view(f"{server.url}/?session=1-one&step=5")
        view.until(lambda state: state["folded"] and state["position"] == 5)
        view.page.wait_for_function("() => kvviz.stage.lens !== null")  # its script is here before the server goes
    view.until(lambda state: state["connection"] == "lost")
    with serve(config):
        view.page.evaluate("kvviz.transport.retry()")
        view.until(lambda state: state["connection"] == "open" and state["folded"])
        view.page.wait_for_selector("#banner", state="hidden")
        close(view)


def test_ones_own_session_ends_with_its_server_and_the_page_says_so(open_view: Any, serve: Any, nothing: Path) -> None:
    config = ServerConfig(recordings_dir=nothing, first_prompt="hello")
    with serve(config, page_load()) as server:
        view = open_view(f"{server.url}/?session=new")
        view.until(lambda state: state["kind"] == "live")
    view.until(lambda state: state["connection"] == "lost")
    with serve(config, page_load()):
        view.page.evaluate("kvviz.transport.retry()")
        view.until(lambda state: state["connection"] == "open" and state["folded"])
        view.page.get_by_text(RESTARTED).wait_for()
        assert view.page.evaluate("kvviz.ctx.log.sessionId") == "live"
        view.page.wait_for_function("() => !location.search.includes('session=')")
        close(view)


# A session of one's own in the address.


@pytest.mark.parametrize("opened_by", ["button", "link"])
def test_a_reload_returns_to_ones_own_session(open_view: Any, live: Running, opened_by: str) -> None:
    view = open_view(live.url if opened_by == "button" else f"{live.url}/?session=new")
    view.until(lambda state: state["kind"] == "live")
    if opened_by == "button":
        time.sleep(0.6)  # longer than an address waits to be written
        assert "session=" not in view.page.url
        view.press("KeyD")
        view.page.get_by_role("button", name="Start your own session").click()
    view.page.wait_for_url(re.compile(r"[?&]session=s-"))
    own = str(view.page.evaluate("kvviz.ctx.log.sessionId"))
    view.until(lambda state: state["connection"] == "open" and state["model"]["state"] == "ready")
    head = 2
    view.page.evaluate("count => kvviz.ctx.send({command: 'step', count})", head)
    view.until(lambda state: state["position"] == head and not state["moving"] and state["folded"])
    before = view.fold(head)
    assert f"session={own}" in view.page.url
    view.page.reload()
    view.page.wait_for_selector("html[data-ready=yes]")
    state = view.until(lambda state: state["head"] == head and state["folded"] and not state["moving"])
    assert view.page.evaluate("kvviz.ctx.log.sessionId") == own
    assert state["position"] == head
    assert view.fold(head) == before
    assert view.page.is_hidden("#banner")
    shared = open_view(live.url)
    assert shared.until(lambda state: state["kind"] == "live")["head"] == 0
    assert shared.page.evaluate("kvviz.ctx.log.sessionId") == "live"
    close(shared)
    close(view)


# The prefill figure.


def test_the_prefill_figure_is_a_dash_until_the_last_chunk(open_view: Any, live: Running) -> None:
    view = open_view(live.url)
    view.until(lambda state: state["kind"] == "live" and state["folded"])
    num_tokens = len(LONG_PROMPT)
    assert 2 * 64 < num_tokens < 3 * 64
    label = f"prefill {num_tokens} tokens"
    assert figure(view, label) == "–"
    view.page.select_option(".speed", "8")
    for step in (1, 2, 3, 4):
        view.press("ArrowRight")
        view.until(lambda state, wanted=step: state["position"] == wanted and not state["moving"])
        kind = view.page.evaluate("step => kvviz.ctx.log.kindAt(step)", step)
        assert kind == ("prefill" if step <= 3 else "decode")
        shown = figure(view, label)
        assert (shown == "–") == (step < 3), (step, shown)
        assert (figure(view, "this token") == "–") == (step < 4)
    total = view.page.evaluate("[1, 2, 3].reduce((sum, step) => sum + kvviz.ctx.log.stepUs(step), 0) / 1000")
    assert shown == view.page.evaluate("async ms => (await import('./static/js/ui/format.js')).duration(ms)", total), (
        "the sum over the chunks"
    )
    for step in (2, 0, 3):
        view.page.evaluate("step => kvviz.ctx.timeline.seek(step)", step)
        view.until(lambda state, wanted=step: state["position"] == wanted)
        view.page.wait_for_function("() => !kvviz.stale.size")
        assert figure(view, label) == (shown if step == 3 else "–")
    close(view)


def test_the_prefill_figure_is_that_of_the_shown_request(open_view: Any, live: Running) -> None:
    """A later prompt in the midst of its chunks has a dash, while the one before keeps its time."""
    view = open_view(live.url)
    view.until(lambda state: state["kind"] == "live")
    ask_and_wait(view, "short", 1, max_new_tokens="3")
    ask_and_wait(view, LONG_PROMPT, 2)
    first = view.page.evaluate("kvviz.ctx.log.spanOf(1).firstStep")
    label = f"prefill {len(LONG_PROMPT) + 2} tokens"  # with the two special tokens of the template
    view.page.evaluate("step => kvviz.ctx.timeline.seek(step)", first + 1)
    view.page.locator(".figure", has_text=label).wait_for()
    assert figure(view, label) == "–"
    view.page.evaluate("kvviz.ctx.ui.set({requestId: 0})")
    view.page.locator(".figure", has_text="prefill 7 tokens").wait_for()
    assert re.fullmatch(r"[\d.,]+ (ms|s)", figure(view, "prefill 7 tokens"))
    view.page.evaluate("step => {kvviz.ctx.ui.set({requestId: null}); kvviz.ctx.timeline.seek(step)}", first + 2)
    view.page.wait_for_function("() => !kvviz.stale.size")
    assert re.fullmatch(r"[\d.,]+ (ms|s)", figure(view, label))
    close(view)


# What the drawer says.


def test_the_drawer_says_when_a_conversation_can_go_on(open_view: Any, serve: Any, nothing: Path) -> None:
    config = ServerConfig(recordings_dir=nothing, first_prompt=None)
    with serve(config, page_load(forward_s=0.01)) as server:
        view = open_view(server.url)
        view.until(lambda state: state["kind"] == "live")
        view.press("KeyD")
        button = view.page.get_by_role("button", name="Continue the conversation")
        assert view.page.inner_text(".form-notice") == ""
        assert button.is_disabled()
        view.press("Escape")
        ask(view, "first", max_new_tokens="12")
        view.page.wait_for_selector("#drawer", state="hidden")
        view.until(lambda state: state["head"] >= 1)
        view.page.evaluate("kvviz.ctx.send({command: 'pause'})")
        view.until(lambda state: not state["playing"] and not state["moving"])
        assert view.state()["finished"] == 0
        view.press("KeyD")
        view.page.wait_for_function("() => document.querySelector('.form-notice').textContent !== ''")
        assert view.page.inner_text(".form-notice") == (
            "Request A is running. Another prompt joins it or waits for free blocks. "
            "To continue the conversation, wait until it finishes."
        )
        assert button.is_disabled()
        assert view.page.get_by_role("button", name="Cancel request A").is_visible()
        view.page.evaluate("kvviz.actions.setSpeed(null)")
        view.page.evaluate("kvviz.ctx.send({command: 'play'})")
        view.until(lambda state: state["finished"] == 1 and not state["playing"])
        view.page.wait_for_function("() => document.querySelector('.form-notice').textContent === ''")
        assert button.is_enabled()
        assert view.page.get_by_role("button", name=re.compile("Cancel request")).count() == 0
        close(view)


def test_a_conversation_that_outgrows_the_pool_is_told_what_a_larger_one_forgets(open_view: Any, live: Running) -> None:
    view = open_view(live.url)
    view.until(lambda state: state["kind"] == "live")
    ask_and_wait(view, "first", 1, num_blocks="4", max_new_tokens="4")
    forgets = "A larger pool starts a new run without the conversation so far."
    view.press("KeyD")
    view.page.fill("#prompt", "x" * 100)
    view.page.click("form button[type=submit]")
    view.page.locator(".form-error").wait_for()
    assert "the pool has 4" in view.page.inner_text(".form-error")
    assert forgets not in view.page.inner_text("#drawer"), "a prompt by itself forgets nothing"
    view.page.get_by_role("button", name="Continue the conversation").click()
    view.page.get_by_text(forgets).wait_for()
    assert "the pool has 4" in view.page.inner_text(".form-error")
    log_id = view.page.evaluate("kvviz.ctx.log.logId")
    view.page.get_by_role("button", name=re.compile(r"Grow the pool to \d+ blocks")).click()
    view.page.wait_for_selector("#drawer", state="hidden")
    view.until(lambda state: state["finished"] == 1 and not state["playing"])
    assert view.page.evaluate("kvviz.ctx.log.logId") != log_id
    assert view.page.evaluate("kvviz.ctx.log.header.pool.num_blocks") > 4
    request = view.page.evaluate(
        "(({continues, promptLength, prompt}) => ({continues, promptLength, prompt}))"
        "(kvviz.ctx.timeline.keyframes.at(kvviz.ctx.timeline.head).requests.get(0))"
    )
    assert request == {"continues": None, "promptLength": 102, "prompt": "x" * 100}
    view.press("KeyD")
    assert view.page.inner_text(".form-message") == ""
    close(view)


# Before the first records.


def boot_line(page: Any) -> str | None:
    """What stands for the picture, or None where the picture itself is shown."""
    return None if page.is_hidden("#boot") else str(page.inner_text("#boot"))


@pytest.mark.parametrize("lens", ["cache", "attention", "pages"])
def test_nothing_is_called_empty_before_the_log_is_here(tab: Any, serve: Any, nothing: Path, lens: str) -> None:
    config = ServerConfig(recordings_dir=nothing, first_prompt="hello")
    gate = threading.Event()
    with serve(config, page_load(gate=gate), waits=False) as server:
        page = beside(tab)
        page.add_init_script(WATCH_FOR_EMPTY)
        page.goto(f"{server.url}/?lens={lens}")
        page.wait_for_selector(f".lens-{lens}", state="attached")
        page.wait_for_timeout(300)
        assert boot_line(page) == "Loading the picture …"
        assert page.inner_text("#live") == ""
        assert page.inner_text("#stage-description") == ""
        gate.set()
        page.wait_for_function("() => document.querySelector('.tape-title').textContent === 'Request A'")
        page.wait_for_selector("#boot", state="hidden")
        page.wait_for_timeout(100)
        assert page.is_visible(f".lens-{lens}")
        assert page.evaluate("told") == []
        page.close()


def test_nothing_is_called_empty_while_records_are_on_their_way(tab: Any, serve: Any, recordings: Path) -> None:
    """The greeting has come and tells how much there is; the records are held back."""
    held: list[Any] = []
    holds = True

    def between(socket: Any) -> None:
        server = socket.connect_to_server()

        def pass_on(message: Any) -> None:
            if holds and isinstance(message, str) and '"type":"records"' in message[:40]:
                held.append(lambda: socket.send(message))
            else:
                socket.send(message)

        server.on_message(pass_on)

    with serve(ServerConfig(recordings_dir=recordings)) as server:
        page = beside(tab)
        page.add_init_script(WATCH_FOR_EMPTY)
        page.route_web_socket(re.compile("/ws"), between)
        page.goto(server.url)
        page.wait_for_selector("html[data-ready=yes]")
        page.wait_for_timeout(400)
        assert held
        assert page.evaluate("[kvviz.ctx.log.isLoading, kvviz.ctx.log.records.length]") == [True, 0]
        assert boot_line(page) == "Loading the picture …"
        holds = False
        for send in held:
            send()
        page.wait_for_function("() => kvviz.ctx.timeline.position >= 1")
        assert boot_line(page) is None
        assert page.is_visible(".lens-cache")
        assert page.evaluate("told") == []
        page.close()


@pytest.mark.parametrize(
    ("lens", "words"),
    [("cache", "Nothing is cached yet"), ("attention", "Nothing is read yet"), ("pages", "No request")],
)
def test_a_log_without_a_request_is_empty_and_says_so(
    open_view: Any, serve: Any, nothing: Path, lens: str, words: str
) -> None:
    with serve(ServerConfig(recordings_dir=nothing, first_prompt=None), page_load()) as server:
        view = open_view(f"{server.url}/?lens={lens}")
        view.until(lambda state: state["kind"] == "live")
        view.page.locator(".lens-empty", has_text=words).wait_for()
        assert boot_line(view.page) is None
        assert view.page.inner_text(".tape-title") == "No request yet"
        view.page.locator(".lens-empty").get_by_role("button", name="Write a prompt").click()
        view.page.wait_for_selector("#drawer")
        close(view)


def test_a_server_that_will_show_nothing_leaves_no_line_behind(tab: Any, serve: Any, nothing: Path) -> None:
    with serve(ServerConfig(recordings_dir=nothing)) as server:
        page = beside(tab)
        page.goto(server.url)
        page.locator(".tape-title", has_text="No request yet").wait_for()
        assert boot_line(page) is None
        page.close()


def test_a_server_that_is_gone_before_it_answered_is_told_by_the_banner_alone(
    tab: Any, serve: Any, nothing: Path
) -> None:
    gate = threading.Event()
    page = beside(tab)
    page.add_init_script(WATCH_FOR_EMPTY)
    with serve(ServerConfig(recordings_dir=nothing), page_load(gate=gate), waits=False) as server:
        page.goto(server.url)
        page.wait_for_function("() => window.kvviz?.transport.status")
        page.wait_for_timeout(100)
        assert boot_line(page) == "Loading the picture …"
    gate.set()
    page.locator("#banner", has_text="Connection lost").wait_for()
    page.wait_for_timeout(100)
    assert boot_line(page) is None
    assert page.evaluate("told") == []
    page.close()


def test_a_block_workload_opens_in_pages_and_says_that_there_is_no_model(
    open_view: Any, serve: Any, tmp_path: Path
) -> None:
    ops = [{"op": "start", "id": "a", "tokens": list(range(40)), "salt": None}, {"op": "free", "id": "a"}]
    workload, recording = tmp_path / "w.json", tmp_path / "w.kvviz"
    workload.write_text(json.dumps({"block_size": 16, "num_blocks": 10, "ops": ops}))
    assert CliRunner().invoke(app, ["blocks", str(workload), "-o", str(recording)]).exit_code == 0
    with serve(ServerConfig(replay_path=recording)) as server:
        view = open_view(server.url)
        view.until(lambda state: state["lens"] == "pages")
        view.page.wait_for_function("() => document.querySelector('#stage').textContent.includes('10')")
        assert "no model · pool 10 × 16 tokens" in view.page.inner_text("header")
        view.press("KeyD")
        view.page.wait_for_selector("#drawer", state="visible")
        assert "No model: this recording replays a block workload" in view.page.text_content("#drawer")
        assert "undefined" not in view.page.text_content("main")
        assert view.watched.errors == []
        view.close()


def test_bytes_over_steps_are_drawn_to_the_last_step_however_late_it_is_folded(
    serve: Any, open_view: Any, tmp_path: Path
) -> None:
    header, records = make_log(num_requests=250)
    write_recording(
        tmp_path / "1-long.kvviz", {**header, "source": "recording"}, [orjson.dumps(one) for one in records]
    )
    with serve(ServerConfig(recordings_dir=tmp_path)) as server:
        view = open_view(f"{server.url}/?step=3")
        state = view.until(lambda state: state["folded"] and state["head"] > 1_000)
        # the cursor stands at its share of all steps
        here = state["position"] / state["head"] * 280
        view.until(
            lambda state: abs(float(view.page.locator(".sparkline-here").get_attribute("x1")) - here) < 1, timeout_s=5
        )
