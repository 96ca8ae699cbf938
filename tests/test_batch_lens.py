"""The batch lens: its model against logs worked out by hand and by Python, and the lens in Chromium."""

from __future__ import annotations

import json
import statistics
from itertools import pairwise
from typing import Any

import pytest

from kvviz.log.world import World
from tests.support.accessibility import LOOKS, faults_of
from tests.support.batch_logs import batch_log, load_log
from tests.support.browser import ask
from tests.support.lens_site import show, show_in

MODEL = """async ({header, records, cut}) => {
  const [{Log}, {BatchModel}, {latencyOf}] = await Promise.all(
    ['core/log', 'lenses/batch/model', 'lenses/batch/latency'].map((name) => import(`/static/js/${name}.js`)));
  const log = new Log();
  log.begin({header, logId: 'a', sessionId: 's', kind: 'recording', firstSeq: 0, checkpoint: null});
  const model = new BatchModel(log);
  for (let at = 0; at < records.length; at += cut) { log.append(records.slice(at, at + cut)); model.advance(); }
  const requests = [...model.requests.values()].map((request) => ({
    id: request.id, prompt: request.prompt, priority: request.priority, first: request.firstStep,
    end: request.end, endStep: request.end ? request.endStep : null, states: request.states,
    after: model.stateAt(request, model.headStep + 1), before: model.stateAt(request, request.firstStep - 1),
    latency: latencyOf(model, request)}));
  const steps = model.steps.map((one) => [one.step, one.used, one.cached, one.host, one.numTokens, one.budget]);
  return {requests, steps};
}"""


@pytest.fixture
def page(lens_page: Any) -> Any:
    return lens_page


def fold(page: Any, log: tuple[dict[str, Any], list[list[Any]]], cut: int = 10_000) -> dict[str, Any]:
    header, records = log
    return dict(ask(page, MODEL, {"header": header, "records": records, "cut": cut}))


class Expected:
    """The same account in Python, from the events alone."""

    def __init__(self, header: dict[str, Any], records: list[list[Any]]) -> None:
        self.states: dict[int, list[str]] = {}
        self.first: dict[int, int] = {}
        self.ends: dict[int, tuple[str, int]] = {}
        self.steps: list[list[Any]] = []
        self.times: dict[int, list[int]] = {}
        self.added: dict[int, int] = {}
        now: dict[int, str] = {}
        ref, hashed = [0] * header["pool"]["num_blocks"], [False] * header["pool"]["num_blocks"]
        host: dict[int, Any] = {}
        step, inside, chunks = 0, False, {}
        for _, us, event in records:
            kind, request = event["type"], event.get("request_id")
            if kind == "request_added":
                now[request], self.first[request] = "waiting", step + 1
                self.states[request], self.times[request], self.added[request] = [], [], us
            elif kind == "step_started":
                step, inside, chunks = event["step"], True, {}
            elif kind == "step_scheduled":
                chunks = {chunk["request_id"]: chunk["kind"] for chunk in event["chunks"]}
                tokens, budget = sum(chunk["num_tokens"] for chunk in event["chunks"]), event["budget"]
            elif kind in ("request_started", "blocks_swapped_in", "request_forked"):
                now[request] = "held"
            elif kind == "request_preempted":
                now[request] = {"swap": "swapped", "recompute": "preempted"}[event["reason"]["code"]]
            elif kind == "token_sampled":
                self.times[request].append(us)
            elif kind == "request_finished":
                code = event["reason"]["code"]
                self.ends[request] = (code if code in ("cancelled", "failed") else "finished", step)
                host = {block: owner for block, owner in host.items() if owner != request}
            if kind in ("blocks_swapped_out", "blocks_swapped_in", "block_offloaded", "block_fetched", "host_evicted"):
                for block in event.get("host_ids", [event.get("host_id")]):
                    if kind in ("blocks_swapped_out", "block_offloaded"):
                        host[block] = event.get("request_id")
                    else:
                        del host[block]
            if kind == "block_copied":
                ref[event["from_block_id"]] -= 1
            if kind in ("block_allocated", "block_shared", "block_copied"):
                ref[event["block_id"]] += 1
            elif kind == "request_forked":
                for block in event["block_ids"]:
                    if block is not None:
                        ref[block] += 1
            elif kind == "blocks_released":
                for block in event["block_ids"]:
                    ref[block] -= 1
            elif kind in ("block_cached", "block_evicted"):
                hashed[event["block_id"]] = kind == "block_cached"
            elif kind == "prefix_cache_reset":
                for block in event["block_ids"]:
                    hashed[block] = False
            elif kind == "step_finished":
                inside = False
                for one in self.states:
                    ended = self.ends.get(one)
                    if step >= self.first[one] and (ended is None or (ended[1] == step and one in chunks)):
                        self.states[one].append(chunks.get(one, now[one]))
                used = sum(count > 0 for count in ref)
                cached = sum(h and not count for h, count in zip(hashed, ref, strict=True))
                self.steps.append([step, used, cached, len(host), tokens, budget])
        assert not inside


