"""The served page of a comparison: what its table says is what the command line prints of the same lanes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kvviz.comparison import needle as needles
from kvviz.log.recording import Recording
from kvviz.sessions.limits import Limits
from kvviz.sources import worker
from kvviz.sources.run_factory import load_model
from kvviz.web.app import ServerConfig
from tests.support.browser import Watched
from tests.support.command import run_command
from tests.support.running import Running, running, wait_for
from tests.support.sample import sampled
from tests.support.small_models import small_model
from tests.support.small_tokenizers import letters_tokenizer
from tests.support.tab import KeptScripts

UNITS = {
    "": 1,
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "ms": 1,
    "s": 1000,
    "%": Decimal("0.01"),
}
#: What a clock says differs from run to run; the rest is the same in every run.
TIMES = ("ms_per_token", "first_token_ms")
FIGURES = (
    *("bytes_per_token", "held_bytes", "read_bytes", "kv_projections", "kept_share", "copied_bytes"),
    *("mean_kl", "top1_agreement", "first_divergence", "perplexity", "max_abs_logit_diff"),
)


def printed(*arguments: str) -> list[dict[str, Any]]:
    """The lanes that `kvviz compare … --json` prints."""
    code, out, err = run_command("compare", *arguments, "--json")
    assert code == 0, err
    return list(json.loads(out)["lanes"])


def says(text: str, value: float | None) -> bool:
    """Whether a cell of the page tells a figure, as exactly as its digits allow."""
    if value is None:
        return text in ("none", "–")
    number = re.fullmatch(r"(?:token )?([\d,.]+(?:e-\d+)?)\s*(\w+|%)?(?: · .*)?", text)
    assert number is not None, text
    digits, unit = Decimal(number[1].replace(",", "")), UNITS[number[2] or ""]
    step = Decimal(1).scaleb(int(digits.as_tuple().exponent))
    return abs(digits - Decimal(value) / unit) <= step * Decimal("0.5000001")


def cells(page: Any, figure: str) -> list[str]:
    """What the page's table says of every lane; nothing when the row is not shown."""
    row = page.locator(f"tr[data-figure={figure}]:visible")
    return [text.strip() for text in row.locator(".compare-value").all_inner_texts()]


def check_table(page: Any, lanes: list[dict[str, Any]], figures: tuple[str, ...] = FIGURES) -> None:
    """Every figure of every lane; a row that is not shown has nothing to tell."""
    for figure in figures:
        told = cells(page, figure)
        if not told:
            assert figure in ("kept_share", "copied_bytes")
            assert {lane[figure] for lane in lanes} <= {0, 1}
            continue
        for text, lane in zip(told, lanes, strict=True):
            assert says(text, lane[figure]), (figure, lane["name"], text, lane[figure])


def show_end(page: Any, num_tokens: int) -> None:
    """The lens at the end of the log, when it tells so many tokens."""
    page.evaluate("() => { const {timeline} = kvviz.ctx; timeline.seek(timeline.head, 0); }")
    page.wait_for_selector("tr[data-figure=mean_kl]")
    page.wait_for_function(f"() => kvviz.stage.lens?.inner?.lanes?.count === {num_tokens}")


@pytest.mark.parametrize(
    "lanes",
    [
        ("gqa", "mqa", "int4,group=16", "window=8"),
        ("mha", "no-cache", "h2o=12"),
    ],
)
def test_the_page_tells_the_figures_of_the_command_line(
    lanes: tuple[str, ...], tab: Any, serve: Any, tmp_path: Path
) -> None:
    model, output = tmp_path / "model", tmp_path / "run.kvviz"
    small = small_model("llama")
    small.generation_config.eos_token_id = None
    small.save_pretrained(model)
    letters_tokenizer().save_pretrained(model)
    options = [part for lane in lanes for part in ("--lane", lane)]
    figures = printed(
        *("the quick brown fox jumps over the lazy dog", *options, "--model", str(model)),
        *("--max-new-tokens", "20", "-o", str(output)),
    )
    assert Recording.open(output).header["lanes"][-1]["spec"] == lanes[-1]
    with serve(ServerConfig(replay_path=output)) as server:
        page = tab
        page.set_viewport_size({"width": 1440, "height": 900})
        watched = Watched(page, server.url.split("/")[2])
        page.goto(f"{server.url}/?lens=compare")
        page.wait_for_selector("html[data-ready=yes]", timeout=60_000)
        show_end(page, figures[0]["num_tokens"])
        check_table(page, figures, (*FIGURES, *TIMES))
        assert (watched.errors, watched.foreign) == ([], [])
        watched.leave()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    limits = Limits()
    load = load_model(None, "float32", frame_bytes=limits.frame_bytes, max_pool_bytes=limits.max_pool_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "NICENESS", 0)  # other tests beside it must not starve the model
        config = ServerConfig(recordings_dir=tmp_path_factory.mktemp("recordings"), first_prompt=None)
        with running(config, load, wrap=KeptScripts) as at:
            yield at


