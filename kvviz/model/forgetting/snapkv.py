"""SnapKV: keeps the parts of the prompt that its end attends to, chosen once (arXiv 2404.14469)."""

from __future__ import annotations

import torch
from torch.nn.functional import avg_pool1d

from kvviz.errors import ConfigError
from kvviz.model.choices import Option
from kvviz.model.forgetting.policy import BUDGET, POLICIES, ForgettingPolicy, LayerView, highest


@POLICIES.register
class SnapKV(ForgettingPolicy):
    """Keeps in each head the last `window` entries of the prompt and those they attend to, `budget` in all."""

    name = "snapkv"
    title = "Prompt compressed once"
    about = (
        "Drops once, after the prompt, what its last tokens don't attend to, which hurts if the answer needs something "
        "that the end of the prompt didn't ask for."
    )
    whole_prompt = True
    options = (
        BUDGET,
        Option(name="window", title="last tokens of the prompt", default=16, low=1, high=4096),
        Option(name="kernel", title="neighbours averaged", default=5, low=1, high=255),
    )
    value = "budget"
    budget: int
    window: int
    kernel: int

    def __init__(self, **given: int) -> None:
        super().__init__(**given)
        if self.budget <= self.window:
            raise ConfigError(
                f"budget of the lane snapkv must be more than window, {self.window} (got {self.budget}); choose a "
                "larger budget or a smaller window.",
                setting="budget",
            )
        if self.kernel % 2 == 0:
            raise ConfigError(
                f"kernel of the lane snapkv must be odd (got {self.kernel}); choose {self.kernel - 1} or "
                f"{self.kernel + 1}.",
                setting="kernel",
            )
        self.num_watched = self.window

    def score(self, view: LayerView) -> torch.Tensor:
        """At the end of the prompt, the window's weights, averaged over neighbours before the window."""
        if not self._acts(view):
            return view.scores
        prefix = view.weights[:, : -self.window]
        pooled = avg_pool1d(prefix, self.kernel, stride=1, padding=self.kernel // 2)
        return torch.cat((pooled, view.weights[:, -self.window :]), 1)

    def keep(self, view: LayerView) -> torch.Tensor | None:
        if not self._acts(view):
            return None
        kept = torch.ones_like(view.positions, dtype=torch.bool)
        kept[:, : -self.window] = highest(view.scores[:, : -self.window], self.budget - self.window)
        return kept

    def _acts(self, view: LayerView) -> bool:
        return view.ends_prefill and view.positions.shape[1] > self.budget
