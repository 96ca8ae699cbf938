"""The digest of a cache's state: 64 bits, computed from integers only, so that a page can verify what it draws.

docs/wire.md ("Digest") defines the words and their order. The hash is MurmurHash3 x86 32-bit (Appleby, 2011) with two
different seeds. It is fast in any language and needs no secure context in a browser.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import mmh3
import numpy as np

VERSION = 1
SEEDS = (0x6B76, 0x7669)
RELEASED = 0xFFFFFFFF
STATE_CODES = {"waiting": 0, "running": 1, "preempted": 2, "swapped": 3}

TOKEN_HASH_START = 2166136261


def extend_token_hash(token_hash: int, token_ids: Iterable[int]) -> int:
    """Extend `token_hash` with FNV-1a over whole 32-bit words."""
    for token_id in token_ids:
        token_hash = ((token_hash ^ token_id) * 16777619) & 0xFFFFFFFF
    return token_hash


def short_hash(block_hash: bytes | None) -> int:
    """Return the first 4 bytes of a prefix hash, big-endian; 0 for a block without one."""
    return int.from_bytes(block_hash[:4], "big") if block_hash else 0


def request_words(
    request_id: int,
    state: str,
    num_computed: int,
    num_known: int,
    token_hash: int,
    window_start: int,
    block_table: Sequence[int | None],
) -> list[int]:
    """Return the words of one unfinished request."""
    head = [request_id, STATE_CODES[state], num_computed, num_known, token_hash, window_start, len(block_table)]
    return head + [RELEASED if block_id is None else block_id for block_id in block_table]


def state_words(
    step: int,
    ref_counts: Sequence[int],
    short_hashes: Sequence[int],
    free_queue: Sequence[int],
    num_finished: int,
    finished_hash: int,
    requests: Sequence[Sequence[int]],
    host: Sequence[tuple[int, int]] = (),
) -> np.ndarray:
    """Return all words of a state, u32. `requests` are `request_words` by ascending id, `host` is (id, short hash).

    `finished_hash` extends `TOKEN_HASH_START` by the token hash of each finished request, in the order they finished.
    """
    blocks = np.zeros((len(ref_counts), 3), dtype=np.uint32)
    blocks[:, 0] = ref_counts
    blocks[:, 1] = short_hashes
    tail = [num_finished, finished_hash, len(requests)]
    for words in requests:
        tail.extend(words)
    tail.append(len(host))
    for block_id, block_short_hash in host:
        tail.extend((block_id, block_short_hash))
    return np.concatenate(
        [
            np.array([VERSION, step, len(ref_counts)], dtype=np.uint32),
            blocks.ravel(),
            np.array([len(free_queue), *free_queue], dtype=np.uint32),
            np.array(tail, dtype=np.uint32),
        ]
    )


def digest(words: np.ndarray) -> str:
    """Return 16 hex digits for u32 `words`."""
    data = words.astype("<u4").tobytes()
    return "".join(f"{mmh3.hash(data, seed, signed=False):08x}" for seed in SEEDS)
