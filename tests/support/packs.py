"""Reads packs, as the page does; docs/wire.md ("Frames") defines them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson

DTYPES = {"u8": "u1", "f16": "<f2", "f32": "<f4"}


def decode_pack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The head of a pack, and its arrays by name."""
    length = int.from_bytes(data[:4], "little")
    head = orjson.loads(data[4 : 4 + length])
    arrays = {}
    for item in head["arrays"]:
        start = 4 + length + item["offset"]
        flat = np.frombuffer(data, DTYPES[item["dtype"]], math.prod(item["shape"]), start)
        arrays[item["name"]] = flat.reshape(item["shape"])
    return head, arrays
