"""The timing attack: what the attacker is given, what it is worth, and that a salt per tenant takes it away."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from kvviz.config import EngineConfig
from kvviz.errors import RequestError
from kvviz.experiments.timing import (
    NUM_LESSONS,
    SECRETS,
    TimingAttack,
    TimingAttacker,
    open_timing_attack,
)
from kvviz.log.world import World
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.loading import LoadedModel
from kvviz.model.prompt import PromptRequest
from kvviz.model.run import ModelRun
from tests.support.small_models import small_model
from tests.support.small_tokenizers import byte_level

SEEDS = range(5)
NUM_PROBES = 40


def test_the_attacker_is_given_nothing_but_times() -> None:
    """Its methods take floats, it has no constructor arguments, and it holds a number."""
    assert list(inspect.signature(TimingAttacker).parameters) == []
    methods = {name: each for name, each in vars(TimingAttacker).items() if inspect.isfunction(each)}
    assert set(methods) == {"__init__", "learn", "says_secret"}
    types = {
        name: [part.annotation for part in list(inspect.signature(each).parameters.values())[1:]]
        for name, each in methods.items()
    }
    assert types == {"__init__": [], "learn": ["Sequence[float]"] * 2, "says_secret": ["float"]}
    attacker = TimingAttacker()
    attacker.learn([30.0, 28.0, 300.0], [9.0, 10.0, 11.0])
    assert vars(attacker) == {"threshold_us": 23.5}  # 10 + 0.75 x (28 - 10)
    assert (attacker.says_secret(12.0), attacker.says_secret(29.0)) == (True, False)


class Watched(TimingAttacker):
    """Notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Any] = []

    def learn(self, *arguments: Any) -> None:
        self.given += [time for times in arguments for time in times]
        super().learn(*arguments)

    def says_secret(self, *arguments: Any) -> bool:
        self.given += arguments
        return super().says_secret(*arguments)


@pytest.fixture(scope="module")
def small() -> Iterator[InstrumentedModel]:
    model = small_model("llama", vocab_size=512, max_position_embeddings=512)
    model.generation_config.eos_token_id = None
    instrumented = InstrumentedModel(model, name="small", fingerprint="f" * 16)
    yield instrumented
    instrumented.close()


def attack(small: InstrumentedModel, *, shared: bool, seed: int = 0, num_probes: int = 12) -> TimingAttack:
    def make(instrumented: InstrumentedModel, tokenizer: Any, config: EngineConfig, **options: Any) -> ModelRun:
        assert options == {"measure_misses": False}
        return ModelRun(instrumented, tokenizer, EngineConfig(num_blocks=80, prefill_chunk=512), **options)

    return open_timing_attack(small, byte_level(), make, shared=shared, seed=seed, num_probes=num_probes)


