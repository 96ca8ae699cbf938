"""One request in the engine: its tokens, how many are computed, and its block table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from kvviz.engine.hashes import extend_hashes
from kvviz.events import SamplingParams
from kvviz.log.digest import TOKEN_HASH_START, extend_token_hash, request_words

State = Literal["waiting", "running", "preempted", "swapped", "finished"]


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """A sequence of known tokens that the engine computes and extends.

    - `token_ids`: all known tokens, prompt and generated.
    - `num_computed`: number of tokens that have K and V, or will have them after the step being scheduled.
    - `block_table[i]`: the block of tokens i·block_size …, None once released.
    - `hashes`: prefix hash of every full block of known tokens.
    - `num_cached_blocks`: number of blocks in the table that are registered in the prefix cache.
    - `first_token_us`: time spent in its steps up to the first sampled token.
    - `priority`: smaller goes first.
    - `num_samples`: number of samples to fork into once the prompt is computed.
    - `swapped_indices`: logical blocks in the host tier.
    """

    request_id: int
    token_ids: list[int]
    num_prompt_tokens: int
    max_new_tokens: int
    sampling: SamplingParams
    block_size: int
    extra_keys: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    salt: str | None = None
    state: State = "waiting"
    num_computed: int = 0
    num_hit_tokens: int = 0
    window_start: int = 0
    block_table: list[int | None] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    num_cached_blocks: int = 0
    first_token_us: int = 0
    priority: int = 0
    num_samples: int = 1
    swapped_indices: list[int] = field(default_factory=list)
    token_hash: int = TOKEN_HASH_START

    def __post_init__(self) -> None:
        self.token_hash = extend_token_hash(self.token_hash, self.token_ids)
        extend_hashes(self.hashes, self.token_ids, self.block_size, self.extra_keys)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    def append_token(self, token_id: int) -> None:
        """Append a known token. If its block becomes full, the block gets a hash."""
        self.token_ids.append(token_id)
        self.token_hash = extend_token_hash(self.token_hash, (token_id,))
        extend_hashes(self.hashes, self.token_ids, self.block_size, self.extra_keys)

    def slots(self, start: int, stop: int) -> list[int]:
        """Pool slots of positions `start` … `stop` - 1, each of which must have a block."""
        return [self._slot(position) for position in range(start, stop)]

    def _slot(self, position: int) -> int:
        block_id = self.block_table[position // self.block_size]
        assert block_id is not None, f"position {position} of request {self.request_id} has no block"
        return block_id * self.block_size + position % self.block_size

    def words(self) -> Sequence[int]:
        return request_words(
            self.request_id,
            self.state,
            self.num_computed,
            self.num_tokens,
            self.token_hash,
            self.window_start,
            self.block_table,
        )
