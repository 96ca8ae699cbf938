"""Samples the next token from logits."""

from __future__ import annotations

import torch

from kvviz.engine.runner import Sample
from kvviz.events import SamplingParams

#: Below this temperature, sampling is greedy: floats can't represent the other probabilities.
MIN_TEMPERATURE = 1e-5


class Sampler:
    """Greedy, temperature, top-k and top-p, with a generator per request seeded from the run's seed and its id."""

    def __init__(self, seed: int, num_candidates: int) -> None:
        self.seed = seed
        self.num_candidates = num_candidates
        self._generators: dict[int, torch.Generator] = {}

    def sample(self, request_id: int, logits: torch.Tensor, params: SamplingParams) -> Sample:
        """Sample from `logits` [vocabulary]. Probabilities of candidates are after temperature, before top-k/p."""
        greedy = params.temperature == 0.0
        scores = logits.float() - logits.max().float()
        probabilities = torch.softmax(scores if greedy else scores / max(params.temperature, MIN_TEMPERATURE), -1)
        top = torch.topk(probabilities, min(self.num_candidates, len(logits)))
        candidates = list(zip(top.indices.tolist(), top.values.tolist(), strict=True))
        if greedy:
            return Sample(token_id=int(logits.argmax()), candidates=candidates, code="greedy", num_considered=1)
        kept_ids, kept = keep_likely(probabilities, params)
        chosen = torch.multinomial(kept, 1, generator=self._generator(request_id, params.seed))
        return Sample(
            token_id=int(kept_ids[chosen]), candidates=candidates, code="sampled", num_considered=len(kept_ids)
        )

    def forget(self, request_id: int) -> None:
        self._generators.pop(request_id, None)

    def _generator(self, request_id: int, seed: int | None) -> torch.Generator:
        if request_id not in self._generators:
            start = self.seed * 1_000_003 + request_id if seed is None else seed
            self._generators[request_id] = torch.Generator().manual_seed(start % 2**63)
        return self._generators[request_id]


def keep_likely(probabilities: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and probabilities that remain after top-k and then top-p, most probable first; at least one."""
    kept, kept_ids = torch.sort(probabilities, descending=True, stable=True)
    if params.top_k:
        kept, kept_ids = kept[: params.top_k], kept_ids[: params.top_k]
    if params.top_p < 1.0:
        before = kept.cumsum(-1) / kept.sum() - kept / kept.sum()
        count = max(1, int((before < params.top_p).sum()))
        kept, kept_ids = kept[:count], kept_ids[:count]
    return kept_ids, kept
