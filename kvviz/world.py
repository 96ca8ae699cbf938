"""The world: what a reader of the events knows. The page has the same fold in JavaScript (`static/js/reducer.js`).

It is a second account of the cache, made from events alone: its digest must equal the engine's at every step. A fold
checks what it is told; the first contradiction is kept in `broken` and makes every later digest wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from kvviz.digest import TOKEN_HASH_START, digest, extend_token_hash, request_words, state_words

#: Finished requests that a world still describes; older ones are only counted.
MAX_FINISHED_REQUESTS = 256


@dataclass(slots=True, kw_only=True)
class RequestWorld:
    """One request as told by events. `table[i]`: -1 where the block was released; `last_table`: at the end."""

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
    num_hit_tokens: int = 0
    window_start: int = 0
    table: list[int] = field(default_factory=list)
    last_table: list[int] = field(default_factory=list)
    finish: dict[str, Any] | None = None
    token_hash: int = TOKEN_HASH_START


class World:
    """State folded from records up to `seq`. Slots map pool slots to [request, position, write_seq, token id]."""

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
        self.requests: dict[int, RequestWorld] = {}
        self.num_finished = 0
        self.finished_hash = TOKEN_HASH_START
        self.num_unknown = 0
        self.check: dict[str, Any] | None = None
        self.broken: str | None = None

    def apply(self, record: list[Any]) -> None:
        """Fold one record `[seq, t_us, event]`, the event as a JSON object. Unknown types are counted and skipped."""
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
        """Digest of this world, see docs/wire.md."""
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
            )
        )

    def to_json(self) -> dict[str, Any]:
        """A checkpoint: all a reader needs to go on from `seq`. `slots`: [slot, request, position, seq, token]."""
        return {
            "seq": self.seq,
            "step": self.step,
            "block_size": self.block_size,
            "num_blocks": self.num_blocks,
            "ref_count": list(self.ref_count),
            "hash": list(self.hash),
            "free_since": list(self.free_since),
            "free": list(self.free),
            "slots": [[slot, *entry] for slot, entry in sorted(self.slots.items())],
            "requests": [asdict(request) for request in self.requests.values()],
            "num_finished": self.num_finished,
            "finished_hash": self.finished_hash,
            "num_unknown": self.num_unknown,
            "check": self.check,
            "broken": self.broken,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> World:
        """The world that `to_json` described."""
        world = cls(data["num_blocks"], data["block_size"])
        for name in ("seq", "step", "num_finished", "finished_hash", "num_unknown", "check", "broken"):
            setattr(world, name, data[name])
        for name in ("ref_count", "hash", "free_since", "free"):
            setattr(world, name, list(data[name]))
        world.slots = {slot: list(entry) for slot, *entry in data["slots"]}
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

    def _append_block(self, event: dict[str, Any]) -> RequestWorld:
        request = self.requests[event["request_id"]]
        self._expect(event["logical_index"] == len(request.table), "the block is not next in the table")
        request.table.append(event["block_id"])
        return request

    def _on_request_added(self, event: dict[str, Any]) -> None:
        self._expect(event["request_id"] not in self.requests, "the request exists already")
        self._expect(len(event["token_ids"]) == len(event["pieces"]), "there is not one piece for each token")
        self.requests[event["request_id"]] = RequestWorld(
            id=event["request_id"],
            prompt=event["prompt"],
            template=event["template"],
            salt=event["salt"],
            continues=event["continues"],
            tokens=list(event["token_ids"]),
            pieces=list(event["pieces"]),
            prompt_length=len(event["token_ids"]),
            max_new_tokens=event["max_new_tokens"],
            sampling=event["sampling"],
            token_hash=extend_token_hash(TOKEN_HASH_START, event["token_ids"]),
        )

    def _on_step_started(self, event: dict[str, Any]) -> None:
        self._expect(event["step"] == self.step + 1, "the step is not the next one")
        self._expect(self.step == (self.check["step"] if self.check else 0), "the step before it has not finished")
        self.step = event["step"]

    def _on_prefix_looked_up(self, event: dict[str, Any]) -> None:
        for block_id in event["hit_block_ids"]:
            self._expect(self.hash[block_id] is not None, f"block {block_id} hits but caches nothing")

    def _on_request_started(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        self._expect(request.state == "waiting", "the request is not waiting")
        request.state = "running"
        request.num_computed = request.num_hit_tokens = event["num_hit_tokens"]

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
        self._expect(self.hash[block_id] == event["hash"], f"block {block_id} does not hold that prefix")
        self._expect(
            self.free_since[block_id] == event["reason"]["free_since_step"], "the block is free since another step"
        )
        self.hash[block_id] = None
        self._blank(block_id)

    def _on_block_allocated(self, event: dict[str, Any]) -> None:
        block_id = event["block_id"]
        self._expect(
            bool(self.free) and self.free[0] == block_id, f"block {block_id} is not at the head of the free queue"
        )
        self._expect(self.hash[block_id] is None, f"block {block_id} still holds a prefix")
        self._append_block(event)
        self.free.pop(0)
        self.free_since[block_id] = -1
        self.ref_count[block_id] = 1
        self._blank(block_id)

    def _on_block_cached(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        self._expect(request.table[event["logical_index"]] == event["block_id"], "the block is not in the table there")
        self.hash[event["block_id"]] = event["hash"]

    def _on_step_scheduled(self, event: dict[str, Any]) -> None:
        for chunk in event["chunks"]:
            request = self.requests[chunk["request_id"]]
            self._expect(chunk["start"] == request.num_computed, "the chunk does not begin where the request stands")

    def _on_kv_written(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        for position, slot in zip(event["positions"], event["slots"], strict=True):
            self._expect(position == request.num_computed, f"position {position} is not the next one")
            block_id = request.table[position // self.block_size]
            self._expect(
                slot == block_id * self.block_size + position % self.block_size,
                f"slot {slot} is not of position {position}",
            )
            self.slots[slot] = [request.id, position, self.seq, request.tokens[position]]
            request.num_computed += 1

    def _on_token_sampled(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        self._expect(event["position"] == len(request.tokens), "the token is not the next one")
        request.tokens.append(event["token_id"])
        request.pieces.append(event["piece"])
        request.token_hash = extend_token_hash(request.token_hash, (event["token_id"],))

    def _on_request_finished(self, event: dict[str, Any]) -> None:
        request = self.requests[event["request_id"]]
        self._expect(request.state != "finished", "the request has ended before")
        if event["reason"]["code"] in ("eos", "length"):
            self._expect(request.num_computed == len(request.tokens) - 1, "not all but the last token is computed")
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
        self.free.extend(event["appended"])
        if event["reason"]["code"] == "window":
            request.window_start = event["reason"]["window_start"]
        else:
            request.table = []

    def _on_prefix_cache_reset(self, event: dict[str, Any]) -> None:
        for block_id in event["block_ids"]:
            self._expect(self.hash[block_id] is not None, f"block {block_id} caches nothing")
            self.hash[block_id] = None
            if self.ref_count[block_id] == 0:
                self._blank(block_id)

    def _on_miss_measured(self, event: dict[str, Any]) -> None:
        self._expect(event["request_id"] in self.requests, "the request does not exist")

    def _on_step_finished(self, event: dict[str, Any]) -> None:
        self._expect(event["step"] == self.step, "another step was running")
        computed = self.digest()
        self.check = {
            "step": event["step"],
            "expected": event["digest"],
            "computed": computed,
            "ok": computed == event["digest"] and self.broken is None,
        }