@pytest.mark.parametrize("shared", [True, False])
def test_a_hit_is_what_was_guessed_and_nothing_carries_over(small: InstrumentedModel, shared: bool) -> None:
    """What the engine had cached of each probe: all full blocks after a right guess into a shared cache, else none."""
    played = attack(small, shared=shared)
    played.attacker = Watched()
    played.run()
    guesses = [probe for probe in played.probes if probe.says_secret is not None]
    assert len(guesses) == 12
    assert sum(probe.is_secret for probe in guesses) == 6
    for probe in guesses:
        assert (probe.num_hit_tokens > 0) is (shared and probe.is_secret)
    lessons = [probe for probe in played.probes if probe.says_secret is None]
    assert [probe.num_hit_tokens > 0 for probe in lessons] == [False, True] * (len(lessons) // 2)
    assert len(lessons) >= 2 * NUM_LESSONS
    assert {type(given) for given in played.attacker.given} == {float}
    assert {probe.shared for probe in played.probes} == {shared}


def test_its_log_folds_and_says_what_the_result_says(small: InstrumentedModel) -> None:
    played = attack(small, shared=True, num_probes=8)
    with pytest.raises(RequestError, match="hasn't guessed yet"):
        played.result()
    played.run()
    world = World(80, 16)
    events = []
    for record in played.model_run.log.records():
        world.apply(record)
        events.append(record[2])
    assert world.check is not None
    assert world.check["ok"]
    assert world.num_unknown == 0
    probes = [event for event in events if event["type"] == "probe_timed"]
    assert [probe["probe"] for probe in probes] == list(range(len(probes)))
    result = played.result()
    guesses = [probe for probe in probes if probe["says_secret"] is not None]
    assert result.accuracy == sum(probe["says_secret"] == probe["is_secret"] for probe in guesses) / 8
    assert result.right_us == tuple(probe["first_token_us"] for probe in guesses if probe["is_secret"])
    added = [event for event in events if event["type"] == "request_added"]
    assert len({event["prompt"] for event in added if any(name in event["prompt"] for name in SECRETS)}) > 8


def test_scripts_follow_the_seed(small: InstrumentedModel) -> None:
    def secrets(seed: int) -> list[bool]:
        played = attack(small, shared=True, seed=seed, num_probes=4)
        played.run()
        return [probe.is_secret for probe in played.probes]

    scripts = [secrets(seed) for seed in range(3)]
    assert secrets(1) == scripts[1]
    assert scripts[0] != scripts[1] or scripts[1] != scripts[2]


def test_a_prompt_of_somebody_else_beside_it_does_not_stop_it(small: InstrumentedModel) -> None:
    played = attack(small, shared=True, num_probes=4)
    played.step()
    other = played.model_run.add_prompt(PromptRequest("hello hello world", template=False, max_new_tokens=3))
    while played.has_work:
        played.step()
        if played.model_run.engine.scheduler.waiting and other >= 0:
            waiting = played.model_run.engine.scheduler.waiting[-1].request_id
            if waiting != other:
                played.model_run.engine.cancel(waiting)  # a person cancels one of its prompts
                other = -1
    assert len([probe for probe in played.probes if probe.says_secret is not None]) in (3, 4)


@pytest.fixture(scope="module")
def instrumented(default_model: LoadedModel) -> Iterator[InstrumentedModel]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # fewer threads that wait for each other, steadier times
    model = InstrumentedModel(default_model.model, name=default_model.name, fingerprint=default_model.fingerprint)
    yield model
    model.close()
    torch.set_num_threads(before)


def noisy_clock(seed: int) -> Callable[[Any], int]:
    """Half a millisecond for each token that had to be computed, and 2 ms; one time in eight it is up to twice that."""
    chance = random.Random(seed)

    def clock(request: Any) -> int:
        time_us = 2_000 + 500 * (request.num_prompt_tokens - request.num_hit_tokens)
        return round(time_us * (chance.uniform(1.0, 1.1) if chance.random() < 0.875 else chance.uniform(1.1, 2.0)))

    return clock


@pytest.mark.slow
@pytest.mark.parametrize(("shared", "least", "most"), [(True, 0.9, 1.0), (False, 0.4, 0.6)])
def test_a_noisy_clock_gives_a_shared_secret_away_and_leaves_chance_of_a_salted_one(
    small: InstrumentedModel, shared: bool, least: float, most: float
) -> None:
    accuracies = []
    for seed in range(3):
        played = attack(small, shared=shared, seed=seed, num_probes=20)
        played.clock = noisy_clock(seed)
        played.run()
        accuracies.append(played.result().accuracy)
    assert least <= sum(accuracies) / len(accuracies) <= most


def test_a_hit_is_faster_on_the_default_model(instrumented: InstrumentedModel, default_model: LoadedModel) -> None:
    """A short run by the real clock: the fastest hit takes less than half of the fastest miss.

    A busy machine makes single steps slower, never faster: minima stay comparable.
    """
    assert default_model.tokenizer is not None
    played = open_timing_attack(instrumented, default_model.tokenizer, ModelRun, shared=True, num_probes=4)
    played.model_run.runner.capture = False
    played.run()
    result = played.result()
    assert min(result.right_us) < min(result.wrong_us) / 2


def pooled(instrumented: InstrumentedModel, model: LoadedModel, *, shared: bool) -> float:
    """Share of rightly judged guesses over all seeds."""
    assert model.tokenizer is not None
    results = []
    for seed in SEEDS:
        attack = open_timing_attack(
            instrumented, model.tokenizer, ModelRun, shared=shared, seed=seed, num_probes=NUM_PROBES
        )
        attack.model_run.runner.capture = False
        attack.run()
        results.append(attack.result())
    for result in results:
        assert len(result.right_us) == len(result.wrong_us) == NUM_PROBES // 2
    accuracy = sum(result.accuracy for result in results) / len(results)
    print(f"shared={shared}: {accuracy:.1%} of {NUM_PROBES * len(results)} guesses")
    return accuracy


@pytest.mark.prove
def test_a_shared_cache_gives_the_secret_away(instrumented: InstrumentedModel, default_model: LoadedModel) -> None:
    assert pooled(instrumented, default_model, shared=True) >= 0.9


@pytest.mark.prove
def test_a_salt_per_tenant_leaves_chance(instrumented: InstrumentedModel, default_model: LoadedModel) -> None:
    assert 0.4 <= pooled(instrumented, default_model, shared=False) <= 0.6
