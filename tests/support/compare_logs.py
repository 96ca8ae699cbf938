"""Logs of comparisons for tests of the page: the real engine over a runner that computes nothing, lanes made up."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from kvviz.config import EngineConfig
from kvviz.engine.engine import Engine
from kvviz.engine.runner import Forgotten, Segment, StepResult
from kvviz.events import LaneErrorsMeasured, LaneMeasured, NeedleSought, Piece, ProbeTimed
from kvviz.log.event_log import EventLog
from tests.support.page_logs import FakeRunner, WordText, header

BYTES = 2 * 2 * 8 * 4 * 6  # of one token in full precision: K and V, heads, channels, bytes, layers


def lane(name: str, family: str, *, exact: bool = False, scale: float = 1.0, **options: int) -> dict[str, Any]:
    """A lane as a header tells it, without its index."""
    titles = {
        "gqa": "Heads as trained",
        "mha": "One head per query head",
        "mqa": "One head for all",
        "int4": "4-bit integer",
        "int8": "8-bit integer",
        "fp16": "16-bit float",
        "window": "Sliding window",
        "sinks": "Attention sinks",
        "no-cache": "Nothing is kept",
        "contiguous": "One contiguous slab",
    }
    values = [f"={number}" for number in options.values()]
    return {
        "name": name,
        "spec": name + "".join(values),
        "title": titles[name],
        "family": family,
        "about": f"A cache of the kind {name}.",
        "exact": exact,
        "options": options,
        "bytes_per_token": BYTES * scale,
        "kv_heads_note": None,
    }


#: Of the lanes of these logs: how far each is from the reference, and how many times slower.
REFERENCE = lane("gqa", "heads", exact=True)
FOUR = (
    REFERENCE,
    lane("no-cache", "allocation", exact=True, scale=1),
    lane("int4", "bits", scale=0.17),
    lane("window", "forgetting", budget=16),
)
HARM = {"int4": 0.05, "int8": 0.003, "fp16": 0.0001, "window": 0.4, "sinks": 0.2, "mqa": 2.0}


def lane_choices() -> list[dict[str, Any]]:
    """A menu of lanes as a live header has it."""
    budget = [{"name": "budget", "title": "Entries kept", "default": 64, "low": 4, "high": 4096}]
    recent = [{"name": "recent", "title": "Recent kept in full", "default": 16, "low": 0, "high": 128}]
    made = [
        *(lane(name, "heads", exact=name != "mqa") for name in ("gqa", "mha", "mqa")),
        *(lane(name, "bits") for name in ("fp16", "int8", "int4")),
        *(lane(name, "forgetting") for name in ("window", "sinks")),
        *(lane(name, "allocation", exact=True) for name in ("no-cache", "contiguous")),
    ]
    keys = ("name", "title", "family", "about", "exact")
    options = {"bits": (recent, None), "forgetting": (budget, "budget")}
    return [
        {
            **{key: one[key] for key in keys},
            "options": options.get(one["family"], ([], None))[0],
            "value": options.get(one["family"], ([], None))[1],
        }
        for one in made
    ]


class Lanes:
    """What made-up lanes measure behind each sampled token of the reference."""

    def __init__(self, lanes: Sequence[Mapping[str, Any]], seed: int, prompt_length: int) -> None:
        self.lanes = lanes
        self.prompt_length = prompt_length
        self.chance = random.Random(seed)
        self.text = WordText()
        self.work = [0] * len(lanes)
        self.copied = [0] * len(lanes)
        self.parted = [False] * len(lanes)

    def measure(self, request_id: int, position: int, token_id: int, max_new_tokens: int) -> list[LaneMeasured]:
        """One event a lane, in order."""
        out = []
        for index, one in enumerate(self.lanes):
            name = one["name"]
            first = position == self.prompt_length
            uncached = name == "no-cache"
            harm = HARM.get(name, 0.0)
            kl = 0.0 if index == 0 else harm * self.chance.random() ** 3 if harm else self.chance.random() * 1e-9
            agrees = kl < 0.08
            own = token_id if agrees else 20 + self.chance.randrange(900)
            self.parted[index] |= not agrees
            free: int | None = token_id if not self.parted[index] else 20 + self.chance.randrange(900)
            if not agrees:
                free = own
            if self.parted[index] and position - self.prompt_length > max_new_tokens - 4:
                free = None
            self.work[index] += position if uncached or first else 1
            kept = min(1.0, one["options"].get("budget", 1 << 30) / position)
            self.copied[index] += int(position * one["bytes_per_token"]) if name == "contiguous" else 0
            base = 30_000 if first else 9_000
            us = base + (400 * position if uncached and not first else 4 * position) + self.chance.randrange(900)
            out.append(
                LaneMeasured(
                    lane=index,
                    request_id=request_id,
                    position=position,
                    token_id=token_id,
                    own_token_id=own,
                    own_piece=self._piece(own),
                    agrees=agrees,
                    kl=kl,
                    nll=0.7 + kl + self.chance.random(),
                    max_abs_diff=0.0 if index == 0 else 2.1e-5 * self.chance.random() + 3 * kl,
                    free_token_id=free,
                    free_piece=None if free is None else self._piece(free),
                    num_projections=self.work[index],
                    num_hit_tokens=0,
                    held_bytes=0 if uncached else int(position * kept * one["bytes_per_token"]),
                    read_bytes=0 if uncached else int(position * kept * one["bytes_per_token"]),
                    copied_bytes=self.copied[index],
                    kept_share=kept,
                    step_us=us,
                )
            )
        return out

    def errors(self, request_id: int, num_tokens: int) -> list[LaneErrorsMeasured]:
        """One event for each lossy lane: 6 layers, 2 heads."""
        out = []
        for index, one in enumerate(self.lanes):
            if index == 0 or one["exact"]:
                continue
            maps = [
                tuple(
                    tuple(HARM[one["name"]] * (0.3 + 0.1 * layer + self.chance.random() / 3) for _ in range(2))
                    for layer in range(6)
                )
                for _ in range(2)
            ]
            out.append(
                LaneErrorsMeasured(
                    lane=index, request_id=request_id, num_tokens=num_tokens, key_error=maps[0], value_error=maps[1]
                )
            )
        return out

    def _piece(self, token_id: int) -> Piece:
        return self.text.extend(0, token_id)


def compare_log(
    lanes: Sequence[Mapping[str, Any]] = FOUR,
    *,
    prompt_length: int = 24,
    max_new_tokens: int = 40,
    seed: int = 5,
    needle: bool = False,
    inside: bool = True,
    capabilities: Sequence[str] = (),
) -> tuple[dict[str, Any], list[list[Any]]]:
    """A comparison; `inside`: the measurements lie in the step, else behind it."""
    config = EngineConfig(num_blocks=64 + max_new_tokens, block_size=8, prefill_chunk=512)
    log = EventLog(config.num_blocks, config.block_size, max_records=10**9)
    made = Lanes(lanes, seed, prompt_length)
    late: list[Any] = []
    steps = 0

    def tell(event: Any) -> None:
        nonlocal steps
        log.append(event)
        if event.type == "token_sampled":
            found = made.measure(event.request_id, event.position, event.token_id, max_new_tokens)
            steps += 1
            errors = made.errors(event.request_id, event.position) if steps % 8 == 4 else []
            late.extend((*found, *errors))
        if event.type == ("token_sampled" if inside else "step_finished"):
            for one in late:
                log.append(one)
            late.clear()

    engine = Engine(config, FakeRunner(6, seed), tell, WordText())
    chance = random.Random(seed)
    engine.add_request(
        [20 + chance.randrange(900) for _ in range(prompt_length)], max_new_tokens=max_new_tokens, prompt="a prompt"
    )
    while engine.step():
        pass
    if needle:
        for index in range(len(lanes)):
            answer = " The code word is amber." if index < 3 else " I do not know <b>any</b> word."
            log.append(NeedleSought(lane=index, request_id=0, word="amber", found=index < 3, answer=answer))
    numbered = [{"index": index, **one} for index, one in enumerate(lanes)]
    made_header = {**header(config), "lanes": numbered, "capabilities": list(capabilities)}
    if "commands" in capabilities:
        made_header["lane_choices"] = lane_choices()
    return made_header, log.records()


class ForgettingRunner(FakeRunner):
    """Keeps the last `budget` positions; `per_head`: each layer and head drops another one first."""

    def __init__(self, block_size: int, budget: int, *, per_head: bool) -> None:
        super().__init__(6)
        self.block_size = block_size
        self.budget = budget
        self.per_head = per_head
        self.kept: dict[int, list[list[set[int]]]] = {}
        self.returned: set[tuple[int, int]] = set()

    def run(self, step: int, segments: Sequence[Segment]) -> StepResult:
        """One step; what each segment leaves beyond the budget is dropped."""
        forgotten = {}
        for place, segment in enumerate(segments):
            layers, heads = (6, 2) if self.per_head else (1, 1)
            kept = self.kept.setdefault(segment.request_id, [[set() for _ in range(heads)] for _ in range(layers)])
            dropped: list[list[tuple[int, ...]]] = []
            for layer, row in enumerate(kept):
                dropped.append([])
                for head, one in enumerate(row):
                    one.update(range(segment.start, segment.length))
                    age = {p: (p * 7 + 5 * (layer + 7 * head)) % 11 + p // 4 for p in sorted(one)}
                    order = sorted(one, key=age.__getitem__)
                    gone = sorted(order[: max(0, len(order) - self.budget)])
                    one.difference_update(gone)
                    dropped[-1].append(tuple(gone))
            if not any(gone for row in dropped for gone in row):
                continue
            held = set().union(*(one for row in kept for one in row))
            empty = []
            for index in range(segment.length // self.block_size):
                block = range(index * self.block_size, (index + 1) * self.block_size)
                if held.isdisjoint(block) and (segment.request_id, index) not in self.returned:
                    self.returned.add((segment.request_id, index))
                    empty.append(index)
            forgotten[place] = Forgotten(
                policy="window", dropped=tuple(tuple(row) for row in dropped), empty_indices=empty
            )
        return replace(super().run(step, segments), forgotten=forgotten)


def forgetting_log(
    *, per_head: bool = False, budget: int = 12, max_new_tokens: int = 20
) -> tuple[dict[str, Any], list[list[Any]]]:
    """A lane's own log: a policy drops entries, and blocks in which nothing is kept are given back."""
    config = EngineConfig(num_blocks=24, block_size=4, prefill_chunk=64, prefix_cache=False)
    log = EventLog(config.num_blocks, config.block_size, max_records=10**9)
    engine = Engine(config, ForgettingRunner(4, budget, per_head=per_head), log.append, WordText())
    engine.add_request([30 + index for index in range(18)], max_new_tokens=max_new_tokens, prompt="a prompt")
    while engine.step():
        pass
    one = {"index": 2, **lane("window", "forgetting", budget=budget)}
    return {**header(config), "lane": one}, log.records()


