"""A hypothesis state machine over the engine: whatever is asked in whatever order, the books balance.

After every rule the block pool is checked against its own definition, and a world folded from the events alone must
have the engine's digest. The runner fails when it reads an entry that is not the right one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvviz.config import EngineConfig
from kvviz.engine.requests import Request
from kvviz.errors import RequestError
from kvviz.events import SamplingParams
from kvviz.log.world import World
from tests.support.stub_engine import StubRunner, as_json, stub_engine

STEMS = ([1, 2, 3, 4, 5, 6, 7, 8] * 4, [1, 2, 3, 4, 9, 9, 9, 9] * 4, [7] * 32)


class BlockMachine(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.sampled_from([1, 2, 3, 5, 6, 8, 9, 11, 14]),
        block_size=st.sampled_from([1, 2, 3, 4, 5, 7, 8]),
        prefill_chunk=st.sampled_from([1, 2, 4, 5, 8, 12]),
        prefix_cache=st.sampled_from([True, True, True, False]),
        window=st.sampled_from([None, None, None, 1, 2, 3, 5, 8]),
        max_running=st.sampled_from([1, 2, 3, 8]),
        token_budget=st.sampled_from([None, None, 1, 3, 9]),
        chunked_prefill=st.sampled_from([True, True, False]),
        order=st.sampled_from(["fcfs", "priority"]),
        preemption=st.sampled_from(["recompute", "swap"]),
        eviction=st.sampled_from(["lru", "lru", "fifo", "lfu", "random"]),
        num_host_blocks=st.sampled_from([0, 1, 3, 8]),
        offload=st.booleans(),
    )
    def begin(self, window: int | None, **sizes: Any) -> None:
        self.config = EngineConfig(**sizes)
        self.world = World(self.config.num_blocks, self.config.block_size)
        self.step_events: list[dict[str, Any]] = []
        self.marked: int | None = None
        self.engine, self.runner = stub_engine(self.config, StubRunner(window=window), self.on_event)

    def on_event(self, event: Any) -> None:
        """Fold the event, as a page does, and check each step's digest and victims at once."""
        data = as_json(event)
        head = self.world.free[0] if self.world.free else None
        if data["type"] == "step_started":
            self.step_events, self.marked = [], head
        self.step_events.append(data)
        if data["type"] in ("block_evicted", "block_allocated", "block_copied"):
            assert data["block_id"] == head, "the victim is not the block that was marked"
            untouched = not any(earlier["type"] in TAKES for earlier in self.step_events[:-1])
            if untouched:
                assert data["block_id"] == self.marked, "another block was marked before the step"
        if data["type"] == "block_evicted":
            reason = data["reason"]
            assert reason["num_free"] == len(self.world.free)
            assert reason["alternatives"] == self.world.free[1:5]
            assert reason["free_since_step"] == self.world.free_since[data["block_id"]]
        self.world.apply([self.world.seq + 1, 0, data])
        assert self.world.broken is None
        if data["type"] == "step_finished":
            assert self.world.check is not None
            assert self.world.check["ok"], self.world.check

    @precondition(lambda self: self.engine.num_requests)
    @rule(data=st.data(), own=st.sampled_from([None, 1, 2, 3]), more=st.integers(-2, 4))
    def fork(self, data: st.DataObject, own: int | None, more: int) -> None:
        """Branch off at any place; what is refused changes nothing."""
        parent_id = data.draw(st.integers(0, self.engine.num_requests - 1))
        known = len(self.runner.known[parent_id][1])
        position = data.draw(st.integers(max(0, known - 6), known + 1))
        num_before, digest = self.engine.num_requests, self.engine.digest()
        parent = self.world.requests[parent_id]
        refused: RequestError | None = None
        try:
            child_id = self.engine.fork(parent_id, position, own, max_new_tokens=max(1, parent.max_new_tokens + more))
        except RequestError as error:
            refused = error
        if refused is not None:
            assert refused.code in ("bad_position", "bad_tokens", "never_fits")
            assert (self.engine.num_requests, self.engine.digest()) == (num_before, digest)
            return
        child = self.world.requests[child_id]
        assert child.tokens == parent.tokens[:position] + ([] if own is None else [own])
        assert child.prompt_length == parent.prompt_length
        if child.state == "running":
            assert child.table == parent.table[: len(child.table)]
            assert child.num_computed == min(parent.num_computed, len(child.tokens) - 1)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), priority=st.integers(-2, 2))
    def reprioritise(self, data: st.DataObject, priority: int) -> None:
        request = data.draw(st.sampled_from(self.live))
        self.engine.reprioritise(request.request_id, priority)
        waiting = self.engine.scheduler.waiting
        if self.config.order == "priority":
            assert waiting == sorted(waiting, key=lambda request: (request.priority, request.request_id))

    @property
    def live(self) -> list[Request]:
        return [*self.engine.scheduler.waiting, *self.engine.scheduler.running]

    @rule(
        stem=st.sampled_from(STEMS),
        shared=st.sampled_from([0, 1, 3, 4, 6, 8, 9, 12, 16, 20, 27]),
        tail=st.lists(st.integers(0, 9), max_size=4),
        max_new_tokens=st.integers(1, 12),
        salt=st.sampled_from([None, None, None, "s"]),
        stop=st.sampled_from([(), (), (3, 5, 8, 13)]),
        temperature=st.sampled_from([0.0, 1.0]),
        priority=st.integers(-1, 1),
        num_samples=st.sampled_from([1, 1, 1, 3]),
    )
    def add_request(
        self,
        stem: list[int],
        shared: int,
        tail: list[int],
        max_new_tokens: int,
        salt: str | None,
        stop: tuple[int, ...],
        temperature: float,
        priority: int,
        num_samples: int,
    ) -> None:
        self._add(
            stem[:shared] + tail,
            max_new_tokens,
            salt=salt,
            stop_token_ids=stop,
            sampling=SamplingParams(temperature=temperature),
            priority=priority,
            num_samples=num_samples,
        )

    @precondition(lambda self: self.engine.num_requests)
    @rule(data=st.data(), turn=st.lists(st.integers(0, 9), min_size=1, max_size=9))
    def answer_and_continue(self, data: st.DataObject, turn: list[int]) -> None:
        self.run()
        salt, token_ids = self.runner.known[data.draw(st.integers(0, self.engine.num_requests - 1))]
        self._add(token_ids + turn, 1, salt=salt)
        self.step(1)

    def _add(self, prompt: list[int], max_new_tokens: int, **options: Any) -> None:
        num_before = self.engine.num_requests
        num_tokens = len(prompt) + max_new_tokens - 1
        refused: RequestError | None = None
        try:
            self.engine.add_request(prompt, max_new_tokens=max_new_tokens, **options)
        except RequestError as error:
            refused = error
        assert self.engine.num_requests == num_before + (refused is None)
        num_most = -(-num_tokens // self.config.block_size)
        if not prompt:
            assert refused is not None
            assert refused.code == "empty_prompt"
        elif refused is not None:
            assert refused.code == "never_fits"
            assert refused.details["num_tokens"] == num_tokens
            assert self.config.num_blocks < refused.details["num_blocks_needed"] <= num_most
        else:
            assert self.runner.window is not None or num_most <= self.config.num_blocks

    @rule(count=st.integers(1, 4))
    def step(self, count: int) -> None:
        for _ in range(count):
            num_before, had_work = self.engine.num_steps, self.engine.has_work
            assert self.engine.step() == had_work
            assert self.engine.num_steps == num_before + had_work

    @rule()
    def run(self) -> None:
        for _ in range(2_000):
            if not self.engine.step():
                return
        raise AssertionError("the engine never finishes")

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.live))
        self.engine.cancel(request.request_id)
        with pytest.raises(RequestError):
            self.engine.cancel(request.request_id)

    @precondition(lambda self: self.live)
    @rule()
    def fail(self) -> None:
        self.runner.fail_next = True
        with pytest.raises(RuntimeError):
            self.engine.step()

    @rule()
    def reset(self) -> None:
        is_free = not any(self.engine.pool.ref_counts)
        before = list(self.engine.pool.hashes)
        assert self.engine.reset_prefix_cache() == is_free
        assert self.engine.pool.hashes == ([None] * self.config.num_blocks if is_free else before)

    @invariant()
    def counts_are_table_entries(self) -> None:
        counts = [0] * self.config.num_blocks
        for request in self.live:
            for block_id in request.block_table:
                if block_id is not None:
                    counts[block_id] += 1
        assert counts == self.engine.pool.ref_counts

    @invariant()
    def every_block_is_free_or_used(self) -> None:
        queue = list(self.engine.pool.free)
        assert len(queue) == len(set(queue)) == self.engine.pool.num_free
        assert set(queue) == {block_id for block_id, count in enumerate(self.engine.pool.ref_counts) if count == 0}
        assert all(
            (block_id in self.engine.pool.free) == (block_id in queue) for block_id in range(self.config.num_blocks)
        )

    @invariant()
    def the_host_tier_holds_what_was_moved_there(self) -> None:
        held = [host_id for host_id, _ in self.engine.host.state()]
        assert len(held) == len(set(held)) <= self.config.num_host_blocks
        assert set(held) == set(self.world.host)
        swapped = {request.request_id for request in self.live if request.state == "swapped"}
        assert set(self.engine.host.swapped) == swapped

    @invariant()
    def nobody_is_lost(self) -> None:
        assert len(self.live) == len({request.request_id for request in self.live})
        assert len(self.live) + self.engine.num_finished == self.engine.num_requests

    @invariant()
    def nothing_leaks(self) -> None:
        if not self.engine.scheduler.running:
            assert self.engine.pool.num_free == self.config.num_blocks

    @invariant()
    def hash_map_is_consistent(self) -> None:
        pool, size = self.engine.pool, self.config.block_size
        listed = {block_id: block_hash for block_hash, holders in pool.cached.items() for block_id in holders}
        assert all(pool.cached.values())
        assert listed == {b: block_hash for b, block_hash in enumerate(pool.hashes) if block_hash is not None}
        assert pool.short_hashes == [int.from_bytes((block_hash or bytes(4))[:4], "big") for block_hash in pool.hashes]
        assert self.config.prefix_cache or not listed
        contents: dict[bytes, list[object]] = {}
        for block_id, block_hash in listed.items():
            entries = [self.runner.entries[slot] for slot in range(block_id * size, (block_id + 1) * size)]
            assert contents.setdefault(block_hash, entries) == entries, "one hash for two contents"
        assert len({repr(entries) for entries in contents.values()}) == len(contents), "two hashes for one content"

    @invariant()
    def folded_world_is_the_engine(self) -> None:
        assert self.world.broken is None
        assert self.world.digest() == self.engine.digest()
        assert self.world.free == list(self.engine.pool.free)
        size = self.config.block_size
        for request in self.engine.scheduler.running:
            for position in range(request.num_computed):
                block_id = request.block_table[position // size]
                if block_id is not None:
                    entry = self.world.slots[block_id * size + position % size]
                    assert entry[1] == position
                    assert entry[3] == request.token_ids[position]

    @invariant()
    def checkpoint_goes_round(self) -> None:
        checkpoint = json.loads(json.dumps(self.world.to_json()))
        again = World.from_json(checkpoint)
        assert again.digest() == self.world.digest()
        assert again.to_json() == checkpoint


#: Events that take blocks out of the free queue or put them in.
TAKES = {"block_allocated", "block_copied", "block_shared", "blocks_released"}


@pytest.mark.slow
@pytest.mark.parametrize("max_examples", [20, pytest.param(300, marks=pytest.mark.prove)])
def test_block_machine(max_examples: int) -> None:
    checks = [HealthCheck.too_slow]
    limits = settings(max_examples=max_examples, stateful_step_count=25, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(BlockMachine, settings=limits)


def test_hits_out_of_the_window_make_room_at_once() -> None:
    """A continued conversation hits more than its window reads, and takes no more than that out of the free queue."""
    events: list[Any] = []
    config = EngineConfig(num_blocks=8, block_size=1, prefill_chunk=4, max_running=1)
    engine, _ = stub_engine(config, StubRunner(window=2), events.append)
    engine.add_request([1, 2, 3, 4, 5, 6], max_new_tokens=1)
    while engine.step():
        pass
    events.clear()
    engine.add_request([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], max_new_tokens=1)
    assert engine.step()
    told = [as_json(event) for event in events]
    lookup = next(event for event in told if event["type"] == "prefix_looked_up")
    assert lookup["num_hit_tokens"] == 6
    shared = [event for event in told if event["type"] == "block_shared"]
    assert [event["logical_index"] for event in shared] == [5]
