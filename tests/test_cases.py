"""Cases with known right answers (tests/cases, from vLLM 0.33), replayed on our block pool, tables and free queue.

vLLM numbers its usable blocks from 1, because block 0 is its null block; ours count from 0. The adapters below speak
vLLM's language of steps and answer with every field that a case may ask for.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from kvviz.config import EngineConfig
from kvviz.engine.blocks import BlockPool
from kvviz.engine.free_queue import FreeQueue
from kvviz.engine.host import HostTier
from kvviz.engine.requests import Request
from kvviz.engine.scheduler import Scheduler
from kvviz.engine.tables import BlockTables
from kvviz.events import (
    AllocationReason,
    BlockCached,
    BlockEvicted,
    Event,
    PrefixCacheReset,
    PrefixLookedUp,
    RequestPreempted,
    SamplingParams,
)
from tests.support.stub_engine import StubRunner

DIRECTORY = Path(__file__).parent / "cases"
CASES = {case["id"]: case for case in json.loads((DIRECTORY / "engine.json").read_text(encoding="utf-8"))}

USED = (
    "vm-prefill-033",
    "vm-exact-multiple",
    "vm-decode",
    "vm-reuse-clears-hash",
    "vm-caching-disabled",
    "vm-cache-salt",
    "vm-not-enough-free",
    "vm-reset",
    "vm-duplicate-blocks",
    "vm-usage",
    "vm-events-counts",
    "vm-session-id-neutral",
    "vm-dup-map-evict",
    "swa-prefix-table",
    "swa-skip-table",
    "sc-chunk-16",
    "sc-concurrent-partial",
    "sc-threshold-alone",
    "sc-threshold-shared",
    "sc-order-chunked",
    "sc-order-unchunked",
    "sc-preempt-last",
    "sc-preempt-fcfs",
    "sc-head-of-line",
    "sc-max-seqs",
    "sc-stats",
    "sc-prio-order",
    "sc-prio-limited",
    "sc-leak",
    "v0-fork",
    "v0-swap",
    "fq-operations",
    "fq-append-n",
    "fq-prepend-n",
    "fq-popleft-n",
    "fq-get-all",
)


def tokens_of(prompt: list[list[Any]]) -> list[int]:
    """`["range", a, b)`, `["fill", token, count]` and `["list", […]]`, one after the other."""
    tokens: list[int] = []
    for kind, *what in prompt:
        match kind:
            case "range":
                tokens += range(*what)
            case "fill":
                tokens += [what[0]] * what[1]
            case "list":
                tokens += what[0]
            case _:
                raise AssertionError(f"unknown kind of prompt {kind}")
    return tokens


class Manager:
    """Block tables without an engine: prompts are allocated whole. `first_id` is added to every block id shown."""

    def __init__(self, block_size: int, num_blocks: int, *, prefix_cache: bool = True, first_id: int = 0) -> None:
        self.first_id = first_id
        self.events: list[Event] = []
        self.pool = BlockPool(num_blocks, self.events.append, prefix_cache=prefix_cache)
        self.tables = BlockTables(self.pool, block_size, self.events.append)
        self.requests: dict[str, Request] = {}

    def ids(self, block_ids: Any) -> list[int]:
        return [block_id + self.first_id for block_id in block_ids]

    def request(self, tokens: list[int], salt: str | None = None) -> Request:
        return Request(
            request_id=len(self.requests),
            token_ids=list(tokens),
            num_prompt_tokens=len(tokens),
            max_new_tokens=1,
            sampling=SamplingParams(),
            block_size=self.tables.block_size,
            extra_keys=(f"salt:{salt}",) if salt is not None else (),
        )

    def admit(self, name: str, request: Request, *, look_up: bool = True) -> tuple[tuple[int, ...], bool]:
        """Hits, and whether the rest was allocated."""
        lookup = self.tables.lookup(request) if look_up else None
        ok = self.tables.allocate(request, request.num_tokens, code="prompt", lookup=lookup)
        if ok:
            self.requests[name] = request
        return lookup.block_ids if lookup else (), ok

    def append(self, name: str, tokens: list[int]) -> bool:
        request = self.requests[name]
        request.num_computed = request.num_tokens
        for token_id in tokens:
            request.append_token(token_id)
        return self.tables.allocate(request, request.num_tokens, code="decode")

    def free(self, name: str) -> None:
        self.tables.release(self.requests.pop(name), "finished")

    def blocks(self, name: str) -> list[int]:
        return self.ids(self.requests[name].block_table)


class VllmManager(Manager):
    """Answers the steps of a `kv_manager` case."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(setup["block_size"], setup["num_blocks"] - 1, prefix_cache=setup["enable_caching"], first_id=1)

    def do(self, op: str, step: dict[str, Any]) -> dict[str, Any]:
        name = step.get("req", "")
        match op:
            case "admit" | "lookup":
                request = self.request(tokens_of(step["prompt"]), step.get("salt"))
                if op == "lookup":
                    return self._hits(self.tables.lookup(request).block_ids)
                hits, ok = self.admit(name, request, look_up=not step.get("skip_lookup", False))
                new = self.blocks(name)[len(hits) :] if ok else None
                return {**self._hits(hits), "new_blocks": new, "new_blocks_len": len(new or ())}
            case "append":
                num_held = len(self.requests[name].block_table)
                ok = self.append(name, tokens_of(step["tokens"]))
                return {"new_blocks": self.blocks(name)[num_held:] if ok else None}
            case "free":
                self.free(name)
                return {}
            case "queue":
                return {"order": self.ids(self.pool.free)}
            case "table":
                return {"blocks": self.blocks(name)}
            case "state":
                return self._state()
            case "reset_prefix_cache":
                return {"ok": self.pool.reset()}
            case "events":
                return self._vllm_events()
        raise AssertionError(f"unknown step {op}")

    def _hits(self, block_ids: tuple[int, ...]) -> dict[str, Any]:
        return {"hit_blocks": self.ids(block_ids), "hit_tokens": len(block_ids) * self.tables.block_size}

    def _state(self) -> dict[str, Any]:
        pool = self.pool
        return {
            "hashed": self.ids(block_id for block_id, block_hash in enumerate(pool.hashes) if block_hash is not None),
            "refs": {str(block_id + self.first_id): count for block_id, count in enumerate(pool.ref_counts) if count},
            "free": pool.num_free,
            "cache_keys": len(pool.cached),
            "dup_keys": [self.ids(holders) for holders in pool.cached.values() if len(holders) > 1],
            "usage": pytest.approx(pool.usage),
        }

    def _vllm_events(self) -> dict[str, Any]:
        """Since the last call, in vLLM's events: full blocks stored in a row are one of them."""
        names = {BlockCached: "BlockStored", BlockEvicted: "BlockRemoved", PrefixCacheReset: "AllBlocksCleared"}
        told = [
            type(event) for event in self.events if isinstance(event, (BlockCached, BlockEvicted, PrefixCacheReset))
        ]
        told = [kind for kind in told if kind in names]
        self.events.clear()
        types, counts = [], []
        for kind, group in groupby(told):
            number = len(list(group))
            runs = [number] if kind is BlockCached else [1] * number
            types += [names[kind]] * len(runs)
            counts += runs
        return {
            "types": types,
            "hash_counts": counts,
            "token_counts": [count * self.tables.block_size for count in counts],
        }


