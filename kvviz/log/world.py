"""The world: the state that events describe. The page has the same fold in JavaScript (`static/js/core/reducer.js`).

It is an independent account of the cache, built from events alone; its digest must equal the engine's at every step.
The fold validates each event. The first contradiction is stored in `broken` and makes all later digests wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import asdict, dataclass, field
from typing import Any

from kvviz.log.digest import TOKEN_HASH_START, digest, extend_token_hash, request_words, state_words

#: Number of finished requests that a world describes; older ones are only counted.
MAX_FINISHED_REQUESTS = 256


@dataclass(slots=True, kw_only=True)
class RequestWorld:
    """One request as described by events. `table[i]`: -1 where the block was released; `last_table`: at the end.

    `num_written`: its K/V computations, including repeated ones after a preemption. `forgotten`: positions that a
    policy dropped, by layer and head; a single list stands for identical ones.
    """

    id: int
    prompt: str
    template: bool
    salt: str | None
    continues: int | None
    tokens: list[int]
    pieces: list[dict[str, Any]]
    prompt_length: int
    max_new_tokens: int
    sampling: dict[str, Any]
    state: str = "waiting"
    num_computed: int = 0
    num_written: int = 0
    num_hit_tokens: int = 0
    window_start: int = 0
    table: list[int] = field(default_factory=list)
    last_table: list[int] = field(default_factory=list)
    finish: dict[str, Any] | None = None
    token_hash: int = TOKEN_HASH_START
    priority: int = 0
    fork: dict[str, Any] | None = None
    num_preemptions: int = 0
    forgotten: list[list[list[int]]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class HostBlock:
    """A block of the host tier, which holds a prefix (`hash`) or part of a swapped request.

    `entries`: [offset, request, position, seq, token] each.
    """

    hash: str | None
    request_id: int | None
    entries: list[list[int]]


class World:
    """State folded from records up to `seq`. Maps pool slots to [request, position, write_seq, token id]."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.seq = -1
        self.step = 0
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.ref_count = [0] * num_blocks
        self.hash: list[str | None] = [None] * num_blocks
        self.free_since = [0] * num_blocks  # -1 while in use
        self.free = list(range(num_blocks))
        self.slots: dict[int, list[int]] = {}
        self.host: dict[int, HostBlock] = {}
        self.requests: dict[int, RequestWorld] = {}
        self.num_finished = 0
        self.finished_hash = TOKEN_HASH_START
        self.num_unknown = 0
        self.check: dict[str, Any] | None = None
        self.broken: str | None = None

    def apply(self, record: list[Any]) -> None:
        """Fold one record `[seq, t_us, event]` with a JSON event. Unknown types are counted and skipped."""
        seq, _, event = record
        if seq != self.seq + 1:
            self._contradiction(seq, f"record {self.seq + 1} is missing")
        self.seq = seq
        handler: Callable[[dict[str, Any]], None] | None = getattr(self, f"_on_{event['type']}", None)
        if handler is None:
            self.num_unknown += 1
            return
        try:
            handler(event)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self._contradiction(seq, f"{event['type']}: {error}")

    def digest(self) -> str:
        """Digest of this world; see docs/wire.md."""
        live = [request for request in self.requests.values() if request.state != "finished"]
        return digest(
            state_words(
                self.step,
                self.ref_count,
                [int(block_hash[:8], 16) if block_hash else 0 for block_hash in self.hash],
                self.free,
                self.num_finished,
                self.finished_hash,
                [
                    request_words(
                        request.id,
                        request.state,
                        request.num_computed,
                        len(request.tokens),
                        request.token_hash,
                        request.window_start,
                        [None if block_id < 0 else block_id for block_id in request.table],
                    )
                    for request in live
                ],
                [
                    (host_id, int(block.hash[:8], 16) if block.hash else 0)
                    for host_id, block in sorted(self.host.items())
                ],
            )
        )

    def to_json(self) -> dict[str, Any]:
        """A checkpoint from which a fold continues at `seq`. `slots`: [slot, request, position, seq, token]."""
        return {name: copy(value) for name, value in vars(self).items()} | {
            "slots": [[slot, *entry] for slot, entry in sorted(self.slots.items())],
            "host": [[host_id, asdict(block)] for host_id, block in sorted(self.host.items())],
            "requests": [asdict(request) for request in self.requests.values()],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> World:
        """Restore a world from `to_json`."""
        world = cls(data["num_blocks"], data["block_size"])
        vars(world).update({name: copy(value) for name, value in data.items()})
        world.slots = {slot: list(entry) for slot, *entry in data["slots"]}
        world.host = {host_id: HostBlock(**block) for host_id, block in data.get("host", ())}
        world.requests = {request["id"]: RequestWorld(**request) for request in data["requests"]}
        return world

    def _contradiction(self, seq: int, what: str) -> None:
        if self.broken is None:
            self.broken = f"record {seq}: {what}"

    @staticmethod
    def _expect(condition: bool, what: str) -> None:
        if not condition:
            raise ValueError(what)

    def _blank(self, block_id: int) -> None:
        for slot in range(block_id * self.block_size, (block_id + 1) * self.block_size):
            self.slots.pop(slot, None)

    def _take_entries(self, block_id: int) -> list[list[int]]:
        """The entries of a block: [offset, request, position, seq, token] each."""
        first = block_id * self.block_size
        slots = range(first, first + self.block_size)
        return [[slot - first, *self.slots[slot]] for slot in slots if slot in self.slots]

    def _put_entries(self, block_id: int, entries: list[list[int]]) -> None:
        for offset, *entry in entries:
            self.slots[block_id * self.block_size + offset] = entry

    def _append_block(self, event: dict[str, Any]) -> RequestWorld:
        """Add a block to a table: at the end, or in a gap (pool hits come before host hits)."""
        request = self.requests[event["request_id"]]
        index, table = event["logical_index"], request.table
        table.extend([-1] * (index + 1 - len(table)))
        self._expect(table[index] < 0, f"the table already has a block at {index}")
        table[index] = event["block_id"]
        return request

    def _pop_head(self, block_id: int) -> None:
        self._expect(
            bool(self.free) and self.free[0] == block_id, f"block {block_id} is not at the head of the free queue"
        )
        self._expect(self.hash[block_id] is None, f"block {block_id} still holds a prefix")
        self.free.pop(0)
        self.free_since[block_id] = -1
        self.ref_count[block_id] = 1
        self._blank(block_id)

    def _on_request_added(self, event: dict[str, Any]) -> None:
        self._expect(event["request_id"] not in self.requests, "the request already exists")
        self._expect(len(event["token_ids"]) == len(event["pieces"]), "tokens and pieces differ in number")
        self.requests[event["request_id"]] = RequestWorld(
            id=event["request_id"],
            prompt=event["prompt"],
            template=event["template"],
            salt=event["salt"],
            continues=event["continues"],
            tokens=list(event["token_ids"]),
            pieces=list(event["pieces"]),
            prompt_length=event.get("num_prompt_tokens") or len(event["token_ids"]),
            max_new_tokens=event["max_new_tokens"],
            sampling=event["sampling"],
            token_hash=extend_token_hash(TOKEN_HASH_START, event["token_ids"]),
            priority=event.get("priority", 0),
            fork=event.get("fork"),
        )

    def _on_request_forked(self, event: dict[str, Any]) -> None:
        request, parent = self.requests[event["request_id"]], self.requests[event["parent_id"]]
        self._expect(request.state == "waiting", "the fork is not waiting")
        table = [-1 if block_id is None else block_id for block_id in event["block_ids"]]
        self._expect(table == parent.table[: len(table)], "the parent doesn't hold these blocks")
        self._expect(event["num_computed"] <= parent.num_computed, "the parent has computed less")
        for block_id in table:
            if block_id >= 0:
                self.ref_count[block_id] += 1
        request.state = "running"
        request.table = table
        request.num_computed = event["num_computed"]
        request.window_start = event["window_start"]
        request.forgotten = [[list(gone) for gone in heads] for heads in parent.forgotten]

    def _on_request_reprioritised(self, event: dict[str, Any]) -> None:
        self.requests[event["request_id"]].priority = event["priority"]

    def _on_step_started(self, event: dict[str, Any]) -> None:
        self._expect(event["step"] == self.step + 1, "the step is out of order")
        self._expect(self.step == (self.check["step"] if self.check else 0), "the previous step has not finished")
        self.step = event["step"]

    def _on_prefix_looked_up(self, event: dict[str, Any]) -> None:
        for block_id in event["hit_block_ids"]:
            self._expect(self.hash[block_id] is not None, f"block {block_id} hits but caches nothing")

    def _on_request_started(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        self._expect(request.state in ("waiting", "preempted"), "the request is not waiting")
        if request.state == "waiting":
            request.num_hit_tokens = event["num_hit_tokens"]
        request.state = "running"
        request.num_computed = event["num_hit_tokens"]

    def _on_request_preempted(self, event: dict[str, Any]) -> None:
        request, reason = self.requests[event["request_id"]], event["reason"]
        self._expect(request.state == "running", "the request is not running")
        self._expect(reason["num_lost_tokens"] == request.num_computed, "the number of computed tokens differs")
        self._expect(reason["num_free"] == len(self.free), "the number of free blocks differs")
        request.state = "swapped" if reason["code"] == "swap" else "preempted"
        request.num_preemptions += 1
        if request.state == "preempted":
            request.num_computed = request.window_start = 0
            request.forgotten = []

    def _on_blocks_swapped_out(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        self._expect(request.state == "swapped", "the request is not being swapped")
        for index, block_id, host_id in zip(
            event["logical_indices"], event["block_ids"], event["host_ids"], strict=True
        ):
            self._expect(request.table[index] == block_id, f"block {block_id} is not in the table at {index}")
            self._put_in_host(
                host_id, HostBlock(hash=None, request_id=request.id, entries=self._take_entries(block_id))
            )

    def _on_blocks_swapped_in(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        self._expect(request.state == "swapped", "the request was not swapped")
        for index, block_id, host_id in zip(
            event["logical_indices"], event["block_ids"], event["host_ids"], strict=True
        ):
            self._expect(request.table[index] == block_id, f"block {block_id} is not in the table at {index}")
            block = self.host.pop(host_id)
            self._expect(block.request_id == request.id, f"host block {host_id} belongs to another request")
            self._put_entries(block_id, block.entries)
        request.state = "running"

    def _on_block_copied(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        index, source, block_id = event["logical_index"], event["from_block_id"], event["block_id"]
        self._expect(request.table[index] == source, f"block {source} is not in the table at {index}")
        self._expect(self.ref_count[source] > 1, f"block {source} is not shared")
        self._pop_head(block_id)
        entries = [entry for entry in self._take_entries(source) if entry[0] < event["num_tokens"]]
        self._put_entries(block_id, entries)
        self.ref_count[source] -= 1
        request.table[index] = block_id

    def _on_block_offloaded(self, event: dict[str, Any]) -> None:
        block_id = event["block_id"]
        self._expect(self.hash[block_id] == event["hash"], f"block {block_id} doesn't hold that prefix")
        block = HostBlock(hash=event["hash"], request_id=None, entries=self._take_entries(block_id))
        self._put_in_host(event["host_id"], block)

    def _on_block_fetched(self, event: dict[str, Any]) -> None:
        block = self.host.pop(event["host_id"])
        self._expect(block.hash == event["hash"], "the host tier holds another prefix there")
        self._put_entries(event["block_id"], block.entries)

    def _on_host_evicted(self, event: dict[str, Any]) -> None:
        block = self.host.pop(event["host_id"])
        self._expect(block.hash == event["hash"], "the host tier holds another prefix there")

    def _put_in_host(self, host_id: int, block: HostBlock) -> None:
        self._expect(host_id not in self.host, f"host block {host_id} is in use")
        self.host[host_id] = block

    def _on_block_shared(self, event: dict[str, Any]) -> None:
        self._append_block(event)
        block_id = event["block_id"]
        self._expect(self.hash[block_id] is not None, f"block {block_id} is shared but caches nothing")
        if self.ref_count[block_id] == 0:
            self.free.remove(block_id)
            self.free_since[block_id] = -1
        self.ref_count[block_id] += 1

    def _on_block_evicted(self, event: dict[str, Any]) -> None:
        block_id = event["block_id"]
        self._expect(self.free[0] == block_id, f"block {block_id} is not at the head of the free queue")
        self._expect(self.hash[block_id] == event["hash"], f"block {block_id} doesn't hold that prefix")
        self._expect(
            self.free_since[block_id] == event["reason"]["free_since_step"], "the block became free in another step"
        )
        self.hash[block_id] = None
        self._blank(block_id)

    def _on_block_allocated(self, event: dict[str, Any]) -> None:
        self._pop_head(event["block_id"])
        self._append_block(event)

    def _on_block_cached(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        self._expect(request.table[event["logical_index"]] == event["block_id"], "the block is elsewhere in the table")
        self._expect(self.hash[event["block_id"]] is None, "the block already holds a prefix")
        self.hash[event["block_id"]] = event["hash"]

    def _on_step_scheduled(self, event: dict[str, Any]) -> None:
        for chunk in event["chunks"]:
            request = self.requests[chunk["request_id"]]
            self._expect(
                chunk["start"] == request.num_computed, "the chunk doesn't start at the first uncomputed token"
            )

    def _on_kv_written(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        self._expect(request.state == "running", "the request is not running")
        for position, slot in zip(event["positions"], event["slots"], strict=True):
            self._expect(position == request.num_computed, f"position {position} is out of order")
            block_id = request.table[position // self.block_size]
            self._expect(
                slot == block_id * self.block_size + position % self.block_size,
                f"slot {slot} doesn't belong to position {position}",
            )
            self.slots[slot] = [request.id, position, self.seq, request.tokens[position]]
            request.num_computed += 1
            request.num_written += 1

    def _on_token_sampled(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        self._expect(event["position"] == len(request.tokens), "the token is out of order")
        request.tokens.append(event["token_id"])
        request.pieces.append(event["piece"])
        request.token_hash = extend_token_hash(request.token_hash, (event["token_id"],))

    def _on_request_finished(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        self._expect(request.state != "finished", "the request has already ended")
        if event["reason"]["code"] in ("eos", "length"):
            self._expect(request.num_computed == len(request.tokens) - 1, "tokens before the last are not computed")
        if request.state == "swapped":
            self.host = {host_id: block for host_id, block in self.host.items() if block.request_id != request.id}
        finished = [other.id for other in self.requests.values() if other.state == "finished"]
        for request_id in finished[: max(0, len(finished) + 1 - MAX_FINISHED_REQUESTS)]:
            del self.requests[request_id]
        request.state = "finished"
        request.finish = event["reason"]
        request.last_table = list(request.table)
        self.num_finished += 1
        self.finished_hash = extend_token_hash(self.finished_hash, (request.token_hash,))

    def _on_blocks_released(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        for block_id, index in zip(event["block_ids"], event["logical_indices"], strict=True):
            self._expect(request.table[index] == block_id, f"block {block_id} is not in the table at {index}")
            self._expect(self.ref_count[block_id] > 0, f"block {block_id} has no user")
            request.table[index] = -1
            self.ref_count[block_id] -= 1
        for block_id in (*event["prepended"], *event["appended"]):
            self._expect(self.ref_count[block_id] == 0, f"block {block_id} still has a user")
            self.free_since[block_id] = self.step
        for block_id in event["prepended"]:
            self._expect(self.hash[block_id] is None, f"block {block_id} is cached but goes to the head")
            self._blank(block_id)
        for block_id in event["appended"]:
            self._expect(self.hash[block_id] is not None, f"block {block_id} caches nothing but goes to the tail")
        self.free[:0] = event["prepended"]
        places = event.get("places")
        for number, block_id in enumerate(event["appended"]):
            self.free.insert(len(self.free) if places is None else places[number], block_id)
        code = event["reason"]["code"]
        if code == "window":
            request.window_start = event["reason"]["window_start"]
        elif code == "forgotten":
            for index in event["logical_indices"]:
                block = set(range(index * self.block_size, (index + 1) * self.block_size))
                self._expect(
                    all(block <= set(gone) for layer in request.forgotten for gone in layer),
                    f"the block at {index} is released, but holds entries that were not forgotten",
                )
        else:
            request.table = []
        if code == "no_cache":
            request.num_computed = 0
            request.forgotten = []

    def _on_kv_forgotten(self, event: dict[str, Any]) -> None:
        request, dropped = self.requests[event["request_id"]], event["dropped"]
        if not request.forgotten:
            request.forgotten = [[[] for _ in heads] for heads in dropped]
        for gone_of_layer, layer in zip(request.forgotten, dropped, strict=True):
            for gone, positions in zip(gone_of_layer, layer, strict=True):
                self._expect(not set(gone) & set(positions), "an entry was forgotten twice")
                self._expect(
                    all(0 <= p < request.num_computed for p in positions), "a forgotten entry was never computed"
                )
                gone.extend(positions)

    def _on_prefix_cache_reset(self, event: dict[str, Any]) -> None:
        for block_id in event["block_ids"]:
            self._expect(self.hash[block_id] is not None, f"block {block_id} caches nothing")
            self.hash[block_id] = None
            if self.ref_count[block_id] == 0:
                self._blank(block_id)

    def _on_lane_measured(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        self._expect(event["position"] == len(request.tokens) - 1, "the token is not the last one")
        self._expect(event["token_id"] == request.tokens[-1], "the reference has another token")

    def _on_lane_errors_measured(self, event: dict[str, Any]) -> None:
        self._expect(event["request_id"] in self.requests, "the request doesn't exist")

    _on_needle_sought = _on_probe_timed = _on_miss_measured = _on_lane_errors_measured

    def _on_step_finished(self, event: dict[str, Any]) -> None:
        self._expect(event["step"] == self.step, "another step is running")
        computed = self.digest()
        self.check = {
            "step": event["step"],
            "expected": event["digest"],
            "computed": computed,
            "ok": computed == event["digest"] and self.broken is None,
        }
