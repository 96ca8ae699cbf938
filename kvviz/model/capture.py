"""Capture: turns the tensors of a forward pass into frames, with a few operations over all layers.

Dimension key: L layers · H query heads · T tokens read · n new tokens · w values of an entry.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
import torch

from kvviz.errors import MissingError
from kvviz.log.frames import FRAME_BUDGET, MAX_NORM_REQUESTS, FrameStore, Norms, StepFrame
from kvviz.log.packs import FrameSource
from kvviz.log.slots import Slots
from kvviz.model.forward import StepCapture
from kvviz.model.geometry import LayerGeometry
from kvviz.model.paged_cache import PagedCache


class LiveFrames(FrameSource):
    """Frames of a running session: stored rows and queries, and entries read from the pool while they exist.

    With `keep_entries`, K and V of every new token are also stored as u8, for a recording.
    """

    def __init__(
        self,
        slots: Slots,
        cache: Callable[[], PagedCache],
        *,
        budget: int = FRAME_BUDGET,
        keep_entries: bool = False,
    ) -> None:
        self.store = FrameStore(budget)
        self.slots = slots
        self.keep_entries = keep_entries
        self._cache = cache
        self._norms: OrderedDict[int, list[Norms]] = OrderedDict()
        self._pending: list[StepFrame] = []

    def capture(self, taken: StepCapture) -> None:
        """Convert a captured step to one frame per sequence. `settle` assigns the seq of their writes."""
        at = 0
        for index, segment in enumerate(taken.segments):
            num_new = len(segment.token_ids)
            rows = _stack([layer_rows[index] for layer_rows in taken.capture.rows])
            positions = taken.cache.plan.segments[index].positions
            if positions is not None:
                rows = rows.new_zeros(*rows.shape[:2], segment.length).index_copy_(2, positions, rows)
            elif rows.shape[-1] < segment.length:
                rows = torch.nn.functional.pad(rows, (segment.length - rows.shape[-1], 0))
            scale = rows.amax(-1).clamp_min(0) / 255
            heads = (rows / scale.clamp_min(1e-30)[..., None]).round_().to(torch.uint8)
            slots = _slots(segment.block_table, segment.length, taken.cache.block_size)
            first = segment.start if segment.request_id in self._norms else int(np.argmax(slots >= 0))
            key_norm, value_norm = _norms(taken.cache, torch.from_numpy(slots[first:].astype(np.int64)))
            self._pending.append(
                StepFrame(
                    step=taken.step,
                    request_id=segment.request_id,
                    start=segment.start,
                    num_new=num_new,
                    num_tokens=segment.length,
                    heads=heads.numpy(),
                    heads_scale=scale.float().numpy(),
                    key_norm=key_norm,
                    value_norm=value_norm,
                    queries=_queries(taken.capture.queries, at, num_new),
                    slots=slots,
                    entries=_entries(taken.cache, segment.slots) if self.keep_entries else {},
                )
            )
            self._norms.setdefault(segment.request_id, []).append(self._pending[-1].norms)
            self._norms.move_to_end(segment.request_id)
            at += num_new
        while len(self._norms) > MAX_NORM_REQUESTS:
            self._norms.popitem(last=False)

    def settle(self) -> None:
        """After the step's events, record which writes the frames read, and store the frames of the step together."""
        pending = [frame for frame in self._pending if frame.step == self.slots.step]  # without those of a failed step
        self._pending.clear()
        for frame in pending:
            assert frame.slots is not None
            frame.seqs = np.where(frame.slots >= 0, self.slots.slot_seq[frame.slots], -1)
            frame.move_out()
        self.store.add(*pending)

    def step_frame(self, step: int, request_id: int | None = None) -> StepFrame:
        return self.store.get(step, request_id)

    def norms(self, request_id: int) -> list[Norms]:
        return list(self._norms.get(request_id, ()))

    def entry(self, request_id: int, position: int, layer: int, write_seq: int) -> tuple[np.ndarray, np.ndarray]:
        slot = self.slots.slot_of(request_id, position, write_seq)
        cache = self._cache()
        self._stored(layer)
        at = torch.tensor([slot])
        key = cache.entries("keys", layer, at)[0].float().numpy().copy()
        value = cache.entries("values", layer, at)[0].float().numpy().copy()
        self.slots.slot_of(request_id, position, write_seq)  # still there after reading
        return key, value

    def triangle(self, step: int, layer: int, head: int, request_id: int | None = None) -> tuple[int, np.ndarray]:
        frame = self.step_frame(step, request_id)
        dots = _scale(self._dots(frame, layer, head), self._stored(layer))  # [n, T]
        dots[~self._seen_by(frame, layer)] = -np.inf
        weights = np.exp(dots - dots.max(axis=-1, keepdims=True))
        return frame.start, weights / weights.sum(axis=-1, keepdims=True)

    def scores(self, step: int, layer: int, position: int, request_id: int | None = None) -> dict[str, np.ndarray]:
        frame = self.step_frame(step, request_id)
        if not 0 <= position < frame.num_tokens:
            raise MissingError(
                f"Step {step} read positions 0 to {frame.num_tokens - 1}, not {position}.", code="no_such_entry"
            )
        geometry = self._stored(layer)
        dot = np.array([self._dots(frame, layer, head, position)[-1, 0] for head in range(geometry.query_heads)])
        weight = frame.heads[layer, :, position] * frame.heads_scale[layer]
        return {"dot": dot, "scaled": _scale(dot, geometry), "weight": weight}

    def _stored(self, layer: int) -> LayerGeometry:
        layers = self._cache().geometry.layers
        if not 0 <= layer < len(layers) or layers[layer].cache == "none":
            raise MissingError(f"Layer {layer} stores no entries.", code="no_layer")
        return layers[layer]

    def _dots(self, frame: StepFrame, layer: int, head: int, position: int | None = None) -> np.ndarray:
        """q·k of the step's queries in one head, [n, T], or [n, 1] with one position."""
        geometry = self._stored(layer)
        if geometry.cache == "latent" or geometry.sinks or frame.queries is None or frame.seqs is None:
            raise MissingError(
                "q·k of this layer can't be recomputed from the cache (a latent cache, or a sink outside it); only the "
                "captured weights are available.",
                code="not_captured",
            )
        if not 0 <= head < geometry.query_heads:
            raise MissingError(
                f"Head {head} doesn't exist; choose one from 0 to {geometry.query_heads - 1}.", code="no_layer"
            )
        assert frame.slots is not None
        which = slice(position, position + 1) if position is not None else slice(None)
        slots, seqs = frame.slots[which], frame.seqs[which]
        if (slots < 0).any() or not self.slots.holds(slots, seqs, np.arange(frame.num_tokens)[which]):
            raise MissingError(
                "Entries that this step read are no longer in the pool.", code="gone", since_step=self.slots.step
            )
        kv_head = head // (geometry.query_heads // geometry.key_shape[0])
        keys = (
            self._cache().entries("keys", layer, torch.from_numpy(slots.astype(np.int64)))[:, kv_head].float().numpy()
        )
        return np.asarray(frame.queries[layer, head].astype(np.float32) @ keys.T)

    def _seen_by(self, frame: StepFrame, layer: int) -> np.ndarray:
        geometry = self._stored(layer)
        asks = np.arange(frame.start, frame.start + frame.num_new)[:, None]
        is_read = np.arange(frame.num_tokens)[None]
        seen = is_read <= asks
        if geometry.window:
            seen &= is_read > asks - geometry.window
        if geometry.chunk:
            seen &= is_read // geometry.chunk == asks // geometry.chunk
        return seen


