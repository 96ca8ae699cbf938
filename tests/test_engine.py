"""The engine against runners that fail or answer nonsense."""

from __future__ import annotations

import pytest

from kvviz.config import EngineConfig
from kvviz.engine import Engine
from kvviz.engine.runner import Sample, StepResult
from kvviz.log.event_log import EventLog
from kvviz.log.world import World
from tests.support.stub_engine import StubRunner


def result(*samples: Sample | None) -> StepResult:
    return StepResult(samples=samples, layers=(0,), layer_us=(0,), read_us=(0,), forward_us=0)


def sample(token_id: int) -> Sample:
    return Sample(token_id=token_id, candidates=((1, 1.0),), code="greedy", num_considered=1)


@pytest.mark.parametrize(
    "answer",
    [None, result(), result(None), result(sample(-1)), result(sample(2**32)), result(sample(1), sample(1))],
)
def test_a_step_with_an_unusable_answer_fails_its_request_and_nothing_else(answer: object) -> None:
    runner = StubRunner()
    log = EventLog(8, 4)
    engine = Engine(EngineConfig(num_blocks=8, block_size=4), runner, log.append)
    runner.run = lambda step, segments: answer  # type: ignore[method-assign, assignment, return-value]
    engine.add_request([1, 2, 3, 4, 5, 6, 7, 8, 9], max_new_tokens=2)
    with pytest.raises((ValueError, TypeError, AttributeError)):
        engine.step()
    assert not engine.has_work
    assert engine.pool.num_free == 8
    assert not engine.pool.cached, "nothing that was never written may be hit"
    world = World(8, 4)
    for record in log.records():
        world.apply(record)
    assert world.check is not None
    assert world.check["ok"]
    assert world.requests[0].finish == {"code": "failed", "token_id": None}
