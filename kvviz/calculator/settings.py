"""Settings of a calculation, with their limits, and the dtypes of weights and caches."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from kvviz.config import check_number, check_range
from kvviz.errors import ConfigError
from kvviz.messages import shown

#: Default group size of `int8` and `int4`, in elements.
DEFAULT_GROUP_SIZE = 32
MAX_GROUP_SIZE = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtype:
    """One way to store elements.

    - `bits`: per element.
    - `scale_bytes`: per group of elements; 0: no scales.
    - `group_size`: elements per group; None: as set by the user.
    - `about`: a short description.
    """

    name: str
    bits: int
    scale_bytes: int = 0
    group_size: int | None = None
    about: str

    def vector_bytes(self, length: int, group_size: int = DEFAULT_GROUP_SIZE) -> tuple[int, int]:
        """Bytes of one vector of `length` elements: codes, then scales.

        Each vector starts at a byte boundary and with a new group.
        """
        in_group = min(self.group_size or group_size, length)
        return -(-length * self.bits // 8), self.scale_bytes * -(-length // in_group)

    def weight_bytes(self, count: int) -> int:
        """Bytes of `count` weights, without scales, since their group size differs from file to file."""
        return count * self.bits // 8


DTYPES = {
    each.name: each
    for each in (
        Dtype(name="fp32", bits=32, about="32-bit float"),
        Dtype(name="bf16", bits=16, about="bfloat16"),
        Dtype(name="fp16", bits=16, about="16-bit float"),
        Dtype(name="fp8", bits=8, about="8-bit float; one scale per layer, not counted"),
        Dtype(name="int8", bits=8, scale_bytes=4, about="8-bit integer; fp16 step and minimum per group"),
        Dtype(name="int4", bits=4, scale_bytes=4, about="4-bit integer; fp16 step and minimum per group"),
        Dtype(name="q8_0", bits=8, scale_bytes=2, group_size=32, about="llama.cpp: one fp16 scale per 32 elements"),
        Dtype(name="q4_0", bits=4, scale_bytes=2, group_size=32, about="llama.cpp: one fp16 scale per 32 elements"),
    )
}
#: Names that other programs use.
_ALIASES = {
    "float32": "fp32",
    "f32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "f16": "fp16",
    "half": "fp16",
    "float8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}


def find_dtype(name: str, setting: str = "dtype") -> Dtype:
    """The dtype with that name. Raises `ConfigError` for `setting`."""
    found = DTYPES.get(_ALIASES.get(name, name)) if isinstance(name, str) else None
    if found is None:
        raise ConfigError(f"{setting} must be {', '.join(DTYPES)} (got {shown(name)}).", setting=setting)
    return found


DEFAULT_CONTEXT = 8_192
MAX_CONTEXT = 2**30
#: Sequences per batch.
MAX_BATCH = 4_096
MAX_CALC_BLOCK_SIZE = 4_096
MAX_GPUS = 1_024
MIN_UTILISATION = 0.01
MAX_BYTES = 2**50
MAX_BANDWIDTH = 1e18
MAX_PRICE = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a calculation. Raises `ConfigError` if a value is out of range.

    - `context`: tokens per sequence.
    - `batch`: number of sequences.
    - `group_size`: elements per scale in `int8` and `int4`.
    - `prefix`: number of leading tokens that all sequences share. They are stored once.
    - `gpu`: id of a GPU; None: sizes only, no capacity.
    - `memory_bytes`, `bandwidth` (bytes per second), `price_per_hour` (US dollars): per GPU, instead of the listed
      values.
    - `utilisation`: fraction of the GPUs' memory that is used.
    - `overhead_bytes`: memory per GPU reserved for activations and other uses.
    - `host_bytes`: host memory for offloaded caches; 0: the default of the `offload` remedy.
    """

    context: int = DEFAULT_CONTEXT
    batch: int = 1
    dtype: str = "bf16"
    group_size: int = DEFAULT_GROUP_SIZE
    block_size: int = 16
    prefix: int = 0
    gpu: str | None = None
    gpus: int = 1
    utilisation: float = 0.9
    weights_dtype: str = "bf16"
    overhead_bytes: int = 0
    memory_bytes: int | None = None
    bandwidth: float | None = None
    price_per_hour: float | None = None
    host_bytes: int = 0

    def __post_init__(self) -> None:
        check_range("context", self.context, 1, MAX_CONTEXT)
        check_range("batch", self.batch, 1, MAX_BATCH)
        check_range("group_size", self.group_size, 1, MAX_GROUP_SIZE)
        check_range("block_size", self.block_size, 1, MAX_CALC_BLOCK_SIZE)
        check_range("prefix", self.prefix, 0, self.context - 1)
        check_range("gpus", self.gpus, 1, MAX_GPUS)
        check_range("overhead_bytes", self.overhead_bytes, 0, MAX_BYTES)
        check_range("host_bytes", self.host_bytes, 0, MAX_BYTES)
        if self.memory_bytes is not None:
            check_range("memory_bytes", self.memory_bytes, 1, MAX_BYTES)
        check_number("utilisation", self.utilisation, MIN_UTILISATION, 1)
        if self.bandwidth is not None:
            check_number("bandwidth", self.bandwidth, 1, MAX_BANDWIDTH)
        if self.price_per_hour is not None:
            check_number("price_per_hour", self.price_per_hour, 0, MAX_PRICE)
        find_dtype(self.dtype)
        find_dtype(self.weights_dtype, "weights_dtype")

    def asked(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}
