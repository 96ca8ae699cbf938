"""`kvviz simulate`: a trace through a cache, as a table or JSON in the terminal."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from kvviz.calculator.dtypes import find_dtype
from kvviz.commands.terminal import LoadingLine, stderr
from kvviz.errors import TraceError
from kvviz.messages import shown
from kvviz.traces.cache_size import blocks_in, size_bytes
from kvviz.traces.lines import LineReader, open_trace
from kvviz.traces.results import Result
from kvviz.traces.simulation import check_capacities, check_capacity, check_policy, simulate, sweep
from kvviz.traces.trace import StoredTrace, Trace, TraceFile

EXIT_INTERRUPTED = 130
#: Tokens per second of a prefill when nobody says.
DEFAULT_PREFILL = 10_000.0
MAX_PREFILL = 1e12
#: No table is as wide.
MAX_WIDTH = 1_000
#: Progress is told each time so much of the file has been read.
BYTES_PER_TELL = 2**16


class Asked(NamedTuple):
    """What was asked for: `blocks` or `capacities` ("N,N,…") or `memory` of `model`, or none of them, and how."""

    blocks: int | None = None
    capacities: str | None = None
    memory: str | None = None
    model: str | None = None
    dtype: str = "bf16"
    policy: str = "lru"
    seed: int = 0
    block_size: int = 512
    prefill: float = DEFAULT_PREFILL


class Interrupt:
    """Ctrl-C as a question: `came` is true after the first; a second one ends at once."""

    def __init__(self) -> None:
        self.came = False

    def __call__(self) -> bool:
        """Whether it came."""
        return self.came

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catches it inside the block."""
        before = signal.signal(signal.SIGINT, self._catch)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True


def main(path: Path, asked: Asked, *, as_json: bool) -> None:
    """Read the trace, simulate, print. Raises `KvvizError`, and `typer.Exit` with 130 after Ctrl-C."""
    policy = check_policy(asked.policy)
    check_prefill(asked.prefill)
    find_dtype(asked.dtype)
    memory_bytes = _check_ways(asked)
    sizes = _sizes(asked.capacities) if asked.capacities is not None else [check_capacity(asked.blocks or 0)]
    interrupt = Interrupt()
    with interrupt.caught(), LoadingLine() as line:
        if memory_bytes is not None:
            block_size = _block_size(path, asked.block_size)
            sizes = [blocks_in(memory_bytes, asked.model or "", asked.dtype, block_size)]
        file = TraceFile(path, asked.block_size, on_bytes=_told(line, path), stop=interrupt)
        trace: Trace = StoredTrace.of(file) if policy == "optimum" else file
        results = (
            sweep(trace, policy, sizes, seed=asked.seed, stop=interrupt)
            if asked.capacities is not None
            else [simulate(trace, policy, sizes[0], seed=asked.seed, stop=interrupt).result]
        )
    for sentence in file.faults.sentences():
        stderr().print(f"Bad {sentence}", style="yellow", soft_wrap=True, markup=False)
    if as_json:
        answers = [_answer(result, file, asked) for result in results]
        typer.echo(json.dumps(answers if asked.capacities is not None else answers[0]))
    else:
        _print(results, file, asked)
    if interrupt.came:
        raise typer.Exit(EXIT_INTERRUPTED)


def check_prefill(speed: float) -> float:
    """Tokens per second of a prefill. Raises `TraceError`."""
    if not (math.isfinite(speed) and 0 < speed <= MAX_PREFILL):
        raise TraceError(
            f"A prefill computes more than 0 tokens per second, at most {MAX_PREFILL:,.0f}, but {shown(speed)} came; "
            "give another speed.",
            code="bad_setting",
        )
    return speed


def _check_ways(asked: Asked) -> int | None:
    """Bytes of the memory, when that is how the capacity is given."""
    ways = [way for way in (asked.blocks, asked.capacities, asked.memory) if way is not None]
    if len(ways) > 1:
        raise TraceError(
            "A capacity is given once, but several ways were taken; choose one of --blocks, --sweep and --memory.",
            code="bad_setting",
        )
    if (asked.memory is None) != (asked.model is None):
        raise TraceError(
            "--memory and --model go together, but one of them is missing; give the memory and whose blocks fill it.",
            code="bad_setting",
        )
    return None if asked.memory is None else size_bytes(asked.memory)


def _sizes(text: str) -> Sequence[int]:
    sizes = []
    for part in text.split(","):
        digits = part.strip()
        if not digits.isdecimal() or len(digits) > 18:
            raise TraceError(
                f"A sweep has whole numbers with commas between them, but {shown(part)} came; write 1000,2000,4000.",
                code="bad_setting",
            )
        sizes.append(int(digits))
    return check_capacities(sizes)


def _block_size(path: Path, block_size: int) -> int:
    """Tokens of a block, by the first request of the trace."""
    reader = LineReader(block_size)
    with open_trace(path) as file:
        next(reader.read(file, str(path)))
    return reader.block_size


def _told(line: LoadingLine, path: Path) -> Callable[[int], None]:
    try:
        size = path.stat().st_size
    except (OSError, ValueError):
        size = 0
    told = -BYTES_PER_TELL

    def tell(num_bytes: int) -> None:
        nonlocal told
        if abs(num_bytes - told) >= BYTES_PER_TELL:  # less when it is read again
            told = num_bytes
            line.count("bytes of the trace read", num_bytes, max(size, num_bytes))

    return tell


def _answer(result: Result, file: TraceFile, asked: Asked) -> dict[str, Any]:
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
        "saved_s": result.saved_s(asked.prefill),
        "prefill_tokens_per_s": asked.prefill,
        "seed": asked.seed if result.policy == "random" else None,
        "bad_lines": file.faults.count,
        "partial": result.is_partial,
    }


def _print(results: Sequence[Result], file: TraceFile, asked: Asked) -> None:
    last = results[-1]
    console = Console(highlight=False)
    console.print(
        f"{last.requests:,} requests, {last.total_tokens:,} prompt tokens, {last.references:,} references to "
        f"{last.distinct_blocks:,} blocks of {last.block_size:,} tokens",
        soft_wrap=True,
    )
    columns = ("policy", "blocks", "hit rate", "hit tokens", "blocks hit", "evictions", "prefill saved")
    rows = [_row(result, asked.prefill) for result in results]
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column == "policy" else "right")
    for row in rows:
        table.add_row(*row)
    if console.measure(table, options=console.options.update(width=MAX_WIDTH)).maximum <= console.width:
        console.print(table)
    else:  # in lines, where a table would cut its figures
        for row in rows:
            figures = zip(columns, row, strict=True)
            console.print(", ".join(f"{column} {figure}" for column, figure in figures), markup=False)
    if last.is_partial:
        console.print(f"Interrupted: counts marked as partial are of the first {last.requests:,} requests.")


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
