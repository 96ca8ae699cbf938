"""Many requests at once: batching, prefix hits, and the cost of scheduler and pool, as ratios within one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kvviz.bench.decode import NUM_DECODES, Spread
from kvviz.config import EngineConfig
from kvviz.engine.blocks import BlockPool
from kvviz.events import AllocationReason, Event, ReleaseReason
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.run import ModelRun

NUM_TOGETHER = 8
NUM_SERVING_PAIRS = 5
NUM_POOL_ROUNDS = 20_000


@dataclass(frozen=True, slots=True)
class ServingResult:
    """Results with many requests.

    - `batch_ratio`: tokens per second, batched ÷ one request after another.
    - `hit_ratio`: time to first token, prefix hit ÷ miss.
    - `scheduler_share`: fraction of a step spent on scheduling and blocks.
    - `pool_ops_per_s`: operations on single blocks, with events appended to a list.
    """

    batch_ratio: Spread
    hit_ratio: Spread
    scheduler_share: float
    pool_ops_per_s: float


def measure_serving(instrumented: InstrumentedModel) -> ServingResult:
    return ServingResult(
        batch_ratio=_batch_ratio(instrumented),
        hit_ratio=_hit_ratio(instrumented),
        scheduler_share=_scheduler_share(instrumented),
        pool_ops_per_s=_pool_ops_per_s(),
    )


def _prompts(count: int, length: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(count * length)
    return torch.randint(100, 40_000, (count, length), generator=generator).tolist()


def _run(instrumented: InstrumentedModel, **options: Any) -> ModelRun:
    return ModelRun(instrumented, None, EngineConfig(**options), keep_entries=True, measure_misses=False)


def _batch_ratio(instrumented: InstrumentedModel) -> Spread:
    """Tokens per second of eight requests of 128 tokens, decoded together ÷ one after another, with capture."""
    prompts = _prompts(NUM_TOGETHER, 128)
    run = _run(instrumented, num_blocks=200, max_running=NUM_TOGETHER, token_budget=2_048)
    ratios: list[float] = []
    for _ in range(NUM_SERVING_PAIRS):
        alone = 0.0
        for prompt in prompts:
            alone += _decode_s(run, [prompt])
        ratios.append(alone / _decode_s(run, prompts))
    return Spread.of(ratios)


def _decode_s(run: ModelRun, prompts: Sequence[Sequence[int]]) -> float:
    """Seconds of all decode steps. After the first call, the prompts are cached."""
    for prompt in prompts:
        run.engine.add_request(prompt, max_new_tokens=NUM_DECODES + 1)
    run.step()
    began = time.perf_counter()
    run.run()
    return time.perf_counter() - began


def _hit_ratio(instrumented: InstrumentedModel) -> Spread:
    """Time to first token of 512 cached and 16 new tokens ÷ that of the same prompt with a new salt."""
    run = _run(instrumented, num_blocks=400, prefill_chunk=1_024)
    stem = _prompts(1, 512)[0]
    _first_token_s(run, stem, None)
    ratios: list[float] = []
    for tail in _prompts(NUM_SERVING_PAIRS, 16):
        hit = _first_token_s(run, stem + tail, None)
        ratios.append(hit / _first_token_s(run, stem + tail, f"miss {len(ratios)}"))
    return Spread.of(ratios)


def _first_token_s(run: ModelRun, prompt: Sequence[int], salt: str | None) -> float:
    run.engine.add_request(prompt, max_new_tokens=1, salt=salt)
    began = time.perf_counter()
    run.run()
    return time.perf_counter() - began


def _scheduler_share(instrumented: InstrumentedModel) -> float:
    """Median fraction of a decode step that scheduling, blocks and their events take, with 16 requests."""
    run = _run(instrumented, num_blocks=200, max_running=16, token_budget=2_048)
    for prompt in _prompts(16, 64):
        run.engine.add_request(prompt, max_new_tokens=NUM_DECODES + 1)
    run.step()
    after = run.log.head_seq
    run.run()
    times = {"step_started": 0, "step_scheduled": 0}
    shares: list[float] = []
    for _, t_us, event in run.log.records(after):
        if event["type"] in times:
            times[event["type"]] = t_us
        elif event["type"] == "step_finished":
            shares.append((times["step_scheduled"] - times["step_started"]) / event["step_us"])
    return statistics.median(shares)


def _pool_ops_per_s() -> float:
    """Operations per second of processor time: allocate, share and twice release one block, with events."""
    events: list[Event] = []
    pool = BlockPool(1_024, events.append)
    reason, released = AllocationReason(code="decode", num_tokens=1, num_blocks_held=0), ReleaseReason(code="finished")
    began = time.thread_time()
    for number in range(NUM_POOL_ROUNDS):
        block_id = pool.allocate(number, 0, reason)
        pool.share(number + 1, 0, block_id)
        pool.release(number, (block_id,), (0,), released)
        pool.release(number + 1, (block_id,), (0,), released)
    return 4 * NUM_POOL_ROUNDS / (time.thread_time() - began)