def no_cache_log(max_new_tokens: int = 8) -> tuple[dict[str, Any], list[list[Any]]]:
    """A lane's own log: nothing is kept between two steps."""
    config = EngineConfig(
        num_blocks=24, block_size=4, prefill_chunk=64, prefix_cache=False, chunked_prefill=False, kv_cache=False
    )
    log = EventLog(config.num_blocks, config.block_size, max_records=10**9)
    engine = Engine(config, FakeRunner(6), log.append, WordText())
    engine.add_request([30 + index for index in range(9)], max_new_tokens=max_new_tokens, prompt="a prompt")
    while engine.step():
        pass
    return header(config), log.records()


def probe_log(num_probes: int = 4) -> tuple[dict[str, Any], list[list[Any]]]:
    """An attacker's guesses, timed."""
    config = EngineConfig(num_blocks=24, block_size=4, prefill_chunk=64)
    log = EventLog(config.num_blocks, config.block_size, max_records=10**9)
    engine = Engine(config, FakeRunner(6), log.append, WordText())
    for probe in range(num_probes):
        request = engine.add_request([30 + index for index in range(9)], max_new_tokens=1, prompt="a guess")
        while engine.step():
            pass
        log.append(
            ProbeTimed(
                request_id=request,
                probe=probe,
                shared=True,
                is_secret=probe > 0,
                says_secret=None if probe < 2 else True,
                first_token_us=9_000 if probe else 30_000,
                num_hit_tokens=8 if probe else 0,
            )
        )
    return header(config), log.records()


def measured(records: list[list[Any]], num_lanes: int, until: int | None = None) -> list[list[dict[str, Any]]]:
    """Per lane what was measured up to record `until`."""
    out: list[list[dict[str, Any]]] = [[] for _ in range(num_lanes)]
    for seq, _, event in records:
        if event["type"] == "lane_measured" and (until is None or seq <= until):
            out[event["lane"]].append(event)
    return out


def as_plain(records: Sequence[Any]) -> list[list[Any]]:
    """Records as a reader gets them."""
    plain: list[list[Any]] = json.loads(orjson.dumps(list(records)))
    return plain
