"""Several requests in one step: each one's frames are those of its own run, also in a file, wherever blocks went."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from kvviz.config import EngineConfig
from kvviz.errors import MissingError
from kvviz.log.frames import StepFrame
from kvviz.log.recording import Recording
from kvviz.log.recording_writer import write_recording
from kvviz.log.world import World
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.run import ModelRun
from tests.support.packs import decode_pack
from tests.support.small_models import WINDOW, prompt_ids, small_model

PROMPTS = [prompt_ids(length, seed) for length, seed in ((11, 1), (26, 2), (5, 3))]
NUM_NEW = 9


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=["llama", "mistral"])
def instrumented(request: pytest.FixtureRequest) -> Iterator[InstrumentedModel]:
    """A small random model, without and with a window."""
    settings: dict[str, Any] = {"sliding_window": WINDOW} if request.param == "mistral" else {}
    model = InstrumentedModel(small_model(request.param, **settings), name=request.param, fingerprint="tiny")
    yield model
    model.close()


def session_of(instrumented: InstrumentedModel, **options: Any) -> ModelRun:
    sizes: dict[str, Any] = {"num_blocks": 64, "block_size": 4, "prefill_chunk": 8, "max_running": 3, **options}
    return ModelRun(instrumented, None, EngineConfig(**sizes), keep_entries=True, measure_misses=False)


def run_together(instrumented: InstrumentedModel) -> ModelRun:
    session = session_of(instrumented)
    for token_ids in PROMPTS:
        session.engine.add_request(token_ids, max_new_tokens=NUM_NEW)
    session.run()
    return session


def weights(frame: StepFrame) -> np.ndarray:
    found: np.ndarray = frame.heads * frame.heads_scale[..., None]
    return found


def test_rows_of_each_request_are_those_of_its_own_run(instrumented: InstrumentedModel) -> None:
    together = run_together(instrumented)
    frames = together.frames.store.frames()
    assert max(sum(frame.step == step for frame in frames) for step in together.frames.store.steps()) == 3
    for request_id, token_ids in enumerate(PROMPTS):
        session = session_of(instrumented)
        session.engine.add_request(token_ids, max_new_tokens=NUM_NEW)
        session.run()
        alone = {frame.num_tokens: frame for frame in session.frames.store.frames()}
        mine = [frame for frame in frames if frame.request_id == request_id]
        assert sum(frame.num_new for frame in mine) == len(token_ids) + NUM_NEW - 1
        compared = [frame for frame in mine if frame.num_tokens in alone]
        assert len(compared) >= NUM_NEW
        for frame in compared:
            other = alone[frame.num_tokens]
            step = np.maximum(frame.heads_scale, other.heads_scale)[..., None]
            assert np.all(np.abs(weights(frame) - weights(other)) <= 1.5 * step + 1e-6)
            np.testing.assert_allclose(frame.key_norm[:, -1], other.key_norm[:, -1], rtol=2e-3)
            np.testing.assert_allclose(frame.value_norm[:, -1], other.value_norm[:, -1], rtol=2e-3)
        _, norms = decode_pack(together.frames.pack_norms(request_id))
        _, expected = decode_pack(session.frames.pack_norms(request_id=0))
        np.testing.assert_allclose(norms["key_norm"], expected["key_norm"], rtol=2e-3)


def test_a_request_is_asked_for_by_its_id(instrumented: InstrumentedModel) -> None:
    frames = run_together(instrumented).frames
    of_step: dict[int, list[int]] = {}
    for frame in frames.store.frames():
        of_step.setdefault(frame.step, []).append(frame.request_id)
    for step, request_ids in of_step.items():
        assert decode_pack(frames.pack_step(step, 0))[0]["request_id"] == request_ids[0], "the first of the batch"
        for request_id in range(3):
            if request_id in request_ids:
                for pack in (frames.pack_step, frames.pack_heads):
                    head, _ = decode_pack(pack(step, 1, request_id=request_id))
                    assert (head["step"], head["request_id"]) == (step, request_id)
                continue
            with pytest.raises(MissingError, match=f"Request {request_id} computed nothing in step {step}") as caught:
                frames.pack_step(step, 0, request_id=request_id)
            assert caught.value.code == "not_in_step"
    if instrumented.name == "mistral":  # what left its window is gone, and q·k with it
        return
    step = next(step for step, request_ids in of_step.items() if len(request_ids) == 3)
    for request_id in range(3):
        frame = frames.step_frame(step, request_id)
        start, triangle = frames.triangle(step, 0, 2, request_id)
        assert (start, triangle.shape) == (frame.start, (frame.num_new, frame.num_tokens))
        np.testing.assert_allclose(triangle[-1], weights(frame)[0, 2], atol=0.01)
        scores = frames.scores(step, 0, frame.start, request_id)
        np.testing.assert_allclose(scores["weight"], weights(frame)[0, :, frame.start], atol=1e-6)
        seen = np.where(frame.slots >= 0, frames.slots.slot_seq[frame.slots], -1)  # type: ignore[index]
        np.testing.assert_array_equal(frame.seqs, seen)


def test_a_recording_holds_every_request_of_a_step(instrumented: InstrumentedModel) -> None:
    session = run_together(instrumented)
    target = io.BytesIO()
    lines = session.log.encoded(-1, session.log.head_seq + 1)
    write_recording(target, session.header(), lines, session.recorded_frames())
    live = session.frames
    with contextlib.closing(Recording.open(target.getvalue())) as recording:
        for frame in live.store.frames():
            asked = frame.step, 1
            for name, pack in (("pack_step", recording.pack_step), ("pack_heads", recording.pack_heads)):
                head, arrays = decode_pack(pack(*asked, request_id=frame.request_id))
                expected_head, expected = decode_pack(getattr(live, name)(*asked, request_id=frame.request_id))
                assert head["request_id"] == expected_head["request_id"] == frame.request_id
                for array, values in expected.items():
                    np.testing.assert_array_equal(arrays[array], values, err_msg=array)
        for step in live.store.steps():
            assert recording.step_frame(step).request_id == live.step_frame(step).request_id
        for request_id in range(3):
            got, expected = (decode_pack(source.pack_norms(request_id))[1] for source in (recording, live))
            np.testing.assert_array_equal(got["key_norm"], expected["key_norm"])


def moving(instrumented: InstrumentedModel) -> Iterator[ModelRun]:
    """After each step: forks, requests that are swapped out and in, prefixes that come back from the host tier."""
    num_blocks = 20 if instrumented.name == "llama" else 11
    session = session_of(
        instrumented, num_blocks=num_blocks, num_host_blocks=64, offload=True, preemption="swap", max_running=4
    )
    short, long, shortest = PROMPTS
    session.engine.add_request(short, max_new_tokens=25, num_samples=2)
    for token_ids in (long, shortest, long, short):
        session.engine.add_request(token_ids, max_new_tokens=25)
    while session.step():
        yield session
    for token_ids in (long, short):
        session.engine.add_request(token_ids, max_new_tokens=5)
    while session.step():
        yield session


@pytest.mark.slow
def test_entries_are_found_by_their_write_wherever_they_are(instrumented: InstrumentedModel) -> None:
    seen: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}
    world, at = None, 0
    for session in moving(instrumented):
        world = world or World(session.config.num_blocks, session.config.block_size)
        for record in session.log.records()[at:]:
            world.apply(record)
            at += 1
        for request_id, position, seq, _ in world.slots.values():
            key, value = session.frames.entry(request_id, position, 2, seq)
            first = seen.setdefault((request_id, position, seq), (key, value))
            assert np.array_equal((key, value), first), (request_id, position, seq)
    assert world is not None
    assert world.broken is None
    kinds = {record[2]["type"] for record in session.log.records()}
    assert {"block_copied", "blocks_swapped_out", "blocks_swapped_in", "block_offloaded"} <= kinds
    assert instrumented.name == "llama" or "block_fetched" in kinds
    target = io.BytesIO()
    lines = session.log.encoded(-1, session.log.head_seq + 1)
    write_recording(target, session.header(), lines, session.recorded_frames())
    with contextlib.closing(Recording.open(target.getvalue())) as recording:
        for (request_id, position, seq), entry in seen.items():
            for got, exact in zip(recording.entry(request_id, position, 2, seq), entry, strict=True):
                np.testing.assert_allclose(got, exact, atol=np.abs(exact).max() / 100)


def test_a_failed_step_leaves_no_frame(instrumented: InstrumentedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(instrumented)
    for token_ids in PROMPTS[:2]:
        session.engine.add_request(token_ids, max_new_tokens=3)
    session.step()

    def fail(*_: Any) -> Any:
        raise RuntimeError("as told")

    with monkeypatch.context() as patch:
        patch.setattr(session.runner, "on_step", lambda taken: (session.frames.capture(taken), fail()))
        with pytest.raises(RuntimeError):
            session.step()
    session.engine.add_request(PROMPTS[2], max_new_tokens=2)
    session.run()
    assert 2 not in session.frames.store.steps()
