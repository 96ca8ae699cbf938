"""The scheduler: chooses the tokens of each step, admits requests and preempts them.

There are no phases: each request has `num_computed` tokens chasing `num_tokens`, as in vLLM V1. Running requests come
first, in order. If one finds no free block, the last running request (or the one with the lowest priority) is
preempted. Then requests are admitted from the head of the waiting queue, up to the first that doesn't fit. A step that
preempts admits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

from kvviz.config import EngineConfig
from kvviz.engine.requests import Request
from kvviz.engine.tables import BlockTables, Lookup
from kvviz.events import Blocked, Chunk, Event, PreemptionReason, RequestPreempted, RequestStarted


@dataclass(slots=True)
class Plan:
    """The chunks of one step, in order, and the request that was not admitted."""

    chunks: list[tuple[Request, Chunk]] = field(default_factory=list)
    blocked: Blocked | None = None


class Scheduler:
    """Holds the waiting queue, head first, and the running requests in order of admission."""

    def __init__(self, config: EngineConfig, tables: BlockTables, emit: Callable[[Event], object]) -> None:
        self.config = config
        self.tables = tables
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self._emit = emit
        self._budget = 0
        self._put_out: list[Request] = []

    @property
    def live(self) -> tuple[Request, ...]:
        return (*self.waiting, *self.running)

    def add(self, request: Request) -> None:
        """Add a request to the waiting queue: at the tail, or by priority."""
        if self.config.order == "fcfs":
            self.waiting.append(request)
            return
        key = self._key(request)
        place = next((index for index, other in enumerate(self.waiting) if self._key(other) > key), len(self.waiting))
        self.waiting.insert(place, request)

    def reprioritise(self, request: Request, priority: int) -> None:
        """Change the priority of a request, and its place in a queue ordered by priority."""
        request.priority = priority
        if request in self.waiting and self.config.order == "priority":
            self.waiting.remove(request)
            self.add(request)

    def schedule(self, only: Collection[int] | None = None) -> Plan:
        """Choose the chunks of one step and allocate their blocks. `num_computed` advances immediately.

        `only`: continue only these of the running requests.
        """
        self._budget = self.config.budget
        self._put_out = []
        plan = Plan()
        self._schedule_running(plan, only)
        self._admit(plan)
        for request, chunk in plan.chunks:
            request.num_computed = chunk.start + chunk.num_tokens
        return plan

    def _schedule_running(self, plan: Plan, only: Collection[int] | None) -> None:
        for request in tuple(self.running):
            if only is not None and request.request_id not in only:
                continue
            if request.state != "running" or request.num_computed == request.num_tokens:
                continue  # preempted for an earlier request, or its token isn't sampled yet
            if self._budget <= 0:
                return
            chunk = self._chunk(request, alone=len(self.running) + len(self.waiting) == 1)
            if self._allocate(request, chunk, plan):
                self._budget -= chunk.num_tokens
                plan.chunks.append((request, chunk))

    def _allocate(self, request: Request, chunk: Chunk, plan: Plan) -> bool:
        """Allocate blocks for a running request, preempting others if needed. False if it is preempted itself."""
        stop = chunk.start + chunk.num_tokens
        code: Literal["prompt", "decode"] = "prompt" if chunk.kind == "prefill" else "decode"
        while not self.tables.allocate(request, stop, code=code):
            victim = self.running[-1] if self.config.order == "fcfs" else max(self.running, key=self._key)
            self._preempt(victim, request, stop, plan)
            if victim is request:
                return False
        return True

    def _admit(self, plan: Plan) -> None:
        while self.waiting:
            head = self.waiting[0]
            plan.blocked = self._admit_head(head, plan)
            if plan.blocked is not None:
                return

    def _admit_head(self, request: Request, plan: Plan) -> Blocked | None:
        """Admit the head of the queue, or return what is missing."""
        if self._put_out:
            return Blocked(request_id=request.request_id, code="preemption")
        if self._budget <= 0:
            return Blocked(request_id=request.request_id, code="budget")
        if len(self.running) >= self.config.max_running:
            return Blocked(request_id=request.request_id, code="slots")
        swapped = request.state == "swapped"
        lookup = None if swapped else self.tables.lookup(request)
        before = request.num_computed
        if lookup is not None:
            request.num_computed = len(lookup.found) * self.tables.block_size
        chunk = self._chunk(request, alone=len(self.running) + len(self.waiting) == 1)
        stop = chunk.start + chunk.num_tokens
        whole = request.num_tokens - request.num_computed
        if not self.config.chunked_prefill and whole > self._budget and plan.chunks:
            request.num_computed = before
            return Blocked(request_id=request.request_id, code="budget")
        missing = self.num_missing(request, stop, lookup)
        if missing > 0:
            request.num_computed = before
            num_free = self.tables.pool.num_free
            return Blocked(
                request_id=request.request_id, code="blocks", num_blocks_needed=num_free + missing, num_free=num_free
            )
        if lookup is None:
            self.tables.swap_in(request)
        else:
            self.tables.announce(request, lookup)
            if request.state == "waiting":
                request.num_hit_tokens = request.num_computed
            self._emit(RequestStarted(request_id=request.request_id, num_hit_tokens=request.num_computed))
        if not self.tables.allocate(request, stop, code="prompt", lookup=lookup):
            raise AssertionError("a request that fits has blocks for its first chunk")
        request.state = "running"
        del self.waiting[0]
        self.running.append(request)
        self._budget -= chunk.num_tokens
        plan.chunks.append((request, chunk))
        return None

    def num_missing(self, request: Request, stop: int, lookup: Lookup | None) -> int:
        """Blocks the pool lacks for all known tokens of a waiting request, even if this step computes only some."""
        if lookup is None:
            return self.tables.num_needed_again(request, stop) - self.tables.pool.num_free
        num_passed = sum(item is None for item in lookup.found)  # outside the window, so no block is needed
        num_tokens = self.tables.num_reserved(request, request.num_tokens)
        most = self.tables.peak_blocks(num_tokens, self.config.max_chunk) + num_passed
        return self.tables.shortage(request, most, lookup)

    def _chunk(self, request: Request, *, alone: bool) -> Chunk:
        rest = request.num_tokens - request.num_computed
        decoding = rest == 1 and request.num_generated > 0
        limit = self._budget
        if not self.config.chunked_prefill:
            limit = max(limit, rest)
        elif not alone or self.config.token_budget is None:
            limit = min(limit, self.config.prefill_chunk)
        return Chunk(
            request_id=request.request_id,
            start=request.num_computed,
            num_tokens=min(rest, limit),
            kind="decode" if decoding else "prefill",
        )

    def _preempt(self, victim: Request, request: Request, stop: int, plan: Plan) -> None:
        """Preempt a running request in favour of another."""
        for index, (scheduled, chunk) in enumerate(plan.chunks):
            if scheduled is victim:  # only by priority: return its tokens to the budget
                self.tables.forget_unwritten(victim, chunk.start)
                self._budget += chunk.num_tokens
                del plan.chunks[index]
                break
        else:
            self.tables.forget_unwritten(victim, victim.num_computed)
        if self.config.preemption == "swap":
            self.tables.leave_window(victim)  # else it would need more blocks to resume than it ever holds
        held = [block_id for block_id in victim.block_table if block_id is not None]
        wants_swap = self.config.preemption == "swap" and victim.num_computed > 0
        swaps = wants_swap and self.tables.host.has_capacity(len(held))
        pool = self.tables.pool
        self._emit(
            RequestPreempted(
                request_id=victim.request_id,
                reason=PreemptionReason(
                    code="swap" if swaps else "recompute",
                    order="last" if self.config.order == "fcfs" else "priority",
                    for_request_id=request.request_id,
                    num_blocks_needed=pool.num_free + self.tables.shortage(request, self.tables.blocks_for(stop)),
                    num_free=pool.num_free,
                    num_blocks_held=len(held),
                    num_generated=victim.num_generated,
                    num_lost_tokens=victim.num_computed,
                    host_full=wants_swap and not swaps,
                ),
            )
        )
        self.running.remove(victim)
        self._put_out.append(victim)
        if swaps:
            self.tables.swap_out(victim)
            victim.state = "swapped"
        else:
            self.tables.release(victim, "preempted")
            victim.state = "preempted"
            victim.num_computed = 0
            victim.window_start = 0
        if self.config.order == "fcfs":
            self.waiting.insert(0, victim)
        else:
            self.add(victim)

    @staticmethod
    def _key(request: Request) -> tuple[int, int]:
        return request.priority, request.request_id
