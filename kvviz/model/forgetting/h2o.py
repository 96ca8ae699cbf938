"""Heavy hitters: keeps the entries with the most attention so far (H2O, arXiv 2306.14048)."""

from __future__ import annotations

import torch

from kvviz.model.forgetting.policy import BUDGET, POLICIES, ForgettingPolicy, LayerView, highest


@POLICIES.register
class HeavyHitters(ForgettingPolicy):
    """Keeps in each head half a budget of the newest entries, and half of the others with the highest sums."""

    name = "h2o"
    title = "Heavy hitters"
    about = (
        "Drops in each head the older entries with the least attention so far, which hurts if a token matters only "
        "later."
    )
    num_watched = -1
    options = (BUDGET,)
    value = "budget"
    budget: int

    def keep(self, view: LayerView) -> torch.Tensor | None:
        num_entries = view.positions.shape[1]
        if num_entries <= self.budget:
            return None
        num_heavy = self.budget // 2
        num_older = num_entries - (self.budget - num_heavy)
        kept = torch.ones_like(view.positions, dtype=torch.bool)
        kept[:, :num_older] = highest(view.scores[:, :num_older], num_heavy)
        return kept
