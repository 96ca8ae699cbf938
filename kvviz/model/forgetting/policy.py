"""Forgetting policies: which entries of a request are still read after a step.

Dimension key: h KV heads · T entries that one layer of one sequence still has, oldest first.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from kvviz.model.choices import Choice, Option, Registry

#: Entries that a layer keeps; most policies take it.
BUDGET = Option(name="budget", title="entries kept", default=64, low=2, high=65_536)


@dataclass(frozen=True, slots=True)
class LayerView:
    """One layer of one request after a step.

    `positions` [h, T]: of the entries that each KV head still has, ascending, the step's new ones included. `weights`
    [h, T]: softmax weights that the watched queries of this step gave them, summed over those queries and over the
    query heads that share a KV head. `scores` [h, T]: what `Policy.score` returned for them so far, 0 for new ones.
    `num_queries`: how many queries were watched. `prompt_length`, `num_tokens`: tokens of the prompt, and known to be
    computed after this step.
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


class Policy(Choice):
    """Decides after each step, layer by layer, which entries stay.

    `chooses_by`: whether all layers, or all heads of a layer, keep the same positions. `num_watched`: how many of a
    step's last queries it wants to see the weights of (0: none, -1: all). `whole_prompt`: the prompt must be computed
    in one step. `reindexed`: keys are read as if the entries that are left stood at positions 0, 1, 2 … (which needs a
    model with rotary positions, and heads of a layer that keep the same entries). `window_size`: the policy is just a
    sliding window of that many tokens, itself included, in every layer; then nothing else is asked of it.
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
        """New scores [h, T] of the entries; by default what they were, and the weights on top."""
        return view.scores + view.weights

    @abstractmethod
    def keep(self, view: LayerView) -> torch.Tensor | None:
        """Which entries stay: bool [h, T], as many in each head, or None for all. `view.scores` are the new ones."""


def highest(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Bool [h, T]: the `count` highest scores of each row; of equal ones the earlier."""
    order = scores.argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, order[:, :count], True)


POLICIES: Registry[Policy] = Registry()
