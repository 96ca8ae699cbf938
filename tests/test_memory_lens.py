"""The Memory lens: its fold against Python's, cases by hand, formulas, and the lens in Chromium."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kvviz.config import EngineConfig
from kvviz.engine.engine import Engine
from kvviz.engine.workload import AppendOperation, Replay, StartOperation, Workload
from kvviz.log.event_log import EventLog
from kvviz.log.world import World
from kvviz.web.app import ServerConfig
from kvviz.web.assets import find_assets
from tests.support.accessibility import LOOKS, faults_of
from tests.support.browser import Watched, ask
from tests.support.compare_logs import forgetting_log, no_cache_log
from tests.support.lens_site import show, show_in
from tests.support.memory_fold import Log, memory_of
from tests.support.page_logs import FakeRunner, WordText, make_log, make_serving_log
from tests.support.page_logs import header as small_header

RECORDINGS = sorted(find_assets().recordings.glob("*.kvviz"))

FOLD = """async ({header, records, checkpoint, chunk}) => {
  const [{Log}, {MemoryModel}] = await Promise.all(
    ['core/log', 'lenses/memory/model'].map((name) => import(`/static/js/${name}.js`)));
  const log = new Log();
  const firstSeq = checkpoint ? checkpoint.seq + 1 : 0;
  log.begin({header, logId: 'a', sessionId: 's', kind: 'recording', firstSeq, checkpoint});
  const model = new MemoryModel(log);
  for (let i = 0; i < records.length; i += chunk) {
    log.append(records.slice(i, i + chunk));
    model.advance();
  }
  const {series} = model;
  return Array.from({length: series.head - series.base + 1}, (_, i) => {
    const {step, own, ...parts} = series.at(series.base + i);
    const all = [...series.requests.keys()].map((id) => [String(id), own(id)]);
    const requests = Object.fromEntries(all.filter(([, slots]) => slots > 0));
    return {...parts, own: requests};
  });
}"""


@pytest.fixture
def page(lens_page: Any) -> Any:
    return lens_page


def read_recording(path: Path) -> Log:
    with zipfile.ZipFile(path) as file:
        header = json.loads(file.read("header.json"))
        return header, [json.loads(line) for line in file.read("events.ndjson").splitlines()]


def folded(page: Any, log: Log, checkpoint: Any = None, chunk: int = 10**9) -> list[dict[str, Any]]:
    header, records = log
    values = {"header": header, "records": records, "checkpoint": checkpoint, "chunk": chunk}
    return list(ask(page, FOLD, values))


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    for position, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours["own"] == pytest.approx(theirs["own"], abs=1e-6), f"position {position}"
        for name in ("held", "stored", "shared", "wasted", "cached", "host"):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-6), f"position {position}: {name}"


def open_lens(page: Any, log: Log) -> None:
    show(page, log, "memory")
    page.evaluate("stage.dirty.add('size'); draw()")


def wait_for_chart(page: Any) -> None:
    page.wait_for_selector(".plot-area .main-svg", timeout=60_000)
    page.wait_for_function("() => document.querySelector('.plot-message').hidden")


def in_bytes(number: str, unit: str) -> float:
    return float(number) * {"B": 1, "KiB": 2**10, "MiB": 2**20}[unit]


def layer(
    key: tuple[int, int],
    value: tuple[int, int],
    *,
    cache: str = "kv",
    window: int | None = None,
    stored: int | None = None,
) -> dict[str, Any]:
    """A layer of a header, in float32; `stored`: bytes of a token, when a codec stores it."""
    num_bytes = 0 if cache == "none" else 4 * (key[0] * key[1] + value[0] * value[1])
    return {
        "index": 0,
        "kind": "sliding" if window else "full",
        "window": window,
        "cache": cache,
        "key_shape": key,
        "value_shape": value,
        "bytes_per_token": stored or num_bytes,
        "query_heads": 16,
        "scaling": None,
        "softcap": None,
        "sinks": False,
    }


LOGS = {
    **{path.stem: lambda path=path: read_recording(path) for path in RECORDINGS},
    "serving": make_serving_log,
    "turns": lambda: make_log(num_requests=6, num_blocks=14),
    "windows": lambda: make_log(window=8, num_blocks=30, max_running=2),
    "forgetting": forgetting_log,
    "forgetting by head": lambda: forgetting_log(per_head=True),
    "no cache": no_cache_log,
}


@pytest.mark.parametrize("name", LOGS)
def test_every_slot_at_every_position_is_where_pythons_fold_has_it(page: Any, name: str) -> None:
    log = LOGS[name]()
    expected = memory_of(log)
    assert any(at["held"] for at in expected) or name == "no cache"
    same(folded(page, log), expected)
    same(folded(page, log, chunk=7), expected)  # as it comes from an engine at work


def test_a_log_that_begins_with_a_checkpoint_goes_on_from_it(page: Any) -> None:
    header, records = make_serving_log()
    world, cut = World(header["pool"]["num_blocks"], header["pool"]["block_size"]), len(records) // 2
    while records[cut][2]["type"] != "step_started":
        cut += 1
    for record in records[:cut]:
        world.apply(record)
    expected = memory_of((header, records))[world.step :]
    assert expected[0]["shared"]
    assert expected[0]["host"]
    same(folded(page, (header, records[cut:]), json.loads(json.dumps(world.to_json()))), expected)


def by_hand() -> Log:
    """A pool of 4 blocks of 4 slots, and a request of 6 tokens that writes 6, then 3 more: 1,024 B a token."""
    config = EngineConfig(num_blocks=4, block_size=4, prefill_chunk=8)
    head = small_header(config, 4)  # 4 layers x 2 x 2 heads x 8 numbers x 4 B = 512 B a token
    head["model"]["weight_bytes"] = 4_096
    log = EventLog(4, 4, max_records=1000)
    engine = Engine(config, FakeRunner(4), log.append, WordText())
    engine.add_request([20, 21, 22, 23, 24, 25], max_new_tokens=4, prompt="six tokens")
    while engine.step():
        pass
    return head, log.records()


def test_waste_and_crossing_by_hand(page: Any) -> None:
    """6 tokens take 2 blocks (8 slots): 2 lie empty; with 7 tokens 1, with 8 none."""
    log = by_hand()
    at = folded(page, log)
    assert [(each["held"], each["stored"], each["wasted"]) for each in at] == [
        *((0, 0, 0), (8, 6, 2), (8, 7, 1), (8, 8, 0)),
        (0, 0, 0),  # the fourth new token is the last one: the step that makes it writes the ninth entry and ends it
    ]
    found = page.evaluate(
        """async ({header, records}) => {
          const [{Log}, {MemoryModel}, {crossingTokens, tokenBytes}] = await Promise.all(
            ['core/log', 'lenses/memory/model', 'lenses/memory/formula'].map((n) => import(`/static/js/${n}.js`)));
          const log = new Log();
          log.begin({header, logId: 'a', sessionId: 's', kind: 'recording', firstSeq: 0, checkpoint: null});
          log.append(records);
          const model = new MemoryModel(log);
          model.advance();
          const perToken = tokenBytes(header);
          const step = (weights) => model.series.firstWith(weights / perToken);
          return [perToken, crossingTokens(header), step(4096), step(1), step(4097)];
        }""",
        {"header": log[0], "records": log[1]},
    )
    # 8 slots of 512 B are 4,096 B, which is what the weights take: from 8 tokens on, and in step 1
    assert found == [512, 8, 1, 1, None]


GEOMETRIES: dict[str, dict[str, Any]] = {
    "alike": {"layers": [layer((3, 64), (3, 64))] * 30, "product": "2 × 30 × 3 × 64 × 4", "bytes": 46_080},
    "latent": {
        "layers": [layer((1, 512), (1, 64), cache="latent")] * 61,
        "product": "61 × ( 512 + 64 ) × 4",
        "bytes": 140_544,
    },
    "uneven": {"layers": [layer((4, 192), (4, 128))] * 3, "product": "3 × ( 4 × 192 + 4 × 128 ) × 4", "bytes": 15_360},
    "mixed": {
        "layers": [layer((8, 64), (8, 64), window=512)] * 5
        + [layer((2, 128), (2, 128))]
        + [layer((2, 128), (2, 128), cache="none")] * 2,
        "product": "2 × 5 × 8 × 64 × 4 + 2 × 1 × 2 × 128 × 4",
        "bytes": 5 * 4_096 + 2_048,
    },
    "codec": {"layers": [layer((3, 64), (3, 64), stored=432)] * 30, "product": "30 × 432", "bytes": 12_960},
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_the_formula_is_that_of_the_model(page: Any, name: str) -> None:
    """Every factor is on screen, and their product is what the header says a token takes."""
    case = GEOMETRIES[name]
    header, records = by_hand()
    header = json.loads(json.dumps(header))
    header["model"] |= {"layers": case["layers"], "num_layers": len(case["layers"]), "dtype": "float32"}
    header["pool"] |= {"bytes_per_token": case["bytes"], "bytes": 16 * case["bytes"]}
    open_lens(page, (header, records))
    shown = page.evaluate(
        """() => [...document.querySelectorAll('.memory-line:first-of-type > *')].map((part) =>
          part.querySelector('.memory-factor > .strong')?.textContent ?? part.textContent)"""
    )
    end = shown.index("=")
    product = " ".join(part.replace(",", "") for part in shown[:end])
    assert product == case["product"]
    assert eval(product.replace("×", "*")) == case["bytes"]
    assert f"{case['bytes']:,} B" in shown[end + 1]
    cells = page.locator(".memory-cell")
    heads = [
        sum(each[key][0] for key in ("key_shape", "value_shape")) for each in case["layers"] if each["cache"] != "none"
    ]
    assert cells.count() == sum(heads)
    notes = page.locator(".memory-formula .memory-notes").inner_text()
    assert ("2 of 8 layers have no cache" in notes and "5 layers read the last 512 tokens" in notes) == (
        name == "mixed"
    )


def test_bytes_on_screen_are_those_of_pythons_fold(page: Any) -> None:
    log = read_recording(next(path for path in RECORDINGS if "swap" in path.name))
    expected, per_token = memory_of(log), log[0]["pool"]["bytes_per_token"]
    assert per_token == 46_080
    open_lens(page, log)
    for step in (0, 1, 12, 27, len(expected) - 1):
        page.evaluate(f"go({step})")
        at = expected[step]
        assert in_bytes(*page.locator(".memory-key").inner_text().split()) == pytest.approx(
            at["held"] * per_token, rel=0.005
        )
        legend = [text.split() for text in page.locator(".memory-item").all_inner_texts()]
        # every part of the chart is named; those that hold nothing now have no figure
        assert [words[1] for words in legend if words[0] == "Request"] == ["A", "B", "C"]
        shown = {words[1]: in_bytes(*words[2:]) for words in legend if words[0] == "Request" and len(words) > 2}
        assert shown.keys() == {chr(65 + int(request)) for request in at["own"]}
        most = max(each["held"] for each in expected[: step + 1])
        told = re.search(r"peak (\S+) (\S+), in step (\d+)", page.locator(".memory-of").first.inner_text())
        assert (told is not None) == (most > at["held"])
        if told:
            assert in_bytes(told[1], told[2]) == pytest.approx(most * per_token, rel=0.005)
            assert int(told[3]) == next(n for n, each in enumerate(expected) if each["held"] == most)
        for request, slots in at["own"].items():
            assert shown[chr(65 + int(request))] == pytest.approx(slots * per_token, rel=0.005)
    wait_for_chart(page)
    page.locator(".plot-numbers summary").click()
    page.wait_for_selector(".plot-numbers tbody tr")
    rows = page.evaluate(
        """() => [...document.querySelectorAll('.plot-numbers tr')].map((row) =>
          [...row.children].map((cell) => cell.textContent.replaceAll(',', '')))"""
    )
    head, body = rows[0], [[int(cell) for cell in row] for row in rows[1:]]
    assert len(body) == len(expected)
    for row, at in zip(body, expected, strict=True):
        told = dict(zip(head, row, strict=True))
        assert told["Held"] == at["held"] * per_token
        assert told["Wasted"] == at["wasted"] * per_token
        assert told["Shared counted once"] == at["shared"] * per_token
        assert told["Cached free"] == at["cached"] * per_token
        assert told["Host tier"] == at["host"] * per_token
        for request in range(3):
            assert told[f"Request {chr(65 + request)}"] == at["own"].get(str(request), 0) * per_token
    drawn = page.evaluate(
        "Object.fromEntries(document.querySelector('.plot-area').data.map((trace) => [trace.meta, [...trace.y]]))"
    )
    assert drawn["wasted"] == [at["wasted"] * per_token for at in expected]
    assert drawn["request-0"] == [at["own"].get("0", 0) * per_token for at in expected]
    assert drawn["host"] == [at["host"] * per_token for at in expected]


def test_more_than_eight_requests_are_grouped_and_named(page: Any) -> None:
    log = read_recording(next(path for path in RECORDINGS if "twelve" in path.name))
    open_lens(page, log)
    page.evaluate("go(12)")
    at = memory_of(log)[12]
    names = page.locator(".memory-item").all_inner_texts()
    assert sum(text.startswith("Request ") for text in names) <= 8
    assert any(text.startswith("4 other requests") for text in names)
    total = page.evaluate(
        """() => stage.lens.parts.filter((part) => part.light === 'stored')
          .reduce((sum, part) => sum + part.slots(stage.lens.model.series.at(12)), 0)"""
    )
    assert total == at["stored"]


def test_a_factor_lights_what_it_counts(page: Any) -> None:
    open_lens(page, make_serving_log())
    page.evaluate("go(12)")
    wait_for_chart(page)
    lit = "document.querySelectorAll('.memory-cell[data-dim=false]').length"
    # 6 layers, 2 KV heads, K and V
    assert page.evaluate(lit) == 24
    for light, number in {"layers": 6, "heads": 2, "pair": 2, "dim": 1, "tokens": 24, "wasted": 0}.items():
        page.locator(f".memory-factor[data-light={light}]").focus()
        assert page.evaluate(lit) == number, light
    page.wait_for_function("() => document.querySelector('.plot-area').data[0].fillcolor.includes('0.15')")
    page.locator(".memory-factor[data-light=layers]").press("Enter")
    page.locator(".memory-scroll").focus()
    assert page.evaluate(lit) == 6  # pressed: it stays
    assert "6 layers stores its own" in page.locator(".memory-token-caption").inner_text()


def test_nothing_is_empty_before_the_first_write(page: Any) -> None:
    header, records = by_hand()
    first = next(seq for seq, _, event in records if event["type"] == "step_started")
    open_lens(page, (header, records[:first]))
    told = page.locator(".memory-empty").inner_text()
    assert "Nothing is cached yet." in told
    assert "512 B each. They go into blocks of 4 tokens. The pool of 8 KiB holds 16." in told
    assert page.locator(".memory-chart").is_hidden()
    assert page.locator(".memory-key").inner_text() == "0 B"
    page.evaluate("(rest) => { log.append(rest); stage.dirty.add('world'); go(1); }", records[first:])
    assert page.locator(".memory-empty").is_hidden()
    assert page.locator(".memory-key").inner_text() == "4 KiB"
    assert page.locator(".memory-of").first.inner_text() == "held of 8 KiB · 2 of 4 blocks"


def test_a_workload_has_slots_and_no_bytes(page: Any) -> None:
    ops = [
        StartOperation(op="start", id="a", tokens=list(range(10))),
        AppendOperation(op="append", id="a", tokens=[3, 4]),
    ]
    workload = Workload(block_size=4, num_blocks=8, ops=ops)
    log = EventLog(8, 4, max_records=1000)
    replay = Replay(workload, log)
    assert all(answer["ok"] for answer in replay.answers())
    open_lens(page, (replay.header("blocks"), log.records()))
    page.evaluate("go(timeline.head)")
    expected = memory_of((replay.header("blocks"), log.records()))[-1]
    assert expected["held"] == 12
    assert page.locator(".memory-key").inner_text() == "12"
    assert "slots held of 32 slots · 3 of 8 blocks" in page.locator(".memory-of").first.inner_text()
    assert "workload has no model" in page.locator(".memory-formula").inner_text()
    assert page.locator(".memory-picture").is_hidden()
    assert page.locator(".memory-beside").is_hidden()


def test_a_hundred_thousand_events_do_not_stall(page: Any) -> None:
    header, records = make_serving_log(num_requests=7)
    costs = ask(
        page,
        """async ({header, records: lap}) => {
          // the same run again and again, with other requests and later steps
          const count = (name) => Math.max(...lap.map(([, , event]) => event[name] ?? 0));
          const numRequests = 1 + count('request_id'), numSteps = count('step'), records = [];
          for (let n = 0; records.length < 100_000; n++) {
            for (const [, us, event] of lap) {
              const later = {...event}, request = numRequests * n;
              if ('request_id' in later) later.request_id += request;
              if ('parent_id' in later) later.parent_id += request;
              if ('step' in later) later.step += numSteps * n;
              later.chunks &&= later.chunks.map((chunk) => ({...chunk, request_id: chunk.request_id + request}));
              records.push([records.length, us, later]);
            }
          }
          const [{Log}, {MemoryModel}, {partsOf, chartOf}] = await Promise.all(
            ['core/log', 'lenses/memory/model', 'lenses/memory/chart'].map((name) => import(`/static/js/${name}.js`)));
          const log = new Log();
          log.begin({header, logId: 'a', sessionId: 's', kind: 'recording', firstSeq: 0, checkpoint: null});
          log.append(records);
          const model = new MemoryModel(log);
          const from = performance.now();
          model.advance();
          const fold = performance.now() - from;
          const at = performance.now();
          const {series} = model;
          const picture = chartOf({series, parts: partsOf(series), position: 3000, unit: 1, inBytes: true,
            capacity: 192, weights: 0, crossing: null, hostBlocks: 0, range: null, light: null, size: 12});
          const chart = performance.now() - at;
          const near = chartOf({series, parts: partsOf(series), position: 120, unit: 1, inBytes: true,
            capacity: 192, weights: 0, crossing: null, hostBlocks: 0, range: [100.2, 149.5], light: null, size: 12});
          return {fold, chart, steps: series.head, points: picture.traces[0].x.length, near: near.traces[0].x};
        }""",
        {"header": header, "records": records},
    )
    assert costs["steps"] > 3_000
    assert costs["points"] <= 321
    assert costs["near"] == list(range(100, 151))  # what is zoomed to has all its steps
    assert costs["fold"] < 4_000  # about 0.3 s where a core is free
    assert costs["chart"] < 1_500


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_and_nothing_runs_out(page: Any, look: str) -> None:
    show_in(page, make_serving_log(), "memory", look)
    page.evaluate("stage.dirty.add('size'); go(14)")
    wait_for_chart(page)
    wide = page.evaluate(
        """() => { const box = root.querySelector('.memory-scroll').getBoundingClientRect();
          return [...root.querySelectorAll('.memory-scroll *')].filter((part) => !part.closest('svg, .plot-area'))
            .filter((part) => part.getBoundingClientRect().right > box.right + 1)
            .map((part) => part.className || part.tagName); }"""
    )
    assert wide == []
    if look == "projector":
        small = page.evaluate(
            """() => [...root.querySelectorAll('*')].filter((part) => part.getClientRects().length > 0)
              .filter((part) => [...part.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()))
              .filter((part) => parseFloat(getComputedStyle(part).fontSize) < 22).map((part) => part.textContent)"""
        )
        assert small == []
        assert page.evaluate("parseFloat(getComputedStyle(document.querySelector('.memory-key')).fontSize)") >= 64
    assert faults_of(page, "#stage") == []


def test_the_lens_in_words_and_after_it_is_left(page: Any) -> None:
    log = make_serving_log()
    open_lens(page, log)
    page.evaluate("go(14)")
    at = memory_of(log)[14]
    words = page.evaluate("stage.lens.describe(timeline.scene())")
    assert f"{at['held'] // 8} of 24 blocks" in words
    assert "at step 14" in words
    assert "A token takes 768 B" in words  # 6 layers x 2 x 2 x 8 x 4 B
    wait_for_chart(page)
    page.wait_for_function("(words) => document.querySelector('.plot-area').ariaLabel.includes(words)", arg=words)
    page.evaluate("stage.show('batch')")
    page.wait_for_function("() => stage.name === 'batch' && stage.lens !== null")
    assert page.locator(".plot-area").count() == 0
    assert page.evaluate("stage.numFailures") == 0


def test_the_served_page_draws_it_under_its_policy(tab: Any, serve: Any) -> None:
    path = next(path for path in RECORDINGS if "swap" in path.name)
    header, records = read_recording(path)
    at = memory_of((header, records))[27]
    with serve(ServerConfig(replay_path=path)) as server:
        page = tab
        page.set_viewport_size({"width": 1440, "height": 900})
        watched = Watched(page, f"127.0.0.1:{server.port}")
        page.goto(f"{server.url}/?lens=memory&step=27")
        page.wait_for_selector("#tab-memory[aria-selected=true]")
        wait_for_chart(page)
        held = at["held"] * header["pool"]["bytes_per_token"]
        assert in_bytes(*page.locator(".memory-key").inner_text().split()) == pytest.approx(held, rel=0.005)
        page.locator("body").press("4")
        page.wait_for_selector(".lens-batch")
        page.locator("body").press("5")
        wait_for_chart(page)
        page.get_by_role("button", name="Zoom in").press("Enter")
        page.wait_for_function("() => document.querySelector('.plot-area')._fullLayout.xaxis.range[0] > 0")
        href = page.locator(".memory-what-if a").first.get_attribute("href")
        assert page.locator(".memory-what-if a").last.get_attribute("href") == "traces"
        assert href.startswith("calculator?model=llama-3.1-70b&gpu=h100&gpus=4")
        assert watched.errors == []
        assert watched.foreign == []
        watched.leave()
