"""The default weights through the paged cache, against transformers' own forward and `generate()`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch

from kvviz.config import EngineConfig
from kvviz.experiments.scenarios import RECORDINGS, find_scenario, open_performance
from kvviz.log.recording import Recording
from kvviz.log.world import World
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.loading import LoadedModel
from kvviz.model.prompt import PromptRequest
from kvviz.model.run import ModelRun
from tests.support.sample import sampled
from tests.support.small_models import PagedRun, greedy_ids, plain_logits

PROMPT = "Gravity explains why the tides of the sea follow the Moon, and also why"
NUM_NEW = 24


@pytest.fixture(scope="module", autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def expected(default_model: LoadedModel) -> tuple[list[int], list[int], torch.Tensor]:
    """Prompt ids, all ids of `generate()`, and plain logits of all but the last."""
    assert default_model.tokenizer is not None
    ids = list(default_model.tokenizer(PROMPT)["input_ids"])
    want = greedy_ids(default_model.model, ids, NUM_NEW)
    return ids, want, plain_logits(default_model.model, want[:-1])


@pytest.fixture
def instrumented(default_model: LoadedModel, expected: object) -> Iterator[InstrumentedModel]:
    model = InstrumentedModel(default_model.model, name=default_model.name, fingerprint=default_model.fingerprint)
    yield model
    model.close()


@pytest.mark.parametrize(("block_size", "chunk"), sampled([(1, 64), (7, 5), (16, 64)], always=[(7, 5)], per_group=0))
def test_logits_and_tokens_equal_transformers(
    instrumented: InstrumentedModel,
    expected: tuple[list[int], list[int], torch.Tensor],
    block_size: int,
    chunk: int,
) -> None:
    ids, want, logits = expected
    config = EngineConfig(block_size=block_size, num_blocks=-(-len(want) // block_size) + 3, prefill_chunk=chunk)
    run = PagedRun(instrumented, config)
    assert run(ids, NUM_NEW) == want
    assert (run.logits - logits).abs().max() <= 1e-3


def test_the_geometry_is_that_of_the_paper_value(instrumented: InstrumentedModel) -> None:
    """30 layers, 3 KV heads of 64, fp32: 46,080 B a token."""
    assert len(instrumented.geometry.layers) == 30
    assert {layer.key_shape for layer in instrumented.geometry.layers} == {(3, 64)}
    assert instrumented.geometry.bytes_per_token == 2 * 30 * 3 * 64 * 4 == 46_080


def test_a_conversation_gives_the_tokens_of_a_run_from_scratch(
    instrumented: InstrumentedModel, default_model: LoadedModel
) -> None:
    def talk(*, prefix_cache: bool) -> list[list[int]]:
        config = EngineConfig(num_blocks=16, prefix_cache=prefix_cache)
        session = ModelRun(instrumented, default_model.tokenizer, config, measure_misses=False)
        first = session.add_prompt(PromptRequest("Tell me about one planet.", max_new_tokens=18))
        session.run()
        session.add_prompt(PromptRequest("And one more.", max_new_tokens=6, continues=first))
        session.run()
        world = World(16, 16)
        for record in session.log.records():
            world.apply(record)
        assert world.check is not None
        assert world.check["ok"]
        assert (world.requests[1].num_hit_tokens > world.requests[0].prompt_length) is prefix_cache
        assert world.requests[1].tokens[: len(world.requests[0].tokens)] == world.requests[0].tokens
        return [request.tokens for request in world.requests.values()]

    assert talk(prefix_cache=True) == talk(prefix_cache=False)


def make(*arguments: Any, **options: Any) -> ModelRun:
    return ModelRun(*arguments, keep_entries=False, **options)


@pytest.mark.parametrize(
    "name",
    sampled(["first-minute", "preempt_swap", "fork_tree", "changed_letter"], always=["changed_letter"], per_group=0),
)
def test_a_scenario_is_what_its_recording_says_and_what_generate_says(
    name: str, instrumented: InstrumentedModel, default_model: LoadedModel
) -> None:
    """A fresh run has the tokens and digests of the file that ships, and each request the tokens of `generate()`."""
    assert default_model.tokenizer is not None
    scenario = find_scenario(name)
    performance = open_performance(scenario, instrumented, default_model.tokenizer, make)
    performance.run()
    records = performance.model_run.log.records()
    shipped = Recording.open(RECORDINGS / f"{scenario.name}.kvviz")
    assert facts(records) == facts(shipped.records())
    shipped.close()
    world = World(scenario.config.num_blocks, scenario.config.block_size)
    for record in records:
        world.apply(record)
    end = default_model.model.generation_config.eos_token_id
    stops = set(end if isinstance(end, list) else [end])
    instrumented.close()
    try:
        for request in world.requests.values():
            start = request.prompt_length if request.fork is None else request.fork["position"] + 1
            want = greedy_ids(default_model.model, request.tokens[:start], len(request.tokens) - start)
            assert request.tokens == want, f"request {request.id}"
            assert not stops & set(request.tokens[start:-1])
    finally:
        instrumented.door.open()


def facts(records: Iterable[list[Any]]) -> list[tuple[object, ...]]:
    """Tokens and digests."""
    found: list[tuple[object, ...]] = []
    for _, _, event in records:
        if event["type"] == "token_sampled":
            found.append((event["request_id"], event["position"], event["token_id"]))
        elif event["type"] == "step_finished":
            found.append((event["step"], event["digest"]))
    return found
