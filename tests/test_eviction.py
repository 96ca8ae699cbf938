"""Five hundred steps in a pool that is too small: every victim is the block that a page had marked before the step."""

from __future__ import annotations

import random

from kvviz.config import EngineConfig
from kvviz.engine import Engine
from kvviz.log.event_log import EventLog
from kvviz.log.world import World
from tests.support.stub_engine import StubRunner

NUM_STEPS = 500
NUM_BLOCKS, BLOCK_SIZE = 12, 4


def run() -> EventLog:
    """A log of `NUM_STEPS` steps: prompts with shared beginnings, one after the other."""
    numbers = random.Random(5)
    log = EventLog(NUM_BLOCKS, BLOCK_SIZE)
    runner = StubRunner(seed=5)
    runner.block_size = BLOCK_SIZE

    def emit(event: object) -> int:
        runner.observe(event)  # type: ignore[arg-type]
        return log.append(event)  # type: ignore[arg-type]

    engine = Engine(EngineConfig(num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, prefill_chunk=8), runner, emit)
    stems = [[numbers.randrange(40) for _ in range(12)] for _ in range(4)]
    while engine.num_steps < NUM_STEPS:
        if not engine.has_work:
            tail = [numbers.randrange(40) for _ in range(numbers.randrange(1, 14))]
            engine.add_request(numbers.choice(stems) + tail, max_new_tokens=numbers.randrange(2, 16))
        engine.step()
    return log


def test_every_victim_was_marked_before_its_step() -> None:
    world = World(NUM_BLOCKS, BLOCK_SIZE)
    marked: list[int] = []
    taken: list[int] = []
    num_evictions = 0
    for record in run().records():
        event = record[2]
        if event["type"] == "step_started":
            marked, taken = list(world.free), []
        elif event["type"] == "block_shared" and event["block_id"] in marked:
            marked.remove(event["block_id"])  # a hit leaves the queue from wherever it stands
        elif event["type"] == "block_evicted":
            num_evictions += 1
            assert event["block_id"] == marked[len(taken)], "not the head of the queue as it stood before the step"
            assert event["reason"]["alternatives"] == marked[len(taken) + 1 : len(taken) + 5]
            assert event["reason"]["num_free"] == len(marked) - len(taken)
        elif event["type"] == "block_allocated":
            taken.append(event["block_id"])
        world.apply(record)
        if event["type"] == "step_finished":
            assert world.check is not None
            assert world.check["ok"]
    assert world.step == NUM_STEPS
    assert num_evictions >= 100