@pytest.mark.parametrize("seed", range(12))
def test_states_and_fill_of_random_loads_are_those_that_python_finds(page: Any, seed: int) -> None:
    log = load_log(seed, **({"preemption": "swap", "num_host_blocks": 20} if seed % 2 else {}))
    expected = Expected(*log)
    found = fold(page, log, cut=7)
    assert found["steps"] == expected.steps
    for request in found["requests"]:
        one = request["id"]
        assert request["states"] == expected.states[one], f"request {one}"
        assert request["first"] == expected.first[one]
        assert request["end"] == expected.ends[one][0] == request["after"]
        assert request["endStep"] == expected.ends[one][1]
        assert request["before"] == "none"
        times = expected.times[one]
        intervals = [later - earlier for earlier, later in pairwise(times)]
        assert request["latency"]["intervals"] == intervals
        assert request["latency"]["firstUs"] == (times[0] - expected.added[one] if times else None)
        median = statistics.median(intervals) if intervals else None
        assert request["latency"]["medianUs"] == median
        spikes = [(i + 1, us) for i, us in enumerate(intervals) if us > 1.8 * (median or 0) and us > 20_000]
        assert [(spike["index"], spike["us"]) for spike in request["latency"]["spikes"]] == spikes
        assert all(spike["causes"] for spike in request["latency"]["spikes"])


def by_hand(
    steps: list[tuple[int, int, list[tuple[int, str, int]], list[dict[str, Any]]]],
) -> tuple[dict[str, Any], list[list[Any]]]:
    """A log of two requests: each step is its start, when its tokens come, its chunks and its other events.

    A decode chunk samples a token.
    """
    header, _ = batch_log(1)
    records: list[list[Any]] = []

    def tell(us: int, kind: str, **fields: Any) -> None:
        records.append([len(records), us, {"type": kind, **fields}])

    for one in (0, 1):
        tell(0, "request_added", request_id=one, prompt=f"p{one}", token_ids=[1, 2, 3], pieces=[], fork=None)
    reached = {0: 0, 1: 0}
    for number, (start, end, chunks, others) in enumerate(steps, 1):
        tell(start, "step_started", step=number)
        for event in others:
            tell(start, **event)
            if event["kind"] == "request_preempted" and event["reason"]["code"] == "recompute":
                reached[event["request_id"]] = 0
        listed = []
        for one, kind, count in chunks:
            listed.append({"request_id": one, "kind": kind, "num_tokens": count, "start": reached[one]})
            reached[one] += count
        tell(start, "step_scheduled", step=number, chunks=listed, budget=32, blocked=None)
        for one, kind, _ in chunks:
            if kind == "decode" or reached[one] >= 3:
                tell(end, "token_sampled", request_id=one, position=reached[one], token_id=1, candidates=[])
        tell(end, "step_finished", step=number, digest="0" * 16, forward_us=1, step_us=end - start)
    return header, records


def preempted(code: str) -> dict[str, Any]:
    reason = {"code": code, "order": "last", "for_request_id": 1, "num_blocks_needed": 3, "num_free": 1}
    return {"kind": "request_preempted", "request_id": 0, "reason": {**reason, "num_lost_tokens": 4}}


EVEN = [(10_000 * k, 10_000 * k + 9_000, [(0, "decode", 1)], []) for k in range(1, 6)]


def after(*more: Any) -> list[Any]:
    """One prefill, five even steps, then these."""
    return [(0, 9_000, [(0, "prefill", 3)], []), *EVEN, *more]


