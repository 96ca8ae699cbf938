"""Logs of many requests at once for tests of the batch lens: the real engine over a stub, by a made-up clock."""

from __future__ import annotations

import random
from typing import Any

from kvviz.config import EngineConfig
from tests.support.page_logs import header
from tests.support.serving import run_load
from tests.support.stub_engine import StubRunner, as_json, stub_engine

PROMPTS = (
    "Why is the sky blue?",
    "List the planets in order, from the one nearest to the sun, and say one thing about each of them.",
    "Tell me a story about a lighthouse keeper.",
    "What is a prime number?",
    "Translate this letter into French, and keep its tone.",
    "How do I keep bread fresh?",
)


def batch_header(config: EngineConfig, capabilities: tuple[str, ...] = ("commands",)) -> dict[str, Any]:
    """A header that says everything about the batch."""
    base = header(config)
    return {
        **base,
        "capabilities": list(capabilities),
        "pool": {**base["pool"], "num_host_blocks": config.num_host_blocks},
        "policies": {**base["policies"], "eviction": config.eviction, "offload": config.offload},
        "scheduler": {
            **base["scheduler"],
            "token_budget": config.budget,
            "chunked_prefill": config.chunked_prefill,
            "order": config.order,
            "preemption": config.preemption,
        },
    }


def clocked(records: list[list[Any]], seed: int = 0) -> list[list[Any]]:
    """The same records by a clock on which a step costs what it computes, and a moved block its copy."""
    chance = random.Random(seed)
    now = 0
    out = []
    for seq, _, event in records:
        kind = event["type"]
        if kind == "step_started":
            now += 40
        elif kind == "step_scheduled":
            now += 9_000 + sum(400 * chunk["num_tokens"] for chunk in event["chunks"]) + chance.randrange(900)
        elif kind in ("blocks_swapped_out", "blocks_swapped_in"):
            now += 900 * len(event["block_ids"])
        elif kind in ("block_copied", "block_offloaded", "block_fetched"):
            now += 700
        else:
            now += 3
        out.append([seq, now, event])
    return out


def batch_log(
    num_requests: int = 8,
    *,
    seed: int = 3,
    forks: bool = True,
    gap: int = 3,
    length: tuple[int, int] = (8, 60),
    new_tokens: tuple[int, int] = (10, 34),
    **options: Any,
) -> tuple[dict[str, Any], list[list[Any]]]:
    """Users who come a few steps after one another into a pool that is too small for all of them."""
    sizes = {"block_size": 4, "num_blocks": 40, "prefill_chunk": 24, "max_running": 6, **options}
    config = EngineConfig(**sizes)
    events: list[Any] = []
    engine, _ = stub_engine(config, StubRunner(seed=seed), events.append)
    chance = random.Random(seed)
    stem = [chance.randrange(40) for _ in range(12)]
    for index in range(num_requests):
        prompt = stem[: chance.choice((0, 8, 12))] + [chance.randrange(40) for _ in range(chance.randint(*length))]
        engine.add_request(
            prompt, max_new_tokens=chance.randint(*new_tokens), prompt=PROMPTS[index % len(PROMPTS)], priority=index % 2
        )
        for _ in range(chance.randint(1, gap)):
            engine.step()
    if forks and engine.scheduler.running:
        parent = engine.scheduler.running[0]
        if parent.num_generated > 1:
            engine.fork(parent.request_id, parent.num_tokens - 1, 7)
    for _ in range(6):
        engine.step()
    if len(engine.scheduler.live) > 2:
        engine.cancel(engine.scheduler.live[-1].request_id)
    while engine.step():
        pass
    return batch_header(config), clocked([[seq, 0, as_json(event)] for seq, event in enumerate(events)])


def load_log(seed: int, **fixed: Any) -> tuple[dict[str, Any], list[list[Any]]]:
    """A random load: forks, cancels, failures, preemption, swap, offload."""
    load = run_load(seed, num_requests=14, **fixed)
    return batch_header(load.config), clocked(load.records, seed)
