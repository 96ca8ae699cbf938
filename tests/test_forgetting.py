"""Forgetting policies against their definitions, written out slowly with lists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.errors import ConfigError
from kvviz.model.forgetting import POLICIES, ForgettingPolicy, LayerView

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "cases" / "engine.json").read_text(encoding="utf-8"))
    if case["id"].startswith("ev-")
}

Rows = list[list[float]]


class Layer:
    """One layer of one request, from step to step: it forgets as the policy says, and checks what a cache relies on."""

    def __init__(self, policy: ForgettingPolicy, num_heads: int, prompt_length: int, num_query_heads: int = 0) -> None:
        self.policy = policy
        self.prompt_length = prompt_length
        self.num_query_heads = num_query_heads or num_heads
        self.num_tokens = 0
        self.positions: list[list[int]] = [[] for _ in range(num_heads)]
        self.scores: Rows = [[] for _ in range(num_heads)]

    def step(self, num_new: int, weights: Rows) -> None:
        """Compute `num_new` tokens, in which the entries, the new ones included, got these weights."""
        new = list(range(self.num_tokens, self.num_tokens + num_new))
        self.num_tokens += num_new
        known = {
            "positions": torch.tensor([row + new for row in self.positions]),
            "weights": torch.tensor(weights, dtype=torch.float64),
            "num_queries": num_new,
            "num_query_heads": self.num_query_heads,
            "prompt_length": self.prompt_length,
            "num_tokens": self.num_tokens,
        }
        before = torch.tensor([row + [0.0] * num_new for row in self.scores], dtype=torch.float64)
        scores = self.policy.score(LayerView(scores=before, **known))  # type: ignore[arg-type]
        assert scores.shape == before.shape
        kept = self.policy.keep(LayerView(scores=scores, **known))  # type: ignore[arg-type]
        if kept is None:
            kept = torch.ones_like(scores, dtype=torch.bool)
        assert kept.dtype == torch.bool
        assert kept.shape == scores.shape
        assert len(set(kept.sum(1).tolist())) == 1
        self.positions = [row[mask].tolist() for row, mask in zip(known["positions"], kept, strict=True)]  # type: ignore[arg-type]
        self.scores = [row[mask].tolist() for row, mask in zip(scores, kept, strict=True)]


def _best(scores: Sequence[float], count: int) -> list[int]:
    """Where the highest scores are, in order of place; of equal ones the first."""
    return sorted(sorted(range(len(scores)), key=lambda at: (-scores[at], at))[:count])


@st.composite
def _weights(draw: st.DrawFn, num_heads: int, num_entries: int) -> Rows:
    """Sixteenths, whose sums are exact and often equal."""
    seed = draw(st.integers(0, 2**32 - 1))
    coarse = draw(st.sampled_from([2, 5, 1000]))
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, coarse, (num_heads, num_entries), generator=generator)
    rows: Rows = (drawn / 16).tolist()
    return rows


@st.composite
def _chunks(draw: st.DrawFn) -> list[int]:
    """Tokens of each step: a prompt in parts, then one at a time."""
    return draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)) + [1] * draw(st.integers(0, 8))


def test_every_policy_describes_itself() -> None:
    assert set(POLICIES) == {"window", "sinks", "h2o", "tova", "snapkv"}
    for name, policy in POLICIES.items():
        told = policy.describe()
        assert (told["name"], told["family"], told["exact"], told["value"]) == (name, "forgetting", False, "budget")
        budget = next(option for option in told["options"] if option["name"] == "budget")
        assert (budget["default"], budget["low"], budget["high"]) == (64, 2, 65_536)
        assert told["about"].startswith("Drops")
        assert told["about"].endswith(".")


def test_what_each_policy_asks_for() -> None:
    asked = {
        name: (policy.num_watched, policy.whole_prompt, policy.reindexed, policy.window_size)
        for name, policy in ((name, POLICIES.make(name, {"budget": 20})) for name in POLICIES)
    }
    assert asked == {
        "window": (0, False, False, 20),
        "sinks": (0, False, True, None),
        "h2o": (-1, False, False, None),
        "tova": (1, False, False, None),
        "snapkv": (16, True, False, None),
    }
    assert POLICIES.make("snapkv", {"window": 7}).num_watched == 7
    assert POLICIES.make("snapkv", {}).num_watched == 16


@settings(deadline=None)
@given(st.data())
def test_window_forgets_nothing_itself(data: st.DataObject) -> None:
    layer = Layer(POLICIES.make("window", {"budget": 2}), 2, 9)
    layer.step(9, data.draw(_weights(2, 9)))
    assert layer.positions == [list(range(9))] * 2


@settings(deadline=None)
@given(st.data())
def test_sinks_keep_the_first_and_the_newest(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, 5))
    budget = data.draw(st.integers(max(2, start + 1), 12))
    chunks = data.draw(_chunks())
    layer = Layer(POLICIES.make("sinks", {"budget": budget, "start": start}), 2, chunks[0])
    length = 0
    for num_new in chunks:
        layer.step(num_new, data.draw(_weights(2, len(layer.positions[0]) + num_new)))
        length += num_new
        want = [at for at in range(length) if at < start or at >= length - (budget - start)]
        assert layer.positions == [want, want]


@settings(deadline=None)
@given(st.data())
def test_h2o_keeps_the_newest_and_in_each_head_the_heaviest_of_the_others(data: st.DataObject) -> None:
    budget = data.draw(st.integers(2, 12))
    chunks = data.draw(_chunks())
    layer = Layer(POLICIES.make("h2o", {"budget": budget}), 3, chunks[0])
    sums: list[dict[int, float]] = [{}, {}, {}]  # by head, of the positions that are left
    length = 0
    for num_new in chunks:
        length_before, length = length, length + num_new
        weights = data.draw(_weights(3, len(sums[0]) + num_new))
        for head, left in enumerate(sums):
            left.update(dict.fromkeys(range(length_before, length), 0.0))
            for position, weight in zip(sorted(left), weights[head], strict=True):
                left[position] += weight
            if len(left) > budget:
                order = sorted(left)
                older, newest = order[: -(budget - budget // 2)], order[-(budget - budget // 2) :]
                heavy = [older[at] for at in _best([left[position] for position in older], budget // 2)]
                sums[head] = {position: left[position] for position in heavy + newest}
        layer.step(num_new, weights)
        assert layer.positions == [list(left) for left in sums]
        assert layer.scores == [list(left.values()) for left in sums]


@settings(deadline=None)
@given(st.data())
def test_tova_keeps_what_the_last_query_attends_to_in_all_heads(data: st.DataObject) -> None:
    budget = data.draw(st.integers(2, 12))
    chunks = data.draw(_chunks())
    layer = Layer(POLICIES.make("tova", {"budget": budget}), 2, chunks[0], num_query_heads=8)
    left: list[int] = []
    length = 0
    for num_new in chunks:
        left += range(length, length + num_new)
        length += num_new
        weights = data.draw(_weights(2, len(left)))
        means = [sum(column) / 8 for column in zip(*weights, strict=True)]
        at = _best(means, min(budget, len(left)))
        left = [left[index] for index in at]
        layer.step(num_new, weights)
        assert layer.positions == [left, left]
        assert layer.scores == [[means[index] for index in at]] * 2


def test_tova_can_forget_the_newest() -> None:
    layer = Layer(POLICIES.make("tova", {"budget": 2}), 1, 3)
    layer.step(3, [[0.5, 0.4, 0.1]])
    assert layer.positions == [[0, 1]]


@settings(deadline=None)
@given(st.data())
def test_snapkv_compresses_the_prompt_once(data: st.DataObject) -> None:
    window = data.draw(st.integers(1, 6))
    budget = data.draw(st.integers(window + 1, 14))
    kernel = data.draw(st.sampled_from([1, 3, 5]))
    prompt = data.draw(st.integers(1, 30))
    layer = Layer(POLICIES.make("snapkv", {"budget": budget, "window": window, "kernel": kernel}), 2, prompt)
    weights = data.draw(_weights(2, prompt))
    want: list[list[int]] = []
    for row in weights:
        prefix = row[:-window]
        half = kernel // 2
        pooled = [
            sum(prefix[near] for near in range(at - half, at + half + 1) if 0 <= near < len(prefix)) / kernel
            for at in range(len(prefix))
        ]
        chosen = _best(pooled, budget - window) if prompt >= budget else list(range(len(prefix)))
        want.append(chosen + list(range(len(prefix), prompt)))
    layer.step(prompt, weights)
    assert layer.positions == want
    before = layer.positions
    for number in range(3):
        layer.step(1, data.draw(_weights(2, len(before[0]) + number + 1)))
    assert layer.positions == [[*row, prompt, prompt + 1, prompt + 2] for row in before]


def test_snapkv_waits_for_the_end_of_the_prompt() -> None:
    policy = POLICIES.make("snapkv", {"budget": 4, "window": 2})
    layer = Layer(policy, 1, 12)
    layer.step(6, [[1.0] * 6])
    assert layer.positions == [list(range(6))]


def _kept(policy: ForgettingPolicy, length: int, seed: int = 0) -> list[int]:
    """What is left of a prompt of that length, computed in one step."""
    layer = Layer(policy, 1, length)
    layer.step(length, [torch.rand(length, generator=torch.Generator().manual_seed(seed)).tolist()])
    return layer.positions[0]


def _replay(case: dict[str, Any], step: dict[str, Any]) -> Any:
    setup = case["setup"]
    match setup["method"]:
        case "streaming_llm":
            budget = setup["start"] + setup["recent"]
            return _kept(POLICIES.make("sinks", {"budget": budget, "start": setup["start"]}), step["seq"])
        case "kvpress_streaming":
            budget = int(step["seq"] * (1 - step["compression_ratio"]))
            return _kept(POLICIES.make("sinks", {"budget": budget, "start": setup["n_sink"]}), step["seq"])
        case "h2o_ratio":
            length = step["prompt"]
            heavy, recent = int(setup["heavy"] * length), int(setup["recent"] * length)
            layer = Layer(POLICIES.make("h2o", {"budget": heavy + recent}), 1, length)
            rising = [float(at % 7 == 3) for at in range(length - recent)] + [0.0] * recent
            layer.step(length, [rising])
            kept = layer.positions[0]
            newest = sum(position >= length - recent for position in kept)
            return {"heavy": len(kept) - newest, "recent": newest, "cache": len(kept)}
        case "snapkv":
            options = {"budget": setup["capacity"], "window": setup["window"], "kernel": setup["kernel"]}
            kept = _kept(POLICIES.make("snapkv", options), step["prompt"])
            window = range(step["prompt"] - setup["window"], step["prompt"])
            assert kept[-setup["window"] :] == list(window)
            return len(kept)
    raise AssertionError(f"unknown method {setup['method']}")


@pytest.mark.parametrize("case_id", ["ev-streaming", "ev-kvpress-streaming", "ev-h2o-budget", "ev-snapkv"])
def test_case(case_id: str) -> None:
    case = CASES[case_id]
    assert [_replay(case, step) for step in case["steps"]] == case["expect"]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("window", {"budget": 1}, "budget"),
        ("h2o", {"budget": 65_537}, "budget"),
        ("tova", {"start": 4}, "no option 'start'"),
        ("sinks", {"budget": 4}, "more than start"),
        ("sinks", {"budget": 9, "start": 12}, "more than start"),
        ("snapkv", {"budget": 16}, "more than window"),
        ("snapkv", {"kernel": 4}, "odd"),
    ],
)
def test_options_have_limits(name: str, options: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        POLICIES.make(name, options)
