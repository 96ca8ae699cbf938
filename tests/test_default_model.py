"""The default weights through the paged cache, against transformers' own forward and `generate()`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from small_models import PagedRun, greedy_ids, plain_logits

from kvviz.config import EngineConfig
from kvviz.model.loading import LoadedModel
from kvviz.model.observed import ObservedModel
from kvviz.model.session import ModelSession
from kvviz.recording import Recording
from kvviz.scenarios import RECORDINGS, SCENARIOS, play
from kvviz.world import World

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
def observed(default_model: LoadedModel, expected: object) -> Iterator[ObservedModel]:
    model = ObservedModel(default_model.model, name=default_model.name, fingerprint=default_model.fingerprint)
    yield model
    model.close()


@pytest.mark.parametrize(("block_size", "chunk"), [(1, 64), (7, 5), (16, 64)])
def test_logits_and_tokens_equal_transformers(
    observed: ObservedModel,
    expected: tuple[list[int], list[int], torch.Tensor],
    block_size: int,
    chunk: int,
) -> None:
    ids, want, logits = expected
    config = EngineConfig(block_size=block_size, num_blocks=-(-len(want) // block_size) + 3, prefill_chunk=chunk)
    run = PagedRun(observed, config)
    assert run(ids, NUM_NEW) == want
    assert (run.logits - logits).abs().max() <= 1e-3


def test_the_geometry_is_that_of_the_paper_value(observed: ObservedModel) -> None:
    """30 layers, 3 KV heads of 64, fp32: 46,080 B a token."""
    assert len(observed.geometry.layers) == 30
    assert {layer.key_shape for layer in observed.geometry.layers} == {(3, 64)}
    assert observed.geometry.bytes_per_token == 2 * 30 * 3 * 64 * 4 == 46_080


def test_a_conversation_gives_the_tokens_of_a_run_from_scratch(
    observed: ObservedModel, default_model: LoadedModel
) -> None:
    def talk(*, prefix_cache: bool) -> list[list[int]]:
        config = EngineConfig(num_blocks=16, prefix_cache=prefix_cache)
        session = ModelSession(observed, default_model.tokenizer, config, measure_misses=False)
        first = session.add_prompt("Tell me about one planet.", max_new_tokens=24)
        session.run()
        session.add_prompt("And one more.", max_new_tokens=12, continues=first)
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


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_shipped_recording_is_what_the_model_does(
    scenario: object, observed: ObservedModel, default_model: LoadedModel
) -> None:
    """Tokens and digests of a fresh run equal those of the file; probabilities may differ in the last bits."""
    assert default_model.tokenizer is not None
    session = play(scenario, observed, default_model.tokenizer)  # type: ignore[arg-type]
    shipped = Recording.open(RECORDINGS / f"{scenario.name}.kvviz")  # type: ignore[attr-defined]

    def facts(records: object) -> list[tuple[object, ...]]:
        found = []
        for _, _, event in records:  # type: ignore[attr-defined]
            if event["type"] == "token_sampled":
                found.append((event["request_id"], event["position"], event["token_id"]))
            elif event["type"] == "step_finished":
                found.append((event["step"], event["digest"]))
        return found

    assert facts(session.log.records()) == facts(shipped.records())
    assert {"frames", "entries"} <= set(shipped.header["capabilities"])


def test_the_first_recording_shows_a_hit_and_an_eviction() -> None:
    kinds = {record[2]["type"] for record in Recording.open(RECORDINGS / "1-first-minute.kvviz").records()}
    assert {"block_shared", "block_evicted", "miss_measured"} <= kinds
