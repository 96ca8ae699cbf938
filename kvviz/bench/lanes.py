"""What lanes cost: a second lane, and decoding from fewer bits."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from kvviz.comparison.calibration import CalibratedModel
from kvviz.comparison.comparison import Comparison
from kvviz.comparison.lane import parse_lanes
from kvviz.config import EngineConfig
from kvviz.model.instrumented import InstrumentedModel

CONTEXT = 512
NUM_STEPS = 12
NUM_ROUNDS = 5
#: Second lanes: one that reads as many bytes as the reference, and one that reads as many as query heads would.
SECOND = ("no-prefix", "mha")
#: What is measured against the reference, in this order.
BITS = ("int8", "int4")


@dataclass(frozen=True, slots=True)
class LanesResult:
    """Ratios at `context` tokens, medians over the rounds.

    `two_lanes` [second lane]: steps of a comparison with that exact lane ÷ of the reference alone. `decode` [codec]:
    time of a decode from fp32 ÷ of one from that codec, both in one comparison.
    """

    context: int
    two_lanes: dict[str, float]
    decode: dict[str, float]


def measure_lanes(instrumented: InstrumentedModel) -> LanesResult:
    calibrated = CalibratedModel(instrumented, None)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 1_000, (CONTEXT,), generator=generator).tolist()
    ratios: dict[str, list[float]] = {name: [] for name in SECOND}
    decodes: dict[str, list[float]] = {name: [] for name in BITS}
    for _ in range(NUM_ROUNDS):
        for name in SECOND:  # the one lane beside each, for machines change their pace
            alone, _ = _run(instrumented, calibrated, ["gqa"], ids)
            both, _ = _run(instrumented, calibrated, ["gqa", name], ids)
            ratios[name].append(both / alone)
        _, times = _run(instrumented, calibrated, ["gqa", *BITS], ids)
        for index, name in enumerate(BITS, 1):
            decodes[name].append(times[0] / times[index])
    return LanesResult(CONTEXT, _medians(ratios), _medians(decodes))


def _medians(values: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(each) for name, each in values.items()}


def _run(
    instrumented: InstrumentedModel, calibrated: CalibratedModel, specs: list[str], ids: list[int]
) -> tuple[float, list[float]]:
    """Seconds of the decode steps, and each lane's median time of one in µs."""
    comparison = Comparison(instrumented, None, EngineConfig(), parse_lanes(specs), calibrated=calibrated)
    comparison.add_tokens(ids, max_new_tokens=NUM_STEPS + 1)
    events = comparison.main.log
    while not any(event["type"] == "token_sampled" for _, _, event in events.records()):
        comparison.step()
    first = events.head_seq
    began = time.perf_counter()
    for _ in range(NUM_STEPS):
        comparison.step()
    seconds = time.perf_counter() - began
    measured = [event for _, _, event in events.records(first) if event["type"] == "lane_measured"]
    times = [
        statistics.median(event["step_us"] for event in measured if event["lane"] == index)
        for index in range(len(specs))
    ]
    return seconds, times