class Pool:
    """Answers the steps of a `block_pool` case: named hashes put on blocks, and blocks evicted by being reused."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.pool = BlockPool(setup["num_blocks"], lambda event: None)

    def do(self, op: str, step: dict[str, Any]) -> dict[str, Any]:
        if op == "set_hashes":
            for block_id, name in step["map"].items():
                self.pool.register(0, int(block_id), int(block_id), name.encode(), None)
        else:
            assert op == "evict"
            self.pool.free.remove(step["block"])
            self.pool.free.prepend_n([step["block"]])
            reason = AllocationReason(code="prompt", num_tokens=1, num_blocks_held=0)
            assert self.pool.allocate(0, 0, reason) == step["block"]
        return {"map": {block_hash.decode(): list(holders) for block_hash, holders in self.pool.cached.items()}}


class Queue:
    """Answers the steps of a `free_queue` case."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.queue = FreeQueue(setup["initial"], 6)

    def do(self, op: str, step: dict[str, Any]) -> dict[str, Any]:
        returns: list[int] = []
        match op:
            case "popleft":
                try:
                    returns = [self.queue.popleft()]
                except ValueError as error:
                    return {"error": f"ValueError: {error}"}
            case "popleft_n":
                returns = self.queue.popleft_n(step["n"])
            case "remove":
                self.queue.remove(step["id"])
            case "append":
                self.queue.append_n(step["ids"])
            case "prepend":
                self.queue.prepend_n(step["ids"])
            case _:
                raise AssertionError(f"unknown step {op}")
        order = list(self.queue)
        assert len(self.queue) == len(order)
        return {"returns": returns, "order": order}


