"""Sampling against distributions computed here, in float64 and without torch."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from kvviz.config import EngineConfig
from kvviz.engine.runner import Sample
from kvviz.errors import ConfigError
from kvviz.events import SamplingParams
from kvviz.model.sampler import Sampler, keep_likely
from tests.support.stub_engine import stub_engine

VOCABULARY = 50


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def logits_of(seed: int = 0, spread: float = 3.0, size: int = VOCABULARY) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread


def softmax(logits: torch.Tensor, temperature: float = 1.0) -> np.ndarray:
    scaled = logits.double().numpy() / temperature
    powers = np.exp(scaled - scaled.max())
    return np.asarray(powers / powers.sum())


def kept_by(probabilities: np.ndarray, top_k: int, top_p: float) -> list[int]:
    """Ids left after top-k, then the fewest of them that together have `top_p` of what is left."""
    ranked = sorted(range(len(probabilities)), key=lambda token_id: -probabilities[token_id])
    ranked = ranked[: top_k or None]
    whole, so_far, kept = sum(probabilities[token_id] for token_id in ranked), 0.0, []
    for token_id in ranked:
        kept.append(token_id)
        so_far += probabilities[token_id]
        if so_far >= top_p * whole and top_p < 1:
            break
    return kept


def drawn(sampler: Sampler, count: int, params: SamplingParams, logits: torch.Tensor, request_id: int = 0) -> list[int]:
    return [sampler.sample(request_id, logits, params).token_id for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_greedy_is_the_largest_logit(seed: int) -> None:
    logits = logits_of(seed)
    sample = Sampler(seed, 10).sample(0, logits, SamplingParams(top_k=3, top_p=0.1))
    assert sample.token_id == int(np.argmax(logits.numpy()))
    assert (sample.code, sample.num_considered) == ("greedy", 1)
    assert sample.candidates[0][0] == sample.token_id


def test_greedy_takes_the_first_of_equals() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0, 2.0])
    assert Sampler(0, 2).sample(0, logits, SamplingParams()).token_id == 1


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.5])
def test_candidates_are_the_most_probable_with_their_probability(temperature: float) -> None:
    logits = logits_of(3)
    sample = Sampler(0, 8).sample(0, logits, SamplingParams(temperature=temperature, top_k=2, top_p=0.5))
    expected = softmax(logits, temperature or 1.0)
    assert [token_id for token_id, _ in sample.candidates] == kept_by(expected, 8, 1.0)
    np.testing.assert_allclose(
        [probability for _, probability in sample.candidates],
        [expected[token_id] for token_id, _ in sample.candidates],
        rtol=1e-4,
    )


def test_probabilities_of_all_tokens_sum_to_1() -> None:
    for temperature in (0.0, 0.7, 1.0, 5.0):
        sample = Sampler(0, VOCABULARY).sample(0, logits_of(1), SamplingParams(temperature=temperature))
        assert len(sample.candidates) == VOCABULARY
        assert math.isclose(sum(probability for _, probability in sample.candidates), 1, abs_tol=1e-5)


def test_no_more_candidates_than_tokens() -> None:
    assert len(Sampler(0, 50).sample(0, logits_of(size=3), SamplingParams()).candidates) == 3


@pytest.mark.parametrize("top_k", [0, 1, 2, 7, 49, 50, 1_000])
@pytest.mark.parametrize("top_p", [1.0, 0.99, 0.9, 0.5, 0.1, 1e-6, 0.0])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_kept(top_k: int, top_p: float, seed: int) -> None:
    logits = logits_of(seed, spread=1.5)
    params = SamplingParams(temperature=0.8, top_k=top_k, top_p=top_p)
    expected = softmax(logits, 0.8)
    kept_ids, kept = keep_likely(torch.softmax(logits / 0.8, -1), params)
    assert kept_ids.tolist() == kept_by(expected, top_k, top_p)
    np.testing.assert_allclose(kept.numpy(), expected[kept_ids.numpy()], rtol=1e-4)
    sample = Sampler(seed, 5).sample(0, logits, params)
    assert sample.token_id in kept_ids.tolist()
    assert (sample.code, sample.num_considered) == ("sampled", len(kept_ids))


def test_only_kept_tokens_are_drawn_and_all_of_them() -> None:
    logits = logits_of(5, spread=1.0)
    params = SamplingParams(temperature=1.0, top_k=6, top_p=0.9)
    assert set(drawn(Sampler(0, 5), 600, params, logits)) == set(kept_by(softmax(logits), 6, 0.9))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.5),
        SamplingParams(temperature=2.0, top_k=12),
        SamplingParams(temperature=1.0, top_p=0.8),
        SamplingParams(temperature=1.3, top_k=20, top_p=0.7),
    ],
)
def test_draws_follow_the_distribution(params: SamplingParams) -> None:
    """Chi-square of 2,000 draws with a fixed seed; tokens that are expected less than 5 times are one."""
    logits, count = logits_of(7, spread=1.2), 2_000
    probabilities = softmax(logits, params.temperature)
    kept = kept_by(probabilities, params.top_k, params.top_p)
    share = probabilities[kept] / probabilities[kept].sum()
    draws = drawn(Sampler(11, 1), count, params, logits)
    instrumented = np.array([draws.count(token_id) for token_id in kept])
    assert instrumented.sum() == count
    often = share * count >= 5
    wanted = np.append(share[often], share[~often].sum()) * count
    got = np.append(instrumented[often], instrumented[~often].sum())
    square = ((got - wanted)[wanted > 0] ** 2 / wanted[wanted > 0]).sum()
    freedom = int((wanted > 0).sum()) - 1
    assert square < freedom + 4 * math.sqrt(2 * freedom), "further off than 4 standard deviations"


def test_seeds_reproduce_and_requests_differ() -> None:
    logits, params = logits_of(2, spread=0.5), SamplingParams(temperature=1.0)
    first = drawn(Sampler(4, 5), 40, params, logits)
    assert drawn(Sampler(4, 5), 40, params, logits) == first
    assert drawn(Sampler(5, 5), 40, params, logits) != first
    sampler = Sampler(4, 5)
    assert drawn(sampler, 40, params, logits, request_id=1) != first
    assert drawn(sampler, 40, params, logits, request_id=0) == first, "another request does not disturb"


def test_a_request_may_bring_its_own_seed() -> None:
    logits, params = logits_of(2, spread=0.5), SamplingParams(temperature=1.0, seed=99)
    first = drawn(Sampler(4, 5), 40, params, logits, request_id=3)
    assert drawn(Sampler(8, 5), 40, params, logits, request_id=6) == first
    assert drawn(Sampler(4, 5), 40, SamplingParams(temperature=1.0, seed=100), logits, request_id=3) != first


def test_a_forgotten_request_starts_anew() -> None:
    logits, params, sampler = logits_of(2, spread=0.5), SamplingParams(temperature=1.0), Sampler(4, 5)
    first = drawn(sampler, 20, params, logits)
    sampler.forget(0)
    sampler.forget(12)
    assert drawn(sampler, 20, params, logits) == first


def test_sampling_does_not_touch_the_global_generator() -> None:
    before = torch.get_rng_state()
    drawn(Sampler(0, 5), 5, SamplingParams(temperature=1.0), logits_of())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e-6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_tiny_temperature_is_greedy(temperature: float, dtype: torch.dtype) -> None:
    logits = (logits_of(9) * 10).to(dtype)
    sample = Sampler(0, 5).sample(0, logits, SamplingParams(temperature=temperature))
    assert sample.token_id == int(logits.argmax())
    assert sample.candidates[0] == (sample.token_id, 1.0)


def test_tokens_that_are_ruled_out_are_never_drawn() -> None:
    logits = logits_of(1)
    logits[::2] = -math.inf
    sampled = drawn(Sampler(0, 5), 300, SamplingParams(temperature=3.0), logits)
    assert all(token_id % 2 for token_id in sampled)


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**63 - 1])
def test_any_seed_is_taken(seed: int) -> None:
    params = SamplingParams(temperature=1.0)
    assert isinstance(Sampler(seed, 5).sample(10**6, logits_of(), params), Sample)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=-1.0),
        SamplingParams(temperature=math.nan),
        SamplingParams(temperature=math.inf),
        SamplingParams(top_k=-1),
        SamplingParams(top_k=2.5),  # type: ignore[arg-type]
        SamplingParams(top_p=-0.1),
        SamplingParams(top_p=1.5),
        SamplingParams(top_p=math.nan),
        SamplingParams(top_p="all"),  # type: ignore[arg-type]
        SamplingParams(seed=-1),
        SamplingParams(seed=2**64),
    ],
)
def test_the_engine_refuses_settings_without_meaning(params: SamplingParams) -> None:
    engine, _ = stub_engine(EngineConfig())
    with pytest.raises(ConfigError, match=r"must be .* \(got") as caught:
        engine.add_request([1, 2, 3], sampling=params)
    assert caught.value.details["setting"] in caught.value.message
    assert engine.num_requests == 0
    assert not engine.has_work
