"""The engine: `step()` schedules, runs and postprocesses. The runner computes; events record every change.

log = EventLog(num_blocks=8, block_size=16)
engine = Engine(EngineConfig(num_blocks=8), runner, emit=log.append)
engine.add_request([1, 2, 3], max_new_tokens=5)
while engine.step():
    pass
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import index

from kvviz.config import (
    MAX_PRIORITY,
    MAX_SAMPLES,
    MAX_SEED,
    MAX_TEMPERATURE,
    EngineConfig,
    check_number,
    check_range,
    check_text,
)
from kvviz.engine.blocks import BlockPool
from kvviz.engine.host import HostTier
from kvviz.engine.memory import PrefixMemory
from kvviz.engine.policies import policy_of
from kvviz.engine.requests import Request
from kvviz.engine.runner import (
    MAX_TOKEN_ID,
    NOTHING_RUN,
    Forgotten,
    Runner,
    Sample,
    Segment,
    StepResult,
    check_result,
)
from kvviz.engine.scheduler import Plan, Scheduler
from kvviz.engine.tables import BlockTables
from kvviz.engine.text import NumberText, TokenText
from kvviz.errors import RequestError
from kvviz.events import (
    Candidate,
    Chunk,
    Event,
    FinishReason,
    ForkOrigin,
    KvForgotten,
    KvWritten,
    RequestAdded,
    RequestFinished,
    RequestReprioritised,
    SampleReason,
    SamplingParams,
    StepFinished,
    StepScheduled,
    StepStarted,
    TokenSampled,
)
from kvviz.log.digest import TOKEN_HASH_START, digest, extend_token_hash, state_words

MAX_NEW_TOKENS = 100_000
#: Number of finished requests that can still be forked.
MAX_ENDED = 256


class Engine:
    """A paged cache with its requests. Not thread-safe.

    `emit` receives every event in order. `num_steps` is the number of steps run. `memory` is the prefix memory of an
    earlier engine, so that a lookup can report a prefix cached there under other keys.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        emit: Callable[[Event], object],
        text: TokenText | None = None,
        *,
        memory: PrefixMemory | None = None,
    ) -> None:
        self.config = config
        self.runner = runner
        self.pool = BlockPool(
            config.num_blocks,
            emit,
            prefix_cache=config.prefix_cache,
            policy=policy_of(config.eviction, config.seed),
            memory=memory,
        )
        self.host = HostTier(config.num_host_blocks, emit)
        self.tables = BlockTables(
            self.pool,
            config.block_size,
            emit,
            window=runner.window,
            mover=runner,
            host=self.host,
            offload=config.offload and config.num_host_blocks > 0,
            reserve=config.reserve,
        )
        self.scheduler = Scheduler(config, self.tables, emit)
        self.num_steps = 0
        self.num_requests = 0
        self.num_finished = 0
        self.finished_hash = TOKEN_HASH_START
        self._ended: OrderedDict[int, Request] = OrderedDict()
        self._emit = emit
        self._text: TokenText = text or NumberText()

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.waiting or self.scheduler.running)

    def add_request(
        self,
        token_ids: Sequence[int],
        *,
        max_new_tokens: int = 64,
        sampling: SamplingParams | None = None,
        stop_token_ids: Sequence[int] = (),
        salt: str | None = None,
        prompt: str = "",
        template: bool = False,
        continues: int | None = None,
        priority: int = 0,
        num_samples: int = 1,
    ) -> int:
        """Add a request to the waiting queue and return its id.

        With `num_samples` above 1, it is forked into that many requests once its prompt is computed.

        Raises `ConfigError` for a setting out of range and `RequestError` for an empty prompt or invalid ids. Raises
        `RequestError` with code `never_fits` or `context_full` if the pool or the model could never hold the request.
        """
        check_range("max_new_tokens", max_new_tokens, 1, MAX_NEW_TOKENS)
        sampling = sampling or SamplingParams()
        _check_sampling(sampling)
        check_range("priority", priority, -MAX_PRIORITY, MAX_PRIORITY)
        check_range("num_samples", num_samples, 1, MAX_SAMPLES)
        check_text("salt", salt)
        check_text("prompt", prompt)
        token_ids = _whole_numbers(token_ids)
        if not token_ids:
            raise RequestError("The prompt is empty; enter at least one word.", code="empty_prompt")
        self._check_ids(token_ids)
        self._check_capacity(len(token_ids), max_new_tokens)
        request = Request(
            request_id=self.num_requests,
            token_ids=list(token_ids),
            num_prompt_tokens=len(token_ids),
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            block_size=self.config.block_size,
            extra_keys=(*self.runner.cache_keys, f"salt:{salt}") if salt is not None else self.runner.cache_keys,
            stop_token_ids=frozenset(_whole_numbers(stop_token_ids)),
            salt=salt,
            priority=priority,
            num_samples=num_samples,
        )
        self._announce(request, prompt=prompt, template=template, continues=continues)
        self.scheduler.add(request)
        return request.request_id

    def fork(
        self,
        request_id: int,
        position: int,
        token_id: int | None = None,
        *,
        max_new_tokens: int | None = None,
        sampling: SamplingParams | None = None,
    ) -> int:
        """Fork a request and return the id of the fork: tokens of the parent before `position`, then `token_id`.

        While the parent runs, the fork shares the blocks they have in common. It runs at once if another request may
        run; otherwise it waits and looks up cached blocks. With `token_id` None, it samples that token itself. Raises
        `RequestError` if the request is unknown, `position` is neither a generated token nor the next one, or the fork
        would never fit, and `ConfigError` for a setting out of range.
        """
        request_id, position = _whole_number("request_id", request_id), _whole_number("position", position)
        parent = self._find(request_id) or self._ended.get(request_id)
        if parent is None:
            raise RequestError(
                f"Request {request_id} is unknown or no longer kept; fork a more recent one.",
                code="no_request",
            )
        token_id = None if token_id is None else _whole_number("token_id", token_id)
        return self._fork(parent, position, token_id, max_new_tokens, sampling)

    def _fork(
        self,
        parent: Request,
        position: int,
        token_id: int | None = None,
        max_new_tokens: int | None = None,
        sampling: SamplingParams | None = None,
    ) -> int:
        request_id = parent.request_id
        last = parent.num_tokens if token_id is None else parent.num_tokens - 1
        if not parent.num_prompt_tokens <= position <= last:
            raise RequestError(
                f"A fork of request {request_id} must start at a generated token, at positions "
                f"{parent.num_prompt_tokens} to {last} (got {position}).",
                code="bad_position",
            )
        if token_id is not None:
            self._check_ids([token_id])
        if token_id is not None and token_id in parent.stop_token_ids:
            raise RequestError("That token ends the answer; choose another one.", code="bad_tokens")
        max_new_tokens = parent.max_new_tokens if max_new_tokens is None else max_new_tokens
        check_range("max_new_tokens", max_new_tokens, 1, MAX_NEW_TOKENS)
        own = [] if token_id is None else [token_id]
        if position - parent.num_prompt_tokens + len(own) >= max_new_tokens:
            raise RequestError(
                f"A fork at position {position} has no tokens left of its {max_new_tokens} new ones; request more.",
                code="bad_position",
            )
        sampling = sampling or parent.sampling
        _check_sampling(sampling)
        self._check_capacity(parent.num_prompt_tokens, max_new_tokens)
        child = Request(
            request_id=self.num_requests,
            token_ids=parent.token_ids[:position] + own,
            num_prompt_tokens=parent.num_prompt_tokens,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            block_size=self.config.block_size,
            extra_keys=parent.extra_keys,
            stop_token_ids=parent.stop_token_ids,
            salt=parent.salt,
            priority=parent.priority,
        )
        origin = ForkOrigin(parent_id=request_id, position=position, token_id=token_id)
        self._announce(child, fork=origin)
        shares = parent.state == "running" and len(self.scheduler.running) < self.config.max_running
        if shares and self.tables.fork(parent, child):
            self.runner.fork(parent.request_id, child.request_id)
            child.state = "running"
            self.scheduler.running.append(child)
        else:
            self.scheduler.add(child)
        return child.request_id

    def reprioritise(self, request_id: int, priority: int) -> None:
        """Change the priority of an unfinished request. Raises `RequestError` and `ConfigError`."""
        check_range("priority", priority, -MAX_PRIORITY, MAX_PRIORITY)
        request = self._find(request_id)
        if request is None:
            raise RequestError(
                f"Request {request_id} is neither waiting nor running, so its priority can't change.",
                code="no_request",
            )
        self._emit(RequestReprioritised(request_id=request_id, priority=priority))
        self.scheduler.reprioritise(request, priority)

    def step(self, only: Collection[int] | None = None) -> bool:
        """Run one step. Returns False and changes nothing if there is no work.

        `only`: continue only these of the running requests. If the runner fails, the requests of the step end as
        `failed`, the step finishes, and the error is raised.
        """
        if not self.has_work:
            return False
        began = time.perf_counter_ns()
        self.num_steps += 1
        self.pool.step = self.num_steps
        self._emit(StepStarted(step=self.num_steps))
        plan = self.scheduler.schedule(only)
        chunks = plan.chunks
        self._emit(
            StepScheduled(
                step=self.num_steps,
                chunks=tuple(chunk for _, chunk in chunks),
                budget=self.config.budget,
                blocked=plan.blocked,
            )
        )
        if not chunks and plan.blocked and plan.blocked.code == "blocks" and self.pool.usage == 0:
            # Nothing else runs, and the request still doesn't fit: waiting longer wouldn't help.
            self._finish(self.scheduler.waiting[0], FinishReason(code="failed"))
        try:
            segments = [self._segment(request, chunk) for request, chunk in chunks]
            result = self.runner.run(self.num_steps, segments) if segments else NOTHING_RUN
            check_result(chunks, result)
        except Exception:
            for request, chunk in chunks:
                self.tables.forget_unwritten(request, chunk.start)
            for request, _ in chunks:
                self._finish(request, FinishReason(code="failed"))
            self._end_step(began, 0)
            raise
        self._postprocess(plan, result, began)
        self._end_step(began, result.forward_us)
        return True

    def cancel(self, request_id: int) -> None:
        """Cancel a request. Raises `RequestError` if it is neither waiting nor running."""
        request = self._find(request_id)
        if request is None:
            raise RequestError(
                f"Request {request_id} is neither waiting nor running, so it can't be cancelled.",
                code="no_request",
            )
        self._finish(request, FinishReason(code="cancelled"))

    def reset_prefix_cache(self) -> bool:
        """Discard all cached prefixes in both tiers. Returns False and changes nothing while any block is in use."""
        if not self.pool.reset():
            return False
        self.host.forget()
        return True

    def digest(self) -> str:
        """Digest of the current state of the cache."""
        live = sorted(self.scheduler.live, key=lambda request: request.request_id)
        return digest(
            state_words(
                self.num_steps,
                self.pool.ref_counts,
                self.pool.short_hashes,
                list(self.pool.free),
                self.num_finished,
                self.finished_hash,
                [request.words() for request in live],
                self.host.state(),
            )
        )

    def _check_ids(self, token_ids: Sequence[int]) -> None:
        """Raise `RequestError` unless all ids are in the model's vocabulary."""
        limit = (self.runner.vocab_size or MAX_TOKEN_ID + 1) - 1
        wrong = next((token_id for token_id in token_ids if not 0 <= token_id <= limit), None)
        if wrong is not None:
            raise RequestError(
                f"Token ids must be from 0 to {limit:,}, the model's vocabulary (got {wrong:,}).", code="bad_tokens"
            )

    def _find(self, request_id: int) -> Request | None:
        return next((request for request in self.scheduler.live if request.request_id == request_id), None)

    def _announce(
        self,
        request: Request,
        *,
        prompt: str = "",
        template: bool = False,
        continues: int | None = None,
        fork: ForkOrigin | None = None,
    ) -> None:
        self.num_requests += 1
        self._emit(
            RequestAdded(
                request_id=request.request_id,
                prompt=prompt,
                token_ids=tuple(request.token_ids),
                pieces=self._text.begin(request.request_id, request.token_ids),
                max_new_tokens=request.max_new_tokens,
                sampling=request.sampling,
                template=template,
                salt=request.salt,
                continues=continues,
                num_prompt_tokens=request.num_prompt_tokens if fork else None,
                priority=request.priority,
                fork=fork,
            )
        )

    def _check_capacity(self, num_prompt_tokens: int, max_new_tokens: int) -> None:
        num_tokens = num_prompt_tokens + max_new_tokens - 1  # the last sampled token is never computed
        limit = self.runner.max_positions
        if limit is not None and num_tokens > limit:
            raise RequestError(
                f"{num_prompt_tokens} prompt tokens and {max_new_tokens} new ones need {num_tokens} positions, but the "
                f"model has {limit}; shorten the prompt or request fewer new tokens.",
                code="context_full",
                num_tokens=num_tokens,
                max_positions=limit,
            )
        needed = self.tables.peak_blocks(num_tokens, self.config.max_chunk)
        if needed > self.config.num_blocks:
            raise RequestError(
                f"{num_prompt_tokens} prompt tokens and {max_new_tokens} new ones (the last is never stored) are "
                f"{num_tokens} entries and need {needed} blocks of {self.config.block_size}; the pool has "
                f"{self.config.num_blocks}. Grow the pool to {needed}.",
                code="never_fits",
                num_tokens=num_tokens,
                num_blocks_needed=needed,
                num_blocks=self.config.num_blocks,
                block_size=self.config.block_size,
            )

    def _segment(self, request: Request, chunk: Chunk) -> Segment:
        stop = chunk.start + chunk.num_tokens
        return Segment(
            request_id=request.request_id,
            token_ids=request.token_ids[chunk.start : stop],
            start=chunk.start,
            slots=request.slots(chunk.start, stop),
            block_table=request.block_table,
            length=stop,
            sampling=request.sampling if stop == request.num_tokens else None,
        )

    def _postprocess(self, plan: Plan, result: StepResult, began: int) -> None:
        branching: list[Request] = []
        for place, ((request, chunk), sample) in enumerate(zip(plan.chunks, result.samples, strict=True)):
            stop = chunk.start + chunk.num_tokens
            self._emit(
                KvWritten(
                    request_id=request.request_id,
                    positions=tuple(range(chunk.start, stop)),
                    slots=tuple(request.slots(chunk.start, stop)),
                    layers=tuple(result.layers),
                    layer_us=tuple(result.layer_us),
                    read_us=tuple(result.read_us),
                )
            )
            if forgotten := result.forgotten.get(place):
                self._forget(request, forgotten)
            if request.num_generated == 0:
                request.first_token_us += (time.perf_counter_ns() - began) // 1_000
            if sample is not None:
                if request.num_generated == 0 and request.num_samples > 1:
                    branching.append(request)
                self._append(request, sample)
        for request in branching:
            for _ in range(request.num_samples - 1):
                self._fork(request, request.num_prompt_tokens)
        if not self.config.kv_cache:
            for request, _ in plan.chunks:
                if request.state == "running":
                    self.tables.release(request, "no_cache")
                    request.num_computed = 0

    def _forget(self, request: Request, forgotten: Forgotten) -> None:
        """Emit what a policy dropped, and release the blocks that became empty."""
        self._emit(KvForgotten(request_id=request.request_id, policy=forgotten.policy, dropped=forgotten.dropped))
        self.tables.release_emptied(request, forgotten.empty_indices)

    def _append(self, request: Request, sample: Sample) -> None:
        candidate_ids = [token_id for token_id, _ in sample.candidates]
        pieces = self._text.peek(request.request_id, candidate_ids)
        self._emit(
            TokenSampled(
                request_id=request.request_id,
                position=request.num_tokens,
                token_id=sample.token_id,
                piece=self._text.extend(request.request_id, sample.token_id),
                candidates=tuple(
                    Candidate(token_id=token_id, probability=probability, piece=piece)
                    for (token_id, probability), piece in zip(sample.candidates, pieces, strict=True)
                ),
                reason=SampleReason(code=sample.code, num_considered=sample.num_considered),
            )
        )
        request.append_token(sample.token_id)
        if sample.token_id in request.stop_token_ids:
            self._finish(request, FinishReason(code="eos", token_id=sample.token_id))
        elif request.num_generated >= request.max_new_tokens:
            self._finish(request, FinishReason(code="length"))

    def _finish(self, request: Request, reason: FinishReason) -> None:
        self._emit(RequestFinished(request_id=request.request_id, reason=reason))
        if request.state == "swapped":
            self.host.swap_in(request.request_id)
        if request.state == "running":
            self.scheduler.running.remove(request)
            code = reason.code if reason.code in ("cancelled", "failed") else "finished"
            self.tables.release(request, code)
        else:
            self.scheduler.waiting.remove(request)
        request.state = "finished"
        self.num_finished += 1
        self.finished_hash = extend_token_hash(self.finished_hash, (request.token_hash,))
        self._text.forget(request.request_id)
        self.runner.forget(request.request_id)
        self._ended[request.request_id] = request
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def _end_step(self, began: int, forward_us: int) -> None:
        self._emit(
            StepFinished(
                step=self.num_steps,
                digest=self.digest(),
                forward_us=forward_us,
                step_us=(time.perf_counter_ns() - began) // 1_000,
            )
        )


def _whole_numbers(token_ids: Iterable[int]) -> list[int]:
    """Convert to plain ints, also from an array or a generator. Raises `RequestError` for other values."""
    try:
        return [int(index(token_id)) for token_id in token_ids]
    except TypeError as error:
        raise RequestError(
            f"Token ids must be whole numbers ({error}); pass the ids that a tokenizer returns.",
            code="bad_tokens",
        ) from error


def _whole_number(name: str, value: int) -> int:
    """Convert to a plain int. Raises `RequestError` for other values."""
    try:
        return int(index(value))
    except TypeError as error:
        raise RequestError(f"{name} must be a whole number (got {value!r}).", code="bad_number") from error


def _check_sampling(sampling: SamplingParams) -> None:
    if not isinstance(sampling, SamplingParams):
        raise RequestError(f"sampling must be a SamplingParams (got {sampling!r}).", code="bad_sampling")
    check_number("temperature", sampling.temperature, 0, MAX_TEMPERATURE)
    check_range("top_k", sampling.top_k, 0, MAX_TOKEN_ID)
    check_number("top_p", sampling.top_p, 0, 1)
    if sampling.seed is not None:
        check_range("seed", sampling.seed, 0, MAX_SEED)
