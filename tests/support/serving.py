"""A seeded load on the real engine over the stub runner: many requests in a pool that is too small for them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from kvviz.config import EngineConfig
from kvviz.engine.engine import Engine
from kvviz.errors import RequestError
from kvviz.events import SamplingParams
from kvviz.log.world import World
from tests.support.stub_engine import StubRunner, as_json, stub_engine

STEMS = [[stem * 7 + index % 5 for index in range(30)] for stem in range(3)]


@dataclass
class Load:
    """What a seed did: its engine, the world folded from its events, and the records."""

    config: EngineConfig
    engine: Engine
    runner: StubRunner
    world: World
    records: list[list[Any]] = field(default_factory=list)

    @property
    def outputs(self) -> dict[int, list[int]]:
        """All known tokens of every request."""
        return {request_id: token_ids for request_id, (_, token_ids) in self.runner.known.items()}


def random_config(chance: random.Random, **fixed: Any) -> EngineConfig:
    """Sizes that make blocks scarce."""
    options: dict[str, Any] = {
        "block_size": chance.choice([1, 2, 3, 4, 8]),
        "num_blocks": chance.randint(8, 26),
        "prefill_chunk": chance.choice([2, 4, 8, 16]),
        "max_running": chance.choice([2, 3, 6, 12]),
        "token_budget": chance.choice([None, 4, 9, 30]),
        "chunked_prefill": chance.random() < 0.8,
        "order": chance.choice(["fcfs", "fcfs", "priority"]),
        "preemption": chance.choice(["recompute", "swap"]),
        "eviction": chance.choice(["lru", "lru", "fifo", "lfu", "random"]),
        "prefix_cache": chance.random() < 0.85,
        "num_host_blocks": chance.choice([0, 2, 8, 40]),
        "offload": chance.random() < 0.5,
        "seed": chance.randrange(1000),
    }
    return EngineConfig(**{**options, **fixed})


def run_load(seed: int, *, window: int | None = None, num_requests: int = 30, calm: bool = False, **fixed: Any) -> Load:
    """Add, fork, cancel, reprioritise and step by lot until all is done, folding and checking every event.

    `calm`: nothing is cancelled or fails.
    """
    chance = random.Random(seed)
    config = random_config(chance, **fixed)
    world = World(config.num_blocks, config.block_size)
    records: list[list[Any]] = []

    def on_event(event: Any) -> None:
        record = [len(records), 0, as_json(event)]
        records.append(record)
        world.apply(record)
        assert world.broken is None, f"seed {seed}: {world.broken} ({record})"
        assert world.check is None or world.check["ok"], f"seed {seed}: {world.check}"

    engine, runner = stub_engine(config, StubRunner(seed=seed, window=window), on_event)
    load = Load(config, engine, runner, world, records)
    num_added = 0
    while num_added < num_requests or engine.has_work:
        assert engine.num_steps < 20_000, f"seed {seed}: somebody starves"
        if num_added < num_requests and chance.random() < 0.4:
            num_added += _add(load, chance)
        elif chance.random() < 0.1 and engine.num_requests:
            _fork(load, chance)
        elif not calm and chance.random() < 0.04 and engine.scheduler.live:
            engine.cancel(chance.choice(engine.scheduler.live).request_id)
        elif chance.random() < 0.05 and engine.scheduler.live:
            engine.reprioritise(chance.choice(engine.scheduler.live).request_id, chance.randint(-2, 2))
        elif chance.random() < 0.02:
            engine.reset_prefix_cache()
        else:
            runner.fail_next = not calm and chance.random() < 0.004
            try:
                engine.step()
            except RuntimeError:
                runner.fail_next = False
    return load


def _add(load: Load, chance: random.Random) -> bool:
    prompt = chance.choice(STEMS)[: chance.randint(1, 30)] + [chance.randrange(40) for _ in range(chance.randint(0, 3))]
    try:
        load.engine.add_request(
            prompt,
            max_new_tokens=chance.randint(1, 20),
            sampling=SamplingParams(temperature=chance.choice([0.0, 0.0, 1.0])),
            salt=chance.choice([None, None, None, "s"]),
            priority=chance.randint(-1, 1),
            num_samples=chance.choice([1, 1, 1, 3]),
        )
    except RequestError as error:
        if error.code != "never_fits":
            raise
    return True


def _fork(load: Load, chance: random.Random) -> None:
    request = load.world.requests[chance.randrange(load.engine.num_requests)]
    if len(request.tokens) <= request.prompt_length:
        return
    position = chance.randint(request.prompt_length, len(request.tokens) - 1)
    try:
        load.engine.fork(request.id, position, chance.choice([None, chance.randrange(40)]))
    except RequestError as error:
        if error.code not in ("bad_position", "never_fits"):
            raise
