"""The cache door: a transformers `Cache` whose entries live in one pool of blocks.

Dimension key: N blocks in the pool · B block size · n new tokens of all sequences of the step · T cached tokens of one
sequence · P tokens read for all sequences, whole blocks · h KV heads · d head dimension · w = h·d values of one entry.

A layer stores its blocks as [N, h, B, d]. Within a block, the entries of each head are contiguous, so reading a table
is a single `index_select` of runs of B·d values, and keeps the keys of each head contiguous. K and V share a block and
the `index_select` if their shapes are the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from transformers.cache_utils import Cache, DynamicLayer

from kvviz.engine.runner import Segment
from kvviz.model.geometry import LayerGeometry, ModelGeometry

#: Sequences with one new token each are read evenly if this reads at most this many times the blocks.
MAX_PADDING = 1.5


@dataclass(slots=True)
class SegmentPlan:
    """The entries that one sequence of the step reads: `num_tokens` of them, from position `read_start` on.

    `read_start` is above 0 only if blocks outside the window are gone. The entries start at `read_at` in everything the
    step reads. The new tokens start at `start`. `positions` [num_tokens]: positions of the entries, if blocks between
    them are gone; None: consecutive.
    """

    start: int
    num_new: int
    read_start: int
    num_tokens: int
    read_at: int
    request_id: int = -1
    positions: torch.Tensor | None = None

    @property
    def length(self) -> int:
        return self.start + self.num_new


@dataclass(slots=True)
class EvenReads:
    """Several sequences with one new token each, laid out evenly: each has `num_slots` slots, in order.

    `lengths` [S]: how many of these are its entries. `unread`: places of the others in everything the step reads.
    """

    num_slots: int
    lengths: torch.Tensor
    unread: torch.Tensor
    _biases: dict[int | None, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, lengths: Sequence[int], num_slots: int) -> EvenReads:
        found = torch.tensor(lengths)
        beyond = torch.arange(num_slots)[None] >= found[:, None]
        return cls(num_slots, found, beyond.flatten().nonzero()[:, 0])

    def bias(self, window: int | None, num_kv_heads: int, dtype: torch.dtype) -> torch.Tensor:
        """Bias for the scores: 0 where a sequence's newest query looks, -inf elsewhere; [h × S, 1, num_slots]."""
        found = self._biases.get(window)
        if found is None:
            at, lengths = torch.arange(self.num_slots)[None], self.lengths[:, None]
            hidden = at >= lengths if window is None else (at >= lengths) | (at < lengths - window)
            bias = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)
            found = self._biases[window] = bias.repeat(num_kv_heads, 1)[:, None]
        return found


