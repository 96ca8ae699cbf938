"""The entries that remain of each request when a policy drops some after each step.

Dimension key: h KV heads · H query heads · T entries read · n tokens of the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from kvviz.engine.runner import Forgotten, Segment
from kvviz.model.codecs import Rotated
from kvviz.model.forgetting import ForgettingPolicy, LayerView
from kvviz.model.paged_cache import SegmentPlan


@dataclass(slots=True)
class _RequestMask:
    """State of one request by layer: forgotten entries, [h, n], and the policy's scores of them, [h, n]."""

    prompt_length: int = 0
    prompt_ended: bool = False
    read_share: float = 1.0
    gone: dict[int, torch.Tensor] = field(default_factory=dict)
    scores: dict[int, torch.Tensor] = field(default_factory=dict)
    empty: set[int] = field(default_factory=set)

    def copy(self) -> _RequestMask:
        return _RequestMask(
            self.prompt_length,
            self.prompt_ended,
            self.read_share,
            {layer: gone.clone() for layer, gone in self.gone.items()},
            {layer: scores.clone() for layer, scores in self.scores.items()},
            set(self.empty),
        )


class ForgettingMask:
    """Asks a policy after each step which entries stay. `rotation` rotates keys for a policy that re-indexes positions.

    It is the `Forgetting` of an attention door between `begin` and `settle`.
    """

    def __init__(self, policy: ForgettingPolicy, block_size: int, rotation: Rotated | None = None) -> None:
        self.policy = policy
        self.block_size = block_size
        self.rotation = rotation
        self._masks: dict[int, _RequestMask] = {}
        self._watched: dict[tuple[int, int], torch.Tensor] = {}

    @property
    def num_watched(self) -> int:
        return self.policy.num_watched

    def begin(self, segments: Sequence[Segment]) -> None:
        """Prepare for a forward pass over these segments."""
        self._watched.clear()
        for segment in segments:
            if segment.start == 0 or segment.request_id not in self._masks:
                self._masks[segment.request_id] = _RequestMask()
            mask = self._masks[segment.request_id]
            if not mask.prompt_ended:
                mask.prompt_ended = segment.sampling is not None
                mask.prompt_length = segment.length + (not mask.prompt_ended)

    def gone(self, layer: int, segment: SegmentPlan) -> torch.Tensor | None:
        mask = self._masks[segment.request_id]
        gone = mask.gone.get(layer)
        if gone is None or not gone.any():
            return None
        known = torch.nn.functional.pad(gone, (0, segment.length - gone.shape[1]))
        return self._read(known, segment)

    def shifts(self, layer: int, segment: SegmentPlan) -> torch.Tensor | None:
        """Distance of each key from its position without gaps before the newest entry, [T]."""
        gone = self.gone(layer, segment) if self.policy.reindexed else None
        missing = self._positions(segment) - torch.arange(segment.num_tokens)
        if gone is not None:
            missing = missing + gone[0].long().cumsum(0)
        shifts = missing[-1] - missing
        return shifts if self.policy.reindexed and shifts.any() else None

    def turn(self, keys: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
        assert self.rotation is not None, "a policy that re-indexes needs a rotation"
        return self.rotation.rotate(keys, shifts)

    def watch(self, layer: int, segment: SegmentPlan, sums: torch.Tensor) -> None:
        """Store the weights of the watched queries of one segment in a layer, [H, T]; empty if none are watched."""
        self._watched[layer, segment.request_id] = sums

    def kept_share(self, request_id: int) -> float:
        """Share of entries not forgotten, over all layers and heads."""
        mask = self._masks.get(request_id)
        if mask is None or not mask.gone:
            return 1.0
        return 1.0 - sum(gone.float().mean().item() for gone in mask.gone.values()) / len(mask.gone)

    def kept_mask(self, request_id: int, layer: int) -> torch.Tensor | None:
        """Mask of the entries of a layer that are kept, bool [h, n]; None for an unknown request."""
        mask = self._masks.get(request_id)
        return None if mask is None or layer not in mask.gone else ~mask.gone[layer]

    def settle(self, plans: Sequence[SegmentPlan], num_kv_heads: dict[int, int]) -> dict[int, Forgotten]:
        """After the forward pass, return the entries dropped from each segment, by its place in the step."""
        dropped = {}
        for index, plan in enumerate(plans):
            self._note_reads(plan)
            layers = [
                self._settle_layer(plan, layer, num_kv_heads[layer])
                for layer, request_id in self._watched
                if request_id == plan.request_id
            ]
            if any(any(heads) for heads in layers):
                dropped[index] = Forgotten(
                    policy=self.policy.name,
                    dropped=self._shortened(layers),
                    empty_indices=self._newly_empty(plan),
                )
        return dropped

    def _note_reads(self, plan: SegmentPlan) -> None:
        shares = [
            1.0 if (gone := self.gone(layer, plan)) is None else 1.0 - gone.float().mean().item()
            for layer, request_id in self._watched
            if request_id == plan.request_id
        ]
        self._masks[plan.request_id].read_share = sum(shares) / len(shares) if shares else 1.0

    def read_share(self, request_id: int) -> float:
        """Share of entries that a request's last query read, out of those in the blocks it traversed."""
        mask = self._masks.get(request_id)
        return mask.read_share if mask else 1.0

    def fork(self, parent_id: int, request_id: int) -> None:
        if parent_id in self._masks:
            self._masks[request_id] = self._masks[parent_id].copy()

    def forget(self, request_id: int) -> None:
        self._masks.pop(request_id, None)

    def _positions(self, segment: SegmentPlan) -> torch.Tensor:
        if segment.positions is not None:
            return segment.positions
        return torch.arange(segment.read_start, segment.read_start + segment.num_tokens)

    def _read(self, by_position: torch.Tensor, segment: SegmentPlan) -> torch.Tensor:
        """Of [h, n], the entries read: [h, T]."""
        if segment.positions is not None:
            return by_position[:, segment.positions]
        return by_position[:, segment.read_start : segment.read_start + segment.num_tokens]

    def _settle_layer(self, plan: SegmentPlan, layer: int, num_heads: int) -> list[tuple[int, ...]]:
        """Apply the policy to one layer; return the newly dropped positions by head."""
        mask, sums = self._masks[plan.request_id], self._watched[layer, plan.request_id]
        old = mask.gone.get(layer, torch.zeros(num_heads, 0, dtype=torch.bool))
        gone = torch.nn.functional.pad(old, (0, plan.length - old.shape[1]))
        scores = mask.scores.get(layer, torch.zeros(num_heads, 0))
        scores = torch.nn.functional.pad(scores, (0, plan.length - scores.shape[1]))
        weights = torch.zeros(num_heads, plan.length)
        if sums.numel():
            weights[:, self._positions(plan)] = sums.view(num_heads, -1, sums.shape[-1]).sum(1)
        positions = (~gone).nonzero()[:, 1].view(num_heads, -1)  # the same number in each head
        view = LayerView(
            positions=positions,
            weights=weights.gather(1, positions),
            scores=scores.gather(1, positions),
            num_queries=min(plan.num_new, self.num_watched) if self.num_watched >= 0 else plan.num_new,
            num_query_heads=len(sums) or num_heads,
            prompt_length=mask.prompt_length,
            num_tokens=plan.length,
        )
        if self.num_watched:
            view = replace(view, scores=self.policy.score(view))
            scores.scatter_(1, positions, view.scores)
        keep = self.policy.keep(view)
        mask.gone[layer], mask.scores[layer] = gone, scores
        if keep is None or bool(keep.all()):
            return [()] * num_heads
        gone.scatter_(1, positions, ~keep)
        return [tuple(row[~kept].tolist()) for row, kept in zip(positions, keep, strict=True)]

    def _newly_empty(self, plan: SegmentPlan) -> list[int]:
        """Full blocks with no entries left in any layer or head."""
        mask = self._masks[plan.request_id]
        everywhere = torch.stack([gone.all(0) for gone in mask.gone.values()]).all(0)
        num_full = plan.length // self.block_size
        blocks = everywhere[: num_full * self.block_size].view(num_full, self.block_size).all(1)
        empty = [index for index in blocks.nonzero()[:, 0].tolist() if index not in mask.empty]
        mask.empty.update(empty)
        return empty

    def _shortened(self, layers: list[list[tuple[int, ...]]]) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Positions by layer and head, or a single list where all are identical."""
        if self.policy.chooses_by == "head":
            return tuple(tuple(heads) for heads in layers)
        by_layer = tuple((heads[0],) for heads in layers)
        return by_layer[:1] if self.policy.chooses_by == "request" else by_layer
