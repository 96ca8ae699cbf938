"""TOVA: keeps the entries that the newest query attends to (arXiv 2401.06104)."""

from __future__ import annotations

import torch

from kvviz.model.forgetting.policy import BUDGET, POLICIES, ForgettingPolicy, LayerView, highest


@POLICIES.register
class Tova(ForgettingPolicy):
    """Keeps the `budget` entries with the most attention from the last query, the same ones in all heads of a layer."""

    name = "tova"
    title = "Least attended goes"
    about = (
        "Drops what the newest token attends to least, over all heads of a layer; even the newest token can go. This "
        "hurts heads that look for different tokens."
    )
    num_watched = 1
    chooses_by = "layer"
    options = (BUDGET,)
    value = "budget"
    budget: int

    def score(self, view: LayerView) -> torch.Tensor:
        """The mean over all query heads; earlier steps don't count."""
        return (view.weights.sum(0, keepdim=True) / view.num_query_heads).expand_as(view.weights)

    def keep(self, view: LayerView) -> torch.Tensor | None:
        if view.positions.shape[1] <= self.budget:
            return None
        return highest(view.scores, self.budget)
