"""Sliding window: keeps only the newest tokens."""

from __future__ import annotations

import torch

from kvviz.model.forgetting.policy import BUDGET, POLICIES, ForgettingPolicy, LayerView


@POLICIES.register
class Window(ForgettingPolicy):
    """Each query sees the newest `budget` tokens, including itself."""

    name = "window"
    title = "Sliding window"
    about = (
        "Drops all but the newest tokens, including the very first ones; a model not trained for this depends on them "
        "and soon rambles."
    )
    options = (BUDGET,)
    value = "budget"
    budget: int

    @property
    def window_size(self) -> int:
        return self.budget

    def keep(self, view: LayerView) -> torch.Tensor | None:
        """Keep everything: entries outside the window are never read."""
        return None
