"""Forgetting policies: choose the entries of a request that are still read after a step.

Dimension key: h KV heads · T entries left in one layer of one sequence, oldest first.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from kvviz.model.choices import Choice, Option, Registry

#: Number of entries that a layer keeps, used by most policies.
BUDGET = Option(name="budget", title="entries kept", default=64, low=2, high=65_536)


@dataclass(frozen=True, slots=True)
class LayerView:
    """One layer of one request after a step.

    - `positions` [h, T]: positions of the entries left in each KV head, ascending, including the step's new ones.
    - `weights` [h, T]: softmax weights from the watched queries of this step, summed over those queries and over the
      query heads that share a KV head.
    - `scores` [h, T]: the values last returned by `ForgettingPolicy.score`, 0 for new entries.
    - `num_queries`: number of watched queries.
    - `prompt_length`, `num_tokens`: tokens of the prompt, and tokens computed after this step.
    """

    positions: torch.Tensor
    weights: torch.Tensor
    scores: torch.Tensor
    num_queries: int
    num_query_heads: int
    prompt_length: int
    num_tokens: int

    @property
    def ends_prefill(self) -> bool:
        return self.num_tokens == self.prompt_length


class ForgettingPolicy(Choice):
    """Chooses after each step, layer by layer, which entries stay.

    - `chooses_by`: whether all layers, or all heads of a layer, keep the same positions.
    - `num_watched`: how many of a step's last queries to watch (0: none, -1: all).
    - `whole_prompt`: the prompt must be computed in one step.
    - `reindexed`: keys are read as if the entries left were at positions 0, 1, 2 …; this needs a model with rotary
      positions, and the same entries in all heads of a layer.
    - `window_size`: the policy is a sliding window of that many tokens, including the current one, in every layer;
      its other methods are not used.
    """

    family = "forgetting"
    num_watched: int = 0
    chooses_by: ClassVar[Literal["request", "layer", "head"]] = "head"
    whole_prompt: ClassVar[bool] = False
    reindexed: ClassVar[bool] = False

    @property
    def window_size(self) -> int | None:
        return None

    def score(self, view: LayerView) -> torch.Tensor:
        """New scores [h, T] of the entries; by default, the old scores plus the weights."""
        return view.scores + view.weights

    @abstractmethod
    def keep(self, view: LayerView) -> torch.Tensor | None:
        """Entries to keep: bool [h, T], equally many per head, or None for all. `view.scores` are the new scores."""


def highest(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Bool [h, T]: the `count` highest scores of each row; earlier ones win ties."""
    order = scores.argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, order[:, :count], True)


POLICIES: Registry[ForgettingPolicy] = Registry()
