"""Many requests at once: nobody starves, leaks or is lost, and each one's tokens are those of its solo run.

The loads run on the real engine. With the stub runner every entry that is read is checked by
what it must be made of; with small models the tokens are compared with transformers' own `generate()`.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter
from typing import Any

import pytest
import torch

from kvviz.config import EngineConfig
from kvviz.errors import ConfigError, RequestError
from kvviz.events import BlockCopied, Event, PrefixCacheReset, PrefixLookedUp, RequestForked, RequestPreempted
from kvviz.model.instrumented import InstrumentedModel
from tests.support.sample import sampled
from tests.support.serving import Load, run_load
from tests.support.small_models import FILLED_KINDS, BatchRun, greedy_ids, prompt_ids, small_model
from tests.support.stub_engine import StubRunner, stub_engine

SEEDS = range(24)


def window_of(seed: int) -> int | None:
    return [None, None, None, 2, 5][seed % 5]


@functools.cache
def load_of(seed: int) -> Load:
    return run_load(seed, window=window_of(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_load_ends_and_every_step_has_the_engines_digest(seed: int) -> None:
    load = load_of(seed)
    engine = load.engine
    assert engine.num_finished == engine.num_requests
    assert engine.pool.num_free == load.config.num_blocks
    assert not any(engine.pool.ref_counts)
    assert not engine.host.swapped
    budgets = [record[2] for record in load.records if record[2]["type"] == "step_scheduled"]
    for event in budgets:
        used = sum(chunk["num_tokens"] for chunk in event["chunks"])
        assert used, "no step is empty"
        assert used <= event["budget"] or not load.config.chunked_prefill
        assert len(event["chunks"]) <= load.config.max_running


@pytest.mark.slow
def test_the_loads_meet_every_mechanic() -> None:
    """Otherwise the test above would prove little."""
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        for _, _, event in load_of(seed).records:
            seen[event["type"]] += 1
            if event["type"] in ("request_preempted", "prefix_looked_up"):
                seen[event["reason"]["code"]] += 1
            if event["type"] == "step_scheduled" and event["blocked"]:
                seen[f"blocked {event['blocked']['code']}"] += 1
    for what in (
        *("request_forked", "block_copied", "recompute", "swap", "blocks_swapped_in", "block_offloaded"),
        *("block_fetched", "host_evicted", "block_shared", "blocks_released", "request_reprioritised"),
        *("evicted", "differs", "other_keys", "less_than_block", "last_token", "ends", "nothing_shared"),
        *("blocked blocks", "blocked budget", "blocked slots", "blocked preemption"),
    ):
        assert seen[what], f"no load has {what}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "preemption"),
    sampled(itertools.product(FILLED_KINDS, ["recompute", "swap"]), group=lambda case: case[0]),
)
def test_tokens_of_a_crowd_equal_generate(kind: str, preemption: str) -> None:
    """Ten requests in a pool for three, in chunks, preempted and evicted, with NaN in every block that is given up."""
    model = small_model(kind, **FILLED_KINDS[kind])
    chance = random.Random(0)
    stem = prompt_ids(24)
    prompts = [stem[: chance.choice([5, 16, 24])] + prompt_ids(chance.randint(1, 20), seed=10 + i) for i in range(10)]
    counts = [chance.randint(4, 18) for _ in prompts]
    want = [greedy_ids(model, prompt, count) for prompt, count in zip(prompts, counts, strict=True)]
    instrumented = InstrumentedModel(model, name=kind, fingerprint=kind)
    config = EngineConfig(
        block_size=4,
        num_blocks=14 if kind == "mistral" else 26,  # with a window a request holds less
        prefill_chunk=9,
        max_running=6,
        preemption=preemption,  # type: ignore[arg-type]
        num_host_blocks=60,
        offload=True,
    )
    try:
        run = BatchRun(instrumented, config)
        ids = [
            run.engine.add_request(prompt, max_new_tokens=count) for prompt, count in zip(prompts, counts, strict=True)
        ]
        run.finish()
    finally:
        instrumented.close()
    assert [run.tokens[request_id] for request_id in ids] == want
    told = Counter(event.type for event in run.events)
    code = {event.reason.code for event in run.events if isinstance(event, RequestPreempted)}
    # With a window in every layer a request is let in only when the most that it will ever hold is free.
    assert code == (set() if kind == "mistral" else {preemption})
    assert told["block_evicted"], "the pool is small enough that something is forgotten"
    assert told["block_offloaded"]
    assert max(len(event.chunks) for event in run.events if event.type == "step_scheduled") > 2
    assert run.num_forwards == run.engine.num_steps, "one forward pass a step"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "block_size"), sampled(itertools.product(FILLED_KINDS, [1, 7]), group=lambda case: case[0])
)
def test_branches_equal_unforked_runs(kind: str, block_size: int) -> None:
    """Branches at several places of a running request, and of one that has ended."""
    model = small_model(kind, **FILLED_KINDS[kind])
    prompt, count = prompt_ids(13), 12
    parent_ids = greedy_ids(model, prompt, count)
    instrumented = InstrumentedModel(model, name=kind, fingerprint=kind)
    wanted: dict[int, tuple[list[int], int]] = {}
    try:
        run = BatchRun(instrumented, EngineConfig(block_size=block_size, num_blocks=160, prefill_chunk=16))
        parent = run.engine.add_request(prompt, max_new_tokens=count)
        for step in range(count):
            run.engine.step()
            known = len(run.tokens[parent])
            if step in (2, 5, 8):
                for position in (len(prompt), known - 1):
                    own = 3 + (run.tokens[parent][position] + step) % 100
                    child = run.engine.fork(parent, position, own)
                    start = [*run.tokens[parent][:position], own]
                    wanted[child] = start, len(prompt) + count - len(start)
                child = run.engine.fork(parent, known)
                wanted[child] = run.tokens[parent][:known], len(prompt) + count - known
        run.finish()
        late = run.engine.fork(parent, len(prompt) + 3, 5)
        wanted[late] = [*parent_ids[: len(prompt) + 3], 5], count - 4
        run.finish()
    finally:
        instrumented.close()
    assert run.tokens[parent] == parent_ids
    for child, (start, left) in wanted.items():
        assert run.tokens[child] == greedy_ids(model, start, left), f"branch {child}"
    assert any(isinstance(event, RequestForked) for event in run.events)
    if block_size > 1:
        copies = [event for event in run.events if isinstance(event, BlockCopied)]
        assert copies
        for event in copies:
            assert event.num_bytes == block_size * instrumented.geometry.bytes_per_token


def test_samples_of_one_prompt_share_its_blocks_and_differ() -> None:
    engine, runner = stub_engine(EngineConfig(block_size=4, num_blocks=40, max_running=8))
    engine.add_request([1, 2, 3, 4, 5, 6], max_new_tokens=6, num_samples=4)
    engine.step()
    tables = [request.block_table for request in engine.scheduler.running]
    assert tables == [[0, 1]] * 4
    assert engine.pool.ref_counts[:2] == [4, 4]
    engine.step()
    assert engine.pool.ref_counts[0] == 4
    assert sorted(request.block_table[1] for request in engine.scheduler.running) == [1, 2, 3, 4]
    while engine.step():
        pass
    answers = {tuple(token_ids) for _, token_ids in runner.known.values()}
    assert len(answers) == 4


def test_wrong_forks_are_refused_in_a_sentence() -> None:
    engine, _ = stub_engine(EngineConfig(block_size=4, num_blocks=8))
    engine.add_request([1, 2, 3], max_new_tokens=8, stop_token_ids=(39,))
    engine.step()
    engine.step()
    for position, token_id, code in ((2, 1, "bad_position"), (5, 1, "bad_position"), (4, -1, "bad_tokens")):
        with pytest.raises(RequestError) as refused:
            engine.fork(0, position, token_id)
        assert refused.value.code == code
    with pytest.raises(RequestError, match="ends the answer"):
        engine.fork(0, 4, 39)
    with pytest.raises(RequestError, match="Request 7 is unknown"):
        engine.fork(7, 4, 1)
    with pytest.raises(ConfigError):
        engine.reprioritise(0, 10**9)


def test_a_token_outside_the_vocabulary_is_refused_and_ends_no_request() -> None:
    """It once reached the forward pass, which failed for every running request."""
    model = small_model("llama")
    vocab_size = model.get_input_embeddings().weight.shape[0]
    instrumented = InstrumentedModel(model, name="llama", fingerprint="llama")
    try:
        run = BatchRun(instrumented, EngineConfig(block_size=4, num_blocks=32))
        for seed in (1, 2):
            run.engine.add_request(prompt_ids(6, seed=seed), max_new_tokens=6)
        run.engine.step()
        for wrong in (vocab_size, -1, 2**40):
            with pytest.raises(RequestError, match=f"from 0 to {vocab_size - 1:,}"):
                run.engine.fork(0, 6, wrong)
            with pytest.raises(RequestError, match=f"from 0 to {vocab_size - 1:,}"):
                run.engine.add_request([1, wrong], max_new_tokens=2)
        run.engine.fork(0, 6, vocab_size - 1)
        while run.engine.step():
            pass
    finally:
        instrumented.close()
    finished = [event for event in run.events if event.type == "request_finished"]
    assert [event.reason.code for event in finished] == ["length"] * 3


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("prefix_cache", "no"),
        ("prefix_cache", 1),
        ("order", "lifo"),
        ("preemption", None),
        ("eviction", "mru"),
        ("max_running", 0),
        ("token_budget", 0),
        ("num_host_blocks", -1),
    ],
)
def test_settings_are_checked(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=setting):
        EngineConfig(**{setting: value})  # type: ignore[arg-type]


def test_swapped_tensors_come_back_bit_for_bit() -> None:
    """A request's entries before it is swapped out and after it came back, wherever they lie then."""
    model = small_model("llama")
    instrumented = InstrumentedModel(model, name="llama", fingerprint="llama")
    config = EngineConfig(
        block_size=4, num_blocks=9, prefill_chunk=64, max_running=2, preemption="swap", num_host_blocks=9
    )
    try:
        run = BatchRun(instrumented, config)
        run.engine.add_request(prompt_ids(15), max_new_tokens=12)
        last = run.engine.add_request(prompt_ids(13, seed=4), max_new_tokens=12)
        before: list[torch.Tensor] = []
        while run.engine.step():
            request = next((r for r in run.engine.scheduler.live if r.request_id == last), None)
            if request is not None and request.state == "running":
                entries = run.entries_of(request)
                size = before[0].shape[1] if before else 0
                for now, then in zip(entries, before, strict=False):
                    assert torch.equal(now[:, :size], then)
                before = entries
    finally:
        instrumented.close()
    moved = [event for event in run.events if event.type in ("blocks_swapped_out", "blocks_swapped_in")]
    assert [event.type for event in moved[:2]] == ["blocks_swapped_out", "blocks_swapped_in"]
    for event in moved:
        block_bytes = 4 * instrumented.geometry.bytes_per_token
        assert event.num_bytes == len(event.block_ids) * block_bytes


