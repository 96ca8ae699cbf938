"""Big models by their geometry: parameters, and what one token leaves in the cache."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.errors import ConfigError

#: Bits of one number, by the name of its type. Scales of the narrow ones are not counted.
DTYPE_BITS = {"fp32": 32, "bf16": 16, "fp8": 8, "int4": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class BigModel:
    """One model. `entry_numbers`: what a token leaves in one layer, 2 × KV heads × head dimension, or a latent's width.

    Of a mixture of experts `num_expert_parameters` are those of all routed experts together; each token uses
    `num_active_experts` of `num_experts`. All other parameters are read in every step. `max_context` in tokens.
    `source`: where the geometry is from, as read on `checked`.
    """

    model_id: str
    name: str
    num_layers: int
    entry_numbers: int
    num_parameters: int
    max_context: int
    num_expert_parameters: int = 0
    num_experts: int = 0
    num_active_experts: int = 0
    source: str
    checked: str = "2026-11-30"

    def bytes_per_token(self, dtype: str) -> int:
        """Bytes that one token takes in the cache, all layers together."""
        return self.num_layers * self.entry_numbers * _bits(dtype) // 8

    def weight_bytes(self, dtype: str) -> int:
        """Bytes of all weights."""
        return self.num_parameters * _bits(dtype) // 8

    def expert_bytes(self, dtype: str) -> int:
        """Bytes of all routed experts."""
        return self.num_expert_parameters * _bits(dtype) // 8


def _bits(dtype: str) -> int:
    if dtype not in DTYPE_BITS:
        raise ConfigError(
            f"dtype must be {', '.join(DTYPE_BITS)}, but is {dtype[:40]!r}; choose one of them.", setting="dtype"
        )
    return DTYPE_BITS[dtype]


BIG_MODELS = (
    BigModel(
        model_id="llama-3.1-8b",
        name="Llama 3.1 8B",
        num_layers=32,
        entry_numbers=2 * 8 * 128,
        num_parameters=8_030_261_248,
        max_context=131_072,
        source="Meta, config.json of Llama-3.1-8B (July 2024)",
    ),
    BigModel(
        model_id="llama-3.1-70b",
        name="Llama 3.1 70B",
        num_layers=80,
        entry_numbers=2 * 8 * 128,
        num_parameters=70_553_706_496,
        max_context=131_072,
        source="Meta, config.json of Llama-3.1-70B (July 2024)",
    ),
    BigModel(
        model_id="deepseek-v3",
        name="DeepSeek V3",
        num_layers=61,
        entry_numbers=512 + 64,
        num_parameters=671_026_419_200,
        max_context=163_840,
        num_expert_parameters=58 * 256 * 3 * 7168 * 2048,
        num_experts=256,
        num_active_experts=8,
        source="DeepSeek, config.json of DeepSeek-V3 (December 2024), without the multi-token-prediction layer",
    ),
)
