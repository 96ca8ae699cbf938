"""A prompt as it is asked for, before a tokenizer has seen it."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.events import SamplingParams


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """A prompt and what is wanted of it.

    `template` None: use the chat template when the model has one. `continues`: resend the tokens of that request, then
    this turn. `salt`: only prompts of the same salt share prefixes. `needle`: in a comparison, a prompt that hides a
    word instead of `prompt`. `top_k` 0: all tokens. `seed` None: that of the engine.
    """

    prompt: str
    template: bool | None = None
    max_new_tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    salt: str | None = None
    continues: int | None = None
    priority: int = 0
    num_samples: int = 1
    needle: bool = False

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed)
