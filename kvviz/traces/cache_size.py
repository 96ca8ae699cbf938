"""How many blocks fit in memory: parses sizes and computes the size of a model's block."""

from __future__ import annotations

import re

from kvviz.calculator.cache import cache_bytes
from kvviz.calculator.models import find_model
from kvviz.errors import ModelError, TraceError
from kvviz.messages import shown

MAX_MEMORY_BYTES = 2**60
_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1_000 ** (power + 1) for power, letter in enumerate("kmgtp")},
    **{f"{letter}ib": 1_024 ** (power + 1) for power, letter in enumerate("kmgtp")},
}


def size_bytes(text: str) -> int:
    """Parse a size such as 40GiB, 1.5TB or 80000000000 to bytes. Raises `TraceError` if it is invalid."""
    match = re.fullmatch(r"\s*(\d{1,19}(?:\.\d{1,9})?)\s*([kmgtp]?i?b?)\s*", text, re.IGNORECASE | re.ASCII)
    unit = _UNITS.get(match[2].lower()) if match else None
    size = round(float(match[1]) * unit) if match and unit else 0
    if not 1 <= size <= MAX_MEMORY_BYTES:
        raise TraceError(
            f"A size must be a number with a unit, such as 40GiB, and at most 1,024 PiB (got {shown(text)}).",
            code="bad_setting",
        )
    return size


def block_bytes(model_id: str, dtype: str, block_size: int) -> int:
    """Return the bytes of one block of `block_size` tokens: the entries of all layers, including those with a window.

    Raises `ConfigError` for an unknown model or dtype, and `ModelError` for a model without blocks.
    """
    model = find_model(model_id)
    per_token = cache_bytes(model.geometry, context=1, dtype=dtype).bytes_per_token
    if not per_token:
        raise ModelError(
            f"{model.name} keeps a fixed-size state instead of blocks; choose a model with attention.",
            code="no_blocks",
        )
    return per_token * block_size


def blocks_in(memory_bytes: int, model_id: str, dtype: str, block_size: int) -> int:
    """Number of whole blocks that fit. Raises like `block_bytes`, and `TraceError` if none fits."""
    size = block_bytes(model_id, dtype, block_size)
    if memory_bytes < size:
        raise TraceError(
            f"Memory of {memory_bytes:,} bytes is smaller than one block of {find_model(model_id).name} ({size:,} "
            "bytes); increase it.",
            code="bad_setting",
        )
    return memory_bytes // size
