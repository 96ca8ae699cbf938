"""Frames: tensors captured from the model, and the binary packs in which a page receives them.

Tensors are not events. A frame belongs to one step and request. It is kept within a byte budget and fetched by range.
docs/wire.md ("Frames") defines the formats.

Dimension key: L layers · H query heads · T tokens read · n new tokens · C columns of a pack.
"""

from __future__ import annotations

import itertools
import mmap
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from kvviz.errors import MissingError

MAX_COLUMNS = 512
#: Maximum number of cells (columns × (layers + query heads)) in a step's pack, at any context and model size.
MAX_PACK_CELLS = 512 * 39
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

_DTYPE_NAMES: dict[np.dtype[Any], str] = {np.dtype("u1"): "u8", np.dtype("<f2"): "f16", np.dtype("<f4"): "f32"}


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


def quantise_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantise non-negative rows [..., n] to u8 of the same shape and f32 [...] scales, value = u8 × scale."""
    scale = rows.max(axis=-1, initial=0.0).astype(np.float32) / np.float32(255)
    safe = np.where(scale > 0, scale, 1).astype(np.float32)
    return np.rint(rows / safe[..., None]).astype(np.uint8), scale


def bin_columns(rows: np.ndarray, size: int) -> np.ndarray:
    """Sum each group of `size` neighbours along the last axis; the last bin may be smaller."""
    if size == 1:
        return rows
    starts = np.arange(0, rows.shape[-1], size)
    return np.add.reduceat(rows, starts, axis=-1)


def encode_pack(head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Encode a pack: u32 length, JSON padded with spaces, then the arrays, each padded to 4 bytes."""
    described, body, offset = [], [], 0
    for name, array in arrays.items():
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        data = np.ascontiguousarray(little).tobytes()
        dtype = _DTYPE_NAMES[little.dtype]
        described.append({"name": name, "dtype": dtype, "shape": list(array.shape), "offset": offset})
        padding = -len(data) % 4
        body.append(data + bytes(padding))
        offset += len(data) + padding
    text = orjson.dumps({**head, "arrays": described})
    text += b" " * (-len(text) % 4)
    return len(text).to_bytes(4, "little") + text + b"".join(body)


def not_in_step(step: int, request_id: int, took_part: Iterable[int]) -> MissingError:
    """Return the error for a request that computed nothing in a step."""
    request_ids = list(took_part)
    named = ", ".join(map(str, request_ids[:_MAX_NAMED])) + (", …" if len(request_ids) > _MAX_NAMED else "")
    return MissingError(
        f"Request {request_id} computed nothing in step {step}; choose one that did: {named}.", code="not_in_step"
    )


