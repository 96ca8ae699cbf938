"""The fold in Python: right at every step, and red as soon as one event of a run is not what the engine said."""

from __future__ import annotations

import copy
import functools
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvviz.config import EngineConfig
from kvviz.engine.engine import Engine
from kvviz.events import EVENT_TYPES, Event
from kvviz.log import world as world_module
from kvviz.log.schema import tag_of
from kvviz.log.world import World
from tests.support.serving import Load, run_load
from tests.support.stub_engine import as_records, busy_log, stub_engine

Record = list[Any]
WINDOWS = (None, 5)


@functools.cache
def run_of(window: int | None) -> tuple[EngineConfig, list[Record]]:
    config, events = busy_log(60, window=window)
    return config, as_records(events)


@functools.cache
def load() -> Load:
    """Many requests that fork, copy, are preempted, swapped, offloaded and fetched, under a policy with places."""
    return run_load(6, preemption="swap", offload=True, num_host_blocks=8)


def fold(config: EngineConfig, records: list[Record]) -> World:
    world = World(config.num_blocks, config.block_size)
    for record in records:
        world.apply(record)
    return world


def turns_red(world: World, records: list[Record]) -> bool:
    """Whether the check of some step fails, or the world breaks, while these records are folded."""
    for record in records:
        world.apply(record)
        if world.broken is not None or (world.check is not None and not world.check["ok"]):
            return True
    return False


def shifted(*path: str | int) -> Callable[[dict[str, Any]], None]:
    """One more in an integer of the event, or in every one of a list."""

    def change(event: dict[str, Any]) -> None:
        parent: Any = event
        for key in path[:-1]:
            parent = parent[key]
        value = parent[path[-1]]
        parent[path[-1]] = [item + 1 for item in value] if isinstance(value, list) else value + 1

    return change


def other_hash(event: dict[str, Any]) -> None:
    event["hash"] = "".join(f"{15 - int(digit, 16):x}" for digit in event["hash"])


def other_digest(event: dict[str, Any]) -> None:
    event["digest"] = event["digest"][:-1] + ("0" if event["digest"][-1] != "0" else "1")


def exchanged(field: str) -> Callable[[dict[str, Any]], None]:
    """Two entries of a list in each other's place."""

    def change(event: dict[str, Any]) -> None:
        event[field][0], event[field][-1] = event[field][-1], event[field][0]

    return change


def without_last(*fields: str) -> Callable[[dict[str, Any]], None]:
    def change(event: dict[str, Any]) -> None:
        for field in fields:
            event[field] = event[field][:-1]

    return change


def other_end(event: dict[str, Any]) -> None:
    """Blocks enter the free queue at the other end."""
    event["prepended"], event["appended"] = event["appended"], event["prepended"]


def later_window(event: dict[str, Any]) -> None:
    if event["reason"]["code"] == "window":
        event["reason"]["window_start"] += 1


#: What the digest or a contradiction must notice, per event type.
CHANGES: dict[str, list[Callable[[dict[str, Any]], None]]] = {
    "request_added": [
        shifted("request_id"),
        shifted("token_ids", 0),
        shifted("token_ids", -1),
        without_last("token_ids"),
        without_last("pieces"),
        without_last("token_ids", "pieces"),
    ],
    "step_started": [shifted("step")],
    "request_started": [shifted("request_id"), shifted("num_hit_tokens")],
    "block_shared": [shifted("request_id"), shifted("logical_index"), shifted("block_id")],
    "block_evicted": [shifted("block_id"), other_hash, shifted("reason", "free_since_step")],
    "block_allocated": [shifted("request_id"), shifted("logical_index"), shifted("block_id")],
    "block_cached": [shifted("request_id"), shifted("logical_index"), shifted("block_id"), other_hash],
    "step_scheduled": [shifted("chunks", 0, "start"), shifted("chunks", 0, "request_id")],
    "kv_written": [
        shifted("request_id"),
        shifted("positions"),
        shifted("positions", -1),
        shifted("slots", 0),
        shifted("slots", -1),
        exchanged("slots"),
        exchanged("positions"),
        without_last("slots"),
        without_last("slots", "positions"),
    ],
    "token_sampled": [shifted("request_id"), shifted("position"), shifted("token_id")],
    "request_finished": [shifted("request_id")],
    "blocks_released": [
        shifted("request_id"),
        shifted("block_ids", 0),
        exchanged("block_ids"),
        shifted("logical_indices", -1),
        without_last("block_ids", "logical_indices"),
        without_last("prepended"),
        without_last("appended"),
        exchanged("appended"),
        other_end,
        later_window,
    ],
    "prefix_cache_reset": [without_last("block_ids")],
    "step_finished": [shifted("step"), other_digest],
}


def nobody(event: dict[str, Any]) -> None:
    event["request_id"] = 10**6


def nearer_the_head(event: dict[str, Any]) -> None:
    """The first block that is put back under a policy stands one place before where it was put."""
    if event["places"][0] > 0:
        event["places"][0] -= 1


