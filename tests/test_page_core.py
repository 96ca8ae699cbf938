"""The page's own fold in a real browser against the Python one: worlds, digests, scrubbing, packs, and a lying log."""

from __future__ import annotations

import copy
import functools
import json
import re
import struct
from typing import Any

import numpy as np
import pytest

from kvviz.events import EVENT_TYPES
from kvviz.log.digest import digest
from tests.support.browser import ask
from tests.support.page_logs import header as make_header
from tests.support.page_logs import make_log, positions
from tests.support.serving import Load, run_load

SETUP = """async ({header, records, checkpoint, firstSeq}) => {
  const {Log} = await import('/static/js/core/log.js');
  const {Timeline} = await import('/static/js/core/timeline.js');
  const {toCheckpoint} = await import('/static/js/core/checkpoint.js');
  const log = new Log();
  const timeline = new Timeline(log);
  const place = {firstSeq: firstSeq ?? 0, checkpoint: checkpoint ?? null};
  log.begin({header, logId: 'a', sessionId: 's', kind: 'recording', ...place});
  log.append(records);
  Object.assign(window, {log, timeline, toCheckpoint});
}"""


WORLDS = "(order) => order.map((k) => toCheckpoint(timeline.keyframes.at(k)))"


@pytest.fixture
def page(lens_page: Any) -> Any:
    return lens_page


LOGS = {
    "one at a time, small pool": {},
    "blocks of one": {"block_size": 1, "num_blocks": 40},
    "three at once": {"max_running": 3, "num_blocks": 40},
    "windowed": {"window": 6, "num_blocks": 16},
    "blocks of seven": {"block_size": 7, "num_blocks": 9, "prefill_chunk": 5},
}


@pytest.mark.parametrize("name", LOGS)
def test_fold_equals_python_at_every_position_in_any_order(page: Any, name: str) -> None:
    header, records = make_log(**LOGS[name])
    expected = positions(header, records)
    ask(page, SETUP, {"header": header, "records": records})
    last = len(expected) - 1
    assert page.evaluate("timeline.head") == last
    order = [*range(last, -1, -1), *range(0, last + 1, 3), *range(last + 1)]
    for position, found in zip(order, ask(page, WORLDS, order), strict=True):
        assert found == expected[position], f"position {position}"
    assert page.evaluate("timeline.keyframes.advance(1e9)")
    assert page.evaluate("timeline.keyframes.wrong") is None
    finished = [record[2] for record in records if record[2]["type"] == "step_finished"]
    checks = page.evaluate("Array.from({length: timeline.head}, (_, k) => timeline.keyframes.at(k + 1).check)")
    assert [check["computed"] for check in checks] == [event["digest"] for event in finished]
    assert all(check["ok"] for check in checks)


@functools.cache
def load_of(seed: int, eviction: str, preemption: str = "swap", **fixed: Any) -> Load:
    """Many requests that fork, copy, are preempted, swapped, offloaded and fetched."""
    num_host_blocks = fixed.pop("num_host_blocks", 8)
    return run_load(
        seed, eviction=eviction, preemption=preemption, offload=True, num_host_blocks=num_host_blocks, **fixed
    )


LOADS: dict[str, dict[str, Any]] = {
    "lru": {"seed": 20},
    "fifo": {"seed": 6},
    "lfu": {"seed": 29},
    "random": {"seed": 56},
    "lru, recompute": {"seed": 23, "preemption": "recompute", "num_host_blocks": 40},
    "fifo, windowed": {"seed": 25, "window": 5},
}


def open_load(page: Any, load: Load, records: list[list[Any]] | None = None) -> dict[str, Any]:
    header = make_header(load.config)
    ask(page, SETUP, {"header": header, "records": load.records if records is None else records})
    return header


