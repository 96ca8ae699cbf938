"""`kvviz bench`: speed as ratios within one run, because machines are noisy.

Pairs are interleaved: `generate()` of transformers (sdpa, same weights, dtype, threads, inference mode), then the
engine with everything captured, blocks in shuffled order, at the same context; median of 9 pairs with quartiles.
"""

from __future__ import annotations

import copy
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil
import torch
from rich.console import Console
from rich.table import Table
from transformers import DynamicCache, PreTrainedModel

from kvviz.bench.lanes import LanesResult, measure_lanes
from kvviz.bench.page import PageResult, measure_page
from kvviz.config import EngineConfig
from kvviz.engine.blocks import BlockPool
from kvviz.events import AllocationReason, Event, ReleaseReason
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.loading import load
from kvviz.model.run import ModelRun

CONTEXTS = (128, 512, 2_048)
NUM_PAIRS = 9
NUM_DECODES = 16
GROWTH_STEPS = 5_000
NUM_TOGETHER = 8
NUM_SERVING_PAIRS = 5
NUM_POOL_ROUNDS = 20_000
#: Records kept in the memory run: fewer than by default, so that the limit is reached.
GROWTH_RECORDS = 5_000


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float
    worst: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least two values; `worst` is the smallest."""
        low, median, high = statistics.quantiles(values, n=4)
        return cls(median, low, high, min(values))


@dataclass(frozen=True, slots=True)
class DecodeResult:
    """Decoding at one context: engine ÷ baseline in tokens per second, and what the engine adds to the forward pass."""

    context: int
    ratio: Spread
    baseline_tokens_per_s: float
    engine_tokens_per_s: float
    overhead_share: float
    step_bytes: int


class _Clock:
    """A streamer that notes when each token of `generate()` arrives."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Any) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def _baseline(model: Any, ids: torch.Tensor, filled: DynamicCache) -> float:
    """Seconds per token of `generate()`, from a cache that already holds all but the last token."""
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


def _engine(session: ModelRun, ids: Sequence[int]) -> float:
    """Seconds per decode step of the engine after a prompt whose full blocks are cached."""
    session.engine.add_request(list(ids), max_new_tokens=NUM_DECODES + 1)
    session.step()
    began = time.perf_counter()
    session.run()
    return (time.perf_counter() - began) / NUM_DECODES


