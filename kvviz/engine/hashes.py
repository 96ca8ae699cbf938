"""Prefix hashes: the hash of a full block covers its tokens and, through its parent's hash, everything before it.

block_hash = SHA-256(parent hash or 32 zero bytes, number of extra keys, extra keys, token ids as u32 little-endian).
The extra keys (weights fingerprint, cache dtype, codec, window layout, salt) are part of the first block only. The
chain propagates them, as vLLM does with its salt (see vLLM V1 `hash_block_tokens`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256

NO_PARENT = bytes(32)


def hash_block(parent: bytes | None, token_ids: Sequence[int], extra_keys: Sequence[str] = ()) -> bytes:
    """Return the 32-byte hash of one full block."""
    state = sha256(parent or NO_PARENT)
    state.update(struct.pack("<I", len(extra_keys)))
    for key in extra_keys:
        encoded = key.encode()
        state.update(struct.pack("<I", len(encoded)) + encoded)
    state.update(struct.pack(f"<{len(token_ids)}I", *token_ids))
    return state.digest()


def extend_hashes(hashes: list[bytes], token_ids: Sequence[int], block_size: int, extra_keys: Sequence[str]) -> None:
    """Extend `hashes` until every full block of `token_ids` has one."""
    for start in range(len(hashes) * block_size, len(token_ids) - block_size + 1, block_size):
        parent = hashes[-1] if hashes else None
        hashes.append(hash_block(parent, token_ids[start : start + block_size], () if hashes else extra_keys))
