"""The cache door: a transformers `Cache` whose entries live in one pool of blocks and nowhere else.

Dimension key: S slots (blocks × block size) · n new tokens of all sequences of the step · T cached tokens of one
sequence · h KV heads · d head dimension · w = h·d values of one entry.

A layer stores keys as [S, w] and values as [S, w'], token by token, so that a block is one stretch of memory, a run of
adjacent blocks is a view, and blocks in any other order are gathered by copying whole blocks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from transformers.cache_utils import Cache, DynamicLayer

from kvviz.engine.engine import Segment
from kvviz.model.geometry import ModelGeometry


@dataclass(slots=True)
class SegmentPlan:
    """Where one sequence of the step reads: blocks from `first_block` of its table on, cut to `num_tokens` entries.

    `read_start` is the position of the first entry read (later ones only when blocks out of the window are gone).
    `run` is the first slot when the blocks lie side by side, else `blocks` [number of blocks] lists them.
    """

    start: int
    num_new: int
    read_start: int
    num_tokens: int
    run: int | None
    blocks: torch.Tensor | None


@dataclass(slots=True)
class StepPlan:
    """Slots of all new tokens [n], the slot itself when there is but one, and the reading plan of each sequence."""

    write: torch.Tensor
    segments: list[SegmentPlan]
    only_slot: int | None = None

    @classmethod
    def of(cls, segments: Sequence[Segment], block_size: int) -> StepPlan:
        """Plan for the segments of a step."""
        slots = [slot for segment in segments for slot in segment.slots]
        only_slot = slots[0] if len(slots) == 1 else None
        return cls(
            torch.tensor(slots, dtype=torch.long), [_plan(segment, block_size) for segment in segments], only_slot
        )


def _plan(segment: Segment, block_size: int) -> SegmentPlan:
    table = segment.block_table[: -(-segment.length // block_size)]
    first = next(index for index, block_id in enumerate(table) if block_id is not None)
    blocks = [block_id for block_id in table[first:] if block_id is not None]
    adjacent = all(after == before + 1 for before, after in pairwise(blocks))
    return SegmentPlan(
        start=segment.start,
        num_new=len(segment.token_ids),
        read_start=first * block_size,
        num_tokens=segment.length - first * block_size,
        run=blocks[0] * block_size if adjacent else None,
        blocks=None if adjacent else torch.tensor(blocks, dtype=torch.long),
    )


class PagedCache(Cache):
    """Pool of `num_blocks` × `block_size` slots, allocated once. `plan` must be set before each forward pass.

    `update` writes the new entries and returns those of all sequences laid end to end, [1, h, ΣT, d] each.
    """

    def __init__(
        self, geometry: ModelGeometry, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__(layer_class_to_replicate=DynamicLayer)
        self.block_size = block_size
        self.num_slots = num_blocks * block_size
        self.geometry = geometry
        self.plan = StepPlan(torch.empty(0, dtype=torch.long), [])
        self.written_layers: list[int] = []
        self.written_ns: list[int] = []
        self._pool = torch.zeros(
            self.num_slots * geometry.bytes_per_token // dtype.itemsize, dtype=dtype, device=device
        )
        self.keys: dict[int, torch.Tensor] = {}
        self.values: dict[int, torch.Tensor] = {}
        self._stacked: dict[str, torch.Tensor | None] = {}
        self._carve()
        self._scratch: dict[tuple[str, int], torch.Tensor] = {}

    def _carve(self) -> None:
        at = 0
        for name, store, shape_of in (("keys", self.keys, "key_shape"), ("values", self.values, "value_shape")):
            first = at
            for layer in self.geometry.stored_layers:
                heads, dim = getattr(layer, shape_of)
                size = self.num_slots * heads * dim
                store[layer.index] = self._pool[at : at + size].view(self.num_slots, heads * dim)
                at += size
            alike = len({getattr(layer, shape_of) for layer in self.geometry.layers}) == 1
            whole = self._pool[first:at]
            self._stacked[name] = whole.view(len(store), self.num_slots, -1) if alike else None

    @property
    def num_bytes(self) -> int:
        """Bytes of the pool, from the tensor itself."""
        return self._pool.numel() * self._pool.element_size()

    def gather(self, name: Literal["keys", "values"], slots: torch.Tensor) -> torch.Tensor:
        """What all layers hold in `slots`, [layers, len(slots), w]; narrower layers are padded with zeros."""
        stacked = self._stacked[name]
        if stacked is not None:
            return stacked[:, slots]
        store = self.keys if name == "keys" else self.values
        width = max(entries.shape[1] for entries in store.values())
        rows = self._pool.new_zeros(len(self.geometry.layers), len(slots), width)
        for layer, entries in store.items():
            rows[layer, :, : entries.shape[1]] = entries[slots]
        return rows

    def begin(self, plan: StepPlan) -> None:
        """Set the plan of the next forward pass."""
        self.plan = plan
        self.written_layers, self.written_ns = [], []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [1, h, n, d] keys and values of a layer, return [1, h, ΣT, d] of all that is cached for the step."""
        keys = self._exchange("keys", self.keys[layer_idx], key_states)
        values = self._exchange("values", self.values[layer_idx], value_states)
        self.written_layers.append(layer_idx)
        self.written_ns.append(time.perf_counter_ns())
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: positions are always given explicitly."""
        return 0

    def fill_block(self, block_id: int, value: float) -> None:
        """Overwrite every entry of a block in every layer; what a test does to prove that nobody reads it."""
        rows = slice(block_id * self.block_size, (block_id + 1) * self.block_size)
        for store in (self.keys, self.values):
            for entries in store.values():
                entries[rows] = value

    def _exchange(self, name: str, entries: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        _, heads, num_new, dim = new.shape
        rows = new[0].transpose(0, 1).reshape(num_new, heads * dim)
        if self.plan.only_slot is not None:
            entries[self.plan.only_slot] = rows[0]
        else:
            entries.index_copy_(0, self.plan.write, rows)
        parts = [self._read(name, entries, segment) for segment in self.plan.segments]
        read = parts[0] if len(parts) == 1 else torch.cat(parts)
        return read.view(-1, heads, dim).transpose(0, 1)[None]

    def _read(self, name: str, entries: torch.Tensor, segment: SegmentPlan) -> torch.Tensor:
        """Entries of one sequence, [T, w]: a view when its blocks lie side by side, else gathered into scratch."""
        if segment.run is not None:
            return entries[segment.run : segment.run + segment.num_tokens]
        assert segment.blocks is not None
        width = entries.shape[1]
        blocks = entries.view(-1, self.block_size * width)
        if len(self.plan.segments) > 1:
            return blocks.index_select(0, segment.blocks).view(-1, width)[: segment.num_tokens]
        size = len(segment.blocks) * self.block_size * width
        scratch = self._scratch.get((name, width))
        if scratch is None or scratch.numel() < size:
            scratch = self._scratch[name, width] = torch.empty(self.num_slots * width, dtype=entries.dtype)
        gathered = scratch[:size].view(len(segment.blocks), self.block_size * width)
        torch.index_select(blocks, 0, segment.blocks, out=gathered)
        return gathered.view(-1, width)[: segment.num_tokens]
