"""Memory growth of a long run: resident bytes once all budgets are full, and after many more steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch

from kvviz.bench.decode import shuffled_run
from kvviz.model.instrumented import InstrumentedModel

GROWTH_STEPS = 5_000
#: Limit of records in the log, below the default so that the run reaches it.
GROWTH_RECORDS = 5_000


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """Resident bytes once frames and events fill their budgets, and `num_steps` steps later."""

    full_bytes: int
    later_bytes: int
    num_steps: int

    @property
    def growth(self) -> float:
        return self.later_bytes / self.full_bytes - 1


def measure_memory(instrumented: InstrumentedModel, progress: Callable[[str], None]) -> MemoryResult:
    """Fill the frame budget and the log at a long context, then decode `GROWTH_STEPS` more steps."""
    run = shuffled_run(instrumented, 1_024, max_records=GROWTH_RECORDS)
    ids = torch.randint(100, 40_000, (900,), generator=torch.Generator().manual_seed(1)).tolist()
    process = psutil.Process()

    def steps(count: int) -> None:
        for _ in range(count):
            if not run.has_work:
                run.engine.add_request(ids, max_new_tokens=100)
            run.step()

    while run.frames.store.first_step == 1 or not run.log.first_seq:
        steps(50)
        progress(f"filling: {run.frames.store.num_bytes / 2**20:.0f} MiB of frames")
    full = process.memory_info().rss
    for _ in range(GROWTH_STEPS // 250):
        steps(250)
        progress(f"step {run.engine.num_steps}: {process.memory_info().rss / 2**20:.0f} MiB resident")
    return MemoryResult(full, process.memory_info().rss, GROWTH_STEPS)
