"""Memory of prefixes: what is or was cached, and how a new prompt compares with it.

It explains why a lookup stopped where it did. Every full block ever registered is a node: its tokens under the hash of
its parent. Nodes of the last 4,096 evicted blocks are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from kvviz.engine.hashes import hash_block
from kvviz.events import LookupReason

MAX_EVICTED = 4_096


@dataclass(slots=True)
class Node:
    """The tokens of a block, and the step in which its last copy left the cache (None while it is cached)."""

    token_ids: tuple[int, ...]
    parent: bytes | None
    tokens_hash: bytes | None
    gone_since: int | None = None


class PrefixMemory:
    """Nodes by prefix hash with their children, and first blocks by their tokens alone."""

    def __init__(self, max_evicted: int = MAX_EVICTED) -> None:
        self._max_evicted = max_evicted
        self._nodes: dict[bytes, Node] = {}
        self._children: dict[tuple[bytes | None, tuple[str, ...]], dict[bytes, None]] = {}
        self._roots: dict[bytes, dict[tuple[str, ...], None]] = {}  # first block without keys -> keys
        self._keys: dict[bytes, tuple[str, ...]] = {}  # of first blocks
        self._evicted: OrderedDict[bytes, None] = OrderedDict()  # oldest first

    def add(self, block_hash: bytes, parent: bytes | None, token_ids: Sequence[int], keys: tuple[str, ...]) -> None:
        node = self._nodes.get(block_hash)
        if node is not None:
            node.gone_since = None
            self._evicted.pop(block_hash, None)
            return
        tokens_hash = hash_block(None, token_ids) if parent is None else None
        self._nodes[block_hash] = Node(tuple(token_ids), parent, tokens_hash)
        self._children.setdefault((parent, keys if parent is None else ()), {})[block_hash] = None
        if tokens_hash is not None:
            self._keys[block_hash] = keys
            self._roots.setdefault(tokens_hash, {})[keys] = None

    def remove(self, block_hash: bytes, step: int) -> None:
        """Mark a block whose last copy left the cache."""
        node = self._nodes.get(block_hash)
        if node is None:
            return
        node.gone_since = step
        self._evicted[block_hash] = None
        while len(self._evicted) > self._max_evicted:
            self.drop(next(iter(self._evicted)))

    def clear(self) -> None:
        """Discard everything, since a deliberate reset of the cache doesn't explain later misses."""
        for index in (self._nodes, self._children, self._roots, self._keys, self._evicted):
            index.clear()

    def explain(
        self,
        token_ids: Sequence[int],
        hashes: Sequence[bytes],
        num_hits: int,
        limit: int,
        block_size: int,
        keys: tuple[str, ...],
    ) -> LookupReason:
        """Explain why `num_hits` blocks hit and not all `limit`."""
        shared = self._shared(token_ids, hashes, num_hits, block_size, keys)
        start = num_hits * block_size
        if num_hits == limit:
            again = len(hashes) > limit and self._is_cached(hashes[limit])
            if again:
                return LookupReason(code="last_token", position=len(token_ids) - 1, num_shared_tokens=len(token_ids))
            return LookupReason(code="hit", num_shared_tokens=shared)
        gone = self._nodes.get(hashes[num_hits]) if num_hits < len(hashes) else None
        if gone is not None and gone.gone_since is not None:
            return LookupReason(code="evicted", position=start, num_shared_tokens=shared, step=gone.gone_since)
        if shared > start or (num_hits and self._children.get((hashes[num_hits - 1], ()))):
            if shared < block_size:
                return LookupReason(code="less_than_block", position=shared, num_shared_tokens=shared)
            return LookupReason(code="differs", position=shared, num_shared_tokens=shared)
        if num_hits:
            return LookupReason(code="ends", position=start, num_shared_tokens=shared)
        other = self._other_keys(token_ids, block_size, keys)
        if other:
            return LookupReason(code="other_keys", position=0, keys=other)
        return LookupReason(code="nothing_shared" if self._nodes else "nothing_cached")

    def _shared(
        self, token_ids: Sequence[int], hashes: Sequence[bytes], num_hits: int, block_size: int, keys: tuple[str, ...]
    ) -> int:
        """Tokens shared with the longest chain that is or was cached: whole blocks, then the best match in the next."""
        depth = num_hits
        while depth < len(hashes) and hashes[depth] in self._nodes:
            depth += 1
        parent = (hashes[depth - 1], ()) if depth else (None, keys)
        rest = tuple(token_ids[depth * block_size : (depth + 1) * block_size])
        most = 0
        for child in self._children.get(parent, ()):
            most = max(most, _num_equal(self._nodes[child].token_ids, rest))
        return depth * block_size + most

    def _other_keys(self, token_ids: Sequence[int], block_size: int, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Names of the other keys under which the same first block is or was cached."""
        if len(token_ids) < block_size:
            return ()
        known = self._roots.get(hash_block(None, token_ids[:block_size]), {})
        others = [other for other in known if other != keys]
        if not others:
            return ()
        return tuple(sorted({key.partition(":")[0] for key in {*others[-1]} ^ {*keys}}))

    def _is_cached(self, block_hash: bytes) -> bool:
        node = self._nodes.get(block_hash)
        return node is not None and node.gone_since is None

    def drop(self, block_hash: bytes) -> None:
        """Remove a block entirely, as if it had never been registered."""
        self._evicted.pop(block_hash, None)
        node = self._nodes.pop(block_hash, None)
        if node is None:
            return
        keys = self._keys.pop(block_hash, ())
        siblings = self._children[node.parent, keys]
        del siblings[block_hash]
        if not siblings:
            del self._children[node.parent, keys]
        if node.tokens_hash is not None:
            same = self._roots[node.tokens_hash]
            del same[keys]
            if not same:
                del self._roots[node.tokens_hash]


def _num_equal(one: Sequence[int], other: Sequence[int]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
