"""A prompt as requested, before tokenization."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.config import check_text
from kvviz.events import SamplingParams


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """A prompt and its options.

    - `template`: None: apply the chat template if the model has one.
    - `top_k`: 0: all tokens. `seed` None: the engine's seed.
    - `salt`: only prompts with the same salt share prefixes.
    - `continues`: the request whose conversation this one continues. Its tokens are sent again before the prompt.
    - `num_samples`: number of answers, which share the prompt's blocks.
    - `needle`: in a comparison, use a generated prompt that hides a word instead of `prompt`.
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

    def __post_init__(self) -> None:
        check_text("prompt", self.prompt)
        check_text("salt", self.salt)

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed)