@pytest.mark.parametrize(
    ("more", "causes"),
    [
        (
            [(60_000, 99_000, [(0, "decode", 1), (1, "prefill", 30)], [])],
            [{"kind": "prefill", "by": 1, "numTokens": 30, "step": 7, "others": 0}],
        ),
        ([(60_000, 99_000, [(0, "decode", 1)], [])], [{"kind": "none", "step": 7}]),
        ([(160_000, 169_000, [(0, "decode", 1)], [])], [{"kind": "idle", "step": 7, "us": 101_000, "measured": None}]),
        (
            [
                (60_000, 69_000, [(1, "prefill", 2)], [preempted("recompute")]),
                (70_000, 89_000, [(0, "prefill", 9)], []),
            ],
            [
                {"kind": "preempted", "step": 7, "by": 1, "own": False, "numTokens": 8, "bytes": 0, "numSteps": 1},
                {"kind": "prefill", "by": 1, "numTokens": 2, "step": 7, "others": 0},
            ],
        ),
        (
            [
                (
                    60_000,
                    69_000,
                    [(1, "decode", 1)],
                    [
                        preempted("swap"),
                        {"kind": "blocks_swapped_out", "request_id": 0, "host_ids": [0, 1], "num_bytes": 500},
                    ],
                ),
                (
                    70_000,
                    89_000,
                    [(0, "decode", 1)],
                    [{"kind": "blocks_swapped_in", "request_id": 0, "host_ids": [0, 1], "num_bytes": 500}],
                ),
            ],
            [{"kind": "swapped", "step": 7, "by": 1, "own": False, "numTokens": 0, "bytes": 1000, "numSteps": 1}],
        ),
        (
            [(60_000, 69_000, [(1, "decode", 1)], []), (70_000, 89_000, [(0, "decode", 1)], [])],
            [{"kind": "held", "step": 7, "numSteps": 1}],
        ),
        (
            [(60_000, 99_000, [(0, "decode", 1)], [{"kind": "block_evicted", "block_id": 3}])],
            [
                {
                    "kind": "moves",
                    "step": 7,
                    "moves": {"evicted": 1, "offloaded": 0, "fetched": 0, "copied": 0, "forgotten": 0, "bytes": 0},
                }
            ],
        ),
    ],
)
def test_a_late_token_has_the_cause_that_the_events_give(page: Any, more: Any, causes: Any) -> None:
    found = fold(page, by_hand(after(*more)))
    latency = found["requests"][0]["latency"]
    assert latency["medianUs"] == 10_000
    assert latency["firstUs"] == 9_000
    assert [spike["step"] for spike in latency["spikes"]] == [len(after(*more))]
    assert latency["spikes"][0]["causes"] == causes
    assert latency["worst"] == latency["spikes"][0]


def test_a_long_wait_below_the_thresholds_is_no_spike(page: Any) -> None:
    found = fold(page, by_hand(after((60_000, 77_000, [(0, "decode", 1)], []))))
    latency = found["requests"][0]["latency"]
    assert latency["worst"]["us"] == 18_000
    assert latency["spikes"] == []


@pytest.fixture(scope="module")
def busy() -> tuple[dict[str, Any], list[list[Any]]]:
    return batch_log(8, preemption="swap", num_host_blocks=24, num_blocks=36)


def test_a_click_and_enter_go_to_the_step_and_select_the_request(page: Any, busy: Any) -> None:
    show(page, busy, "batch")
    page.evaluate("go(9)")
    spot = page.evaluate("""() => { const {space, columns} = stage.lens.frame;
      const box = root.querySelector('.batch-scroll').getBoundingClientRect();
      return [box.x + columns.left(columns.columnOf(30)) + columns.width / 2, box.y + 2.5 * space.rowHeight]; }""")
    page.mouse.move(*spot)
    assert page.locator(".lens-tip").inner_text().startswith("C, step 30")
    page.mouse.click(*spot)
    assert page.evaluate("timeline.position") == 30
    assert page.evaluate("ui.selection.pinned") == {"kind": "request", "request": 2}
    page.evaluate("draw()")
    page.locator(".lens-cursor").focus()
    page.evaluate("document.addEventListener('keydown', (event) => { window.leaked = event.key; })")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert page.locator("#batch-cell").inner_text().startswith("E, step 32")
    assert page.evaluate("timeline.position") == 30
    page.keyboard.press("Enter")
    assert page.evaluate("timeline.position") == 32
    assert page.evaluate("ui.selection.pinned") == {"kind": "request", "request": 4}
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate("timeline.position === timeline.head")
    assert page.evaluate("window.leaked") is None


