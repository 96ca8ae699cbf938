"""Block workloads: starts, appends and frees of token sequences, replayed on the block pool without a model.

docs/workload.md describes the format and its answers. Decisions follow vLLM from version 0.23 on. Each operation is a
step of the log (an append: one step per token), so a replay opens as a recording in the Pages lens.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from kvviz.config import MAX_BLOCK_SIZE, MAX_NUM_BLOCKS
from kvviz.engine.blocks import BlockPool
from kvviz.engine.requests import Request
from kvviz.engine.tables import BlockTables
from kvviz.errors import ConfigError
from kvviz.events import (
    FORMAT_VERSION,
    BlockCached,
    BlockEvicted,
    Chunk,
    Event,
    FinishReason,
    KvWritten,
    Piece,
    RequestAdded,
    RequestFinished,
    RequestStarted,
    SampleReason,
    SamplingParams,
    StepFinished,
    StepScheduled,
    StepStarted,
    TokenSampled,
)
from kvviz.log.digest import TOKEN_HASH_START, digest, extend_token_hash, state_words
from kvviz.log.event_log import EventLog
from kvviz.log.recording_writer import write_recording
from kvviz.messages import fault_in_words
from kvviz.version import __version__

MAX_OPS = 100_000
MAX_TOKENS = 1_000_000
MAX_FILE_BYTES = 64 * 2**20

TokenIds = Annotated[list[Annotated[int, Field(ge=0, le=2**32 - 1)]], Field(max_length=MAX_TOKENS)]
Id = Annotated[str, Field(max_length=256)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class StartOperation(_Strict):
    """A sequence starts: its tokens are looked up, and blocks for all the rest are allocated, or none."""

    op: Literal["start"]
    id: Id
    tokens: Annotated[TokenIds, Field(min_length=1)]
    salt: Id | None = None


class AppendOperation(_Strict):
    """Append tokens one at a time, up to the first that finds no free block."""

    op: Literal["append"]
    id: Id
    tokens: TokenIds


class FreeOperation(_Strict):
    """A sequence ends and its blocks are released."""

    op: Literal["free"]
    id: Id


Operation = Annotated[StartOperation | AppendOperation | FreeOperation, Field(discriminator="op")]


class Workload(_Strict):
    """Operations on a pool of `num_blocks` blocks, numbered from 0."""

    block_size: int = Field(ge=1, le=MAX_BLOCK_SIZE)
    num_blocks: int = Field(ge=1, le=MAX_NUM_BLOCKS)
    ops: Annotated[list[Operation], Field(max_length=MAX_OPS)]


_adapter = TypeAdapter(Workload)
#: Replaces a model in the header: a layer that stores nothing.
_NO_LAYER = {
    "index": 0,
    "kind": "full",
    "window": None,
    "chunk": None,
    "cache": "none",
    "key_shape": [0, 0],
    "value_shape": [0, 0],
    "query_heads": 1,
    "kv_heads": 1,
    "scaling": None,
    "softcap": None,
    "sinks": False,
    "bytes_per_token": 0,
}


def read_workload(path: Path) -> Workload:
    """Read a workload from a JSON file. Raises `ConfigError` if it is invalid."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"Can't read {path} ({error.strerror}); use a JSON file.", setting="workload") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(
            f"{path} is larger than {MAX_FILE_BYTES:,} bytes, the maximum of a workload; split it.", setting="workload"
        )
    return parse_workload(data)