@pytest.mark.parametrize("name", LOADS)
def test_fold_of_many_requests_equals_python(page: Any, name: str) -> None:
    options = dict(LOADS[name])
    load = load_of(options.pop("seed"), name.split(",")[0], **options)
    header = open_load(page, load)
    expected = positions(header, load.records, every=5)
    assert page.evaluate("timeline.keyframes.advance(1e9)")
    assert page.evaluate("timeline.keyframes.wrong") is None
    finished = [record[2] for record in load.records if record[2]["type"] == "step_finished"]
    checks = page.evaluate("Array.from({length: timeline.head}, (_, k) => timeline.keyframes.at(k + 1).check)")
    assert [check["computed"] for check in checks] == [event["digest"] for event in finished]
    for position, found in zip(expected, ask(page, WORLDS, list(expected)), strict=True):
        assert found == expected[position], f"position {position}"
    last = max(expected)
    middle = expected[last // 10 * 5]
    rest = load.records[middle["seq"] + 1 :]
    ask(page, SETUP, {"header": header, "records": rest, "checkpoint": middle, "firstSeq": middle["seq"] + 1})
    assert ask(page, WORLDS, [last]) == [expected[last]]


def test_the_loads_have_every_type() -> None:
    types = {record[2]["type"] for record in load_of(20, "lru").records}
    of_lanes = {"kv_forgotten", "lane_measured", "lane_errors_measured", "needle_sought", "probe_timed"}  # compare_logs
    assert types == {cls.__dataclass_fields__["type"].default for cls in EVENT_TYPES} - {"miss_measured"} - of_lanes


def test_fold_continues_from_a_checkpoint(page: Any) -> None:
    header, records = make_log()
    expected = positions(header, records)
    middle = expected[len(expected) // 2]
    rest = records[middle["seq"] + 1 :]
    ask(page, SETUP, {"header": header, "records": rest, "checkpoint": middle, "firstSeq": middle["seq"] + 1})
    assert page.evaluate("[timeline.first, timeline.head]") == [middle["step"], len(expected) - 1]
    for position in (middle["step"], len(expected) - 1, middle["step"] + 3):
        assert ask(page, WORLDS, [position]) == [expected[position]]


def _tampered(records: list[list[Any]], kind: str, change: Any) -> tuple[list[list[Any]], int]:
    """The records with one event of a kind changed, in the middle of the log, and the step it belongs to."""
    records = copy.deepcopy(records)
    places = [i for i, record in enumerate(records) if record[2]["type"] == kind]
    place = places[len(places) // 2]
    change(records[place][2])
    return records, sum(record[2]["type"] == "step_started" for record in records[: place + 1])


LIES = {
    "a sampled token": ("token_sampled", lambda event: event.update(token_id=event["token_id"] + 1)),
    "an allocated block": ("block_allocated", lambda event: event.update(block_id=(event["block_id"] + 1) % 12)),
    "a hash": ("block_cached", lambda event: event.update(hash="ff" + event["hash"][2:])),
    "a slot": ("kv_written", lambda event: event["slots"].__setitem__(0, (event["slots"][0] + 1) % 48)),
    "an evicted block": ("block_evicted", lambda event: event.update(block_id=(event["block_id"] + 5) % 12)),
    "the order of the free queue": ("blocks_released", lambda event: event["appended"].reverse()),
    "a digest": ("step_finished", lambda event: event.update(digest="0" * 16)),
    "a missing field": ("kv_written", lambda event: event.pop("positions")),
}


@pytest.mark.parametrize("name", LIES)
def test_one_altered_event_is_found(page: Any, name: str) -> None:
    header, records = make_log(num_requests=8)
    lying, step = _tampered(records, *LIES[name])
    ask(page, SETUP, {"header": header, "records": lying})
    page.evaluate("timeline.keyframes.advance(1e9)")
    wrong = page.evaluate("timeline.keyframes.wrong")
    assert wrong is not None
    assert wrong["step"] == step
    before = page.evaluate("k => timeline.keyframes.at(k).check?.ok ?? true", step - 1)
    after = page.evaluate("k => timeline.keyframes.at(k).check.ok", step)
    assert before is True
    assert after is False


def other_preemption(event: dict[str, Any]) -> None:
    """Recompute for swap, or swap for recompute."""
    event["reason"]["code"] = {"swap": "recompute", "recompute": "swap"}[event["reason"]["code"]]


LOAD_LIES = {
    "a parent": ("request_forked", lambda event: event.update(parent_id=event["parent_id"] + 1)),
    "a fork's block": ("request_forked", lambda event: event["block_ids"].__setitem__(0, event["block_ids"][0] + 1)),
    "a fork's tokens": ("request_forked", lambda event: event.update(num_computed=event["num_computed"] - 1)),
    "a victim": ("request_preempted", lambda event: event.update(request_id=event["request_id"] - 1)),
    "lost tokens": ("request_preempted", lambda event: event["reason"].update(num_lost_tokens=0)),
    "how a victim waits": ("request_preempted", other_preemption),
    "a host block": ("blocks_swapped_out", lambda event: event["host_ids"].__setitem__(0, 77)),
    "a block swapped out": ("blocks_swapped_out", lambda event: event["block_ids"].__setitem__(0, 0)),
    "a host block back": ("blocks_swapped_in", lambda event: event["host_ids"].__setitem__(0, 77)),
    "who comes back": ("blocks_swapped_in", lambda event: event.update(request_id=0)),
    "a copy": ("block_copied", lambda event: event.update(block_id=(event["block_id"] + 1) % 10)),
    "a copy's source": ("block_copied", lambda event: event.update(from_block_id=event["block_id"])),
    "an offloaded hash": ("block_offloaded", lambda event: event.update(hash="ff" + event["hash"][2:])),
    "a fetched block": ("block_fetched", lambda event: event.update(host_id=77)),
    "what the host forgets": ("host_evicted", lambda event: event.update(hash="ff" + event["hash"][2:])),
    "a missing list": ("blocks_swapped_in", lambda event: event.pop("host_ids")),
}


@pytest.mark.parametrize("name", LOAD_LIES)
def test_one_altered_event_of_many_requests_is_found(page: Any, name: str) -> None:
    load = load_of(6, "fifo")
    lying, step = _tampered(load.records, *LOAD_LIES[name])
    open_load(page, load, lying)
    page.evaluate("timeline.keyframes.advance(1e9)")
    wrong = page.evaluate("timeline.keyframes.wrong")
    assert wrong is not None
    assert step <= wrong["step"] <= step + 1


def test_digest_words_equal_python(page: Any) -> None:
    words = np.random.default_rng(0).integers(0, 2**32, 501, dtype=np.uint32)
    for count in (0, 1, 2, 500, 501):
        found = page.evaluate(
            "async words => (await import('/static/js/core/digest.js')).digestWords(words)", words[:count].tolist()
        )
        assert found == digest(words[:count])


def test_every_event_type_has_a_case(page: Any) -> None:
    known = page.evaluate("async () => (await import('/static/js/core/reducer.js')).knownTypes")
    assert set(known) == {cls.__dataclass_fields__["type"].default for cls in EVENT_TYPES}


def test_unknown_events_are_counted(page: Any) -> None:
    header, records = make_log(num_requests=1)
    records = [*records, [len(records), 0, {"type": "from_the_future", "x": 1}]]
    ask(page, SETUP, {"header": header, "records": records})
    found = page.evaluate("[timeline.keyframes.at(timeline.head).numUnknown, timeline.keyframes.wrong]")
    assert found == [1, None]


def test_log_skips_repeats_and_stops_at_gaps(page: Any) -> None:
    header, records = make_log(num_requests=2)
    ask(page, SETUP, {"header": header, "records": records[:20]})
    found = page.evaluate(
        """records => {
          const added = [[10, 30], [0, 30], [31]].map(range => log.append(records.slice(...range)));
          const gap = log.gap;
          log.append(records.slice(25));
          return {added, gap, last: log.lastSeq, dense: log.records.every((record, i) => record[0] === i)};
        }""",
        records,
    )
    assert found["added"] == [10, 0, 0]
    assert found["gap"] == {"expected": 30, "got": 31}
    assert found["last"] == len(records) - 1
    assert found["dense"]


def test_playing_passes_every_position_and_seeking_is_the_same(page: Any) -> None:
    header, records = make_log(num_requests=3)
    expected = positions(header, records)
    ask(page, SETUP, {"header": header, "records": records})
    played = page.evaluate(
        """() => {
          const out = [];
          timeline.play();
          for (let guard = 0; timeline.playing && guard < 100000; guard++) {
            const scene = timeline.scene();
            if (out.length === scene.position) out.push(JSON.stringify(toCheckpoint(scene.before)));
            if (scene.step !== null) {
              const next = scene.position + 1;
              if (scene.step.step !== next || scene.after.step !== next) throw new Error('scene');
              if (!(scene.progress > 0 && scene.progress < 1)) throw new Error('progress ' + scene.progress);
            }
            timeline.tick(70);
          }
          out.push(JSON.stringify(toCheckpoint(timeline.scene().before)));
          return out;
        }"""
    )
    assert [json.loads(text) for text in played] == list(expected.values())


def test_pinned_cursor_follows_and_gives_up_the_way_when_outrun(page: Any) -> None:
    header, records = make_log(num_requests=2)
    ask(page, SETUP, {"header": header, "records": []})
    found = page.evaluate(
        """records => {
          timeline.pin();
          const end = records.findIndex(record => record[2].type === 'step_finished') + 1;
          log.append(records.slice(0, end));
          const moving = timeline.moving;
          timeline.tick(100);
          const way = timeline.progress > 0 && timeline.position === 0;
          log.append(records.slice(end));
          timeline.tick(16);
          const outrun = [timeline.position === timeline.head, timeline.progress, timeline.outrun > 0];
          timeline.seek(2);
          const unpinned = !timeline.pinned;
          return {moving, way, outrun, unpinned, position: timeline.position};
        }""",
        records,
    )
    assert found == {"moving": True, "way": True, "outrun": [True, 0, True], "unpinned": True, "position": 2}


def test_phases_divide_every_step(page: Any) -> None:
    header, records = make_log(num_requests=6)
    ask(page, SETUP, {"header": header, "records": records})
    found = page.evaluate(
        """async () => {
          const phases = await import('/static/js/core/phases.js');
          const {phasesOf, layerAt, progressOfLayer, layerOrder, numLayersWritten} = phases;
          const bad = [];
          const durations = {};
          for (let k = 1; k <= timeline.head; k++) {
            const step = log.step(k);
            const {blocks, layers, sample, release, duration} = phasesOf(step);
            const edges = [blocks, layers, sample, release].flat();
            const falls = edges.some((edge, i) => i > 0 && edge < edges[i - 1] - 1e-12);
            if (edges[0] !== 0 || edges[7] !== 1 || falls) bad.push([k, edges]);
            layerOrder(step).forEach((layer, i) => {
              const moment = layerAt(step, progressOfLayer(step, i));
              if (moment?.layer !== layer || moment.stage !== 'read') bad.push([k, layer, moment]);
            });
            if (numLayersWritten(step, 0) !== 0 || numLayersWritten(step, 1) !== 6) bad.push([k, 'written']);
            const rare = step.evicted.length + step.shared.length + step.released.length + step.allocated.length;
            if (rare === 0) durations[step.kind] = duration;
          }
          return {bad, durations};
        }"""
    )
    assert found["bad"] == []
    assert found["durations"]["decode"] == pytest.approx(900)


def test_packs_are_read(page: Any) -> None:
    halves = np.array([0.0, -2.5, 65504, 6e-8, np.nan, np.inf], dtype=np.float16)
    parts = {
        "mean": np.arange(7, dtype=np.uint8).reshape(1, 7),
        "key_norm": halves.reshape(1, 6),
        "mean_scale": np.array([0.25], dtype=np.float32),
    }
    meta: dict[str, Any] = {"kind": "step", "step": 3, "layer": 0, "arrays": []}
    body = b""
    names = {"uint8": "u8", "float16": "f16", "float32": "f32"}
    for name, array in parts.items():
        meta["arrays"].append(
            {"name": name, "dtype": names[array.dtype.name], "shape": list(array.shape), "offset": len(body)}
        )
        body += array.tobytes() + b"\0" * (-array.nbytes % 4)
    text = json.dumps(meta).encode()
    text += b" " * (-len(text) % 4)
    pack = struct.pack("<I", len(text)) + text + body
    found = page.evaluate(
        """async bytes => {
          const {decodePack} = await import('/static/js/core/packs.js');
          const {meta, arrays} = decodePack(new Uint8Array(bytes).buffer);
          let cut = '';
          try { decodePack(new Uint8Array(bytes.slice(0, -8)).buffer); } catch (error) { cut = error.name; }
          const norm = [...arrays.key_norm].map(String);
          return {step: meta.step, mean: [...arrays.mean], scale: [...arrays.mean_scale], norm, cut};
        }""",
        list(pack),
    )
    assert found["step"] == 3
    assert found["mean"] == list(range(7))
    assert found["scale"] == [0.25]
    assert [float(text) for text in found["norm"]] == pytest.approx([float(x) for x in halves], nan_ok=True)
    assert found["cut"] == "RangeError"


def test_selections_survive_the_address(page: Any) -> None:
    found = page.evaluate(
        """async () => {
          const {parseSelection, formatSelection} = await import('/static/js/ui/store.js');
          const all = [
            {kind: 'token', request: 2, position: 7}, {kind: 'entry', request: 0, position: 30, layer: 14},
            {kind: 'block', block: 7}, {kind: 'layer', layer: 3}, {kind: 'head', layer: 1, head: 5},
            {kind: 'request', request: 1},
          ];
          const bad = ['', 'token', 'token:x', 'head:3', 'entry:1.2', 'block:-1', '<script>'].map(parseSelection);
          return {same: all.every(s => JSON.stringify(parseSelection(formatSelection(s))) === JSON.stringify(s)), bad};
        }"""
    )
    assert found["same"]
    assert found["bad"] == [None] * 7


def test_a_text_agrees_with_a_count_of_one(page: Any) -> None:
    found = page.evaluate(
        """async cases => {
          const {fill} = await import('/static/js/ui/format.js');
          const {plain, segments} = await import('/static/js/ui/text.js');
          return cases.map(([text, values]) => [fill(text, values), plain(segments(text, values))]);
        }""",
        [[text, values] for text, values, _ in AGREEMENTS],
    )
    assert found == [[wanted, wanted] for _, _, wanted in AGREEMENTS]


AGREEMENTS = [
    ("{n} tokens are cached", {"n": 1}, "1 token is cached"),
    ("{n} tokens are cached", {"n": 2}, "2 tokens are cached"),
    ("{n} tokens are cached", {"n": 11}, "11 tokens are cached"),
    ("{hit} of {n} tokens hit", {"hit": 0, "n": 1}, "0 of 1 token hit"),
    ("needs {n} blocks and {free} are free", {"n": 1, "free": 1}, "needs 1 block and 1 is free"),
    ("{n} full blocks lose their prefixes", {"n": 1}, "1 full block loses their prefixes"),
    ("its {n} least recently used prefixes", {"n": 1}, "its 1 least recently used prefix"),
    ("Median of {n} times between tokens", {"n": 1}, "Median of 1 time between tokens"),
    ("{n} entries, {m} prefixes", {"n": 1, "m": 1}, "1 entry, 1 prefix"),
    ("step {n} are free", {"n": 1}, "step 1 are free"),
    ("In step {n} blocks are freed", {"n": 1}, "In step 1 blocks are freed"),
    ("{none} tokens", {}, "{none} tokens"),
]


def test_every_text_of_the_page_agrees_with_a_count_of_one(page: Any) -> None:
    """All placeholders become 1, and no text may then say `1 tokens`."""
    texts = page.evaluate(
        """async () => {
          const {fill} = await import('/static/js/ui/format.js');
          const catalogues = ['main', 'calculator', 'traces'].map(name => import(`/static/js/strings/${name}.js`));
          const out = [], ones = new Proxy({}, {has: () => true, get: () => 1});
          const walk = value => {
            if (typeof value === 'string') out.push(fill(value, ones));
            else if (value && typeof value === 'object') Object.values(value).forEach(walk);
          };
          (await Promise.all(catalogues)).forEach(walk);
          return out;
        }"""
    )
    assert len(texts) > 1_000
    wrong = re.compile(
        r"(?<!step )(?<!block )(?<!token )(?<!layer )\b1 (?!needed |over )(?:[a-zA-Z-]+ )?(?:tokens|blocks|requests"
        r"|steps|entries|layers|lanes|heads|slots|references|positions|columns|prefixes|sequences|GPUs|bytes|hits|prompts"
        r"|chunks|models|caches|holes|channels|events|times|groups|policies|lines|sessions|pages|queries)\b"
    )
    found = [text for text in texts if wrong.search(text)]
    assert found == [], "\n".join(found)


CAPTIONS = """async () => {
  const {captionOf} = await import('/static/js/captions/caption.js');
  const {plain} = await import('/static/js/ui/text.js');
  const out = {};
  for (let k = 0; k <= timeline.head; k++) {
    for (const progress of [0, 0.02, 0.2, 0.4, 0.6, 0.8, 0.95, 0.999]) {
      for (const moving of [true, false]) {
        timeline.seek(k, k < timeline.head ? progress : 0);
        const caption = captionOf(timeline.scene(), log, moving);
        for (const length of ['short', 'long']) (out[caption.kind] ??= new Set()).add(plain(caption[length]));
      }
    }
  }
  return Object.fromEntries(Object.entries(out).map(([kind, texts]) => [kind, [...texts]]));
}"""


def captions_of(page: Any) -> dict[str, list[str]]:
    """All sentences of the log on the page, by kind; none is empty or has a hole."""
    texts: dict[str, list[str]] = ask(page, CAPTIONS)
    for kind, sentences in texts.items():
        for text in sentences:
            assert text.strip(), kind
            assert not any(sign in text for sign in ("undefined", "{", "NaN", "  ", " ,", "..")), text
    return texts


def test_every_step_has_a_caption_at_every_moment(page: Any) -> None:
    header, records = make_log(num_requests=8, num_blocks=20)
    ask(page, SETUP, {"header": header, "records": records})
    texts = captions_of(page)
    assert {"waiting", "hit", "evicted", "allocated", "prefill", "decode", "sampled", "finished"} <= set(texts)


@pytest.mark.parametrize(("seed", "eviction", "preemption"), [(29, "lfu", "swap"), (23, "lru", "recompute")])
def test_every_decision_has_its_sentence(page: Any, seed: int, eviction: str, preemption: str) -> None:
    num_host_blocks = 8 if preemption == "swap" else 40
    open_load(page, load_of(seed, eviction, preemption, num_host_blocks=num_host_blocks))
    texts = captions_of(page)
    assert {"preempted", "forked", "evicted", "hit", "miss", "allocated", "finished"} <= set(texts)
    whole = " ".join(text for sentences in texts.values() for text in sentences)
    parts = ["in the budget", "isn’t admitted", "from the host tier in", "branches off"]
    if preemption == "swap":
        parts += ["the host tier returns its", "The host tier takes its", "least frequently used)", "Count 2 → 1"]
    else:
        parts += ["must be recomputed", "It keeps its"]
    for part in parts:
        assert part in whole, part
