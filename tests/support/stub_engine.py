"""The real engine over a runner without a model, which proves on the way that every entry it reads is the right one."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from kvviz.config import EngineConfig
from kvviz.engine.engine import Engine
from kvviz.engine.runner import Sample, Segment, StepResult
from kvviz.events import BlockAllocated, BlocksReleased, Event, HostEvicted, RequestAdded, TokenSampled

LAYERS = (0, 1)


class StubRunner:
    """Next tokens from a seeded generator; an entry names all that its K and V depend on: salt and tokens so far.

    Before it answers it reads, like an attention layer, every position in the window of each new token, and fails when
    a slot holds anything else than the entry of that position. `fail_next` makes the next step raise.
    """

    def __init__(self, *, seed: int = 0, vocabulary: int = 40, window: int | None = None) -> None:
        self.seed = seed
        self.vocabulary = vocabulary
        self.fail_next = False
        self.num_forwards = 0
        self.entries: dict[int, object] = {}
        self.host: dict[int, dict[int, object]] = {}
        self.block_size = 0
        self._window = window
        self.known: dict[int, tuple[str | None, list[int]]] = {}

    @property
    def window(self) -> int | None:
        return self._window

    @property
    def cache_keys(self) -> tuple[str, ...]:
        return ("weights:stub",)

    @property
    def max_positions(self) -> int | None:
        return 10_000

    @property
    def vocab_size(self) -> int | None:
        return None

    def observe(self, event: Event) -> None:
        """Learn what the requests are made of, and blank the blocks that are handed out."""
        if isinstance(event, RequestAdded):
            self.known[event.request_id] = (event.salt, list(event.token_ids))
        elif isinstance(event, TokenSampled):
            self.known[event.request_id][1].append(event.token_id)
        elif isinstance(event, BlockAllocated):
            self._blank(event.block_id)
        elif isinstance(event, BlocksReleased):
            for block_id in event.prepended:
                self._blank(block_id)
        elif isinstance(event, HostEvicted):
            del self.host[event.host_id]

    def _slots(self, block_id: int) -> range:
        return range(block_id * self.block_size, (block_id + 1) * self.block_size)

    def _blank(self, block_id: int) -> None:
        for slot in self._slots(block_id):
            self.entries.pop(slot, None)

    def copy_block(self, source: int, target: int) -> tuple[int, int]:
        for slot, to in zip(self._slots(source), self._slots(target), strict=True):
            self.entries[to] = self.entries.get(slot)
        return self.block_size, 1

    def store_blocks(self, block_ids: Sequence[int], host_ids: Sequence[int]) -> tuple[int, int]:
        for block_id, host_id in zip(block_ids, host_ids, strict=True):
            self.host[host_id] = {offset: self.entries.get(slot) for offset, slot in enumerate(self._slots(block_id))}
        return self.block_size * len(block_ids), 1

    def load_blocks(self, host_ids: Sequence[int], block_ids: Sequence[int]) -> tuple[int, int]:
        for block_id, host_id in zip(block_ids, host_ids, strict=True):
            for offset, entry in self.host.pop(host_id).items():
                self.entries[block_id * self.block_size + offset] = entry
        return self.block_size * len(block_ids), 1

    def entry(self, request_id: int, position: int) -> object:
        salt, token_ids = self.known[request_id]
        return salt, tuple(token_ids[: position + 1])

    def run(self, step: int, segments: Sequence[Segment]) -> StepResult:
        self.num_forwards += 1
        if self.fail_next:
            self.fail_next = False
            raise RuntimeError("the stub fails as told")
        for segment in segments:
            positions = range(segment.start, segment.length)
            for position, slot, token_id in zip(positions, segment.slots, segment.token_ids, strict=True):
                assert self.known[segment.request_id][1][position] == token_id
                self.entries[slot] = self.entry(segment.request_id, position)
        for segment in segments:
            first = 0 if self._window is None else max(0, segment.start - self._window + 1)
            for position in range(first, segment.length):
                block_id = segment.block_table[position // self.block_size]
                assert block_id is not None, f"position {position} is in the window but its block is gone"
                slot = block_id * self.block_size + position % self.block_size
                assert self.entries.get(slot) == self.entry(segment.request_id, position), f"slot {slot} is wrong"
        samples = [self._sample(segment) if segment.sampling else None for segment in segments]
        return StepResult(samples=samples, layers=LAYERS, layer_us=(1, 2), read_us=(1, 2), forward_us=3)

    def fork(self, parent_id: int, request_id: int) -> None:
        pass

    def forget(self, request_id: int) -> None:
        pass

    def _sample(self, segment: Segment) -> Sample:
        assert segment.sampling is not None
        seed = self.seed if segment.sampling.temperature else 0
        chance = random.Random(f"{seed}/{segment.request_id}/{segment.length}")
        ids = chance.sample(range(self.vocabulary), 3)
        return Sample(
            token_id=ids[0],
            candidates=[(token_id, 0.5 / (index + 1)) for index, token_id in enumerate(ids)],
            code="sampled" if segment.sampling.temperature else "greedy",
            num_considered=3,
        )


def stub_engine(
    config: EngineConfig, runner: StubRunner | None = None, emit: Any = lambda event: None
) -> tuple[Engine, StubRunner]:
    """An engine whose runner sees its events before `emit` does."""
    runner = runner or StubRunner(seed=config.seed)
    runner.block_size = config.block_size

    def tell(event: Event) -> None:
        runner.observe(event)
        emit(event)

    return Engine(config, runner, tell), runner


def as_records(events: Iterable[Event]) -> list[list[Any]]:
    """Records as a reader gets them, without times."""
    return [[seq, 0, as_json(event)] for seq, event in enumerate(events)]


def as_json(event: Event) -> dict[str, Any]:
    """An event as a JSON object."""
    data: dict[str, Any] = orjson.loads(orjson.dumps(event))
    return data


def busy_log(num_steps: int = 60, *, window: int | None = None, seed: int = 2) -> tuple[EngineConfig, list[Event]]:
    """Events of a run in a small pool that shares, evicts, chunks, cancels, resets and fails, ending with a step."""
    config = EngineConfig(num_blocks=12, block_size=4, prefill_chunk=8, seed=seed)
    events: list[Event] = []
    engine, runner = stub_engine(config, StubRunner(seed=seed, window=window), events.append)
    chance = random.Random(seed)
    stems = [[stem * 3 + index % 7 for index in range(18)] for stem in range(2)]
    while engine.num_steps < num_steps:
        if not engine.has_work:
            if engine.num_requests % 7 == 6:
                engine.reset_prefix_cache()
            prompt = chance.choice(stems)[: chance.randint(9, 18)] + [chance.randrange(40) for _ in range(3)]
            engine.add_request(prompt, max_new_tokens=chance.randint(2, 9), salt=chance.choice([None, None, None, "s"]))
        if chance.random() < 0.03 and engine.scheduler.running:
            engine.cancel(engine.scheduler.running[0].request_id)
            continue
        runner.fail_next = engine.num_steps == num_steps // 2
        try:
            engine.step()
        except RuntimeError:
            assert engine.num_steps == num_steps // 2 + 1
    return config, events
