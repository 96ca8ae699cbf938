"""The same config, seed and commands give the same log, times aside; another seed gives another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
import torch

from kvviz.config import EngineConfig
from kvviz.events import Event, SamplingParams
from kvviz.log.world import World
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.prompt import PromptRequest
from kvviz.model.run import ModelRun
from tests.support.small_models import small_model
from tests.support.small_tokenizers import byte_level
from tests.support.stub_engine import StubRunner, as_json, stub_engine

SAMPLED = SamplingParams(temperature=1.0)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def instrumented() -> Iterator[InstrumentedModel]:
    """A small random Llama over the small byte-level vocabulary."""
    model = InstrumentedModel(small_model("llama", vocab_size=len(byte_level())), name="tiny", fingerprint="tiny")
    yield model
    model.close()


def without_times(data: Any) -> Any:
    """The same without fields whose names end in `_us`."""
    if isinstance(data, dict):
        return {name: without_times(value) for name, value in data.items() if not name.endswith("_us")}
    return [without_times(item) for item in data] if isinstance(data, list) else data


def stub_run(seed: int, sampling: SamplingParams) -> list[Any]:
    events: list[Event] = []
    config = EngineConfig(num_blocks=10, block_size=4, prefill_chunk=8, seed=seed)
    engine, _ = stub_engine(config, StubRunner(seed=seed), events.append)
    for number in range(6):
        engine.add_request([number % 2, *range(12), number], max_new_tokens=9, sampling=sampling)
        for _ in range(4):
            engine.step()
        if number == 3:
            engine.cancel(3)
        while engine.step():
            pass
    engine.reset_prefix_cache()
    return [without_times(as_json(event)) for event in events]


def model_run(instrumented: InstrumentedModel, seed: int, sampling: SamplingParams) -> list[Any]:
    config = EngineConfig(num_blocks=16, block_size=4, prefill_chunk=16, seed=seed)
    session = ModelRun(instrumented, byte_level(), config)
    first = session.add_prompt(
        PromptRequest("hello world of tokens", max_new_tokens=6, **asdict(sampling), template=True)
    )
    session.run()
    session.add_prompt(PromptRequest("and 你好", max_new_tokens=5, **asdict(sampling), continues=first))
    session.run()
    session.add_prompt(PromptRequest("hello world of tokens, again", max_new_tokens=6, **asdict(sampling)))
    session.step()
    session.step()
    session.run()
    records = session.log.records()
    world = World(config.num_blocks, config.block_size)
    for record in records:
        world.apply(record)
    assert world.check is not None
    assert world.check["ok"]
    return [[seq, without_times(event)] for seq, _, event in records]


def tokens_of(log: list[Any]) -> list[int]:
    events = [entry[1] if isinstance(entry, list) else entry for entry in log]
    return [event["token_id"] for event in events if event["type"] == "token_sampled"]


def types_of(log: list[Any]) -> set[str]:
    return {(entry[1] if isinstance(entry, list) else entry)["type"] for entry in log}


def test_times_are_stripped_wherever_they_are() -> None:
    data = {"type": "x", "step_us": 3, "kept": [{"a": 1, "layer_us": [1, 2]}], "bus": 4}
    assert without_times(data) == {"type": "x", "kept": [{"a": 1}], "bus": 4}


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED, SamplingParams(temperature=0.7, top_k=5, seed=3)])
def test_two_runs_of_the_engine_give_the_same_log(sampling: SamplingParams) -> None:
    first = stub_run(7, sampling)
    assert {"block_shared", "block_evicted", "prefix_cache_reset"} <= types_of(first)
    assert stub_run(7, sampling) == first


def test_another_seed_gives_another_log() -> None:
    assert tokens_of(stub_run(7, SAMPLED)) != tokens_of(stub_run(8, SAMPLED))
    assert stub_run(7, SamplingParams()) == stub_run(8, SamplingParams()), "greedy knows no seed"


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED])
def test_two_runs_of_a_model_give_the_same_log(instrumented: InstrumentedModel, sampling: SamplingParams) -> None:
    first = model_run(instrumented, 7, sampling)
    assert {"block_shared", "miss_measured", "token_sampled"} <= types_of(first)
    assert model_run(instrumented, 7, sampling) == first


def test_another_seed_gives_another_text(instrumented: InstrumentedModel) -> None:
    first, second = (tokens_of(model_run(instrumented, seed, SAMPLED)) for seed in (7, 8))
    assert first != second
    greedy = [tokens_of(model_run(instrumented, seed, SamplingParams())) for seed in (7, 8)]
    assert greedy[0] == greedy[1]


def test_a_request_with_its_own_seed_is_the_same_in_every_run(instrumented: InstrumentedModel) -> None:
    sampling = SamplingParams(temperature=1.0, seed=5)
    assert tokens_of(model_run(instrumented, 7, sampling)) == tokens_of(model_run(instrumented, 8, sampling))


def test_prefill_chunks_and_block_sizes_do_not_change_the_tokens(instrumented: InstrumentedModel) -> None:
    found = []
    for block_size, prefill_chunk in ((1, 100), (4, 7), (16, 1)):
        config = EngineConfig(num_blocks=128, block_size=block_size, prefill_chunk=prefill_chunk, seed=1)
        session = ModelRun(instrumented, byte_level(), config, measure_misses=False)
        session.add_prompt(PromptRequest("hello world of tokens", max_new_tokens=12, **asdict(SAMPLED)))
        session.run()
        found.append(tokens_of([record[2] for record in session.log.records()]))
    assert found[0] == found[1] == found[2]