ALL_LISTS = ("logical_indices", "block_ids", "host_ids")
MOVES = [
    nobody,
    shifted("request_id"),
    *(shifted(field) for field in ALL_LISTS),
    without_last(*ALL_LISTS),
    without_last("host_ids"),
]
#: The same for what only many requests at once do.
LOAD_CHANGES: dict[str, list[Callable[[dict[str, Any]], None]]] = {
    "request_forked": [
        nobody,
        shifted("request_id"),
        shifted("parent_id"),
        shifted("block_ids", 0),
        shifted("num_computed"),
        shifted("window_start"),
        without_last("block_ids"),
    ],
    "request_reprioritised": [nobody],
    "request_preempted": [
        nobody,
        shifted("request_id"),
        shifted("reason", "num_lost_tokens"),
        shifted("reason", "num_free"),
    ],
    "blocks_swapped_out": MOVES,
    "blocks_swapped_in": MOVES,
    "block_copied": [
        shifted("request_id"),
        shifted("logical_index"),
        shifted("from_block_id"),
        shifted("block_id"),
    ],
    "block_offloaded": [shifted("block_id"), shifted("host_id"), other_hash],
    "block_fetched": [shifted("host_id"), other_hash],
    "host_evicted": [shifted("host_id"), other_hash],
    "blocks_released": [nearer_the_head],
}
#: Types of which no field changes the state of the cache; they say why and how long.
EXPLANATIONS = {"prefix_looked_up", "miss_measured"}
#: Types of comparisons and experiments, altered in tests/test_comparison.py.
OF_LANES = {"kv_forgotten", "lane_measured", "lane_errors_measured", "needle_sought", "probe_timed"}


def altered(records: list[Record], change: Callable[[dict[str, Any]], None], kind: str) -> Iterator[tuple[int, Record]]:
    """Each record of a kind, with one thing changed; those where there is nothing to change are left out."""
    for index, record in enumerate(records):
        if record[2]["type"] == kind:
            changed = copy.deepcopy(record)
            try:
                change(changed[2])
            except (IndexError, TypeError):
                continue
            if changed != record and not is_undone(records, index, change):
                yield index, changed


def is_undone(records: list[Record], index: int, change: Callable[[dict[str, Any]], None]) -> bool:
    """Whether the same step takes back what was changed, before any digest: no reader could ever see it."""
    event = records[index][2]
    rest = (record[2] for record in records[index + 1 :])
    rest_of_step = list(itertools.takewhile(lambda after: after["type"] != "step_finished", rest))
    if event["type"] == "block_cached":
        resets = [after["block_ids"] for after in rest_of_step if after["type"] == "prefix_cache_reset"]
        return any(event["block_id"] in block_ids for block_ids in resets)
    ends = [after["request_id"] for after in rest_of_step if after["type"] == "request_finished"]
    if event["type"] == "request_forked":
        return event["request_id"] in ends
    return change is later_window and event["request_id"] in ends


def test_every_type_is_altered_or_an_explanation() -> None:
    assert {tag_of(event) for event in EVENT_TYPES} == {*CHANGES, *LOAD_CHANGES, *EXPLANATIONS, *OF_LANES}


@pytest.mark.parametrize("window", WINDOWS)
def test_the_run_has_every_type_and_is_green_at_every_step(window: int | None) -> None:
    config, records = run_of(window)
    assert set(CHANGES) <= {record[2]["type"] for record in records}
    world = World(config.num_blocks, config.block_size)
    num_checked = 0
    for record in records:
        world.apply(record)
        if record[2]["type"] == "step_finished":
            num_checked += 1
            assert world.check == {
                "step": num_checked,
                "expected": record[2]["digest"],
                "computed": record[2]["digest"],
                "ok": True,
            }
    assert num_checked == 60
    assert world.broken is None
    assert world.num_unknown == 0


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", CHANGES)
def test_one_altered_event_turns_the_world_red(kind: str, window: int | None) -> None:
    _, records = run_of(window)
    befores = checkpoints_before(kind, window)
    for change in CHANGES[kind]:
        num_altered = 0
        for index, changed in altered(records, change, kind):
            num_altered += 1
            world = World.from_json(json.loads(befores[index]))
            assert turns_red(world, [changed, *records[index + 1 :]]), (
                f"record {index}: {changed} instead of {records[index]}"
            )
        assert num_altered or (window is None and change is later_window), f"{change} changes nothing of {kind}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOAD_CHANGES)
def test_one_altered_event_of_many_requests_turns_the_world_red(kind: str) -> None:
    records, befores = load().records, load_checkpoints(kind)
    for change in LOAD_CHANGES[kind]:
        num_altered = 0
        for index, changed in altered(records, change, kind):
            num_altered += 1
            world = World.from_json(json.loads(befores[index]))
            assert turns_red(world, [changed, *records[index + 1 :]]), (
                f"record {index}: {changed} instead of {records[index]}"
            )
        assert num_altered, f"{change} changes nothing of {kind}"