class Windows:
    """Answers `swa_lookup` (which prefix a window finds among cached blocks) and `swa_free` (what leaves a window)."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.size, self.window = setup["block_size"], setup["sliding_window"]
        self.table = setup.get("table", [])

    def tables(self, num_blocks: int) -> BlockTables:
        return BlockTables(BlockPool(num_blocks, lambda event: None), self.size, lambda event: None, window=self.window)

    def request(self, num_tokens: int) -> Request:
        return Request(
            request_id=0,
            token_ids=list(range(num_tokens)),
            num_prompt_tokens=num_tokens,
            max_new_tokens=1,
            sampling=SamplingParams(),
            block_size=self.size,
        )

    def do(self, op: str, step: dict[str, Any]) -> dict[str, Any]:
        if op == "cached":
            mask = step["mask"]
            tables, request = self.tables(len(mask)), self.request(len(mask) * self.size + 1)
            for index, bit in enumerate(mask):
                if bit == "1":
                    tables.pool.register(0, index, index, request.hashes[index], None)
            return {"hit_blocks": len(tables.lookup(request).found)}
        assert op == "computed"
        tables, request = self.tables(len(self.table)), self.request(len(self.table) * self.size)
        assert tables.allocate(request, request.num_tokens, code="prompt")
        request.num_computed = step["n"]
        tables.allocate(request, request.num_tokens, code="prompt")
        return {"null_prefix": request.block_table.count(None)}


class Serving:
    """Answers the steps of a `scheduler` case with our scheduler; every sampled token is 7."""

    def __init__(self, setup: dict[str, Any]) -> None:
        events: list[Event] = []
        self.events = events
        budget = setup["max_num_batched_tokens"]
        self.config = EngineConfig(
            block_size=setup["block_size"],
            num_blocks=setup["num_blocks"] - 1,
            prefix_cache=setup["enable_prefix_caching"],
            max_running=setup["max_num_seqs"],
            token_budget=budget,
            prefill_chunk=min(setup.get("long_prefill_token_threshold") or budget, 8_192),
            chunked_prefill=setup.get("enable_chunked_prefill", True),
            order=setup["policy"],
        )
        self.pool = BlockPool(self.config.num_blocks, events.append, prefix_cache=self.config.prefix_cache)
        self.scheduler = Scheduler(
            self.config, BlockTables(self.pool, self.config.block_size, events.append), events.append
        )
        self.requests: dict[str, Request] = {}
        self.in_flight: list[dict[str, int]] = []

    def names(self, requests: Any) -> list[str]:
        return [name for request in requests for name, other in self.requests.items() if other is request]

    def do(self, op: str, step: dict[str, Any]) -> dict[str, Any]:
        match op:
            case "add":
                # Who came earlier has the smaller id; the cases give the order of arrival.
                arrival = int(step.get("arrival", len(self.requests)))
                self.requests[step["req"]] = request = Request(
                    request_id=arrival,
                    token_ids=tokens_of(step["prompt"]),
                    num_prompt_tokens=len(tokens_of(step["prompt"])),
                    max_new_tokens=step.get("max_tokens", 16),
                    sampling=SamplingParams(),
                    block_size=self.config.block_size,
                    priority=step.get("priority", 0),
                )
                self.scheduler.add(request)
                return {}
            case "schedule_only" | "step":
                answer = self._schedule()
                if op == "step":
                    for name in self.in_flight[-1]:
                        self._append(name, 7)
                return answer
            case "deliver":
                for name, token_ids in step["tokens"].items():
                    for token_id in token_ids:
                        self._append(name, token_id)
                return {}
            case "status":
                request = self.requests[step["req"]]
                return {
                    "status": request.state.upper(),
                    "num_computed_tokens": request.num_computed,
                    "num_preemptions": self._preemptions(step["req"]),
                    "output_tokens": request.token_ids[request.num_prompt_tokens :],
                }
            case "scenario":
                return self._five_to_the_end()
        raise AssertionError(f"unknown step {op}")

    def _schedule(self) -> dict[str, Any]:
        self.events.clear()
        num_before = {name: len(request.block_table) for name, request in self.requests.items()}
        plan = self.scheduler.schedule()
        order = self.names(request for request, _ in plan.chunks)
        self.in_flight.append({name: 1 for name in order if self._wants_sample(self.requests[name])})
        new = {name: self.requests[name].block_table[num_before[name] :] for name in order}
        lookups = [event for event in self.events if isinstance(event, PrefixLookedUp)]
        return {
            "scheduled": dict(zip(order, (chunk.num_tokens for _, chunk in plan.chunks), strict=True)),
            "order": order,
            "new_blocks": {
                name: [block_id + 1 for block_id in block_ids] for name, block_ids in new.items() if block_ids
            },
            "new_blocks_len": {name: len(block_ids) for name, block_ids in new.items()},
            "free": self.pool.num_free,
            "running": self.names(self.scheduler.running),
            "waiting": self.names(self.scheduler.waiting),
            "preempted": self.names(r for r in self.requests.values() if r.state == "preempted"),
            "stats": {
                "requests": len(lookups),
                "queries": sum(event.num_tokens for event in lookups),
                "hits": sum(event.num_hit_tokens for event in lookups),
            },
        }

    def _wants_sample(self, request: Request) -> bool:
        return request.num_computed == request.num_tokens

    def _append(self, name: str, token_id: int) -> None:
        request = self.requests[name]
        request.append_token(token_id)
        if request.num_generated >= request.max_new_tokens and request.state == "running":
            self.scheduler.running.remove(request)
            self.scheduler.tables.release(request, "finished")
            request.state = "finished"

    def _preemptions(self, name: str) -> int:
        mine = self.requests[name].request_id
        return sum(isinstance(event, RequestPreempted) and event.request_id == mine for event in self.events)

    def _five_to_the_end(self) -> dict[str, Any]:
        for number in range(5):
            self.do("add", {"req": str(number), "prompt": [["fill", number, 10]], "max_tokens": 10})
        while self.scheduler.live:
            self.do("step", {})
        num_free = self.pool.num_free
        return {
            "all_ref_counts_zero": not any(self.pool.ref_counts),
            "free": "num_blocks-1" if num_free == self.config.num_blocks else num_free,
        }


class Sharing:
    """Answers `v0_block_table` (a table and its fork) and `v0_block_manager` (one out to the host and back)."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.size = setup["block_size"]
        self.num_blocks = setup.get("num_gpu_blocks", setup.get("gpu"))
        self.pool = BlockPool(self.num_blocks, lambda event: None)
        self.host = HostTier(setup.get("cpu", 0), lambda event: None)
        self.tables = BlockTables(self.pool, self.size, lambda event: None, mover=StubRunner(), host=self.host)
        self.requests: list[Request] = []

    def do(self, op: str, step: dict[str, Any]) -> dict[str, Any]:
        match op:
            case "allocate":
                self.requests = [self.request(step["tokens"])]
                assert self.tables.allocate(self.requests[0], step["tokens"], code="prompt")
                self.requests[0].num_computed = step["tokens"]
            case "fork":
                child = self.request(self.requests[0].num_tokens + 1)
                assert self.tables.fork(self.requests[0], child)
                self.requests.append(child)
            case "free":
                self.tables.release(self.requests[["original", "fork"].index(step["which"])], "finished")
            case "swap_out":
                assert self.host.has_capacity(1)
                self.tables.swap_out(self.requests[0])
            case "swap_in":
                self.tables.swap_in(self.requests[0])
        return {
            "free": self.pool.num_free,
            "same_physical": len({tuple(request.block_table) for request in self.requests}) == 1,
            "gpu_used": self.num_blocks - self.pool.num_free,
            "cpu_used": self.host.num_swapped,
            "mapping_keys": "gpu block ids",
        }

    def request(self, num_tokens: int) -> Request:
        return Request(
            request_id=len(self.requests),
            token_ids=list(range(num_tokens)),
            num_prompt_tokens=num_tokens,
            max_new_tokens=1,
            sampling=SamplingParams(),
            block_size=self.size,
        )


