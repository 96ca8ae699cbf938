"""Where a pool's slots are at every position, counted anew from the Python fold: what the Memory lens must say."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvviz.log.world import World

Log = tuple[dict[str, Any], list[list[Any]]]


def slots_of(world: World) -> dict[str, Any]:
    """Slots by part, from the state of one position alone: nothing is carried over from another position."""
    size = world.block_size
    holders: dict[int, list[Any]] = {}
    for request in world.requests.values():
        for block in request.table if request.state != "finished" else ():
            if block >= 0:
                holders.setdefault(block, []).append(request)
    assert {block: len(users) for block, users in holders.items()} == {
        block: count for block, count in enumerate(world.ref_count) if count
    }
    own: dict[str, Fraction] = {}
    shared = stored = Fraction(0)
    for block, users in holders.items():
        entries = Fraction(sum(slot in world.slots for slot in range(block * size, (block + 1) * size)))
        if len(users) == 1:
            entries -= dropped_in(users[0], block, size)
            name = str(users[0].id)
            own[name] = own.get(name, Fraction(0)) + entries
        else:
            shared += entries
        stored += entries
    return {
        "held": len(holders) * size,
        "stored": float(stored),
        "shared": float(shared),
        "wasted": float(len(holders) * size - stored),
        "cached": size
        * sum(count == 0 and world.hash[block] is not None for block, count in enumerate(world.ref_count)),
        "host": len(world.host) * size,
        "own": {name: float(slots) for name, slots in sorted(own.items()) if slots},
    }


def dropped_in(request: Any, block: int, size: int) -> Fraction:
    """Entries of a block that a policy has dropped, one that is gone in half of its heads as a half."""
    lists = [positions for heads in request.forgotten for positions in heads]
    index = request.table.index(block)
    inside = range(index * size, (index + 1) * size)
    return Fraction(sum(position in inside for positions in lists for position in positions), max(1, len(lists)))


def memory_of(log: Log) -> list[dict[str, Any]]:
    """`slots_of` at every position of a log, position 0 first."""
    header, records = log
    world = World(header["pool"]["num_blocks"], header["pool"]["block_size"])
    out = []
    for record in records:
        if record[2]["type"] == "step_started":
            out.append(slots_of(world))
        world.apply(record)
    assert world.broken is None
    return [*out, slots_of(world)]
