"""A request of a trace."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One line: `timestamp` as in the file (milliseconds in public traces), lengths in tokens, hashes below 2⁶⁴."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: array[int]
