"""Errors of a run's entries relative to a run that has read the same tokens.

Dimension key: T tokens · h KV heads of the reference · d head dimension.
"""

from __future__ import annotations

from typing import Literal

import torch

from kvviz.engine.requests import Request
from kvviz.model.run import ModelRun

Errors = tuple[tuple[float, ...], ...]


def entry_errors(reference: ModelRun, one: Request, run: ModelRun, other: Request) -> tuple[Errors, Errors] | None:
    """‖other - one‖ / ‖one‖ of K and of V, as [layer][KV head of the reference].

    Covers positions that both requests still hold. 0.0 for a layer without stored or remaining entries; None if the
    requests have no position in common.
    """
    length = min(one.num_computed, other.num_computed)
    slots = [
        (position, one.slots(position, position + 1)[0], other.slots(position, position + 1)[0])
        for position in range(length)
        if _holds(one, position) and _holds(other, position)
    ]
    if not slots:
        return None
    positions, ours, theirs = (torch.tensor(column, dtype=torch.long) for column in zip(*slots, strict=True))
    forgetting_mask = run.runner.forgetting_mask

    def of(name: Literal["keys", "values"]) -> Errors:
        errors: list[tuple[float, ...]] = []
        for layer in reference.geometry.layers:
            if layer.cache == "none":
                errors.append((0.0,))
                continue
            wanted = reference.runner.cache.entries(name, layer.index, ours).double()  # [T, h, d]
            got = _as_many(run.runner.cache.entries(name, layer.index, theirs).double(), wanted.shape[1])
            mask = forgetting_mask.kept_mask(other.request_id, layer.index) if forgetting_mask else None
            weight = torch.ones(wanted.shape[:2], dtype=torch.double)
            if mask is not None:
                weight = _as_many(mask[:, positions].T.double()[..., None], wanted.shape[1])[..., 0]
            squares = [(part.square().sum(-1) * weight).sum(0) for part in (got - wanted, wanted)]
            ratio = (squares[0] / squares[1].clamp_min(1e-30)).sqrt()
            errors.append(tuple(round(value, 6) for value in ratio.tolist()))
        return tuple(errors)

    return of("keys"), of("values")


def _holds(request: Request, position: int) -> bool:
    index = position // request.block_size
    return index < len(request.block_table) and request.block_table[index] is not None


def _as_many(entries: torch.Tensor, num_heads: int) -> torch.Tensor:
    """[T, any, d] as [T, h, d]: a single head is expanded, repeated heads are reduced to one each."""
    if entries.shape[1] == 1:
        return entries.expand(-1, num_heads, -1)
    return entries[:, :: entries.shape[1] // num_heads]
