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

from kvviz.engine.blocks import BlockPool
from kvviz.engine.free_queue import FreeQueue
from kvviz.engine.requests import Request
from kvviz.engine.tables import BlockTables
from kvviz.events import AllocationReason, BlockCached, BlockEvicted, Event, PrefixCacheReset, SamplingParams

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


LEVELS: dict[str, Any] = {"kv_manager": VllmManager, "block_pool": Pool, "free_queue": Queue}


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