def parse_workload(data: bytes) -> Workload:
    """Parse a workload from JSON text. Raises `ConfigError`."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ConfigError(
            f"A workload must be a JSON object ({error.msg}, character {error.pos}).",
            setting="workload",
        ) from error
    try:
        return _adapter.validate_python(value)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "the workload"
        raise ConfigError(
            f"workload: {where}: {fault_in_words(fault)}; see docs/workload.md.", setting=where
        ) from error


class Replay:
    """Runs the operations of a workload in order. If a `log` is given, records events in it."""

    def __init__(self, workload: Workload, log: EventLog | None = None) -> None:
        self.workload = workload
        self.log = log
        self.pool = BlockPool(workload.num_blocks, self._emit)
        self.tables = BlockTables(self.pool, workload.block_size, self._emit)
        self.requests: dict[str, Request] = {}
        self._num_requests = 0
        self._num_finished = 0
        self._finished_hash = TOKEN_HASH_START
        self._num_stored = self._num_removed = 0

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield the answer to each operation."""
        for op in self.workload.ops:
            self._num_stored = self._num_removed = 0
            answer: dict[str, Any] = {"op": op.op, "id": op.id}
            match op:
                case StartOperation():
                    answer["ok"], answer["hit_tokens"] = self._start(op)
                case AppendOperation():
                    answer["ok"] = self._append(op)
                case FreeOperation():
                    answer["ok"] = self._free(op)
            request = self.requests.get(op.id)
            if request is not None and not (isinstance(op, StartOperation) and not answer["ok"]):
                answer["blocks"] = list(request.block_table)
            answer |= {"free": self.pool.num_free, "stored": self._num_stored, "removed": self._num_removed}
            yield answer

    def header(self, title: str) -> dict[str, Any]:
        """The header of a recording with a pool and without a model."""
        workload = self.workload
        return {
            "format": FORMAT_VERSION,
            "kvviz": __version__,
            "source": "workload",
            "title": title,
            "capabilities": [],
            "model": {"name": "no model", "num_layers": 1, "num_query_heads": 1, "layers": [_NO_LAYER]},
            "pool": {
                "num_blocks": workload.num_blocks,
                "block_size": workload.block_size,
                "bytes_per_token": 0,
                "bytes": 0,
                "num_host_blocks": 0,
            },
            "policies": {"prefix_cache": True, "eviction": "lru", "offload": False},
            "scheduler": {"prefill_chunk": MAX_TOKENS, "max_running": 1},
            "seed": 0,
        }

    def _emit(self, event: Event) -> None:
        self._num_stored += isinstance(event, BlockCached)
        self._num_removed += isinstance(event, BlockEvicted)
        if self.log is not None:
            self.log.append(event)

    def _start(self, op: StartOperation) -> tuple[bool, int]:
        if op.id in self.requests:
            self._step([])
            return False, 0
        request = Request(
            request_id=self._num_requests,
            token_ids=list(op.tokens),
            num_prompt_tokens=len(op.tokens),
            max_new_tokens=1,
            sampling=SamplingParams(),
            block_size=self.workload.block_size,
            extra_keys=(f"salt:{op.salt}",) if op.salt is not None else (),
            salt=op.salt,
        )
        lookup = self.tables.lookup(request)
        num_hit_tokens = len(lookup.found) * self.workload.block_size
        if not self.tables.fits(request, request.num_tokens, lookup):
            self._step([])
            return False, num_hit_tokens
        self._num_requests += 1
        self.requests[op.id] = request
        self._emit(
            RequestAdded(
                request_id=request.request_id,
                prompt=op.id,
                token_ids=tuple(op.tokens),
                pieces=tuple(Piece(text=f" {token_id}") for token_id in op.tokens),
                max_new_tokens=1,
                sampling=request.sampling,
                salt=op.salt,
            )
        )

        def admit() -> Chunk:
            self.tables.announce(request, lookup)
            request.num_computed = request.num_hit_tokens = num_hit_tokens
            self._emit(RequestStarted(request_id=request.request_id, num_hit_tokens=num_hit_tokens))
            if not self.tables.allocate(request, request.num_tokens, code="prompt", lookup=lookup):
                raise AssertionError("what fits is allocated")
            request.state = "running"
            return Chunk(
                request_id=request.request_id,
                start=num_hit_tokens,
                num_tokens=request.num_tokens - num_hit_tokens,
                kind="prefill",
            )

        self._step([(request, admit)])
        return True, num_hit_tokens

    def _append(self, op: AppendOperation) -> bool:
        request = self.requests.get(op.id)
        if request is None:
            self._step([])
            return False
        for token_id in op.tokens:
            request.num_computed = request.num_tokens
            if not self.tables.fits(request, request.num_tokens + 1):
                self._step([])
                return False
            self._emit(
                TokenSampled(
                    request_id=request.request_id,
                    position=request.num_tokens,
                    token_id=token_id,
                    piece=Piece(text=f" {token_id}"),
                    candidates=(),
                    reason=SampleReason(code="greedy", num_considered=1),
                )
            )
            request.append_token(token_id)

            def grow(request: Request = request) -> Chunk:
                if not self.tables.allocate(request, request.num_tokens, code="decode"):
                    raise AssertionError("what fits is allocated")
                start = request.num_tokens - 1
                return Chunk(request_id=request.request_id, start=start, num_tokens=1, kind="decode")

            self._step([(request, grow)])
        if not op.tokens:
            self._step([])
        return True

    def _free(self, op: FreeOperation) -> bool:
        request = self.requests.pop(op.id, None)
        if request is not None:
            self._emit(RequestFinished(request_id=request.request_id, reason=FinishReason(code="cancelled")))
            request.state = "finished"
            self.tables.release(request, "cancelled")
            self._num_finished += 1
            self._finished_hash = extend_token_hash(self._finished_hash, (request.token_hash,))
        self._step([])
        return request is not None

    def _step(self, work: Iterable[tuple[Request, Any]]) -> None:
        """Run a step of the log: allocate blocks, then write the slots."""
        self.pool.step += 1
        step = self.pool.step
        self._emit(StepStarted(step=step))
        chunks = [(request, allocate()) for request, allocate in work]
        self._emit(StepScheduled(step=step, chunks=tuple(chunk for _, chunk in chunks)))
        for request, chunk in chunks:
            stop = chunk.start + chunk.num_tokens
            request.num_computed = stop
            self._emit(
                KvWritten(
                    request_id=request.request_id,
                    positions=tuple(range(chunk.start, stop)),
                    slots=tuple(request.slots(chunk.start, stop)),
                    layers=(),
                    layer_us=(),
                    read_us=(),
                )
            )
        self._emit(StepFinished(step=step, digest=self._digest(step), forward_us=0, step_us=0))

    def _digest(self, step: int) -> str:
        live = sorted(self.requests.values(), key=lambda request: request.request_id)
        return digest(
            state_words(
                step,
                self.pool.ref_counts,
                self.pool.short_hashes,
                list(self.pool.free),
                self._num_finished,
                self._finished_hash,
                [request.words() for request in live],
            )
        )


def replay_workload(
    workload: Workload, path: Path | None = None, title: str = "A block workload"
) -> list[dict[str, Any]]:
    """Replay a workload and return its answers. If `path` is given, also write the replay as a recording."""
    if path is None:
        return list(Replay(workload).answers())
    log = EventLog(workload.num_blocks, workload.block_size, max_records=sys.maxsize)
    replay = Replay(workload, log)
    answers = list(replay.answers())
    write_recording(path, replay.header(title), log.encoded(-1, log.head_seq + 1))
    return answers