class FrameSource(ABC):
    """Answers requests for frames as packs. Live sessions and recordings provide the frames.

    A step has a frame for each request it computed. `request_id` None means the first request in its batch.

    `triangle` and `scores` need queries. A source without queries doesn't override them.
    """

    log_id = ""

    @abstractmethod
    def step_frame(self, step: int, request_id: int | None = None) -> StepFrame:
        """The frame of a request in a step. Raises `MissingError` (`not_in_step` if the step computed others)."""

    @abstractmethod
    def norms(self, request_id: int) -> list[Norms]:
        """Norms of a request's entries as consecutive ranges; empty if none were kept."""

    @abstractmethod
    def entry(self, request_id: int, position: int, layer: int, write_seq: int) -> tuple[np.ndarray, np.ndarray]:
        """K [heads, dim] and V of one entry. Raises `MissingError` (`gone` with `since_step`)."""

    def triangle(self, step: int, layer: int, head: int, request_id: int | None = None) -> tuple[int, np.ndarray]:
        """Position of the first query, and weights [n, T] of a request in a step. Raises `MissingError`."""
        raise MissingError("Prefill triangles weren't captured; run the prompt live to see them.", code="not_captured")

    def scores(self, step: int, layer: int, position: int, request_id: int | None = None) -> dict[str, np.ndarray]:
        """`dot`, `scaled`, `weight` f32 [H] of the request's last query against a position. Raises `MissingError`."""
        raise MissingError("Queries weren't captured; run the prompt live to see q·k.", code="not_captured")

    def pack_step(self, step: int, layer: int, columns: int = MAX_COLUMNS, request_id: int | None = None) -> bytes:
        """Pack the head-mean attention of all layers, the head rows of `layer` and the new norms in `columns` bins."""
        frame = self.step_frame(step, request_id)
        num_layers, num_heads, num_tokens = frame.heads.shape
        layer = _checked(layer, num_layers)
        columns = max(1, min(columns, MAX_COLUMNS, MAX_PACK_CELLS // (num_layers + num_heads)))
        size = max(1, -(-num_tokens // columns))
        weights = frame.heads * frame.heads_scale[..., None]
        mean, mean_scale = quantise_rows(bin_columns(weights.mean(axis=1), size))
        heads, heads_scale = quantise_rows(bin_columns(weights[layer], size))
        new = slice(frame.key_norm.shape[1] - frame.num_new, None)
        return encode_pack(
            {**self._head("step", frame), "layer": layer, "bin": size},
            {
                "mean": mean,
                "mean_scale": mean_scale,
                "heads": heads,
                "heads_scale": heads_scale,
                "key_norm": frame.key_norm[:, new],
                "value_norm": frame.value_norm[:, new],
            },
        )

    def pack_heads(self, step: int, layer: int, request_id: int | None = None) -> bytes:
        """Pack the head rows of one layer, without binning."""
        frame = self.step_frame(step, request_id)
        layer = _checked(layer, len(frame.heads))
        arrays = {"heads": frame.heads[layer], "heads_scale": frame.heads_scale[layer]}
        rest = 1 - (frame.heads[layer] * frame.heads_scale[layer][:, None]).sum(axis=-1)
        if rest.max() > 0.02:  # a sink outside the cache; rounding alone is smaller
            arrays["sink_share"] = rest.astype(np.float32)
        return encode_pack({**self._head("heads", frame), "layer": layer}, arrays)

    def pack_norms(self, request_id: int) -> bytes:
        """Pack the norms of all positions of a request; NaN where they weren't kept."""
        stretches = self.norms(request_id)
        if not stretches:
            raise MissingError(f"The norms of request {request_id} weren't kept.", code="dropped")
        shape = (len(stretches[0].key), max(stretch.start + stretch.key.shape[1] for stretch in stretches))
        norms = {name: np.full(shape, np.nan, np.float16) for name in ("key_norm", "value_norm")}
        for stretch in stretches:
            at = slice(stretch.start, stretch.start + stretch.key.shape[1])
            norms["key_norm"][:, at], norms["value_norm"][:, at] = stretch.key, stretch.value
        return encode_pack({"kind": "norms", "request_id": request_id, "log_id": self.log_id}, norms)

    def pack_entry(self, request_id: int, position: int, layer: int, write_seq: int) -> bytes:
        key, value = self.entry(request_id, position, layer, write_seq)
        head = {"kind": "entry", "request_id": request_id, "position": position, "layer": layer, "write_seq": write_seq}
        return encode_pack(head, {"key": key.astype(np.float32), "value": value.astype(np.float32)})

    def pack_triangle(
        self, step: int, layer: int, head: int, columns: int = MAX_COLUMNS, request_id: int | None = None
    ) -> bytes:
        """Pack the attention weights of all queries of a request in a step, for one head."""
        start, weights = self.triangle(step, layer, head, request_id)
        size = max(1, -(-weights.shape[1] // max(1, min(columns, MAX_COLUMNS))))
        quantised, scale = quantise_rows(bin_columns(weights, size))
        about = {"kind": "triangle", "step": step, "layer": layer, "head": head, "start": start, "bin": size}
        return encode_pack({**about, "num_tokens": weights.shape[1]}, {"weights": quantised, "weights_scale": scale})

    def pack_scores(self, step: int, layer: int, position: int, request_id: int | None = None) -> bytes:
        """Pack q·k, scaled scores and weights per head for the request's last query and one position."""
        scores = self.scores(step, layer, position, request_id)
        arrays = {name: array.astype(np.float32) for name, array in scores.items()}
        return encode_pack({"kind": "scores", "step": step, "layer": layer, "position": position}, arrays)

    def _head(self, kind: str, frame: StepFrame) -> dict[str, Any]:
        return {
            "kind": kind,
            "step": frame.step,
            "log_id": self.log_id,
            "request_id": frame.request_id,
            "num_tokens": frame.num_tokens,
            "start": frame.start,
            "num_new": frame.num_new,
        }


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


def _checked(layer: int, num_layers: int) -> int:
    if not 0 <= layer < num_layers:
        raise MissingError(f"Layer {layer} doesn't exist; choose one from 0 to {num_layers - 1}.", code="no_layer")
    return layer