def test_the_victim_is_the_last_and_its_tokens_are_kept() -> None:
    """The arithmetic of a preemption by hand: A and B hold 3 blocks each of 6, then A needs a fourth."""
    events: list[Any] = []
    engine, _ = stub_engine(EngineConfig(block_size=4, num_blocks=6, prefill_chunk=64), StubRunner(), events.append)
    engine.add_request(list(range(12)), max_new_tokens=6)
    engine.add_request([*range(20, 31)], max_new_tokens=6)
    engine.step()
    assert engine.pool.num_free == 0
    engine.step()
    (event,) = [event for event in events if isinstance(event, RequestPreempted)]
    assert event.request_id == 1
    reason = event.reason
    assert (reason.code, reason.order, reason.for_request_id) == ("recompute", "last", 0)
    assert (reason.num_blocks_needed, reason.num_free, reason.num_blocks_held) == (1, 0, 3)
    assert (reason.num_generated, reason.num_lost_tokens) == (1, 11)
    assert engine.scheduler.waiting[0].request_id == 1


def test_a_branch_that_outlives_its_parent_leaves_no_false_prefix() -> None:
    """It overwrites what it held of the parent's full block, so nobody may hit that block under the parent's hash."""
    model, observed_model = small_model("llama", initializer_range=0.4), small_model("llama", initializer_range=0.4)
    instrumented = InstrumentedModel(observed_model, name="llama", fingerprint="f")
    run = BatchRun(instrumented, EngineConfig(block_size=4, num_blocks=40))
    parent = run.engine.add_request(prompt_ids(6), max_new_tokens=20)
    for _ in range(10):
        run.engine.step()
    token_ids = list(run.tokens[parent])
    run.engine.fork(parent, 9, (token_ids[9] + 1) % 128)  # in the middle of a full block
    run.engine.cancel(parent)
    run.finish()
    assert [event.reason for event in run.events if isinstance(event, PrefixCacheReset)] == ["overwritten"]
    again = run.engine.add_request(token_ids[:13], max_new_tokens=8)
    run.finish()
    assert run.tokens[again] == greedy_ids(model, token_ids[:13], 8)


