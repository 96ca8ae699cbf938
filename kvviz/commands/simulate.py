"""`kvviz simulate`: simulates a cache on a trace, with a table or JSON as the result."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kvviz.commands.options import json_option, number_option, whole_option
from kvviz.commands.terminal import EXIT_INTERRUPTED, LoadingLine, stderr
from kvviz.errors import TraceError
from kvviz.messages import escaped, shown

if TYPE_CHECKING:
    from kvviz.traces.results import Result
    from kvviz.traces.trace import TraceFile

MAX_PREFILL = 1e12
#: Wider than any table.
MAX_WIDTH = 1_000
#: Bytes read between two updates of the progress bar.
BYTES_PER_UPDATE = 2**16


class Interrupt:
    """Turns the first Ctrl-C into a flag, `came`, that long work polls. The second one interrupts at once."""

    def __init__(self) -> None:
        self.came = False

    def __call__(self) -> bool:
        return self.came

    @contextmanager
    def caught(self) -> Iterator[None]:
        before = signal.signal(signal.SIGINT, self._catch)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True


def simulate(
    trace: Annotated[Path, typer.Argument(help="A .jsonl or .jsonl.gz file, see docs/traces.md.", show_default=False)],
    blocks: Annotated[int | None, whole_option("Cache size in blocks; 0: unlimited (default).")] = None,
    sweep: Annotated[str | None, typer.Option(metavar="N,N,…", help="Simulate several cache sizes.")] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Cache size in memory for --model, such as 40GiB.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model from `kvviz calc --list`, for --memory.")] = None,
    dtype: Annotated[str, typer.Option(help="Cache dtype of that model.")] = "bf16",
    policy: Annotated[str, typer.Option(help="Eviction policy: lru, fifo, lfu, random or optimum.")] = "lru",
    seed: Annotated[int, whole_option("Seed of the random policy.")] = 0,
    block_size: Annotated[
        int | None, whole_option("Tokens per block, if the trace doesn't specify it; default: 512, or inferred.")
    ] = None,
    prefill: Annotated[
        float, number_option("Prefill speed in tokens per second, to estimate the time saved.")
    ] = 10_000.0,
    as_json: Annotated[bool, json_option("the results as JSON")] = False,
) -> None:
    """Simulate a prefix cache on a trace of requests, and count its hits."""
    from kvviz.calculator.settings import find_dtype
    from kvviz.traces import simulation
    from kvviz.traces.cache_size import blocks_in, size_bytes
    from kvviz.traces.trace import StoredTrace, Trace, TraceFile

    policy = simulation.check_policy(policy)
    _check_prefill(prefill)
    find_dtype(dtype)
    _check_ways(blocks, sweep, memory, model)
    memory_bytes = None if memory is None else size_bytes(memory)
    sizes = [simulation.check_capacity(blocks or 0)] if sweep is None else simulation.check_capacities(_sizes(sweep))
    interrupt = Interrupt()
    with interrupt.caught(), LoadingLine() as line:
        if memory_bytes is not None:
            sizes = [blocks_in(memory_bytes, model or "", dtype, _block_size(trace, block_size))]
        file = TraceFile(trace, block_size, on_bytes=_counter(line, trace), stop=interrupt)
        requests: Trace = StoredTrace.of(file) if policy == "optimum" else file
        results = (
            [simulation.simulate(requests, policy, sizes[0], seed=seed, stop=interrupt).result]
            if sweep is None
            else simulation.sweep(requests, policy, sizes, seed=seed, stop=interrupt)
        )
    for sentence in file.faults.sentences():
        stderr().print(escaped(f"Bad {sentence}"), style="yellow", soft_wrap=True, markup=False)
    if file.block_size_note and not as_json:
        stderr().print(escaped(file.block_size_note), style="yellow", soft_wrap=True, markup=False)
    if as_json:
        answers = [_answer(result, file, prefill, seed) for result in results]
        typer.echo(json.dumps(answers[0] if sweep is None else answers))
    else:
        _print(results, file, prefill)
    if interrupt.came:
        raise typer.Exit(EXIT_INTERRUPTED)


def _check_prefill(speed: float) -> None:
    if not (math.isfinite(speed) and 0 < speed <= MAX_PREFILL):
        raise TraceError(
            f"Prefill speed must be above 0 and at most {MAX_PREFILL:,.0f} tokens per second (got {shown(speed)}).",
            code="bad_setting",
        )


def _check_ways(blocks: int | None, sweep: str | None, memory: str | None, model: str | None) -> None:
    if sum(way is not None for way in (blocks, sweep, memory)) > 1:
        raise TraceError(
            "Set the cache size only once, with --blocks, --sweep or --memory.",
            code="bad_setting",
        )
    if (memory is None) != (model is None):
        raise TraceError(
            "--memory and --model must be used together; add the missing option.",
            code="bad_setting",
        )


def _sizes(text: str) -> list[int]:
    sizes = []
    for part in text.split(","):
        digits = part.strip()
        if not digits.isdecimal() or len(digits) > 18:
            raise TraceError(
                f"A sweep must be whole numbers separated by commas, such as 1000,2000,4000 (got {shown(part)}).",
                code="bad_setting",
            )
        sizes.append(int(digits))
    return sizes


def _block_size(path: Path, block_size: int | None) -> int:
    from kvviz.traces.lines import LineReader, open_trace

    reader = LineReader(block_size)
    with open_trace(path) as file:
        next(reader.read(file, str(path)))
    return reader.block_size


def _counter(line: LoadingLine, path: Path) -> Callable[[int], None]:
    try:
        size = path.stat().st_size
    except (OSError, ValueError):
        size = 0
    last = -BYTES_PER_UPDATE

    def show(num_bytes: int) -> None:
        nonlocal last
        if abs(num_bytes - last) >= BYTES_PER_UPDATE:  # smaller on a second pass
            last = num_bytes
            line.count("bytes of the trace read", num_bytes, max(size, num_bytes))

    return show


def _answer(result: Result, file: TraceFile, prefill: float, seed: int) -> dict[str, Any]:
    return {
        "policy": result.policy,
        "blocks": result.blocks,
        "block_size": result.block_size,
        "requests": result.requests,
        "total_tokens": result.total_tokens,
        "hit_tokens": result.hit_tokens,
        "hit_rate": result.hit_rate,
        "references": result.references,
        "hit_blocks": result.hit_blocks,
        "block_hit_rate": result.block_hit_rate,
        "evictions": result.evictions,
        "distinct_blocks": result.distinct_blocks,
        "saved_s": result.saved_s(prefill),
        "prefill_tokens_per_s": prefill,
        "seed": seed if result.policy == "random" else None,
        "bad_lines": file.faults.count,
        "block_size_note": file.block_size_note,
        "partial": result.is_partial,
    }


def _print(results: Sequence[Result], file: TraceFile, prefill: float) -> None:
    last = results[-1]
    console = Console(highlight=False)
    console.print(
        f"{last.requests:,} requests, {last.total_tokens:,} prompt tokens, {last.references:,} references to "
        f"{last.distinct_blocks:,} blocks of {last.block_size:,} tokens",
        soft_wrap=True,
    )
    columns = ("policy", "blocks", "hit rate", "hit tokens", "blocks hit", "evictions", "prefill saved")
    rows = [_row(result, prefill) for result in results]
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column == "policy" else "right")
    for row in rows:
        table.add_row(*row)
    if console.measure(table, options=console.options.update(width=MAX_WIDTH)).maximum <= console.width:
        console.print(table)
    else:  # as lines, since a table would truncate its figures
        for row in rows:
            figures = zip(columns, row, strict=True)
            console.print(", ".join(f"{column} {figure}" for column, figure in figures), markup=False)
    if last.is_partial:
        console.print(f"Interrupted: partial counts cover the first {last.requests:,} requests.")


def _row(result: Result, prefill: float) -> tuple[str, ...]:
    return (
        result.policy + (" (partial)" if result.is_partial else ""),
        f"{result.blocks:,}" if result.blocks else "no limit",
        f"{result.hit_rate:.2%}",
        f"{result.hit_tokens:,}",
        f"{result.hit_blocks:,}",
        f"{result.evictions:,}",
        f"{result.saved_s(prefill):,.0f} s",
    )