def test_buttons_of_a_row_send_commands(page: Any, busy: Any) -> None:
    header, records = busy
    half = next(seq for seq, _, event in records if event["type"] == "step_started" and event["step"] == 20)
    show(page, (header, records[:half]), "batch")
    page.evaluate("draw()")
    page.get_by_role("button", name="Request D: earlier").click()
    page.get_by_role("button", name="Request D: later").click()
    page.get_by_role("button", name="Cancel request E").click()
    assert page.evaluate("sent") == [
        {"command": "set_priority", "request_id": 3, "priority": 0},
        {"command": "set_priority", "request_id": 3, "priority": 2},
        {"command": "cancel", "request_id": 4},
    ]
    assert page.get_by_role("button", name="Cancel request B").count() == 0
    show(page, ({**header, "capabilities": []}, records[:half]), "batch")
    page.evaluate("draw()")
    assert page.locator(".batch-controls:visible").count() == 0


def test_the_picture_is_also_words(page: Any, busy: Any) -> None:
    show(page, busy, "batch")
    page.evaluate("go(40); stage.describe(timeline.scene())")
    said = page.locator("#stage-description").inner_text()
    for part in ("9 requests, step 40 of", "blocks in use", "The longest wait between two tokens: request E"):
        assert part in said
    rows = page.locator(".lens-batch table tbody tr")
    assert rows.count() == 9
    assert "swapped out in step" in rows.nth(4).inner_text()
    assert page.locator(".batch-now").inner_text().startswith("step 40")


def test_hundreds_of_steps_and_requests_fit(page: Any) -> None:
    log = batch_log(120, gap=8, max_running=12, num_blocks=120)
    for size in ((390, 420), (1400, 620)):
        show(page, log, "batch", size)
        page.evaluate("() => { for (let k = 0; k < timeline.head; k += 50) go(k, 0.3); }")
        assert page.evaluate("stage.lens.frame.columns.per") > 1
        right = page.evaluate(
            "(({columns, space}) => columns.left(columns.count) - space.x - space.stepsWidth)(stage.lens.frame)"
        )
        assert right <= 1
        assert page.evaluate("root.scrollWidth") <= size[0] + 1
        assert page.evaluate("stage.numFailures") == 0


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_in_rows_with_buttons(page: Any, busy: Any, look: str) -> None:
    header, records = busy
    half = next(seq for seq, _, event in records if event["type"] == "step_started" and event["step"] == 20)
    show_in(page, (header, records[:half]), "batch", look)
    page.evaluate("go(9)")
    assert faults_of(page, "#stage") == []


def test_the_batch_is_the_same_when_the_log_begins_in_the_middle(page: Any, busy: Any) -> None:
    """From a checkpoint on, states and pool are those of the whole log; times before it are not known."""
    header, records = busy
    pool = header["pool"]
    world = World(pool["num_blocks"], pool["block_size"])
    cut = next(seq for seq, _, event in records if event["type"] == "step_started" and event["step"] == 18)
    for record in records[:cut]:
        world.apply(record)
    checkpoint = json.loads(json.dumps(world.to_json()))
    found = ask(
        page,
        """async ({header, records, checkpoint, firstSeq}) => {
          const [{Log}, {BatchModel}] = await Promise.all(
            ['core/log', 'lenses/batch/model'].map((name) => import(`/static/js/${name}.js`)));
          const log = new Log();
          log.begin({header, logId: 'a', sessionId: 's', kind: 'live', firstSeq, checkpoint});
          log.append(records);
          const model = new BatchModel(log);
          model.advance();
          return {steps: model.steps.map(({step, used, cached, host}) => [step, used, cached, host]),
            states: [...model.requests.values()].map((request) => [request.id, request.states])};
        }""",
        {"header": header, "records": records[cut:], "checkpoint": checkpoint, "firstSeq": cut},
    )
    expected = Expected(header, records)
    assert found["steps"] == [step[:4] for step in expected.steps if step[0] >= 18]
    for one, states in found["states"]:
        assert states == expected.states[one][max(0, 18 - expected.first[one]) :]
