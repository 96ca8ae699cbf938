"""A paged cache whose blocks are stored by a codec, with a full-precision part for recent tokens.

Dimension key: N blocks in the pool · B block size · n new tokens · m blocks that are read · M blocks in full
precision · P = m · B · h KV heads · d head dimension.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

import torch

from kvviz.model.codecs import Codec
from kvviz.model.geometry import ModelGeometry
from kvviz.model.paged_cache import PagedCache, SegmentPlan, StepPlan

#: Initial capacity of the full-precision part, in blocks.
NUM_FULL_BLOCKS = 8


class EncodedCache(PagedCache):
    """Pool of `num_blocks` blocks, each stored as the parts of a prepared `codec`.

    A codec that encodes several tokens together, or keeps recent ones in full precision, gets a second, small pool. A
    block is in it while it holds one of a running request's last `codec.recent` tokens, or is being filled. With
    `growing`, the pool holds only the blocks ever written, and is copied each time it grows, like a cache that grows by
    concatenation; `copied_bytes` counts these copies. `geometry` describes what attention reads, `base` (None: the
    same) what the model passes in.
    """

    def __init__(
        self,
        geometry: ModelGeometry,
        codec: Codec,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        num_host_blocks: int = 0,
        growing: bool = False,
        base: ModelGeometry | None = None,
    ) -> None:
        self.codec = codec
        self._base = base or geometry
        self.growing = growing
        self.staged = codec.grain > 1 or codec.recent > 0
        super().__init__(geometry, num_blocks, block_size, dtype, device, num_host_blocks=num_host_blocks)

    def _allocate(self, num_host_blocks: int) -> None:
        size = 0 if self.growing else self.num_blocks
        self._parts: dict[int, list[torch.Tensor]] = {}
        self._host_of: dict[int, list[torch.Tensor]] = {}
        self._full: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._layer_bytes: dict[int, int] = {}
        for layer in self._base.stored_layers:
            parts = self.codec.parts(layer, self.block_size)
            self._parts[layer.index] = [torch.zeros(size, *p.shape, dtype=p.dtype, device=self.device) for p in parts]
            self._host_of[layer.index] = [torch.zeros(num_host_blocks, *p.shape, dtype=p.dtype) for p in parts]
            self._layer_bytes[layer.index] = sum(part.num_bytes for part in parts)
            if self.staged:
                self._full[layer.index] = self._blank(layer.key_shape), self._blank(layer.value_shape)
        self.block_bytes = sum(self._layer_bytes.values())
        self._full_of: dict[int, int] = {}
        self._full_free = list(range(NUM_FULL_BLOCKS if self.staged else 0))
        self._wanted_by: dict[int, set[int]] = {}
        self._starts = torch.zeros(self.num_blocks, dtype=torch.long)  # first position in a block
        self._filled = torch.zeros(self.num_blocks, dtype=torch.long)  # entries written to it
        self._place_reads(StepPlan.of([], self.block_size))

    def _blank(self, shape: tuple[int, int], num_blocks: int = NUM_FULL_BLOCKS) -> torch.Tensor:
        heads, dim = shape
        return torch.zeros(num_blocks, heads, self.block_size, dim, dtype=self.dtype, device=self.device)

    @property
    def num_bytes(self) -> int:
        """Size of the pool and the full-precision part in bytes, from the tensors themselves."""
        tensors = [part for parts in self._parts.values() for part in parts]
        tensors += [full for pair in self._full.values() for full in pair]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def layer_bytes(self, layer: int) -> float:
        return self._layer_bytes.get(layer, 0) / self.block_size

    @property
    def _full_token_bytes(self) -> int:
        return int(self._base.bytes_per_token)

    def held_bytes(self, request_id: int, num_blocks: int) -> int:
        """Bytes of the blocks that a request holds, including their copies in full precision."""
        num_full = len(self._wanted_by.get(request_id, ()))
        return num_blocks * self.block_bytes + num_full * self.block_size * self._full_token_bytes

    def read_bytes(self, request_id: int) -> int:
        encoded = super().read_bytes(request_id)
        plan = next((plan for plan in self.plan.segments if plan.request_id == request_id), None)
        if plan is None or not self.staged:
            return encoded
        blocks = self._blocks_of(self.plan, plan)
        starts = self._starts[blocks].tolist()
        full = [start for block, start in zip(blocks.tolist(), starts, strict=True) if block in self._full_of]
        num_full = sum(min(self.block_size, plan.length - start) for start in full)
        more: int = round(num_full * (self._full_token_bytes - self.bytes_per_token))
        return encoded + more

    def begin(self, plan: StepPlan) -> None:
        """Set the plan of the next forward pass, and encode blocks that no longer need full precision."""
        super().begin(plan)
        if self.growing:
            self._grow(int(plan.write_blocks.max()) + 1 if len(plan.write_blocks) else 0)
        self._starts[plan.read_blocks] = plan.block_starts
        if self.staged:
            self._stage(plan)
        self._note_writes(plan)
        self._place_reads(plan)

    def _grow(self, num_blocks: int) -> None:
        for parts in self._parts.values():
            for index, part in enumerate(parts):
                if num_blocks > len(part):
                    self.copied_bytes += part.nbytes
                    parts[index] = torch.cat([part, part.new_zeros(num_blocks - len(part), *part.shape[1:])])

    def _blocks_of(self, plan: StepPlan, segment: SegmentPlan) -> torch.Tensor:
        first = segment.read_at // self.block_size
        return plan.read_blocks[first : first - (-segment.num_tokens // self.block_size)]

    def _stage(self, plan: StepPlan) -> None:
        """Give full precision to blocks that this step writes or that are recent, and encode the rest."""
        fresh: set[int] = set()
        for segment in plan.segments:
            blocks = self._blocks_of(plan, segment)
            first = segment.read_at // self.block_size
            starts = plan.block_starts[first : first + len(blocks)]
            newest = min(segment.start, max(0, segment.length - self.codec.recent))
            wanted = starts + self.block_size > newest
            self._wanted_by[segment.request_id] = set(blocks[wanted].tolist())
            fresh |= set(blocks[starts >= segment.start].tolist())
        wanted_now = set().union(*self._wanted_by.values())
        self._encode_blocks([block_id for block_id in self._full_of if block_id not in wanted_now])
        self._decode_blocks([block_id for block_id in sorted(wanted_now) if block_id not in self._full_of], fresh)

    def _encode_blocks(self, block_ids: list[int]) -> None:
        if not block_ids:
            return
        at = torch.tensor(block_ids)
        slots = torch.tensor([self._full_of[block_id] for block_id in block_ids])
        offsets = torch.arange(self.block_size)
        # Unwritten entries must not widen the range of their group, so they repeat the last written entry.
        taken = offsets.minimum((self._filled[at] - 1).clamp_min(0)[:, None])  # [m, B]
        positions = self._starts[at][:, None] + offsets
        for layer, (keys, values) in self._full.items():
            entries = [full[slots[:, None], :, taken].transpose(1, 2) for full in (keys, values)]  # [m, h, B, d]
            encoded = self.codec.encode(layer, entries[0], entries[1], positions)
            for part, new in zip(self._parts[layer], encoded, strict=True):
                part[at] = new
        self._discard_full(block_ids)

    def _discard_full(self, block_ids: Sequence[int]) -> None:
        """Discard the full-precision copies of blocks: what is encoded is all that they contain now."""
        for block_id in block_ids:
            if block_id in self._full_of:
                self._full_free.append(self._full_of.pop(block_id))

    def _decode_blocks(self, block_ids: list[int], fresh: set[int]) -> None:
        """Move blocks to full precision, and decode their contents unless this step writes them from their start."""
        while len(self._full_free) < len(block_ids):
            num_full = next(iter(self._full.values()))[0].shape[0]
            self._full = {
                layer: (torch.cat([keys, torch.zeros_like(keys)]), torch.cat([values, torch.zeros_like(values)]))
                for layer, (keys, values) in self._full.items()
            }
            self._full_free += range(num_full, 2 * num_full)
        for block_id in block_ids:
            self._full_of[block_id] = self._full_free.pop()
        held = [block_id for block_id in block_ids if block_id not in fresh]
        if held:
            at, slots = torch.tensor(held), torch.tensor([self._full_of[block_id] for block_id in held])
            for layer, (keys, values) in self._full.items():
                keys[slots], values[slots] = self._decoded(layer, at)

    def _decoded(self, layer: int, blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Decode blocks to K and V [m, heads, B, d]."""
        parts = tuple(part.index_select(0, blocks) for part in self._parts[layer])
        positions = self._starts[blocks][:, None] + torch.arange(self.block_size)
        return self.codec.decode(layer, parts, positions)

    def _note_writes(self, plan: StepPlan) -> None:
        """Record how far each block is written after the step; a write at offset 0 resets it."""
        blocks, offsets = plan.write_blocks, plan.write_offsets
        self._filled[blocks[offsets == 0]] = 0
        self._filled.scatter_reduce_(0, blocks, offsets + 1, "amax")

    def _place_reads(self, plan: StepPlan) -> None:
        """Determine which of the blocks read are encoded or in full precision, and where each is."""
        full = [self._full_of.get(block_id, -1) for block_id in plan.read_blocks.tolist()]
        slots = torch.tensor(full, dtype=torch.long)
        self._full_at = (slots >= 0).nonzero()[:, 0]
        self._encoded_at = (slots < 0).nonzero()[:, 0]
        self._full_slots = slots[self._full_at]
        self._encoded_blocks = plan.read_blocks[self._encoded_at]
        written = [self._full_of.get(block_id, -1) for block_id in plan.write_blocks.tolist()]
        self._write_slots = torch.tensor(written, dtype=torch.long)
        self._write_positions = (
            torch.cat([torch.arange(part.start, part.length) for part in plan.segments])[:, None]
            if plan.segments
            else torch.zeros(0, 1, dtype=torch.long)
        )

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        plan = self.plan
        new = key_states[0].transpose(0, 1), value_states[0].transpose(0, 1)  # [n, h, d]
        if self.staged:
            for full, entries in zip(self._full[layer_idx], new, strict=True):
                full[self._write_slots, :, plan.write_offsets] = entries
        else:
            encoded = self.codec.encode(layer_idx, new[0][:, :, None], new[1][:, :, None], self._write_positions)
            for part, entry in zip(self._parts[layer_idx], encoded, strict=True):
                part[plan.write_blocks, :, plan.write_offsets] = entry[:, :, 0]
        read = [self._laid_out(entries) for entries in self._read_blocks(layer_idx)]
        self.written_layers.append(layer_idx)
        self.written_ns.append(time.perf_counter_ns())
        return read[0][None], read[1][None]

    def _read_blocks(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of the blocks of the step, [m, heads, B, d]."""
        if not len(self._full_at):
            return self._decoded(layer, self._encoded_blocks)
        full = [entries[self._full_slots] for entries in self._full[layer]]
        if not len(self._encoded_at):
            return full[0], full[1]
        mixed = []
        for encoded, kept in zip(self._decoded(layer, self._encoded_blocks), full, strict=True):
            entries = encoded.new_empty(len(self.plan.read_blocks), *encoded.shape[1:])
            entries[self._encoded_at], entries[self._full_at] = encoded, kept
            mixed.append(entries)
        return mixed[0], mixed[1]

    def _laid_out(self, blocks: torch.Tensor) -> torch.Tensor:
        """Reshape blocks [m, heads, B, d] to [heads, P, d]; a single sequence ends at its last entry."""
        plan = self.plan
        entries = blocks.transpose(0, 1).reshape(blocks.shape[1], -1, blocks.shape[-1])
        if plan.even:
            entries.index_fill_(1, plan.even.unread, 0)  # their weight is 0, so they must not be NaN
        return entries[:, : plan.segments[0].num_tokens] if len(plan.segments) == 1 else entries

    def entries(self, name: Literal["keys", "values"], layer: int, slots: torch.Tensor) -> torch.Tensor:
        which = 0 if name == "keys" else 1
        blocks, back = torch.unique(slots // self.block_size, return_inverse=True)
        found = self._decoded(layer, blocks)[which]
        for index, block_id in enumerate(blocks.tolist()):
            if block_id in self._full_of:
                found[index] = self._full[layer][which][self._full_of[block_id]]
        return found[back, :, slots % self.block_size]

    def gather(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._gather_each("keys", slots), self._gather_each("values", slots)

    def copy_block(self, source: int, target: int) -> int:
        for parts in self._parts.values():
            for part in parts:
                part[target] = part[source]
        self._filled[target], self._starts[target] = self._filled[source], self._starts[source]
        if source in self._full_of:
            if target not in self._full_of:
                self._decode_blocks([target], {target})
            for full in (full for pair in self._full.values() for full in pair):
                full[self._full_of[target]] = full[self._full_of[source]]
        else:
            self._discard_full([target])
        return self.block_bytes

    def store_blocks(self, block_ids: Sequence[int], host_ids: Sequence[int]) -> int:
        self._encode_blocks([block_id for block_id in block_ids if block_id in self._full_of])
        for layer, parts in self._parts.items():
            for host, part in zip(self._host_of[layer], parts, strict=True):
                host[list(host_ids)] = part[list(block_ids)].to(host.device)
        return self.block_bytes * len(block_ids)

    def load_blocks(self, host_ids: Sequence[int], block_ids: Sequence[int]) -> int:
        self._discard_full(block_ids)
        self._filled[list(block_ids)] = self.block_size
        for layer, parts in self._parts.items():
            for host, part in zip(self._host_of[layer], parts, strict=True):
                part[list(block_ids)] = host[list(host_ids)].to(part.device)
        return self.block_bytes * len(block_ids)

    def fork(self, parent_id: int, request_id: int) -> None:
        self._wanted_by[request_id] = set(self._wanted_by.get(parent_id, ()))

    def forget(self, request_id: int) -> None:
        """Discard a finished request; its full-precision blocks are encoded before the next step."""
        self._wanted_by.pop(request_id, None)
