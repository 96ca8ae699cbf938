"""A model session: prompts become requests, conversations go on, and a failure is survived."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kvviz.config import EngineConfig
from kvviz.engine.runner import Segment, StepResult
from kvviz.errors import RequestError
from kvviz.log.world import World
from kvviz.model import run as module
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.prompt import PromptRequest
from kvviz.model.run import ModelRun
from tests.support.small_models import small_model
from tests.support.small_tokenizers import byte_level


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


def session_of(instrumented: InstrumentedModel, **options: Any) -> ModelRun:
    return ModelRun(instrumented, byte_level(), EngineConfig(num_blocks=32, block_size=4, prefill_chunk=16), **options)


def events_of(session: ModelRun, kind: str) -> list[dict[str, Any]]:
    return [event for _, _, event in session.log.records() if event["type"] == kind]


def check(session: ModelRun) -> None:
    world = World(session.config.num_blocks, session.config.block_size)
    for record in session.log.records():
        world.apply(record)
    assert world.broken is None
    assert world.check is not None
    assert world.check["ok"]
    assert world.digest() == session.engine.digest()


def test_the_text_of_a_prompt_is_what_the_model_gets(instrumented: InstrumentedModel) -> None:
    session = session_of(instrumented)
    session.add_prompt(PromptRequest("hello <script> 你好", max_new_tokens=1))
    session.add_prompt(PromptRequest("hello <script> 你好", max_new_tokens=1, template=False))
    templated, plain = events_of(session, "request_added")
    assert "".join(piece["text"] for piece in plain["pieces"]) == plain["prompt"] == "hello <script> 你好"
    whole = "".join(piece["text"] for piece in templated["pieces"])
    assert whole == "<|im_start|>user\nhello <script> 你好<|im_end|>\n<|im_start|>assistant\n"
    assert (templated["template"], plain["template"]) == (True, False)


@pytest.mark.parametrize("template", [True, False])
def test_a_conversation_resends_its_tokens_and_hits_them(instrumented: InstrumentedModel, template: bool) -> None:
    session = session_of(instrumented)
    first = session.add_prompt(PromptRequest("hello world", max_new_tokens=6, template=template))
    session.run()
    second = session.add_prompt(PromptRequest("and then?", max_new_tokens=3, template=template, continues=first))
    session.run()
    added = events_of(session, "request_added")
    known = added[0]["token_ids"] + [event["token_id"] for event in events_of(session, "token_sampled")[:6]]
    assert added[1]["token_ids"][: len(known)] == known
    assert added[1]["continues"] == first
    looked_up = events_of(session, "prefix_looked_up")[1]
    assert looked_up["request_id"] == second
    assert looked_up["num_hit_tokens"] == (len(known) - 1) // 4 * 4
    measured = events_of(session, "miss_measured")
    assert [event["request_id"] for event in measured] == [second]
    assert measured[0]["num_tokens"] == len(added[1]["token_ids"])
    assert measured[0]["first_token_us"] > 0
    check(session)


def test_what_cannot_be_continued_is_refused(instrumented: InstrumentedModel) -> None:
    session = session_of(instrumented)
    running = session.add_prompt(PromptRequest("hello", max_new_tokens=4))
    for request_id, reason in ((running, "still running"), (99, "unknown")):
        with pytest.raises(RequestError, match=reason) as caught:
            session.add_prompt(PromptRequest("more", continues=request_id))
        assert caught.value.code == "no_request"


def test_more_requests_may_wait_than_conversations_are_remembered(
    instrumented: InstrumentedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_HISTORIES", 3)
    session = session_of(instrumented)
    ids = [
        session.add_prompt(PromptRequest(f"hello {number}", max_new_tokens=2, template=False)) for number in range(7)
    ]
    session.run()
    assert [event["request_id"] for event in events_of(session, "request_finished")] == ids
    check(session)
    session.add_prompt(PromptRequest("more", max_new_tokens=1, template=False, continues=ids[-1]))
    with pytest.raises(RequestError):
        session.add_prompt(PromptRequest("more", max_new_tokens=1, template=False, continues=ids[0]))
    session.run()
    check(session)


def test_a_failed_step_ends_its_request_and_no_other(
    instrumented: InstrumentedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig(num_blocks=32, block_size=4, prefill_chunk=16, max_running=1)
    session = ModelRun(instrumented, byte_level(), config)
    runner, real = session.engine.runner, session.engine.runner.run

    def fail(step: int, segments: list[Segment]) -> StepResult:
        real(step, segments)
        raise RuntimeError("out of luck")

    session.add_prompt(PromptRequest("hello world of tokens", max_new_tokens=4, template=False))
    session.add_prompt(PromptRequest("hello world of tokens", max_new_tokens=4, template=False))
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run", fail)
        with pytest.raises(RuntimeError, match="out of luck"):
            session.step()
    session.run()
    reasons = [event["reason"]["code"] for event in events_of(session, "request_finished")]
    assert reasons == ["failed", "length"]
    assert events_of(session, "prefix_looked_up")[1]["num_hit_tokens"] == 0, "what was not written is not hit"
    check(session)
    steps = [frame.step for frame in session.recorded_frames()]
    assert steps == sorted(steps)