@dataclass(slots=True)
class StepPlan:
    """Block and offset [n] of all new tokens, all blocks read [P / B], and the part of each sequence."""

    write_blocks: torch.Tensor
    write_offsets: torch.Tensor
    read_blocks: torch.Tensor
    segments: list[SegmentPlan]
    block_starts: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))  # [P / B], positions
    only: tuple[int, int] | None = None  # block and offset, if there is one new token
    even: EvenReads | None = None
    _stretches: dict[int, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, segments: Sequence[Segment], block_size: int) -> StepPlan:
        slots = [slot for segment in segments for slot in segment.slots]
        written = torch.tensor(slots, dtype=torch.long)
        reads: list[list[int]] = []
        places: list[list[int]] = []  # of those blocks in their table
        for segment in segments:
            table = segment.block_table[: -(-segment.length // block_size)]
            places.append([index for index, block_id in enumerate(table) if block_id is not None])
            reads.append([block_id for block_id in table if block_id is not None])
        longest = max(map(len, reads), default=0)
        is_even = (
            len(segments) > 1
            and all(len(segment.token_ids) == 1 for segment in segments)
            and longest * len(reads) <= MAX_PADDING * sum(map(len, reads))
            and all(len(held) == held[-1] + 1 - held[0] for held in places)
        )
        plans: list[SegmentPlan] = []
        blocks: list[int] = []
        indices: list[int] = []
        for segment, held, read in zip(segments, places, reads, strict=True):
            start, whole = held[0] * block_size, len(held) == held[-1] + 1 - held[0]
            num_tokens = (len(held) - 1) * block_size + segment.length - held[-1] * block_size
            positions = (torch.tensor(held)[:, None] * block_size + torch.arange(block_size)).flatten()[:num_tokens]
            plans.append(
                SegmentPlan(
                    start=segment.start,
                    num_new=len(segment.token_ids),
                    read_start=start,
                    num_tokens=num_tokens,
                    read_at=len(blocks) * block_size,
                    request_id=segment.request_id,
                    positions=None if whole else positions,
                )
            )
            padding = longest - len(read) if is_even else 0
            blocks += read + read[-1:] * padding
            indices += held + held[-1:] * padding
        return cls(
            write_blocks=written // block_size,
            write_offsets=written % block_size,
            read_blocks=torch.tensor(blocks, dtype=torch.long),
            segments=plans,
            block_starts=torch.tensor(indices, dtype=torch.long) * block_size,
            only=divmod(slots[0], block_size) if len(slots) == 1 else None,
            even=EvenReads.of([plan.num_tokens for plan in plans], longest * block_size) if is_even else None,
        )

    def stretches(self, num_heads: int) -> torch.Tensor:
        """Where the blocks read are in a layer viewed as [N × heads, B × d], head by head: [heads × P / B]."""
        found = self._stretches.get(num_heads)
        if found is None:
            found = (self.read_blocks * num_heads + torch.arange(num_heads)[:, None]).flatten()
            self._stretches[num_heads] = found
        return found


class PagedCache(Cache):
    """Pool of `num_blocks` × `block_size` slots, allocated once. Set `plan` before each forward pass.

    `update` writes the new entries and returns those of all sequences, [1, h, P, d] each. The plan locates each
    sequence; between sequences there may be unused slots of last blocks. A single sequence is cut to its T entries.
    `keys[layer]` and `values[layer]` are views of the pool, [N, h, B, d].
    """

    def __init__(
        self,
        geometry: ModelGeometry,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        num_host_blocks: int = 0,
    ) -> None:
        super().__init__(layer_class_to_replicate=DynamicLayer)
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.geometry = geometry
        self.plan = StepPlan.of([], block_size)
        self.written_layers: list[int] = []
        self.written_ns: list[int] = []
        self.dtype = dtype
        self.device = device
        self.copied_bytes = 0  # while the pool grew
        self._allocate(num_host_blocks)

    def _allocate(self, num_host_blocks: int) -> None:
        values_per_block = self.block_size * self.geometry.bytes_per_token // self.dtype.itemsize
        self.block_bytes = values_per_block * self.dtype.itemsize
        self._pool = torch.zeros(self.num_blocks * values_per_block, dtype=self.dtype, device=self.device)
        self.host = torch.empty(num_host_blocks, values_per_block, dtype=self.dtype, device="cpu")
        self.keys: dict[int, torch.Tensor] = {}
        self.values: dict[int, torch.Tensor] = {}
        self._stores: dict[int, list[torch.Tensor]] = {}  # tensors that a layer reads: K and V together, or each
        self._scratch: dict[tuple[int, int, int], torch.Tensor] = {}
        self._whole = self._carve()

    def _carve(self) -> torch.Tensor | None:
        """Assign each layer its part of the pool. If all layers are alike, return it as [layers, N, heads, B, d]."""
        num_slots = self.num_blocks * self.block_size
        at = 0
        for layer in self.geometry.stored_layers:
            (key_heads, key_dim), value_heads = layer.key_shape, layer.value_shape[0]
            together = layer.key_shape == layer.value_shape
            shapes = [(key_heads + value_heads, key_dim)] if together else [layer.key_shape, layer.value_shape]
            stores = []
            for heads, dim in shapes:
                size = num_slots * heads * dim
                stores.append(self._pool[at : at + size].view(self.num_blocks, heads, self.block_size, dim))
                at += size
            self._stores[layer.index] = stores
            self.keys[layer.index] = stores[0][:, :key_heads]
            self.values[layer.index] = stores[-1][:, -value_heads:]
        shapes_of_layers = {(layer.key_shape, layer.value_shape) for layer in self.geometry.layers}
        (key_heads, dim), value_shape = self.geometry.layers[0].key_shape, self.geometry.layers[0].value_shape
        if len(shapes_of_layers) > 1 or value_shape != (key_heads, dim):
            return None
        return self._pool.view(len(self.geometry.layers), self.num_blocks, 2 * key_heads, self.block_size, dim)

    @property
    def num_bytes(self) -> int:
        return self._pool.numel() * self._pool.element_size()

    @property
    def bytes_per_token(self) -> float:
        """Bytes per token in all layers, from the tensors."""
        return self.block_bytes / self.block_size

    def layer_bytes(self, layer: int) -> float:
        stores = self._stores.get(layer, ())
        return sum(store[0].nbytes for store in stores) / self.block_size

    def held_bytes(self, request_id: int, num_blocks: int) -> int:
        return num_blocks * self.block_bytes

    def read_bytes(self, request_id: int) -> int:
        """Bytes of the stored entries that a request's last query read."""
        plan = next((plan for plan in self.plan.segments if plan.request_id == request_id), None)
        if plan is None:
            return 0
        seen = ((layer.index, min(plan.num_tokens, layer.window or plan.num_tokens)) for layer in self._layers())
        return round(sum(self.layer_bytes(index) * num_tokens for index, num_tokens in seen))

    def _layers(self) -> Sequence[LayerGeometry]:
        return self.geometry.stored_layers

    def fork(self, parent_id: int, request_id: int) -> None:
        pass

    def forget(self, request_id: int) -> None:
        pass

    def begin(self, plan: StepPlan) -> None:
        self.plan = plan
        self.written_layers, self.written_ns = [], []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [1, h, n, d] keys and values of a layer; return [1, h, P, d] of all cached entries of the step."""
        self._write(self.keys[layer_idx], key_states[0])
        self._write(self.values[layer_idx], value_states[0])
        read = [self._read(store, which) for which, store in enumerate(self._stores[layer_idx])]
        num_kv_heads = key_states.shape[1]
        keys, values = read if len(read) == 2 else (read[0][:num_kv_heads], read[0][num_kv_heads:])
        self.written_layers.append(layer_idx)
        self.written_ns.append(time.perf_counter_ns())
        return keys[None], values[None]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return 0: positions are always explicit."""
        return 0

    def entries(self, name: Literal["keys", "values"], layer: int, slots: torch.Tensor) -> torch.Tensor:
        """Entries of a layer in `slots`, [len(slots), h, d]."""
        store = self.keys[layer] if name == "keys" else self.values[layer]
        return store[slots // self.block_size, :, slots % self.block_size]

    def gather(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of all layers in `slots`, [layers, len(slots), w] each; narrower layers padded with zeros."""
        if self._whole is not None:
            found = self._whole[:, slots // self.block_size, :, slots % self.block_size].transpose(0, 1)
            num_kv_heads = found.shape[2] // 2
            return found[:, :, :num_kv_heads].flatten(2), found[:, :, num_kv_heads:].flatten(2)
        return self._gather_each("keys", slots), self._gather_each("values", slots)

    def _gather_each(self, name: Literal["keys", "values"], slots: torch.Tensor) -> torch.Tensor:
        stored = self.geometry.stored_layers
        parts = {layer.index: self.entries(name, layer.index, slots).flatten(1) for layer in stored}
        width = max(part.shape[1] for part in parts.values())
        rows = torch.zeros(len(self.geometry.layers), len(slots), width, dtype=self.dtype, device=self.device)
        for layer, part in parts.items():
            rows[layer, :, : part.shape[1]] = part
        return rows

    def copy_block(self, source: int, target: int) -> int:
        """Copy all entries of a block to another block; return the number of bytes."""
        for store in self._each_store():
            store[target] = store[source]
        return self.block_bytes

    def store_blocks(self, block_ids: Sequence[int], host_ids: Sequence[int]) -> int:
        """Copy blocks to the host tier; return the number of bytes."""
        for part, store in self._host_parts():
            part[list(host_ids)] = store[list(block_ids)].flatten(1).to(part.device)
        return self.block_bytes * len(block_ids)

    def load_blocks(self, host_ids: Sequence[int], block_ids: Sequence[int]) -> int:
        """Copy blocks back from the host tier; return the number of bytes."""
        for part, store in self._host_parts():
            store[list(block_ids)] = part[list(host_ids)].view(-1, *store.shape[1:]).to(store.device)
        return self.block_bytes * len(block_ids)

    def _each_store(self) -> list[torch.Tensor]:
        return [store for stores in self._stores.values() for store in stores]

    def _host_parts(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each store and its columns of the host tier, [host blocks, heads × B × d]."""
        parts, at = [], 0
        for store in self._each_store():
            size = store[0].numel()
            parts.append((self.host[:, at : at + size], store))
            at += size
        return parts

    def _write(self, store: torch.Tensor, new: torch.Tensor) -> None:
        """Write [h, n, d] to the slots of the step."""
        if self.plan.only is not None:
            block_id, offset = self.plan.only
            store[block_id, :, offset] = new[:, 0]
        else:
            store[self.plan.write_blocks, :, self.plan.write_offsets] = new.transpose(0, 1)

    def _read(self, store: torch.Tensor, which: int) -> torch.Tensor:
        """Read all blocks of the step into scratch memory, head by head: [heads, P, d]."""
        plan = self.plan
        _, heads, block_size, dim = store.shape
        stretches = plan.stretches(heads)
        scratch = self._scratch.get((which, heads, dim))
        if scratch is None or scratch.shape[0] < len(stretches):
            num_stretches = max(len(stretches), heads * self.num_blocks)
            scratch = self._scratch[which, heads, dim] = store.new_empty(num_stretches, block_size * dim)
        read = scratch[: len(stretches)]
        torch.index_select(store.view(-1, block_size * dim), 0, stretches, out=read)
        entries = read.view(heads, -1, dim)
        if plan.even:
            entries.index_fill_(1, plan.even.unread, 0)  # their weight is 0, so they must not be NaN
        return entries[:, : plan.segments[0].num_tokens] if len(plan.segments) == 1 else entries
