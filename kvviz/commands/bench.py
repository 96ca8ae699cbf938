"""`kvviz bench`: measures speed as ratios to a baseline."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kvviz.commands.options import json_option
from kvviz.messages import shown

if TYPE_CHECKING:
    from kvviz.bench.decode import DecodeResult


def bench(
    what: Annotated[str | None, typer.Argument(help="`simulate`: benchmark trace simulation instead.")] = None,
    as_json: Annotated[bool, json_option("the measurements as one JSON object")] = False,
    model: Annotated[str | None, typer.Option(help="A hub id, a directory or a .gguf file.")] = None,
    memory: Annotated[bool, typer.Option(help="Also fill all budgets and run 5,000 more steps (minutes).")] = False,
    page: Annotated[bool, typer.Option(help="Also measure the page in Chromium while the model decodes.")] = False,
) -> None:
    """Measure decoding speed relative to the same model without kvviz."""
    if what == "simulate":
        _simulate(as_json=as_json)
    elif what is not None:
        raise typer.BadParameter(f"expected simulate or nothing, got {shown(what)}.")
    else:
        _model(as_json=as_json, model=model, memory=memory, page=page)


def _simulate(*, as_json: bool) -> None:
    from kvviz.bench.simulate import NUM_CAPACITIES, measure_simulate

    result = measure_simulate()
    if as_json:
        print(json.dumps(asdict(result), indent=2))
        return
    console = Console(highlight=False)
    console.print(
        f"{result.requests:,} requests, {result.references:,} references to {result.distinct_blocks:,} blocks "
        f"(seed {result.seed}), a cache of {result.capacity:,} blocks: a loop over an OrderedDict takes "
        f"{result.plain_ms:.0f} ms of processor time",
        soft_wrap=True,
    )
    console.print(f"one LRU run ÷ the loop: {result.lru:.2f}")
    console.print(f"LRU at {NUM_CAPACITIES} capacities ÷ the loop: {result.sweep:.2f}")
    console.print(f"the optimum ÷ the loop: {result.optimum:.2f}")


def _model(*, as_json: bool, model: str | None, memory: bool, page: bool) -> None:
    from kvviz.bench.decode import CONTEXTS, measure_decode, num_threads
    from kvviz.bench.growth import measure_memory
    from kvviz.bench.lanes import measure_lanes
    from kvviz.bench.page import measure_page
    from kvviz.bench.serving import NUM_TOGETHER, measure_serving
    from kvviz.model.instrumented import InstrumentedModel
    from kvviz.model.loading import load

    progress = Console(stderr=True)
    loaded = load(model, "float32", lambda *_: None)
    instrumented = InstrumentedModel.of(loaded)
    decode = []
    for context in CONTEXTS:
        progress.print(f"decoding at {context} tokens of context …")
        decode.append(measure_decode(loaded.model, instrumented, context))
    progress.print("many requests at once …")
    serving = measure_serving(instrumented)
    progress.print("lanes side by side …")
    lanes = measure_lanes(instrumented)
    grown = measure_memory(instrumented, progress.print) if memory else None
    pages = measure_page() if page else []
    if as_json:
        result: dict[str, Any] = {"model": loaded.name, "threads": num_threads()}
        result["decode"] = [asdict(item) for item in decode]
        result["serving"] = asdict(serving)
        result["lanes"] = asdict(lanes)
        result["memory"] = {**asdict(grown), "growth": grown.growth} if grown else None
        result["page"] = [asdict(item) for item in pages]
        print(json.dumps(result, indent=2))
        return
    console = Console()
    console.print(_decode_table(loaded.name, num_threads(), decode))
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
    for view in pages:
        console.print(
            f"page, {view.lens} lens: {view.work_median_ms:.1f} ms of main-thread work per animation frame, "
            f"p95 {view.work_p95_ms:.1f} ms, {view.late_share:.1%} of {view.num_frames} frames later than 25 ms, "
            f"{view.model_steps} model steps meanwhile"
        )


def _decode_table(name: str, num_threads: int, results: list[DecodeResult]) -> Table:
    title = f"{name}, fp32, {num_threads} threads: decoding with everything captured ÷ generate()"
    table = Table(title=title)
    for column in ("context", "ratio (quartiles)", "worst", "baseline", "engine", "not forward", "bytes per step"):
        table.add_column(column, justify="right")
    for item in results:
        table.add_row(
            f"{item.context:,}",
            f"{item.ratio.median:.2f} ({item.ratio.low:.2f}–{item.ratio.high:.2f})",
            f"{item.ratio.worst:.2f}",
            f"{item.baseline_tokens_per_s:.1f} tok/s",
            f"{item.engine_tokens_per_s:.1f} tok/s",
            f"{item.overhead_share:.1%}",
            f"{item.step_bytes / 1024:.1f} KiB",
        )
    return table
