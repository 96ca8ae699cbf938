"""How many bytes a number takes, by the name of its type; scales of grouped types are counted."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.errors import ConfigError
from kvviz.messages import shown

#: Numbers to a group of `int8` and `int4` when nobody says.
DEFAULT_GROUP_SIZE = 32
MAX_GROUP_SIZE = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtype:
    """One way to store numbers.

    `bits` of one number. A grouped type also keeps `scale_bytes` for each group of numbers: `group_size` of them, or as
    many as is asked for where that is None.
    """

    name: str
    bits: int
    scale_bytes: int = 0
    group_size: int | None = None
    about: str

    def vector_bytes(self, length: int, group_size: int = DEFAULT_GROUP_SIZE) -> tuple[int, int]:
        """Bytes of the numbers of one vector, and of its scales. A vector begins a byte and a group of its own."""
        in_group = min(self.group_size or group_size, length)
        return -(-length * self.bits // 8), self.scale_bytes * -(-length // in_group)

    def weight_bytes(self, count: int) -> int:
        """Bytes of so many weights, scales left out: how they are grouped differs from file to file."""
        return count * self.bits // 8


DTYPES = {
    each.name: each
    for each in (
        Dtype(name="fp32", bits=32, about="32-bit float"),
        Dtype(name="bf16", bits=16, about="bfloat16"),
        Dtype(name="fp16", bits=16, about="16-bit float"),
        Dtype(name="fp8", bits=8, about="8-bit float, one scale for a whole layer, which is not counted"),
        Dtype(name="int8", bits=8, scale_bytes=4, about="8-bit integer, step and low end of each group as fp16"),
        Dtype(name="int4", bits=4, scale_bytes=4, about="4-bit integer, step and low end of each group as fp16"),
        Dtype(name="q8_0", bits=8, scale_bytes=2, group_size=32, about="llama.cpp: 32 numbers and one fp16 scale"),
        Dtype(name="q4_0", bits=4, scale_bytes=2, group_size=32, about="llama.cpp: 32 numbers and one fp16 scale"),
    )
}
#: Names under which other programs know some of them.
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
    """The type of that name. Raises `ConfigError`."""
    found = DTYPES.get(_ALIASES.get(name, name)) if isinstance(name, str) else None
    if found is None:
        raise ConfigError(
            f"{setting} must be {', '.join(DTYPES)}, but is {shown(name)}; choose one of them.", setting=setting
        )
    return found