LEVELS: dict[str, Any] = {
    "kv_manager": VllmManager,
    "block_pool": Pool,
    "free_queue": Queue,
    "swa_lookup": Windows,
    "swa_free": Windows,
    "scheduler": Serving,
    "v0_block_table": Sharing,
    "v0_block_manager": Sharing,
}


@pytest.mark.parametrize("case_id", USED)
def test_case(case_id: str) -> None:
    assert case_id in CASES, f"tests/cases/engine.json has no case {case_id}"
    case = CASES[case_id]
    subject = LEVELS[case["setup"]["level"]](case["setup"])
    assert len(case["steps"]) == len(case["expect"])
    for number, (step, expected) in enumerate(zip(case["steps"], case["expect"], strict=True)):
        got = subject.do(step["op"], step)
        for field, value in (expected or {}).items():
            assert got[field] == value, f"step {number} ({step['op']}): {field}"


def test_every_case_of_the_free_queue_is_used() -> None:
    assert {case_id for case_id in CASES if case_id.startswith("fq-")} <= set(USED)


def replay_workload(workload: dict[str, Any]) -> list[dict[str, Any]]:
    """One answer per operation: a prompt is allocated whole or not at all, tokens are appended one at a time."""
    manager = Manager(workload["block_size"], workload["num_blocks"])
    answers = []
    for op in workload["ops"]:
        manager.events.clear()
        answer: dict[str, Any] = {"op": op["op"], "id": op["id"], "ok": True}
        match op["op"]:
            case "start":
                hits, answer["ok"] = manager.admit(op["id"], manager.request(op["tokens"], op.get("salt")))
                answer["hit_tokens"] = len(hits) * workload["block_size"]
            case "append":
                answer["ok"] = all(manager.append(op["id"], [token_id]) for token_id in op["tokens"])
            case "free":
                manager.free(op["id"])
        if op["id"] in manager.requests:
            answer["blocks"] = manager.blocks(op["id"])
        answer["free"] = manager.pool.num_free
        answer["stored"] = sum(isinstance(event, BlockCached) for event in manager.events)
        answer["removed"] = sum(isinstance(event, BlockEvicted) for event in manager.events)
        answers.append(answer)
    return answers


def test_workload() -> None:
    workload, answer = (
        json.loads((DIRECTORY / f"workload-example{end}.json").read_text(encoding="utf-8")) for end in ("", ".answer")
    )
    assert replay_workload(workload) == answer


def test_append_stops_at_the_first_token_that_finds_no_block() -> None:
    ops = [
        {"op": "start", "id": "a", "tokens": [1, 2, 3]},
        {"op": "append", "id": "a", "tokens": [4, 5, 6, 7]},
    ]
    answer = replay_workload({"block_size": 2, "num_blocks": 3, "ops": ops})
    assert answer[1] == {
        "op": "append", "id": "a", "ok": False, "blocks": [0, 1, 2], "free": 0, "stored": 2, "removed": 0
    }  # fmt: skip
