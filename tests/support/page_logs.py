"""Logs for tests of the page: a real engine over a runner that computes nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from kvviz.config import EngineConfig
from kvviz.engine.engine import Engine
from kvviz.engine.runner import Sample, Segment, StepResult
from kvviz.events import Piece
from kvviz.log.event_log import EventLog
from kvviz.log.world import World

WORDS = (
    "the",
    "cache",
    "keeps",
    "a",
    "key",
    "and",
    "value",
    "of",
    "every",
    "token",
    "so",
    "that",
    "no",
    "step",
    "computes",
)


class WordText:
    """Token text made of a few words, with everything that is hard to show among them."""

    HARD = (
        Piece(text="<script>alert(1)</script>"),
        Piece(text="\n"),
        Piece(text=" \"quoted' & <b>"),
        Piece(text="日本"),
        Piece(text="سلام"),
        Piece(text="\x00"),
        Piece(text="<|end|>", kind="special"),
        Piece(text="👩‍👩‍👧"),
        Piece(text="w" * 10_000),
    )
    #: One character over three tokens.
    BYTES = (
        Piece(text="", kind="bytes", hex="f0"),
        Piece(text="", kind="bytes", hex="9f 99"),
        Piece(text="🙂", kind="bytes", hex="82", joins=3),
    )

    def _piece(self, token_id: int) -> Piece:
        if token_id < len(self.HARD):
            return self.HARD[token_id]
        if 10 <= token_id < 13:
            return self.BYTES[token_id - 10]
        return Piece(text=f" {WORDS[token_id % len(WORDS)]}")

    def begin(self, request_id: int, token_ids: Sequence[int]) -> tuple[Piece, ...]:
        """Pieces of a prompt."""
        return tuple(self._piece(token_id) for token_id in token_ids)

    def peek(self, request_id: int, token_ids: Sequence[int]) -> tuple[Piece, ...]:
        """Pieces of candidates."""
        return self.begin(request_id, token_ids)

    def extend(self, request_id: int, token_id: int) -> Piece:
        """Piece of the next token."""
        return self._piece(token_id)

    def copy_block(self, source: int, target: int) -> tuple[int, int]:
        return 0, 1

    def store_blocks(self, block_ids: Sequence[int], host_ids: Sequence[int]) -> tuple[int, int]:
        return 0, 1

    def load_blocks(self, host_ids: Sequence[int], block_ids: Sequence[int]) -> tuple[int, int]:
        return 0, 1

    def fork(self, parent_id: int, request_id: int) -> None:
        """Nothing is kept by request."""

    def forget(self, request_id: int) -> None:
        """Nothing is kept."""


class FakeRunner:
    """Samples random tokens and writes nothing, for `num_layers` layers."""

    max_positions = None
    vocab_size = None
    cache_keys = ("test",)

    def __init__(self, num_layers: int = 6, seed: int = 1, window: int | None = None) -> None:
        self.window = window
        self.num_layers = num_layers
        self._random = random.Random(seed)

    def run(self, step: int, segments: Sequence[Segment]) -> StepResult:
        """One step."""
        layers = range(self.num_layers)
        return StepResult(
            samples=[self.sample(segment) if segment.sampling else None for segment in segments],
            layers=list(layers),
            layer_us=[100 * layer + 40 for layer in layers],
            read_us=[100 * layer + 90 for layer in layers],
            forward_us=100 * self.num_layers,
        )

    def copy_block(self, source: int, target: int) -> tuple[int, int]:
        """Bytes and microseconds of a copy that nobody makes."""
        return 49_152, 120

    def store_blocks(self, block_ids: Sequence[int], host_ids: Sequence[int]) -> tuple[int, int]:
        """The same for a move to the host tier."""
        return 49_152 * len(block_ids), 180 * len(block_ids)

    def load_blocks(self, host_ids: Sequence[int], block_ids: Sequence[int]) -> tuple[int, int]:
        """The same for a move back."""
        return 49_152 * len(block_ids), 160 * len(block_ids)

    def fork(self, parent_id: int, request_id: int) -> None:
        """Nothing is kept by request."""

    def forget(self, request_id: int) -> None:
        """Nothing is kept."""

    def sample(self, segment: Segment) -> Sample:
        ids = self._random.sample(range(1000), 5)
        return Sample(
            token_id=ids[0],
            candidates=[(token_id, 0.5 / (place + 1)) for place, token_id in enumerate(ids)],
            code="greedy",
            num_considered=1000,
        )


def header(config: EngineConfig, num_layers: int = 6) -> dict[str, Any]:
    """A header as docs/wire.md has it, for a small model with 6 query heads and 2 KV heads of 8."""
    bytes_per_token = 2 * 2 * 8 * 4
    return {
        "format": 1,
        "kvviz": "0",
        "source": "live",
        "title": "test",
        "capabilities": [],
        "model": {
            "name": "Test-1M",
            "architecture": "TestForCausalLM",
            "num_layers": num_layers,
            "num_query_heads": 6,
            "num_kv_heads": 2,
            "head_dim": 8,
            "vocab_size": 1000,
            "max_positions": 8192,
            "dtype": "float32",
            "fingerprint": "00" * 16,
            "num_parameters": 1_000_000,
            "weight_bytes": 4_000_000,
            "has_template": False,
            "layers": [
                {
                    "index": layer,
                    "kind": "full",
                    "window": None,
                    "cache": "kv",
                    "key_shape": [2, 8],
                    "value_shape": [2, 8],
                    "bytes_per_token": bytes_per_token,
                    "query_heads": 6,
                    "scaling": 0.35,
                    "softcap": None,
                    "sinks": False,
                }
                for layer in range(num_layers)
            ],
            "self_check": None,
        },
        "pool": {
            "num_blocks": config.num_blocks,
            "block_size": config.block_size,
            "bytes_per_token": bytes_per_token * num_layers,
            "bytes": config.num_blocks * config.block_size * bytes_per_token * num_layers,
            "num_host_blocks": config.num_host_blocks,
        },
        "policies": {"prefix_cache": config.prefix_cache, "eviction": config.eviction, "offload": config.offload},
        "scheduler": {
            "prefill_chunk": config.prefill_chunk,
            "max_running": config.max_running,
            "token_budget": config.budget,
            "chunked_prefill": config.chunked_prefill,
            "order": config.order,
            "preemption": config.preemption,
        },
        "seed": 0,
    }


def make_log(
    *,
    num_requests: int = 6,
    num_blocks: int = 12,
    block_size: int = 4,
    prefill_chunk: int = 8,
    prompt_length: int = 18,
    max_new_tokens: int = 10,
    max_running: int = 1,
    window: int | None = None,
    seed: int = 1,
    num_layers: int = 6,
) -> tuple[dict[str, Any], list[list[Any]]]:
    """A header and the records of a run: some prompts share a beginning, and the pool is too small to keep them all."""
    config = EngineConfig(
        num_blocks=num_blocks, block_size=block_size, prefill_chunk=prefill_chunk, max_running=max_running
    )
    log = EventLog(num_blocks, block_size, max_records=10**9)
    engine = Engine(config, FakeRunner(num_layers, seed, window), log.append, WordText())
    chooser = random.Random(seed)
    beginning = [*range(13), *(chooser.randrange(20, 1000) for _ in range(prompt_length))][: max(1, prompt_length - 4)]
    for index in range(num_requests):
        tail = [chooser.randrange(20, 1000) for _ in range(4 + index % 3)]
        start = beginning if index % 2 == 0 else [chooser.randrange(20, 1000) for _ in beginning]
        engine.add_request(start + tail, max_new_tokens=max_new_tokens, prompt=f"prompt {index} </script>")
        if index % max_running == max_running - 1 or index == num_requests - 1:
            while engine.step():
                pass
        if index == num_requests // 2:
            engine.reset_prefix_cache()
    return header(config, num_layers), log.records()


def make_serving_log(
    *, num_requests: int = 7, num_layers: int = 6, **options: Any
) -> tuple[dict[str, Any], list[list[Any]]]:
    """Requests at once that share a system prompt, in a pool too small for all: one is forked, some are put out.

    With these sizes there are hits, a copy, preemptions by swap, offloaded and fetched prefixes, and a line of waiting.
    """
    sizes: dict[str, Any] = {
        "num_blocks": 24,
        "block_size": 8,
        "prefill_chunk": 24,
        "max_running": 6,
        "preemption": "swap",
        "num_host_blocks": 16,
        "offload": True,
    }
    config = EngineConfig(**{**sizes, **options})
    log = EventLog(config.num_blocks, config.block_size, max_records=10**9)
    engine = Engine(config, FakeRunner(num_layers, 3), log.append, WordText())
    chooser = random.Random(5)
    system = [20 + index * 7 % 300 for index in range(18)]

    def add(index: int) -> int:
        question = [chooser.randrange(20, 900) for _ in range(5 + index % 4)]
        start = system if index % 3 else system[:10]
        return engine.add_request(
            start + question,
            max_new_tokens=18 + 4 * (index % 3),
            prompt=f"system prompt and question {index}",
            num_samples=2 if index == 1 else 1,
        )

    for index in range(num_requests):
        add(index)
        for _ in range(2 if index < 3 else 1):
            engine.step()
        if index == 3:
            engine.fork(0, 18, 30)
    while engine.step():
        pass
    for index in (0, 1, 2):
        add(index)
    while engine.step():
        pass
    return header(config, num_layers), log.records()


def positions(header: dict[str, Any], records: list[list[Any]], *, every: int = 1) -> dict[int, dict[str, Any]]:
    """The Python fold's checkpoint by position: before each step starts (or `every` so many), and at the end."""
    pool = header["pool"]
    world = World(pool["num_blocks"], pool["block_size"])
    position, found = 0, {}
    for record in records:
        if record[2]["type"] == "step_started":
            if position % every == 0:
                found[position] = json.loads(json.dumps(world.to_json()))
            position += 1
        world.apply(record)
    found[position] = json.loads(json.dumps(world.to_json()))
    return found