def test_a_swapped_request_with_a_window_comes_back() -> None:
    """It leaves what no layer reads behind; else it would ask for more blocks than the pool has, for ever."""
    settings: dict[str, Any] = {"sliding_window": 8, "initializer_range": 0.4}
    instrumented = InstrumentedModel(small_model("mistral", **settings), name="mistral", fingerprint="f")
    config = EngineConfig(block_size=1, num_blocks=25, prefill_chunk=16, preemption="swap", num_host_blocks=50)
    run = BatchRun(instrumented, config)
    prompts = {run.engine.add_request(prompt_ids(n), max_new_tokens=m): (n, m) for n, m in ((1, 40), (40, 5))}
    run.finish()
    assert any(isinstance(event, RequestPreempted) and event.reason.code == "swap" for event in run.events)
    for request_id, (length, count) in prompts.items():
        want = greedy_ids(small_model("mistral", **settings), prompt_ids(length), count)
        assert run.tokens[request_id] == want


def test_a_window_of_one_does_not_starve_after_a_hit() -> None:
    engine, _ = stub_engine(EngineConfig(block_size=2, num_blocks=4, chunked_prefill=False), StubRunner(window=1))
    for _ in range(2):
        engine.add_request(range(1, 9), max_new_tokens=1)
        for _ in range(3):
            engine.step()
    assert engine.num_finished == 2


