"""Attention sinks: keeps the first few tokens and the newest (StreamingLLM, arXiv 2309.17453)."""

from __future__ import annotations

import torch

from kvviz.errors import ConfigError
from kvviz.model.choices import Option
from kvviz.model.forgetting.policy import BUDGET, POLICIES, ForgettingPolicy, LayerView


@POLICIES.register
class Sinks(ForgettingPolicy):
    """Keeps the first `start` positions and the newest `budget` - `start` entries, at consecutive positions."""

    name = "sinks"
    title = "Attention sinks"
    about = (
        "Drops the middle and keeps the newest tokens and the first few, where heads put unused attention. The text "
        "stays fluent, but the middle is lost."
    )
    chooses_by = "request"
    reindexed = True
    options = (BUDGET, Option(name="start", title="first tokens kept", default=4, low=0, high=1024))
    value = "budget"
    budget: int
    start: int

    def __init__(self, **given: int) -> None:
        super().__init__(**given)
        if self.budget <= self.start:
            raise ConfigError(
                f"budget of the lane sinks must be more than start, {self.start} (got {self.budget}); choose a larger "
                "budget or a smaller start.",
                setting="budget",
            )

    def keep(self, view: LayerView) -> torch.Tensor | None:
        num_entries = view.positions.shape[1]
        if num_entries <= self.budget:
            return None
        newest = torch.arange(num_entries) >= num_entries - (self.budget - self.start)
        return (view.positions < self.start) | newest.to(view.positions.device)