def _session(observed: InstrumentedModel, context: int, **options: Any) -> ModelRun:
    """A session whose free queue is shuffled, so that no two blocks of a request lie side by side but by chance."""
    config = EngineConfig(num_blocks=context // 16 + 8, prefill_chunk=64)
    session = ModelRun(observed, None, config, measure_misses=False, **options)
    order = list(range(config.num_blocks))
    random.Random(0).shuffle(order)
    session.engine.pool.free.popleft_n(config.num_blocks)
    session.engine.pool.free.append_n(order)
    return session


def measure_decode(model: PreTrainedModel, observed: InstrumentedModel, context: int) -> DecodeResult:
    """Interleaved pairs at one context; then the overhead with capture off, and the bytes that a page gets."""
    ids = torch.randint(100, 40_000, (1, context), generator=torch.Generator().manual_seed(context))
    session = _session(observed, context, keep_entries=True)
    _engine(session, ids[0].tolist())
    observed.close()
    filled = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(input_ids=ids[:, :-1], cache=filled, use_cache=True, logits_to_keep=1)
    baseline, engine = [], []
    _baseline(model, ids, filled)
    for _ in range(NUM_PAIRS):
        baseline.append(_baseline(model, ids, filled))
        observed.door.open()
        engine.append(_engine(session, ids[0].tolist()))
        observed.close()
    observed.door.open()
    ratios = [ours / theirs for ours, theirs in zip((1 / t for t in engine), (1 / t for t in baseline), strict=True)]
    return DecodeResult(
        context=context,
        ratio=Spread.of(ratios),
        baseline_tokens_per_s=1 / statistics.median(baseline),
        engine_tokens_per_s=1 / statistics.median(engine),
        overhead_share=_overhead(session, ids[0].tolist()),
        step_bytes=_step_bytes(session),
    )


def _overhead(session: ModelRun, ids: list[int]) -> float:
    """Share of a decode step that is not the module's forward, capture off; median."""
    session.capture = False
    after = session.log.head_seq
    _engine(session, ids)
    session.capture = True
    finished = [event for _, _, event in session.log.records(after) if event["type"] == "step_finished"]
    shares = [1 - float(event["forward_us"]) / float(event["step_us"]) for event in finished[1:]]
    return statistics.median(shares)


def _step_bytes(session: ModelRun) -> int:
    """Largest number of bytes of one decode step to a page with the default subscription: records and frame."""
    frames = set(session.frames.store.steps())
    largest, size, step = 0, 0, 0
    for line in session.log.encoded(-1, session.log.head_seq + 1):
        event = json.loads(line)[2]
        size += len(line) + 1
        if event["type"] == "step_started":
            size, step = len(line) + 1, event["step"]
        elif event["type"] == "step_finished" and step in frames and session.frames.step_frame(step).num_new == 1:
            largest = max(largest, size + len(session.frames.pack_step(step, 0)))
    return largest


@dataclass(frozen=True, slots=True)
class ServingResult:
    """Many requests at once, as ratios within this run; `pool_ops_per_s` of single blocks with events to a list."""

    batch_ratio: Spread
    hit_ratio: Spread
    scheduler_share: float
    pool_ops_per_s: float


def measure_serving(observed: InstrumentedModel) -> ServingResult:
    """Eight requests together against one after another, a prefix hit against a miss, and what deciding costs."""
    return ServingResult(
        batch_ratio=_batch_ratio(observed),
        hit_ratio=_hit_ratio(observed),
        scheduler_share=_scheduler_share(observed),
        pool_ops_per_s=_pool_ops_per_s(),
    )


def _prompts(count: int, length: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(count * length)
    return torch.randint(100, 40_000, (count, length), generator=generator).tolist()


def _serving_session(observed: InstrumentedModel, **options: Any) -> ModelRun:
    return ModelRun(observed, None, EngineConfig(**options), keep_entries=True, measure_misses=False)


def _batch_ratio(observed: InstrumentedModel) -> Spread:
    """Tokens per second of eight requests decoding together at 128 tokens each ÷ one after another, capture on."""
    prompts = _prompts(NUM_TOGETHER, 128)
    session = _serving_session(observed, num_blocks=200, max_running=NUM_TOGETHER, token_budget=2_048)
    ratios: list[float] = []
    for _ in range(NUM_SERVING_PAIRS):
        alone = 0.0
        for prompt in prompts:
            alone += _decode_s(session, [prompt])
        ratios.append(alone / _decode_s(session, prompts))
    return Spread.of(ratios)


def _decode_s(session: ModelRun, prompts: Sequence[Sequence[int]]) -> float:
    """Seconds of the decode steps of these requests, whose prompts are cached after the first time."""
    for prompt in prompts:
        session.engine.add_request(prompt, max_new_tokens=NUM_DECODES + 1)
    session.step()
    began = time.perf_counter()
    session.run()
    return time.perf_counter() - began


def _hit_ratio(observed: InstrumentedModel) -> Spread:
    """Time to first token of a prompt of 512 cached tokens and 16 new ones ÷ that of the same under a fresh salt."""
    session = _serving_session(observed, num_blocks=400, prefill_chunk=1_024)
    stem = _prompts(1, 512)[0]
    _first_token_s(session, stem, None)
    ratios: list[float] = []
    for tail in _prompts(NUM_SERVING_PAIRS, 16):
        hit = _first_token_s(session, stem + tail, None)
        ratios.append(hit / _first_token_s(session, stem + tail, f"miss {len(ratios)}"))
    return Spread.of(ratios)


def _first_token_s(session: ModelRun, prompt: Sequence[int], salt: str | None) -> float:
    session.engine.add_request(prompt, max_new_tokens=1, salt=salt)
    began = time.perf_counter()
    session.run()
    return time.perf_counter() - began


def _scheduler_share(observed: InstrumentedModel) -> float:
    """Share of a decode step that schedule, blocks and their events take with 16 requests; median."""
    session = _serving_session(observed, num_blocks=200, max_running=16, token_budget=2_048)
    for prompt in _prompts(16, 64):
        session.engine.add_request(prompt, max_new_tokens=NUM_DECODES + 1)
    session.step()
    after = session.log.head_seq
    session.run()
    times = {"step_started": 0, "step_scheduled": 0}
    shares: list[float] = []
    for _, t_us, event in session.log.records(after):
        if event["type"] in times:
            times[event["type"]] = t_us
        elif event["type"] == "step_finished":
            shares.append((times["step_scheduled"] - times["step_started"]) / event["step_us"])
    return statistics.median(shares)


def _pool_ops_per_s() -> float:
    """Allocate, touch and free of one block, each an operation, with events to a list, per second of processor time."""
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


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """Resident bytes once frames and events are full, and after more steps."""

    full_bytes: int
    later_bytes: int
    num_steps: int

    @property
    def growth(self) -> float:
        """Share by which it grew."""
        return self.later_bytes / self.full_bytes - 1


def measure_memory(observed: InstrumentedModel, progress: Callable[[str], None]) -> MemoryResult:
    """Fill the frame budget and the event limit at a long context, then decode `GROWTH_STEPS` more steps."""
    session = _session(observed, 1_024, max_records=GROWTH_RECORDS)
    ids = torch.randint(100, 40_000, (900,), generator=torch.Generator().manual_seed(1)).tolist()
    process = psutil.Process()

    def steps(count: int) -> None:
        for _ in range(count):
            if not session.has_work:
                session.engine.add_request(ids, max_new_tokens=100)
            session.step()

    while session.frames.store.first_step == 1 or not session.log.first_seq:
        steps(50)
        progress(f"filling: {session.frames.store.num_bytes / 2**20:.0f} MiB of frames")
    full = process.memory_info().rss
    for _ in range(GROWTH_STEPS // 250):
        steps(250)
        progress(f"step {session.engine.num_steps}: {process.memory_info().rss / 2**20:.0f} MiB resident")
    return MemoryResult(full, process.memory_info().rss, GROWTH_STEPS)


def main(*, as_json: bool = False, model: str | None = None, memory: bool = False, page: bool = False) -> None:
    """Measure and print; the `kvviz bench` command. Raises `KvvizError` when what it needs is missing."""
    console = Console(stderr=True)
    loaded = load(model, "float32", lambda *_: None)
    observed = InstrumentedModel(loaded.model, name=loaded.name, fingerprint=loaded.fingerprint)
    decode = []
    for context in CONTEXTS:
        console.print(f"decoding at {context} tokens of context …")
        decode.append(measure_decode(loaded.model, observed, context))
    console.print("many requests at once …")
    serving = measure_serving(observed)
    console.print("lanes side by side …")
    lanes = measure_lanes(observed)
    grown = measure_memory(observed, console.print) if memory else None
    shown = measure_page() if page else []
    if as_json:
        result: dict[str, Any] = {"model": loaded.name, "threads": torch.get_num_threads()}
        result["decode"] = [asdict(item) for item in decode]
        result["serving"] = asdict(serving)
        result["lanes"] = asdict(lanes)
        result["memory"] = {**asdict(grown), "growth": grown.growth} if grown else None
        result["page"] = [asdict(item) for item in shown]
        print(json.dumps(result, indent=2))
        return
    _print(loaded.name, decode, serving, lanes, grown, shown)


def _print(
    name: str,
    decode: Sequence[DecodeResult],
    serving: ServingResult,
    lanes: LanesResult,
    grown: MemoryResult | None,
    shown: Sequence[PageResult],
) -> None:
    title = f"{name}, fp32, {torch.get_num_threads()} threads: decoding with everything captured ÷ generate()"
    table = Table(title=title)
    for column in ("context", "ratio (quartiles)", "worst", "baseline", "engine", "not forward", "bytes per step"):
        table.add_column(column, justify="right")
    for item in decode:
        table.add_row(
            f"{item.context:,}",
            f"{item.ratio.median:.2f} ({item.ratio.low:.2f}–{item.ratio.high:.2f})",
            f"{item.ratio.worst:.2f}",
            f"{item.baseline_tokens_per_s:.1f} tok/s",
            f"{item.engine_tokens_per_s:.1f} tok/s",
            f"{item.overhead_share:.1%}",
            f"{item.step_bytes / 1024:.1f} KiB",
        )
    console = Console()
    console.print(table)
    batch, hit = serving.batch_ratio, serving.hit_ratio
    console.print(
        f"{NUM_TOGETHER} requests together ÷ one after another: {batch.median:.2f} × the tokens per second "
        f"({batch.low:.2f}–{batch.high:.2f})\n"
        f"first token after a hit of 512 tokens ÷ after a miss: {hit.median:.3f} ({hit.low:.3f}–{hit.high:.3f})\n"
        f"scheduler and pool with 16 requests: {serving.scheduler_share:.1%} of a step; the pool alone: "
        f"{serving.pool_ops_per_s:,.0f} operations per second"
    )
    second, bits = (
        ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()) for ratios in (lanes.two_lanes, lanes.decode)
    )
    console.print(
        f"two lanes ÷ one at {lanes.context} tokens: {second}\nspeed of a decode from fewer bits ÷ from fp32: {bits}"
    )
    if grown:
        console.print(
            f"memory: {grown.full_bytes / 2**20:,.0f} MiB resident once the budgets are full, "
            f"{grown.later_bytes / 2**20:,.0f} MiB {grown.num_steps:,} steps later ({grown.growth:+.1%})"
        )
    for view in shown:
        console.print(
            f"page, {view.lens} lens: {view.work_median_ms:.1f} ms of main-thread work per animation frame, "
            f"p95 {view.work_p95_ms:.1f} ms, {view.late_share:.1%} of {view.num_frames} frames later than 25 ms, "
            f"{view.model_steps} model steps meanwhile"
        )
