"""The cost of lanes: a second lane, and decoding from quantized entries."""

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
#: Second lanes: one reads as many bytes as the reference, the other stores K and V for every query head.
SECOND = ("no-prefix", "mha")
#: Codecs that are compared with the reference.
BITS = ("int8", "int4")


@dataclass(frozen=True, slots=True)
class LanesResult:
    """Ratios at `context` tokens, medians over the rounds.

    `two_lanes` maps a second, exact lane to the time of a comparison with it ÷ the time of the reference alone.
    `decode` maps a codec to the time of a decode step from fp32 ÷ from that codec, within one comparison.
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
        for name in SECOND:  # measure one lane again each time, since speed drifts
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
    """Seconds of all decode steps, and each lane's median decode step in µs."""
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
