"""Batches of requests as arrays, the input of simulations. Hashes become small numbers, the same in all batches."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvviz.errors import TraceError
from kvviz.traces.trace_request import TraceRequest

#: References per batch: at least this many, and a quarter of the blocks seen, to amortise work per block.
MIN_BATCH_REFERENCES = 2**16
BATCH_SHARE = 4
MAX_BLOCKS = 2**31 - 1

Ints = NDArray[np.int64]
Numbers = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A batch of n requests with R references.

    - `blocks` int32 [R]: blocks of each request in chain order; a repeated block is listed only at its first place.
    - `starts` int64 [n + 1]: where the references of each request start.
    - `positions` int32 [R]: place of each reference in `hash_ids`.
    - `chain_lengths`, `input_lengths` int64 [n]: numbers of hashes and tokens.
    - `timestamps` float64 [n].
    - `first_reference`: number of references in the trace before this batch.
    """

    blocks: Numbers
    starts: Ints
    positions: Numbers
    chain_lengths: Ints
    input_lengths: Ints
    timestamps: NDArray[np.float64]
    first_reference: int

    def chains(self) -> Iterator[list[int]]:
        """The blocks of each request in chain order."""
        blocks, starts = self.blocks.tolist(), self.starts.tolist()
        begin = 0
        for end in starts[1:]:
            yield blocks[begin:end]
            begin = end

    def mirror(self) -> Ints:
        """For each reference, the one at its place when chains are reversed. int64 [R]."""
        counts = np.diff(self.starts)
        return np.repeat(self.starts[:-1] + self.starts[1:] - 1, counts) - np.arange(len(self.blocks))

    def tail_first(self) -> Numbers:
        """References in the order in which they become most recent: by request, from the end of its chain."""
        return self.blocks[self.mirror()]

    def hit_lengths(self, found: Sequence[int] | Ints) -> Ints:
        """Number of hits in `hash_ids`, given how many of each request's first references hit. int64 [n]."""
        hits = np.asarray(found, np.int64)
        counts = np.diff(self.starts)
        lengths = self.chain_lengths.copy()
        partly = np.flatnonzero(hits < counts)
        lengths[partly] = self.positions[self.starts[:-1][partly] + hits[partly]]
        return lengths


def order_of(blocks: Numbers) -> Ints:
    """Indices that sort the blocks stably, several times faster than a stable argsort."""
    keys = np.sort((blocks.astype(np.int64) << 32) | np.arange(len(blocks)))
    indices: Ints = keys & 0xFFFFFFFF
    return indices


class Numbering:
    """Numbers hashes from 0, using 12 bytes per hash. Within one call, numbers don't follow the order of arrival."""

    def __init__(self) -> None:
        self._hashes: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._numbers: Numbers = np.empty(0, np.int32)

    def __len__(self) -> int:
        return len(self._hashes)

    def number(self, hashes: NDArray[np.uint64]) -> Numbers:
        found, inverse = np.unique(hashes, return_inverse=True)
        places = np.searchsorted(self._hashes, found)
        is_known = np.zeros(len(found), bool)
        inside = places < len(self._hashes)
        is_known[inside] = self._hashes[places[inside]] == found[inside]
        num_new = int(len(found) - is_known.sum())
        if len(self) + num_new > MAX_BLOCKS:
            raise TraceError(f"The trace has more than {MAX_BLOCKS:,} distinct blocks; shorten it.")
        numbers = np.empty(len(found), np.int32)
        numbers[is_known] = self._numbers[places[is_known]]
        numbers[~is_known] = np.arange(len(self), len(self) + num_new, dtype=np.int32)
        if num_new:
            self._numbers = np.insert(self._numbers, places[~is_known], numbers[~is_known])
            self._hashes = np.insert(self._hashes, places[~is_known], found[~is_known])
        return numbers[inverse]


def batches_of(requests: Iterable[TraceRequest], numbering: Numbering) -> Iterator[Batch]:
    """Group requests into batches. Raises `TraceError` as `Numbering` does."""
    builder = _Builder(numbering)
    for request in requests:
        builder.add(request)
        if builder.is_full:
            yield builder.take()
    if builder.num_requests:
        yield builder.take()


class _Builder:
    """Collects requests for a batch."""

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._num_taken = 0
        self._clear()

    def _clear(self) -> None:
        self._hashes, self._starts = array("Q"), array("q", [0])
        self._inputs, self._times = array("q"), array("d")
        self._capacity = max(MIN_BATCH_REFERENCES, len(self._numbering) // BATCH_SHARE)

    @property
    def num_requests(self) -> int:
        return len(self._inputs)

    @property
    def is_full(self) -> bool:
        return max(len(self._hashes), len(self._inputs)) >= self._capacity

    def add(self, request: TraceRequest) -> None:
        self._hashes.extend(request.hash_ids)
        self._starts.append(len(self._hashes))
        self._inputs.append(request.input_length)
        self._times.append(request.timestamp)

    def take(self) -> Batch:
        starts = np.array(self._starts)
        counts = np.diff(starts)
        blocks = self._numbering.number(np.array(self._hashes, np.uint64))
        positions = (np.arange(len(blocks)) - np.repeat(starts[:-1], counts)).astype(np.int32)
        kept = _first_in_request(blocks, np.repeat(np.arange(len(counts)), counts))
        if kept is not None:
            starts = np.searchsorted(kept, starts)
            blocks, positions = blocks[kept], positions[kept]
        batch = Batch(
            blocks=blocks,
            starts=starts,
            positions=positions,
            chain_lengths=counts,
            input_lengths=np.array(self._inputs),
            timestamps=np.array(self._times),
            first_reference=self._num_taken,
        )
        self._num_taken += len(blocks)
        self._clear()
        return batch


def _first_in_request(blocks: Numbers, requests: Ints) -> Ints | None:
    """Where blocks first occur in their request; None: everywhere, as in all traces of prefixes."""
    keys = (requests << 32) | blocks
    ordered = np.sort(keys)
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    return np.sort(np.unique(keys, return_index=True)[1])
