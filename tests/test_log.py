"""The log: dense, encoded once, and whole for readers in other threads while it folds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from kvviz.config import EngineConfig
from kvviz.events import StepStarted
from kvviz.log.event_log import EventLog
from kvviz.log.world import World
from tests.support.stub_engine import as_records, busy_log, stub_engine


def filled(num_records: int, **options: Any) -> EventLog:
    log = EventLog(**options)
    for step in range(num_records):
        assert log.append(StepStarted(step=step + 1)) == step
    return log


def seqs(lines: list[bytes]) -> list[int]:
    return [orjson.loads(line)[0] for line in lines]


def test_an_empty_log() -> None:
    log = EventLog()
    assert (log.first_seq, log.head_seq, log.checkpoint()) == (0, -1, None)
    assert log.encoded(-1) == []
    assert log.records() == []
    assert log.log_id != EventLog().log_id


def test_seq_is_dense_from_0_and_time_never_goes_back() -> None:
    config, events = busy_log(20)
    log = EventLog(config.num_blocks, config.block_size)
    for event in events:
        log.append(event)
    records = log.records()
    assert [seq for seq, _, _ in records] == list(range(len(events)))
    times = [t_us for _, t_us, _ in records]
    assert all(isinstance(t_us, int) for t_us in times)
    assert times == sorted(times)
    assert times[0] >= 0
    assert [[seq, 0, event] for seq, _, event in records] == as_records(events)
    assert log.head_seq == len(events) - 1


@pytest.mark.parametrize(
    ("after", "limit", "expected"),
    [
        (-1, 4, [0, 1, 2, 3]),
        (-5, 2, [0, 1]),
        (0, 3, [1, 2, 3]),
        (6, 100, [7, 8, 9]),
        (8, 1, [9]),
        (9, 5, []),
        (50, 5, []),
        (3, 0, []),
    ],
)
def test_encoded_starts_after_the_given_seq(after: int, limit: int, expected: list[int]) -> None:
    assert seqs(filled(10).encoded(after, limit)) == expected


def test_records_are_encoded_once() -> None:
    log = filled(5)
    first, second = log.encoded(-1), log.encoded(-1)
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert log.records(2) == [orjson.loads(line) for line in first[3:]]


def test_the_oldest_tenth_is_folded() -> None:
    log = filled(20, max_records=20)
    assert (log.first_seq, log.checkpoint()) == (0, None)
    log.append(StepStarted(step=21))
    assert (log.first_seq, log.head_seq) == (2, 20)
    checkpoint = log.checkpoint()
    assert checkpoint is not None
    assert checkpoint["seq"] == 1
    assert seqs(log.encoded(-1)) == seqs(log.encoded(1)) == list(range(2, 21))
    assert seqs(log.encoded(0, 2)) == [2, 3]
    assert seqs(log.encoded(17)) == [18, 19, 20]


@pytest.mark.parametrize("max_records", [1, 2, 9, 10])
def test_a_short_log_folds_too(max_records: int) -> None:
    log = filled(50, max_records=max_records)
    assert log.head_seq == 49
    assert log.head_seq - log.first_seq < max_records
    assert seqs(log.encoded(-1, 100)) == list(range(log.first_seq, 50))


@pytest.mark.parametrize("window", [None, 5])
def test_checkpoint_and_what_follows_make_the_same_world(window: int | None) -> None:
    config, events = busy_log(60, window=window)
    log = EventLog(config.num_blocks, config.block_size, max_records=120)
    for event in events:
        log.append(event)
    checkpoint = log.checkpoint()
    assert checkpoint is not None
    assert checkpoint["seq"] == log.first_seq - 1
    world = World.from_json(orjson.loads(orjson.dumps(checkpoint)))
    for record in log.records():
        world.apply(record)
    assert world.broken is None
    assert world.check is not None
    assert world.check["ok"]
    whole = World(config.num_blocks, config.block_size)
    for record in as_records(events):
        whole.apply(record)
    assert world.to_json() == whole.to_json()


def test_a_listener_is_called_after_each_append_until_it_leaves() -> None:
    log = EventLog()
    heard: list[int] = []
    leave = log.subscribe(lambda: heard.append(log.head_seq))
    log.append(StepStarted(step=1))
    log.append(StepStarted(step=2))
    leave()
    log.append(StepStarted(step=3))
    assert heard == [0, 1]


def test_a_listener_may_leave_while_it_is_called() -> None:
    log = EventLog()
    heard: list[str] = []

    def once() -> None:
        heard.append("once")
        leave()

    leave = log.subscribe(once)
    log.subscribe(lambda: heard.append("always"))
    for step in (1, 2):
        log.append(StepStarted(step=step))
    assert heard == ["once", "always", "always"]


def test_readers_in_other_threads_see_neither_gap_nor_shifted_record() -> None:
    """A reader that finds the next record folded goes on from the checkpoint, and ends with the writer's world."""
    config = EngineConfig(num_blocks=6, block_size=2, prefill_chunk=4)
    log = EventLog(config.num_blocks, config.block_size, max_records=150)
    engine, _ = stub_engine(config, emit=log.append)
    done = threading.Event()
    failures: list[str] = []
    ends: list[tuple[str, str | None, int]] = []
    num_checkpoints = 0

    def read(limit: int) -> None:
        nonlocal num_checkpoints
        world = World(config.num_blocks, config.block_size)
        try:
            for line in follow(limit):
                if isinstance(line, dict):
                    num_checkpoints += 1
                    world = World.from_json(line)
                else:
                    world.apply(orjson.loads(line))
            ends.append((world.digest(), world.broken, world.seq))
        except AssertionError as error:
            failures.append(str(error))

    def follow(limit: int) -> Iterator[bytes | dict[str, Any]]:
        seq = -1
        while True:
            while limit == 1 and seq % 50 == 49 and log.first_seq <= seq + 1 and not done.is_set():
                time.sleep(0.001)  # the slowest of them waits until it is overtaken
            was_done = done.is_set()
            batch = log.encoded(seq, limit)
            if not batch:
                if was_done:
                    return
                time.sleep(0.001)
                continue
            first = orjson.loads(batch[0])[0]
            if first != seq + 1:
                assert first > seq + 1, f"record {first} came after {seq}"
                checkpoint = log.checkpoint()
                assert checkpoint is not None, "records are gone but there is no checkpoint"
                assert checkpoint["seq"] >= first - 1, f"checkpoint {checkpoint['seq']} is older than record {first}"
                seq = checkpoint["seq"]
                yield checkpoint
                continue
            assert seqs(batch) == list(range(first, first + len(batch))), "a batch with a gap"
            seq += len(batch)
            yield from batch

    readers = [threading.Thread(target=read, args=(limit,)) for limit in (1, 7, 1_000)]
    for reader in readers:
        reader.start()
    for number in range(30):
        engine.add_request([number % 3] * 5, max_new_tokens=4)
        while engine.step():
            pass
    done.set()
    for reader in readers:
        reader.join(20)
    assert failures == []
    assert ends == [(engine.digest(), None, log.head_seq)] * len(readers)
    assert num_checkpoints > 0, "no reader was overtaken"
