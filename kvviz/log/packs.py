"""Packs: the binary answers in which a page receives frames. docs/wire.md ("Frames") defines their format.

Dimension key: L layers · H query heads · T tokens read · n new tokens · C columns of a pack.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from kvviz.errors import MissingError
from kvviz.log.frames import Norms, StepFrame

MAX_COLUMNS = 512
#: Maximum number of cells (columns × (layers + query heads)) in a step's pack, at any context and model size.
MAX_PACK_CELLS = 512 * 39

_DTYPE_NAMES: dict[np.dtype[Any], str] = {np.dtype("u1"): "u8", np.dtype("<f2"): "f16", np.dtype("<f4"): "f32"}


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


def _checked(layer: int, num_layers: int) -> int:
    if not 0 <= layer < num_layers:
        raise MissingError(f"Layer {layer} doesn't exist; choose one from 0 to {num_layers - 1}.", code="no_layer")
    return layer
