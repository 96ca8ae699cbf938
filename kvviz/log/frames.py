"""Frames: tensors captured from the model, by step and request.

Tensors are not events. A frame belongs to one step and request. It is kept within a byte budget and fetched by range.
`kvviz.log.packs` is how a page receives them.

Dimension key: L layers · H query heads · T tokens read · n new tokens.
"""

from __future__ import annotations

import itertools
import mmap
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kvviz.errors import MissingError

#: Byte budget for the frames of a session.
FRAME_BUDGET = 256 * 2**20
#: Number of requests whose norms are kept after their frames are dropped.
MAX_NORM_REQUESTS = 64
#: Smallest frame that gets its own memory mapping; systems allow about 65,000 of them.
MIN_MOVED_BYTES = 64 * 2**10
#: Alignment of the arrays in such a frame, in bytes.
ALIGNMENT = 16
#: Maximum number of requests that an error message lists.
_MAX_NAMED = 8


@dataclass(slots=True, kw_only=True)
class StepFrame:
    """Captured tensors of one request in one step.

    - `heads` u8 [L, H, T], `heads_scale` f32 [L, H]: weights of the last query, value = u8 × scale.
    - `key_norm`, `value_norm` f16 [L, k]: norms of the entries at positions `norm_start` …; the last `num_new` are
      new, those before them existed already (a prefix hit).
    - `queries` f16 [L, H, n, d]: queries of the new tokens, or None.
    - `slots`, `seqs` [T]: slot of each entry read, and the write that stored it there.
    - `keys`, `values` u8 [L, n, w] with f32 [L, n] scales, value = (u8 − 128) × scale; only in recordings.
    """

    step: int
    request_id: int
    start: int
    num_new: int
    num_tokens: int
    heads: np.ndarray
    heads_scale: np.ndarray
    key_norm: np.ndarray
    value_norm: np.ndarray
    queries: np.ndarray | None = None
    slots: np.ndarray | None = None
    seqs: np.ndarray | None = None
    entries: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def norm_start(self) -> int:
        return self.start + self.num_new - int(self.key_norm.shape[1])

    @property
    def norms(self) -> Norms:
        return Norms(self.norm_start, self.key_norm, self.value_norm)

    @property
    def num_bytes(self) -> int:
        arrays = [self.heads, self.heads_scale, self.key_norm, self.value_norm, self.queries, self.slots, self.seqs]
        kept: list[np.ndarray] = [array for array in (*arrays, *self.entries.values()) if array is not None]
        return sum([int(array.nbytes) for array in kept])

    def move_out(self) -> None:
        """Move a large frame to its own memory mapping, except its norms, which may be kept longer.

        Frames grow with the context. On the heap, they would leave holes too small for later frames.
        """
        names = [
            name for name in ("heads", "heads_scale", "queries", "slots", "seqs") if getattr(self, name) is not None
        ]
        arrays = [*(getattr(self, name) for name in names), *self.entries.values()]
        starts = [0, *itertools.accumulate(-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays)]
        if starts[-1] < MIN_MOVED_BYTES:
            return
        memory = np.frombuffer(mmap.mmap(-1, starts[-1]), np.uint8)
        moved: list[np.ndarray] = []
        for array, start in zip(arrays, starts, strict=False):
            moved.append(memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape))
            moved[-1][...] = array
        for name, array in zip(names, moved, strict=False):
            setattr(self, name, array)
        self.entries = dict(zip(self.entries, moved[len(names) :], strict=True))


@dataclass(frozen=True, slots=True)
class Norms:
    """Norms of the entries at positions `start` …, f16 [L, k] each."""

    start: int
    key: np.ndarray
    value: np.ndarray


def not_in_step(step: int, request_id: int, took_part: Iterable[int]) -> MissingError:
    """Return the error for a request that computed nothing in a step."""
    request_ids = list(took_part)
    named = ", ".join(map(str, request_ids[:_MAX_NAMED])) + (", …" if len(request_ids) > _MAX_NAMED else "")
    return MissingError(
        f"Request {request_id} computed nothing in step {step}; choose one that did: {named}.", code="not_in_step"
    )


class FrameStore:
    """Frames by step and request within a byte budget. The oldest whole steps are dropped first.

    The last step is always kept. Thread-safe.
    """

    def __init__(self, budget: int = FRAME_BUDGET) -> None:
        self.budget = budget
        self.num_bytes = 0
        self.first_step = 1
        self._steps: OrderedDict[int, dict[int, StepFrame]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, *frames: StepFrame) -> None:
        """Add the frames of a step in batch order, and drop the oldest steps beyond the budget."""
        with self._lock:
            for frame in frames:
                of_step = self._steps.setdefault(frame.step, {})
                former = of_step.get(frame.request_id)
                self.num_bytes += frame.num_bytes - (former.num_bytes if former else 0)
                of_step[frame.request_id] = frame
            while self.num_bytes > self.budget and len(self._steps) > 1:
                step, oldest = self._steps.popitem(last=False)
                self.num_bytes -= sum(frame.num_bytes for frame in oldest.values())
                self.first_step = step + 1

    def get(self, step: int, request_id: int | None = None) -> StepFrame:
        """The frame of a request in a step; None: of the first request in its batch.

        Raises `MissingError`: `dropped`, `no_such_step`, or `not_in_step` if the step computed only others.
        """
        with self._lock:
            of_step = dict(self._steps.get(step, {}))
        if of_step:
            frame = next(iter(of_step.values())) if request_id is None else of_step.get(request_id)
            if frame is None:
                assert request_id is not None
                raise not_in_step(step, request_id, of_step)
            return frame
        if step < self.first_step:
            raise MissingError(
                f"The frame of step {step} was dropped to stay within {self.budget // 2**20} MiB; the oldest one kept "
                f"is step {self.first_step}.",
                code="dropped",
            )
        raise MissingError(f"No frame of step {step} was captured.", code="no_such_step")

    def steps(self) -> list[int]:
        with self._lock:
            return list(self._steps)

    def frames(self) -> list[StepFrame]:
        with self._lock:
            return [frame for of_step in self._steps.values() for frame in of_step.values()]
