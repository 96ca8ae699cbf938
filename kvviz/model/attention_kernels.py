"""Attention kernels: grouped attention without repeated KV heads, in tiles of queries or for a batch of single queries.

Dimension key: H query heads · h KV heads · g = H / h · n new tokens · T tokens read by one sequence · P tokens read for
all sequences · S sequences · d head dimension.
"""

from __future__ import annotations

import torch

from kvviz.model.paged_cache import EvenReads

#: Number of scores that grouped attention holds at a time: 4 MiB of float32.
TILE_VALUES = 2**20


def grouped_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    window: int | None,
    scaling: float,
    positions: torch.Tensor | None = None,
    gone: torch.Tensor | None = None,
    sums: torch.Tensor | None = None,
    num_watched: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain attention of one sequence: [1, H, n, d] over [1, h, T, d] → [1, n, H, d]; weights [H, T] of the last query.

    The queries belong to the last n tokens. They are processed in tiles, each with the keys that any of them sees.
    `positions` [T]: positions of the keys, if some in between are missing. `gone` [h, T]: keys hidden from all queries.
    The weights of the last `num_watched` queries are added to `sums` [H, T].
    """
    num_kv_heads, num_tokens = key.shape[1], key.shape[2]
    num_heads, num_new, dim = query.shape[1:]
    grouped = query[0].reshape(num_kv_heads, -1, num_new, dim)  # [h, g, n, d]
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    tile = max(1, TILE_VALUES // (num_heads * num_tokens))
    outputs: list[torch.Tensor] = []
    for at in range(0, num_new, tile):
        asks = grouped[:, :, at : at + tile]  # [h, g, r, d]
        stop = num_tokens - num_new + at + asks.shape[2]
        first = max(0, stop - asks.shape[2] + 1 - window) if window else 0
        keys = key[0, :, first:stop].transpose(1, 2)
        scores = torch.baddbmm(key.new_zeros(1), asks.reshape(num_kv_heads, -1, dim), keys, beta=0, alpha=scaling)
        if asks.shape[2] > 1 or (window and positions is not None):
            hidden = hidden_keys(
                asks.shape[2], stop - first, window, positions[first:stop] if positions is not None else None
            )
            scores.view(num_kv_heads, -1, *hidden.shape).masked_fill_(hidden, -torch.inf)
        if gone is not None:
            scores.masked_fill_(gone[:, None, first:stop], -torch.inf)
        weights = torch.softmax(scores, -1, dtype=wide).to(query.dtype)  # [h, g · r, stop - first]
        if sums is not None:
            unwatched = max(0, num_new - num_watched - at)
            seen = weights.view(num_heads, asks.shape[2], -1)[:, unwatched:]
            sums[:, first:stop] += seen.sum(1, dtype=torch.float32)
        outputs.append(torch.bmm(weights, value[0, :, first:stop]).view(*asks.shape[:3], -1))
    row = weights.view(num_heads, -1, stop - first)[:, -1]
    if first:
        row = torch.nn.functional.pad(row, (first, 0))
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 2)  # [h, g, n, d]
    return output.view(num_heads, num_new, -1).transpose(0, 1)[None], row


def hidden_keys(
    num_queries: int, num_keys: int, window: int | None, positions: torch.Tensor | None = None
) -> torch.Tensor:
    """Mask of the last keys that each of the last queries doesn't see: bool [queries, keys]."""
    is_read = (torch.arange(num_keys) if positions is None else positions)[None]
    asks = is_read[0, num_keys - num_queries :, None]
    hidden = is_read > asks
    return hidden | (is_read <= asks - window) if window else hidden


def batched_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, even: EvenReads, window: int | None, scaling: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain attention of one query per sequence: [1, H, S, d] over [1, h, P, d] → [1, S, H, d], weights [S, H, P / S].

    P is divided evenly between the sequences.
    """
    num_kv_heads, num_sequences, dim = key.shape[1], query.shape[2], query.shape[-1]
    batch = num_kv_heads * num_sequences
    grouped = query[0].view(num_kv_heads, -1, num_sequences, dim).transpose(1, 2).reshape(batch, -1, dim)  # [h·S, g, d]
    keys = key[0].reshape(batch, even.num_slots, dim).transpose(1, 2)
    bias = even.bias(window, num_kv_heads, query.dtype)
    scores = torch.baddbmm(bias, grouped, keys, alpha=scaling)  # [h·S, g, P / S]
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    weights = torch.softmax(scores, -1, dtype=wide).to(query.dtype)
    output = torch.bmm(weights, value[0].reshape(batch, even.num_slots, -1))  # [h·S, g, d]

    def by_sequence(heads: torch.Tensor) -> torch.Tensor:
        parts = heads.view(num_kv_heads, num_sequences, -1, heads.shape[-1]).transpose(0, 1)
        return parts.reshape(num_sequences, query.shape[1], -1)

    return by_sequence(output)[None], by_sequence(weights)
