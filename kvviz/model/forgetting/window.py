"""Sliding window: the newest tokens and no others."""

from __future__ import annotations

import torch

from kvviz.model.forgetting.policy import BUDGET, POLICIES, LayerView, Policy


@POLICIES.register
class Window(Policy):
    """Each query sees the newest `budget` tokens, itself included."""

    name = "window"
    title = "Sliding window"
    about = (
        "Drops all but the newest tokens, the very first too; a model that was not trained for it leans on those and "
        "soon rambles."
    )
    options = (BUDGET,)
    value = "budget"
    budget: int

    @property
    def window_size(self) -> int:
        return self.budget

    def keep(self, view: LayerView) -> torch.Tensor | None:
        """Nothing to decide: what leaves the window is not read."""
        return None