@pytest.mark.parametrize("kind", [kind for kind in LOAD_CHANGES if kind != "request_reprioritised"])
def test_a_dropped_event_of_many_requests_turns_the_world_red(kind: str) -> None:
    records = load().records
    for index, before in load_checkpoints(kind).items():
        if is_undone(records, index, nobody):
            continue
        renumbered = [[seq - 1, t_us, event] for seq, t_us, event in records[index + 1 :]]
        assert turns_red(World.from_json(json.loads(before)), renumbered), f"record {index}: {records[index]}"


@functools.cache
def load_checkpoints(kind: str) -> dict[int, str]:
    return _checkpoints(load().config, load().records, kind)


@functools.cache
def checkpoints_before(kind: str, window: int | None) -> dict[int, str]:
    return _checkpoints(*run_of(window), kind)


def _checkpoints(config: EngineConfig, records: list[Record], kind: str) -> dict[int, str]:
    """The world before each record of a kind."""
    world, found = World(config.num_blocks, config.block_size), {}
    for index, record in enumerate(records):
        if record[2]["type"] == kind:
            found[index] = json.dumps(world.to_json())
        world.apply(record)
    return found


@pytest.mark.parametrize("kind", [*CHANGES, "prefix_looked_up"])
def test_a_dropped_event_turns_the_world_red(kind: str) -> None:
    """Left out it is a gap; left out and renumbered it is noticed when it changed anything."""
    _, records = run_of(None)
    for index, before in checkpoints_before(kind, None).items():
        if index == len(records) - 1:
            continue  # nothing follows that would show it
        assert turns_red(World.from_json(json.loads(before)), records[index + 1 :])
        if kind not in EXPLANATIONS | {"step_scheduled"}:
            renumbered = [[seq - 1, t_us, event] for seq, t_us, event in records[index + 1 :]]
            assert turns_red(World.from_json(json.loads(before)), renumbered), f"record {index}: {records[index]}"


def test_a_repeated_record_and_two_in_each_others_place_turn_the_world_red() -> None:
    config, records = run_of(None)
    for index in range(0, len(records) - 1, 7):
        world = fold(config, records[: index + 1])
        assert world.broken is None
        assert turns_red(world, [records[index]])
        world = fold(config, records[:index])
        assert turns_red(world, [records[index + 1], records[index]])


def test_the_first_contradiction_is_kept() -> None:
    config, records = run_of(None)
    world = fold(config, records[:10])
    world.apply(records[12])
    first = world.broken
    assert first == "record 12: record 10 is missing"
    world.apply(records[20])
    assert world.broken == first


def test_unknown_types_are_counted_and_skipped() -> None:
    config, records = run_of(None)
    world = fold(config, records)
    before = world.digest()
    for kind in ("block_painted", "digest", "__init__", ""):
        world.apply([world.seq + 1, 0, {"type": kind}])
    assert (world.num_unknown, world.digest(), world.broken) == (4, before, None)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_checkpoint_anywhere_goes_on_to_the_same_world(window: int | None) -> None:
    config, records = run_of(window)
    whole = fold(config, records).to_json()
    for cut in range(0, len(records), 41):
        world = World.from_json(json.loads(json.dumps(fold(config, records[:cut]).to_json())))
        for record in records[cut:]:
            world.apply(record)
        assert world.to_json() == whole


@pytest.mark.parametrize("nonsense", [None, "x", "5", -1, 2**70, 1.5, [], [[]], {}, [2**40], [None], True])
def test_nonsense_breaks_the_world_and_nothing_else(nonsense: object) -> None:
    _, records = run_of(5)
    for kind in CHANGES:
        index, before = next(iter(checkpoints_before(kind, 5).items()))
        seq, _, event = records[index]
        for field in set(event) - {"type"}:
            world = World.from_json(json.loads(before))
            for after in ([seq, 0, {**event, field: nonsense}], *records[index + 1 : index + 20]):
                world.apply(after)
            world.to_json()


def _run_many(num_requests: int) -> tuple[Engine, list[Event]]:
    events: list[Event] = []
    engine, _ = stub_engine(EngineConfig(num_blocks=4, block_size=2), emit=events.append)
    for _ in range(num_requests):
        engine.add_request([1, 2, 3], max_new_tokens=2)
    return engine, events


@pytest.mark.parametrize("num_requests", [3, 5, 6, 7, 9, 10, 30])
def test_old_requests_are_only_counted(num_requests: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "MAX_FINISHED_REQUESTS", 9)
    engine, events = _run_many(num_requests)
    while engine.step():
        pass
    world = fold(engine.config, as_records(events))
    assert world.broken is None
    assert world.num_finished == engine.num_finished == num_requests
    assert sorted(world.requests) == list(range(max(0, num_requests - 9), num_requests))


def test_the_oldest_request_may_end_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "MAX_FINISHED_REQUESTS", 9)
    engine, events = _run_many(12)
    engine.step()
    for request_id in range(1, 11):
        engine.cancel(request_id)
    engine.cancel(0)
    engine.step()
    world = fold(engine.config, as_records(events))
    assert world.broken is None
    assert world.digest() == engine.digest()
