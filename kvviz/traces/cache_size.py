"""How many blocks fit into memory: sizes as people write them, and what a block of a model takes."""

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
    """Bytes of a size such as 40GiB, 1.5TB or 80000000000. Raises `TraceError` for what is none."""
    match = re.fullmatch(r"\s*(\d{1,19}(?:\.\d{1,9})?)\s*([kmgtp]?i?b?)\s*", text, re.IGNORECASE | re.ASCII)
    unit = _UNITS.get(match[2].lower()) if match else None
    size = round(float(match[1]) * unit) if match and unit else 0
    if not 1 <= size <= MAX_MEMORY_BYTES:
        raise TraceError(
            f"A size such as 40GiB is expected, of at most 1,024 PiB, but {shown(text)} came; "
            "write a number and a unit.",
            code="bad_setting",
        )
    return size


def block_bytes(model_id: str, dtype: str, block_size: int) -> int:
    """Bytes of one block of `block_size` tokens: the entries of all layers, those with a window, too.

    Raises `ConfigError` for a model or dtype that is not known, `ModelError` for a model that keeps no blocks.
    """
    model = find_model(model_id)
    per_token = cache_bytes(model.geometry, context=1, dtype=dtype).bytes_per_token
    if not per_token:
        raise ModelError(
            f"{model.name} keeps a state of a fixed size and no blocks; choose a model with attention.",
            code="no_blocks",
        )
    return per_token * block_size


def blocks_in(memory_bytes: int, model_id: str, dtype: str, block_size: int) -> int:
    """Whole blocks of a model that fit. Raises as `block_bytes`, and `TraceError` when not even one does."""
    size = block_bytes(model_id, dtype, block_size)
    if memory_bytes < size:
        raise TraceError(
            f"One block of {find_model(model_id).name} takes {size:,} bytes, but the memory has {memory_bytes:,}; "
            "give more.",
            code="bad_setting",
        )
    return memory_bytes // size