def test_what_fits_not_even_an_empty_pool_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the arithmetic must not play empty steps for ever."""
    engine, _ = stub_engine(EngineConfig(block_size=2, num_blocks=4), StubRunner())
    engine.add_request([1, 2, 3], max_new_tokens=1)
    monkeypatch.setattr(engine.scheduler, "num_missing", lambda *_: 1)
    assert engine.step()
    assert not engine.step()
    assert engine.num_finished == 1


def test_a_reset_forgets_both_tiers() -> None:
    config = EngineConfig(num_blocks=4, block_size=4, num_host_blocks=20, offload=True)
    events: list[Event] = []
    engine, _ = stub_engine(config, StubRunner(), events.append)
    for first in (0, 20, 40):
        engine.add_request(range(first, first + 14), max_new_tokens=1)
        while engine.step():
            pass
    assert engine.host.cached
    assert engine.reset_prefix_cache()
    assert not engine.host.cached
    assert engine.host.state() == []
    request = engine.add_request(range(14), max_new_tokens=1)
    engine.step()
    (looked_up,) = [event for event in events if isinstance(event, PrefixLookedUp) and event.request_id == request]
    assert looked_up.num_hit_tokens == 0


def test_samples_of_more_requests_than_are_remembered() -> None:
    config = EngineConfig(num_blocks=600, block_size=1, max_running=300, prefill_chunk=1)
    engine, _ = stub_engine(config, StubRunner())
    for number in range(300):
        engine.add_request([1], max_new_tokens=1, num_samples=2, salt=str(number))
    while engine.step():
        pass
    assert engine.num_finished == 600


@pytest.mark.parametrize(
    ("position", "token_id"), [("3", 4), (3, 4.0), (None, 4), (3, "x")], ids=["text", "float", "none", "token"]
)
def test_forks_take_whole_numbers(position: Any, token_id: Any) -> None:
    engine, _ = stub_engine(EngineConfig(), StubRunner())
    engine.add_request([1, 2, 3], max_new_tokens=9)
    engine.step()
    with pytest.raises(RequestError, match=r"must be a whole number \(got"):
        engine.fork(0, position, token_id)


@pytest.mark.parametrize("options", [{"salt": 5}, {"prompt": 5}, {"sampling": "x"}, {"stop_token_ids": 5}])
def test_wrong_types_of_a_request_are_said(options: Any) -> None:
    engine, _ = stub_engine(EngineConfig(), StubRunner())
    with pytest.raises(RequestError, match="must be"):
        engine.add_request([1, 2, 3], **options)