def has_ended(socket: Any) -> bool:
    """Idle is also what has not begun."""
    idle = socket.status.get("play", {}).get("idle")
    return bool(idle) and any(event["type"] == "request_finished" for _, _, event in socket.records)


@pytest.mark.weights
@pytest.mark.parametrize(
    ("preset", "num_hay"),
    sampled([("bits", 0), ("needle", len(needles.HAY)), ("needle", 1)], always=[("needle", 1)], per_group=0),
)
def test_a_preset_runs_live_and_its_lanes_are_the_command_lines(
    preset: str, num_hay: int, tab: Any, live: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One click; then the same lanes by the command line in a session of its own tell the same figures.

    `num_hay`: sentences around the word of a needle; 0: no needle.
    """
    needle = num_hay > 0
    monkeypatch.setattr(needles, "HAY", needles.HAY[:num_hay])
    page = tab
    page.set_viewport_size({"width": 1440, "height": 900})
    watched = Watched(page, live.url.split("/")[2])
    page.goto(f"{live.url}/?lens=compare")
    wait_for(lambda: page.evaluate("() => kvviz.ctx.log.kind") == "live", 60)
    log_id = page.evaluate("() => kvviz.ctx.log.logId")
    page.wait_for_selector(".lens-compare .lens-bar")
    if page.locator("[data-preset]:visible").count() == 0:  # lanes of the test before are there
        page.wait_for_selector("[data-preset], .lens-compare .lens-toggle:visible")
        if page.locator(".lens-compare .lens-toggle:visible").count():
            page.click(".lens-compare .lens-toggle")
    page.click(f"[data-preset={preset}]:visible")
    wait_for(lambda: page.evaluate("() => kvviz.ctx.log.logId") != log_id)
    page.evaluate("() => kvviz.ctx.send({command: 'set_rate', steps_per_second: null})")
    with live.connect() as socket:
        socket.until(lambda _: has_ended(socket), 240)
        header, records = socket.hellos[-1]["header"], socket.records
    wait_for(lambda: page.evaluate("() => kvviz.ctx.log.lastSeq") == records[-1][0], 60)
    show_end(page, sum(event["type"] == "lane_measured" and event["lane"] == 0 for _, _, event in records))
    added = next(event for _, _, event in records if event["type"] == "request_added")
    options = [part for lane in header["lanes"] for part in ("--lane", lane["spec"])]
    prompt = [] if needle else [page.input_value("#compare-prompt")]
    figures = printed(
        *(*prompt, *options, *(["--needle"] if needle else [])),
        *("--max-new-tokens", str(added["max_new_tokens"]), "--seed", str(header["seed"])),
    )
    check_table(page, figures)
    if needle:
        told = page.locator("tr[data-figure=needle] .compare-value").all_inner_texts()
        answers = [event["answer"] for _, _, event in records if event["type"] == "needle_sought"]
        assert sorted(lane["answer"] for lane in figures) == sorted(answers)
        assert [text == "found" for text in told] == [lane["needle_found"] for lane in figures]
    assert page.evaluate("() => kvviz.ctx.timeline.keyframes.wrong") is None
    assert (watched.errors, watched.foreign) == ([], [])
    watched.leave()
