"""Pool slots: an entry is found while it is there and "gone since step s" afterwards."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from kvviz.errors import MissingError
from kvviz.events import (
    AllocationReason,
    BlockAllocated,
    BlocksSwappedIn,
    BlocksSwappedOut,
    Event,
    KvWritten,
    StepStarted,
)
from kvviz.log.slots import Slots
from kvviz.log.world import World
from tests.support.stub_engine import as_records, busy_log

REASON = AllocationReason(code="prompt", num_tokens=1, num_blocks_held=0)


def step(number: int) -> Event:
    return StepStarted(step=number)


def taken(block_id: int, request_id: int = 0) -> Event:
    return BlockAllocated(request_id=request_id, logical_index=0, block_id=block_id, reason=REASON)


def written(request_id: int, positions: range, slots: range) -> Event:
    return KvWritten(
        request_id=request_id, positions=tuple(positions), slots=tuple(slots), layers=(0,), layer_us=(1,), read_us=(1,)
    )


def slots_of(*events: Event, max_writes: int = 100) -> Slots:
    slots = Slots(4, 2, max_writes=max_writes)
    for seq, event in enumerate(events):
        slots.apply(seq, event)
    return slots


def code_of(slots: Slots, request_id: int, position: int, write_seq: int) -> tuple[str, int | None]:
    with pytest.raises(MissingError) as caught:
        slots.slot_of(request_id, position, write_seq)
    return caught.value.code, caught.value.details.get("since_step")


def test_an_entry_is_found_under_its_write() -> None:
    slots = slots_of(step(1), taken(2), written(0, range(6, 8), range(4, 6)))
    assert slots.slot_of(0, 6, 2) == 4
    assert slots.slot_of(0, 7, 2) == 5
    assert slots.slot_seq.tolist() == [-1, -1, -1, -1, 2, 2, -1, -1]


@pytest.mark.parametrize(
    ("request_id", "position", "write_seq"), [(0, 5, 2), (0, 8, 2), (1, 6, 2), (0, 6, 1), (0, 6, 9)]
)
def test_what_was_never_written_is_no_entry(request_id: int, position: int, write_seq: int) -> None:
    slots = slots_of(step(1), taken(2), written(0, range(6, 8), range(4, 6)))
    assert code_of(slots, request_id, position, write_seq) == ("no_such_entry", None)


def test_an_entry_is_gone_from_the_moment_its_block_is_handed_out() -> None:
    events = [step(1), taken(0), written(0, range(2), range(2)), step(2), taken(0, 1)]
    slots = slots_of(*events)
    assert code_of(slots, 0, 0, 2) == ("gone", 2)
    assert slots.slot_seq[:2].tolist() == [-1, -1]
    slots = slots_of(*events, written(1, range(1), range(1)), step(3), taken(0, 2), written(2, range(2), range(2)))
    assert code_of(slots, 0, 0, 2) == ("gone", 2), "the first time counts"
    assert code_of(slots, 1, 0, 5) == ("gone", 3)
    assert slots.slot_of(2, 1, 8) == 1


def test_a_block_that_comes_back_to_the_place_of_another_is_told_from_it() -> None:
    """One write filled both blocks, and each comes back from the host tier to where the other was."""
    moved: dict[str, Any] = {
        "request_id": 0,
        "logical_indices": (0, 1),
        "host_ids": (0, 1),
        "num_bytes": 1,
        "copy_us": 1,
    }
    slots = slots_of(
        step(1),
        taken(0),
        taken(1),
        written(0, range(4), range(4)),
        BlocksSwappedOut(block_ids=(0, 1), **moved),
        taken(1),
        taken(0),
        BlocksSwappedIn(block_ids=(1, 0), **moved),
    )
    assert [slots.slot_of(0, position, 3) for position in range(4)] == [2, 3, 0, 1]
    assert slots.holds(np.array([2, 3, 0, 1]), np.full(4, 3), np.arange(4))
    assert not slots.holds(np.arange(4), np.full(4, 3), np.arange(4))


def test_only_so_many_writes_can_be_asked_for() -> None:
    events: list[Event] = [step(1), taken(0), taken(1)]
    events += [written(0, range(position, position + 1), range(position, position + 1)) for position in range(4)]
    slots = slots_of(*events, max_writes=2)
    assert code_of(slots, 0, 1, 4) == ("no_such_entry", None)
    assert slots.slot_of(0, 2, 5) == 2
    assert slots.slot_seq[:4].tolist() == [3, 4, 5, 6]


def test_it_does_not_grow_once_its_writes_are_full() -> None:
    slots = Slots(2, 1, max_writes=10)
    sizes = []
    for seq in range(0, 3_000, 3):
        slots.apply(seq, step(seq // 3 + 1))
        slots.apply(seq + 1, taken(seq % 2, seq))
        slots.apply(seq + 2, written(seq, range(1), range(seq % 2, seq % 2 + 1)))
        sizes.append(len(pickle.dumps(slots)))
    assert sizes[-1] <= 1.1 * sizes[200]  # numbers grow, by a byte or two each
    assert slots.slot_of(2_994, 0, 2_996) == 0
    assert code_of(slots, 2_982, 0, 2_984) == ("gone", 997)


@pytest.mark.parametrize("window", [None, 5])
def test_it_agrees_with_the_world_through_a_run(window: int | None) -> None:
    """Where the world shows an entry, the slots finds it in that very slot; where another is, it is gone."""
    config, events = busy_log(60, window=window)
    slots, world = Slots(config.num_blocks, config.block_size), World(config.num_blocks, config.block_size)
    everything: dict[tuple[int, int, int], int] = {}
    for record, event in zip(as_records(events), events, strict=True):
        slots.apply(record[0], event)
        world.apply(record)
        if isinstance(event, KvWritten):
            for position, slot in zip(event.positions, event.slots, strict=True):
                everything[event.request_id, position, record[0]] = slot
        if record[2]["type"] != "step_finished":
            continue
        shown = {(request, position, seq): slot for slot, (request, position, seq, _) in world.slots.items()}
        for entry, slot in shown.items():
            assert slots.slot_of(*entry) == slot
        for entry, slot in everything.items():
            if slots.slot_seq[slot] == entry[2]:
                assert slots.slot_of(*entry) == slot
            else:
                kind, since = code_of(slots, *entry)
                assert kind == "gone"
                assert since is not None
                assert since <= world.step
                assert entry not in shown
    assert np.count_nonzero(slots.slot_seq >= 0) >= len(world.slots)
