"""Why a lookup found no more: every reason, each worked out by hand. Blocks have four tokens."""

from __future__ import annotations

from typing import Any

import pytest

from kvviz.config import EngineConfig
from kvviz.engine.hashes import extend_hashes
from kvviz.engine.memory import PrefixMemory
from kvviz.events import LookupReason, PrefixLookedUp
from tests.support.stub_engine import stub_engine

FIRST = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def lookup_after(
    *prompts: list[int], num_blocks: int = 12, salts: tuple[str | None, ...] = (), **options: Any
) -> LookupReason:
    """What the last of these prompts is told, each run to its end before the next; the last one's token is not kept."""
    told: list[LookupReason] = []
    config = EngineConfig(block_size=4, num_blocks=num_blocks, **options)

    def on_event(event: object) -> None:
        if isinstance(event, PrefixLookedUp):
            told.append(event.reason)

    engine, _ = stub_engine(config, None, on_event)
    for number, prompt in enumerate(prompts):
        engine.add_request(prompt, max_new_tokens=1, salt=salts[number] if salts else None)
        while engine.step():
            pass
    return told[-1]


@pytest.mark.parametrize(
    ("prompts", "want"),
    [
        ([FIRST], LookupReason(code="nothing_cached")),
        ([FIRST, [1, 2, 3]], LookupReason(code="shorter_than_block")),
        ([FIRST, [7, 7, 7, 7, 7]], LookupReason(code="nothing_shared")),
        ([FIRST, [1, 2, 3, 9, 5, 6]], LookupReason(code="less_than_block", position=3, num_shared_tokens=3)),
        ([FIRST, [1, 2, 3, 4, 5, 6, 9, 9, 9]], LookupReason(code="differs", position=6, num_shared_tokens=6)),
        ([FIRST, [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 9]], LookupReason(code="ends", position=8, num_shared_tokens=8)),
        ([FIRST[:8], FIRST[:8]], LookupReason(code="last_token", position=7, num_shared_tokens=8)),
        ([FIRST, FIRST], LookupReason(code="hit", num_shared_tokens=8)),
    ],
)
def test_each_reason(prompts: list[list[int]], want: LookupReason) -> None:
    assert lookup_after(*prompts) == want


def test_another_salt_is_named() -> None:
    assert lookup_after(FIRST, FIRST, salts=(None, "s")) == LookupReason(code="other_keys", position=0, keys=("salt",))


def test_an_evicted_block_is_remembered_with_its_step() -> None:
    """Three blocks: the first prompt leaves 5-8 behind 1-4 in the queue, so the second takes its blank and 5-8, then
    1-4 stays. The third finds 1-4 and is told when 5-8 went.
    """
    reason = lookup_after(FIRST, [20, 21, 22, 23, 24], FIRST, num_blocks=3)
    assert reason == LookupReason(code="evicted", position=4, num_shared_tokens=8, step=2)


def test_without_a_prefix_cache_it_says_so() -> None:
    assert lookup_after(FIRST, FIRST, prefix_cache=False) == LookupReason(code="disabled")


def test_a_reset_is_no_eviction() -> None:
    told: list[LookupReason] = []
    engine, _ = stub_engine(
        EngineConfig(block_size=4, num_blocks=8),
        None,
        lambda event: told.append(event.reason) if isinstance(event, PrefixLookedUp) else None,
    )
    for _ in range(2):
        engine.add_request(FIRST, max_new_tokens=1)
        while engine.step():
            pass
        assert engine.reset_prefix_cache()
    assert [reason.code for reason in told] == ["nothing_cached", "nothing_cached"]


def test_so_many_evicted_blocks_are_remembered_and_no_more() -> None:
    memory = PrefixMemory(max_evicted=3)
    chains = []
    for first in range(5):
        token_ids = [first, 1, 2, 3, 4]
        hashes: list[bytes] = []
        extend_hashes(hashes, token_ids, 4, ())
        memory.add(hashes[0], None, token_ids[:4], ())
        memory.remove(hashes[0], first)
        chains.append((token_ids, hashes))
    reasons = [memory.explain(token_ids, hashes, 0, 1, 4, ()) for token_ids, hashes in chains]
    assert [reason.code for reason in reasons] == ["nothing_shared", "nothing_shared", "evicted", "evicted", "evicted"]
    assert [reason.step for reason in reasons[2:]] == [2, 3, 4]


def test_a_former_engines_prefixes_explain_a_miss_under_other_keys() -> None:
    memory = PrefixMemory()
    hashes: list[bytes] = []
    keys = ("weights:stub", "dtype:float32")
    extend_hashes(hashes, FIRST, 4, keys)
    memory.add(hashes[0], None, FIRST[:4], keys)
    reason = memory.explain(FIRST, [], 0, 2, 4, ("weights:stub", "dtype:bfloat16"))
    assert reason == LookupReason(code="other_keys", position=0, keys=("dtype",))
