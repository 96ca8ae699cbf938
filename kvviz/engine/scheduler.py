"""The scheduler: which tokens of which requests a step computes.

No phases: each request has `num_computed` tokens chasing `num_tokens`, as in vLLM V1. Running requests come first, in
order; then waiting ones from the head of the line, which stops at the first that does not fit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kvviz.config import EngineConfig
from kvviz.engine.requests import Request
from kvviz.engine.tables import BlockTables
from kvviz.events import Chunk, Event, RequestStarted


class Scheduler:
    """Holds the waiting line and the running requests."""

    def __init__(self, config: EngineConfig, tables: BlockTables, emit: Callable[[Event], object]) -> None:
        self.config = config
        self.tables = tables
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._emit = emit

    def schedule(self) -> list[tuple[Request, Chunk]]:
        """Choose the chunks of one step and give them their blocks; `num_computed` advances at once."""
        budget = self.config.prefill_chunk
        plan: list[tuple[Request, Chunk]] = []
        for request in self.running:
            chunk = self._chunk(request, budget)
            if chunk is None or not self.tables.allocate(
                request,
                chunk.start + chunk.num_tokens,
                code="prompt" if chunk.kind == "prefill" else "decode",
            ):
                continue
            budget -= chunk.num_tokens
            plan.append((request, chunk))
        while self.waiting and budget and len(self.running) < self.config.max_running:
            request = self.waiting[0]
            admitted = self._admit(request, budget)
            if admitted is None:
                break
            budget -= admitted.num_tokens
            plan.append((request, admitted))
        for request, chunk in plan:
            request.num_computed = chunk.start + chunk.num_tokens
        return plan

    def _chunk(self, request: Request, budget: int) -> Chunk | None:
        num_tokens = min(request.num_tokens - request.num_computed, budget)
        if num_tokens <= 0:
            return None
        decoding = request.num_generated > 0 and request.num_computed == request.num_tokens - 1
        return Chunk(
            request_id=request.request_id,
            start=request.num_computed,
            num_tokens=num_tokens,
            kind="decode" if decoding else "prefill",
        )

    def _admit(self, request: Request, budget: int) -> Chunk | None:
        lookup = self.tables.lookup(request)
        if not self.tables.admits(request, self.config.prefill_chunk, lookup.block_ids):
            return None
        request.num_computed = request.num_hit_tokens = len(lookup.block_ids) * self.tables.block_size
        chunk = self._chunk(request, budget)
        assert chunk is not None, "the last token is always computed"
        self.tables.announce(request, lookup)
        self._emit(RequestStarted(request_id=request.request_id, num_hit_tokens=request.num_hit_tokens))
        if not self.tables.allocate(request, chunk.start + chunk.num_tokens, code="prompt", hits=lookup.block_ids):
            raise AssertionError("a whole prompt that fits has room for its first chunk")
        request.state = "running"
        self.waiting.popleft()
        self.running.append(request)
        return chunk
