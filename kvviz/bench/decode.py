"""Decoding speed with full capture, relative to `generate()`. Ratios within one run cancel the noise of the machine.

Runs are interleaved: first transformers' `generate()` (sdpa, with the same weights, dtype, threads and inference mode),
then the engine with full capture and shuffled blocks, at the same context. Results are medians of 9 pairs, with
quartiles.
"""

from __future__ import annotations

import copy
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from kvviz.config import EngineConfig
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.run import ModelRun

CONTEXTS = (128, 512, 2_048)
NUM_PAIRS = 9
NUM_DECODES = 16


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, quartiles (`low`, `high`) and minimum (`worst`) of several measurements."""

    median: float
    low: float
    high: float
    worst: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        low, median, high = statistics.quantiles(values, n=4)
        return cls(median, low, high, min(values))


@dataclass(frozen=True, slots=True)
class DecodeResult:
    """Decoding at one context in tokens.

    `ratio`: engine ÷ baseline in tokens per second. `overhead_share`: fraction of a step outside the model's forward
    pass. `step_bytes`: largest number of bytes sent to a page per decode step.
    """

    context: int
    ratio: Spread
    baseline_tokens_per_s: float
    engine_tokens_per_s: float
    overhead_share: float
    step_bytes: int


class _Clock:
    """A streamer that records when each token of `generate()` arrives."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Any) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def num_threads() -> int:
    return torch.get_num_threads()


def _baseline(model: Any, ids: torch.Tensor, filled: DynamicCache) -> float:
    """Seconds per token of `generate()`, starting from a cache of all tokens but the last."""
    clock = _Clock()
    with torch.inference_mode():
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            cache=copy.deepcopy(filled),
            max_new_tokens=NUM_DECODES + 1,
            min_new_tokens=NUM_DECODES + 1,
            do_sample=False,
            streamer=clock,
        )
    times = clock.times[-NUM_DECODES - 1 :]
    return (times[-1] - times[0]) / NUM_DECODES


def _engine(run: ModelRun, ids: Sequence[int]) -> float:
    """Seconds per decode step of the engine, for a prompt whose full blocks are cached."""
    run.engine.add_request(list(ids), max_new_tokens=NUM_DECODES + 1)
    run.step()
    began = time.perf_counter()
    run.run()
    return (time.perf_counter() - began) / NUM_DECODES


def shuffled_run(instrumented: InstrumentedModel, context: int, **options: Any) -> ModelRun:
    """A run with a shuffled free queue, so a request's blocks aren't adjacent in memory except by chance."""
    config = EngineConfig(num_blocks=context // 16 + 8, prefill_chunk=64)
    run = ModelRun(instrumented, None, config, measure_misses=False, **options)
    order = list(range(config.num_blocks))
    random.Random(0).shuffle(order)
    run.engine.pool.free.popleft_n(config.num_blocks)
    run.engine.pool.free.append_n(order)
    return run


def measure_decode(model: PreTrainedModel, instrumented: InstrumentedModel, context: int) -> DecodeResult:
    """Measure `NUM_PAIRS` interleaved pairs at one context, then the overhead and the bytes per step."""
    ids = torch.randint(100, 40_000, (1, context), generator=torch.Generator().manual_seed(context))
    run = shuffled_run(instrumented, context, keep_entries=True)
    _engine(run, ids[0].tolist())
    instrumented.close()
    filled = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(input_ids=ids[:, :-1], cache=filled, use_cache=True, logits_to_keep=1)
    baseline, engine = [], []
    _baseline(model, ids, filled)
    for _ in range(NUM_PAIRS):
        baseline.append(_baseline(model, ids, filled))
        instrumented.door.open()
        engine.append(_engine(run, ids[0].tolist()))
        instrumented.close()
    instrumented.door.open()
    ratios = [ours / theirs for ours, theirs in zip((1 / t for t in engine), (1 / t for t in baseline), strict=True)]
    return DecodeResult(
        context=context,
        ratio=Spread.of(ratios),
        baseline_tokens_per_s=1 / statistics.median(baseline),
        engine_tokens_per_s=1 / statistics.median(engine),
        overhead_share=_overhead(run, ids[0].tolist()),
        step_bytes=_step_bytes(run),
    )


def _overhead(run: ModelRun, ids: list[int]) -> float:
    """Median fraction of a decode step outside the model's forward pass, without capture."""
    run.runner.capture = False
    after = run.log.head_seq
    _engine(run, ids)
    run.runner.capture = True
    finished = [event for _, _, event in run.log.records(after) if event["type"] == "step_finished"]
    shares = [1 - float(event["forward_us"]) / float(event["step_us"]) for event in finished[1:]]
    return statistics.median(shares)


def _step_bytes(run: ModelRun) -> int:
    """The largest number of bytes of one decode step that a default subscription receives: records and frame."""
    frames = set(run.frames.store.steps())
    largest, size, step = 0, 0, 0
    for line in run.log.encoded(-1, run.log.head_seq + 1):
        event = json.loads(line)[2]
        size += len(line) + 1
        if event["type"] == "step_started":
            size, step = len(line) + 1, event["step"]
        elif event["type"] == "step_finished" and step in frames and run.frames.step_frame(step).num_new == 1:
            largest = max(largest, size + len(run.frames.pack_step(step, 0)))
    return largest