def _scale(dots: np.ndarray, geometry: LayerGeometry) -> np.ndarray:
    """q·k with the model's own scaling and soft cap."""
    scaled = dots * np.float32(geometry.scaling if geometry.scaling is not None else 1.0)
    return np.tanh(scaled / geometry.softcap) * geometry.softcap if geometry.softcap else scaled


def _stack(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows of all layers [L, H, T]; layers with fewer heads are padded with zeros."""
    heads = max(row.shape[0] for row in rows)
    return torch.stack([row if row.shape[0] == heads else _pad_heads(row, heads) for row in rows])


def _pad_heads(row: torch.Tensor, heads: int) -> torch.Tensor:
    return torch.nn.functional.pad(row, (0, 0, 0, heads - row.shape[0]))


def _queries(queries: Sequence[torch.Tensor], at: int, num_new: int) -> np.ndarray | None:
    """Queries of one sequence, f16 [L, H, n, d]; None when layers differ in shape."""
    if len({query.shape for query in queries}) != 1:
        return None
    return torch.stack([query[:, at : at + num_new] for query in queries]).to(torch.float16).numpy()


def _slots(block_table: Sequence[int | None], length: int, block_size: int) -> np.ndarray:
    """Pool slots of positions 0 … `length` - 1, int32; -1 where the block was released."""
    blocks = np.array([-1 if block_id is None else block_id for block_id in block_table], dtype=np.int32)
    slots = blocks[:, None] * block_size + np.arange(block_size, dtype=np.int32)
    slots[blocks < 0] = -1
    return slots.ravel()[:length]


def _norms(cache: PagedCache, slots: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Norms of the entries in `slots`, f16 [L, len(slots)]; NaN where the slot is -1, 0 in layers that store none."""
    held = slots >= 0
    norms = []
    for rows in cache.gather(slots[held]):
        of_held = torch.linalg.vector_norm(rows.float(), dim=-1).to(torch.float16)
        norms.append(of_held.new_full((len(of_held), len(slots)), float("nan")))
        norms[-1][:, held] = of_held
    return norms[0].numpy(), norms[1].numpy()


def _entries(cache: PagedCache, slots: Sequence[int]) -> dict[str, np.ndarray]:
    """K and V in `slots` as u8 [L, n, w] with f32 [L, n] scales; narrower layers padded with zero (128)."""
    at = torch.tensor(slots, dtype=torch.long)
    kept: dict[str, np.ndarray] = {}
    for name, rows in zip(("keys", "values"), cache.gather(at), strict=True):
        rows = rows.float()
        scale = rows.abs().amax(-1) / 127
        quantised = (rows / scale.clamp_min(1e-30)[..., None]).round_() + 128
        kept[name] = quantised.to(torch.uint8).numpy()
        kept[f"{name}_scale"] = scale.numpy()
    return kept
