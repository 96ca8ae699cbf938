"""Frames and packs: what a page gets is what was captured, binned by summing, and never large."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from kvviz.errors import MissingError
from kvviz.log.frames import FrameStore, Norms, StepFrame
from kvviz.log.packs import MAX_COLUMNS, FrameSource, bin_columns, encode_pack, quantise_rows
from tests.support.packs import decode_pack

CHANCE = np.random.default_rng(0)


def frame_of(
    num_tokens: int,
    *,
    step: int = 1,
    request_id: int = 7,
    layers: int = 3,
    heads: int = 4,
    num_new: int = 1,
    num_norms: int | None = None,
) -> StepFrame:
    """A frame whose rows are softmax weights."""
    weights = CHANCE.random((layers, heads, num_tokens)) ** 4
    rows, scale = quantise_rows(weights / weights.sum(axis=-1, keepdims=True))
    norms = CHANCE.random((2, layers, num_norms or num_new)).astype(np.float16)
    return StepFrame(
        step=step,
        request_id=request_id,
        start=num_tokens - num_new,
        num_new=num_new,
        num_tokens=num_tokens,
        heads=rows,
        heads_scale=scale,
        key_norm=norms[0],
        value_norm=norms[1],
    )


class Frames(FrameSource):
    """Frames kept in a dictionary."""

    log_id = "the log"

    def __init__(self, *frames: StepFrame) -> None:
        self.frames = {frame.step: frame for frame in frames}

    def step_frame(self, step: int, request_id: int | None = None) -> StepFrame:
        assert request_id in (None, 7)
        return self.frames[step]

    def norms(self, request_id: int) -> list[Norms]:
        return [frame.norms for frame in self.frames.values() if frame.request_id == request_id]

    def entry(self, request_id: int, position: int, layer: int, write_seq: int) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(6, dtype=np.float64).reshape(2, 3), np.ones((2, 2))


def test_a_source_without_its_three_answers_cannot_be_made() -> None:
    class OnlyNorms(FrameSource):
        def norms(self, request_id: int) -> list[Norms]:
            return []

    with pytest.raises(TypeError, match=r"entry.*step_frame"):
        OnlyNorms()  # type: ignore[abstract]
    assert FrameSource.__abstractmethods__ == {"step_frame", "norms", "entry"}


def code_of(error: pytest.ExceptionInfo[MissingError]) -> str:
    return error.value.code


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"one": np.array([1, 2, 3], np.uint8)},
        {"odd": np.array([[1, 2, 3], [4, 5, 6]], np.uint8), "next": np.array([1.5, -2], np.float32)},
        {"half": np.array([[1.5], [np.nan], [np.inf]], np.float16), "empty": np.zeros((3, 0), np.float32)},
        {"big_endian": np.array([1, 2, 3], ">f4")},
        {"turned": np.arange(12, dtype=np.uint8).reshape(3, 4).T, "strided": np.arange(20, dtype=np.float32)[::3]},
        {"scalar": np.float32(3.5).reshape(())},
    ],
)
@pytest.mark.parametrize("head", [{}, {"kind": "step", "request_id": 3, "log_id": "ä"}])
def test_a_pack_goes_round(head: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    data = encode_pack(head, arrays)
    length = int.from_bytes(data[:4], "little")
    assert (4 + length) % 4 == len(data) % 4 == 0
    got_head, got = decode_pack(data)
    assert {name: got_head[name] for name in head} == head
    assert list(got) == list(arrays)
    for described in got_head["arrays"]:
        assert described["offset"] % 4 == 0
    for name, array in arrays.items():
        assert got[name].shape == array.shape
        np.testing.assert_array_equal(got[name], array)


def test_other_dtypes_have_no_name_on_the_wire() -> None:
    with pytest.raises(KeyError):
        encode_pack({}, {"wide": np.zeros(3, np.float64)})


@pytest.mark.parametrize("num_columns", [1, 2, 7, 16, 100, 513])
@pytest.mark.parametrize("size", [1, 2, 3, 16, 200])
def test_bins_are_sums(num_columns: int, size: int) -> None:
    rows = CHANCE.random((2, 3, num_columns))
    binned = bin_columns(rows, size)
    assert binned.shape == (2, 3, -(-num_columns // size))
    for column in range(binned.shape[-1]):
        expected = rows[..., column * size : (column + 1) * size].sum(axis=-1)
        np.testing.assert_allclose(binned[..., column], expected)
    np.testing.assert_allclose(binned.sum(axis=-1), rows.sum(axis=-1))


def test_quantised_rows_are_within_half_a_step() -> None:
    rows = CHANCE.random((5, 6, 40)) * np.logspace(-6, 3, 6)[:, None]
    rows[2, 3] = 0
    quantised, scale = quantise_rows(rows)
    assert quantised.dtype == np.uint8
    assert scale.dtype == np.float32
    assert scale.shape == (5, 6)
    assert np.all(np.abs(quantised * scale[..., None] - rows) <= scale[..., None] * 0.5001)
    assert scale[2, 3] == 0
    assert not quantised[2, 3].any()
    assert np.all(quantised.max(axis=-1)[scale > 0] == 255)


@pytest.mark.parametrize("num_tokens", [1, 2, 73, 511, 512, 513, 1_024, 1_025, 5_000])
@pytest.mark.parametrize("columns", [1, 40, MAX_COLUMNS, 10_000])
def test_a_step_pack_shows_the_frame(num_tokens: int, columns: int) -> None:
    frame = frame_of(num_tokens)
    head, arrays = decode_pack(Frames(frame).pack_step(1, 2, columns))
    size = head["bin"]
    num_columns = -(-num_tokens // size)
    assert num_columns <= min(columns, MAX_COLUMNS)
    assert size == 1 or -(-num_tokens // (size - 1)) > min(columns, MAX_COLUMNS), "bins are no wider than they must be"
    assert {name: head[name] for name in head if name not in ("arrays", "bin")} == {
        "kind": "step",
        "step": 1,
        "log_id": "the log",
        "request_id": 7,
        "layer": 2,
        "num_tokens": num_tokens,
        "start": num_tokens - 1,
        "num_new": 1,
    }
    weights = frame.heads * frame.heads_scale[..., None]
    for name, expected in (("mean", weights.mean(axis=1)), ("heads", weights[2])):
        binned = bin_columns(expected, size)
        assert arrays[name].shape == (len(expected), num_columns)
        got = arrays[name] * arrays[f"{name}_scale"][:, None]
        np.testing.assert_allclose(got, binned, atol=binned.max() / 255)
    np.testing.assert_array_equal(arrays["key_norm"], frame.key_norm)
    np.testing.assert_array_equal(arrays["value_norm"], frame.value_norm)


@pytest.mark.parametrize("num_tokens", [1, 100, 511, 512, 513, 1_023, 1_024, 2_048, 4_097, 8_192])
def test_a_step_pack_of_the_default_model_is_small_at_any_context(num_tokens: int) -> None:
    frame = frame_of(num_tokens, step=100_000, layers=30, heads=9)
    assert len(Frames(frame).pack_step(100_000, 29, 512)) <= 20.6 * 1024


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (80, 64), (126, 128), (3, 4_000)])
def test_a_step_pack_of_any_model_is_bounded(layers: int, heads: int) -> None:
    frame = frame_of(300, layers=layers, heads=heads)
    head, arrays = decode_pack(Frames(frame).pack_step(1, 0))
    assert arrays["mean"].size + arrays["heads"].size <= 512 * 39
    assert head["bin"] == -(-300 // arrays["mean"].shape[1]) or head["bin"] == 1


def test_only_norms_of_new_tokens_are_in_a_step_pack() -> None:
    frame = frame_of(10, num_new=3, num_norms=8)
    _, arrays = decode_pack(Frames(frame).pack_step(1, 0))
    np.testing.assert_array_equal(arrays["key_norm"], frame.key_norm[:, 5:])
    assert frame.norm_start == 2


@pytest.mark.parametrize("layer", [-1, 3, 10**9])
def test_a_layer_that_does_not_exist_is_missing(layer: int) -> None:
    frames = Frames(frame_of(5))
    for pack in (frames.pack_step, frames.pack_heads):
        with pytest.raises(MissingError, match="choose one from 0 to 2") as error:
            pack(1, layer)
        assert code_of(error) == "no_layer"


def test_head_rows_are_not_binned_and_a_sink_takes_the_rest() -> None:
    frame = frame_of(900)
    head, arrays = decode_pack(Frames(frame).pack_heads(1, 1))
    assert (head["kind"], head["layer"]) == ("heads", 1)
    np.testing.assert_array_equal(arrays["heads"], frame.heads[1])
    np.testing.assert_array_equal(arrays["heads_scale"], frame.heads_scale[1])
    assert "sink_share" not in arrays
    frame = frame_of(60)
    frame.heads_scale = frame.heads_scale * np.float32(0.75)
    _, arrays = decode_pack(Frames(frame).pack_heads(1, 1))
    np.testing.assert_allclose(arrays["sink_share"], 0.25, atol=0.02)


def test_norms_are_nan_where_none_were_kept() -> None:
    first, last = frame_of(4, step=1, num_new=4), frame_of(9, step=5, num_new=2)
    head, arrays = decode_pack(Frames(first, last).pack_norms(7))
    assert (head["kind"], head["request_id"]) == ("norms", 7)
    assert arrays["key_norm"].shape == (3, 9)
    np.testing.assert_array_equal(arrays["key_norm"][:, :4], first.key_norm)
    assert np.isnan(arrays["key_norm"][:, 4:7]).all()
    np.testing.assert_array_equal(arrays["value_norm"][:, 7:], last.value_norm)
    with pytest.raises(MissingError) as error:
        Frames().pack_norms(7)
    assert code_of(error) == "dropped"


def test_an_entry_is_sent_in_float32() -> None:
    head, arrays = decode_pack(Frames().pack_entry(7, 3, 1, 42))
    assert head["kind"] == "entry"
    assert (head["request_id"], head["position"], head["layer"], head["write_seq"]) == (7, 3, 1, 42)
    assert arrays["key"].dtype == arrays["value"].dtype == np.float32
    np.testing.assert_array_equal(arrays["key"], np.arange(6).reshape(2, 3))


def test_what_a_source_does_not_keep_is_missing() -> None:
    for ask in (Frames().pack_triangle, Frames().pack_scores):
        with pytest.raises(MissingError) as error:
            ask(1, 0, 0)
        assert code_of(error) == "not_captured"


def test_a_triangle_is_binned_and_scores_are_float32() -> None:
    class Triangles(Frames):
        def triangle(self, step: int, layer: int, head: int, request_id: int | None = None) -> tuple[int, np.ndarray]:
            return 5, weights

        def scores(self, step: int, layer: int, position: int, request_id: int | None = None) -> dict[str, np.ndarray]:
            return {"dot": np.ones(4), "scaled": np.ones(4), "weight": np.ones(4)}

    weights = CHANCE.random((6, 1_300))
    head, arrays = decode_pack(Triangles().pack_triangle(2, 1, 3))
    assert (head["kind"], head["start"], head["bin"], head["num_tokens"]) == ("triangle", 5, 3, 1_300)
    got = arrays["weights"] * arrays["weights_scale"][:, None]
    np.testing.assert_allclose(got, bin_columns(weights, 3), atol=3 / 255)
    head, arrays = decode_pack(Triangles().pack_scores(2, 1, 3))
    assert (head["kind"], head["position"]) == ("scores", 3)
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}


def test_the_oldest_frames_go_first() -> None:
    size = frame_of(100).num_bytes
    store = FrameStore(budget=3 * size + 5)
    for step in range(1, 8):
        store.add(frame_of(100, step=step))
        assert store.num_bytes <= store.budget
    assert store.steps() == [5, 6, 7]
    assert store.num_bytes == 3 * size
    assert store.get(5).step == 5
    with pytest.raises(MissingError, match="dropped") as dropped:
        store.get(4)
    assert code_of(dropped) == "dropped"
    with pytest.raises(MissingError) as missing:
        store.get(8)
    assert code_of(missing) == "no_such_step"


def test_a_step_keeps_a_frame_of_each_request_and_goes_as_a_whole() -> None:
    size = frame_of(100).num_bytes
    store = FrameStore(budget=7 * size + 5)
    for step in range(1, 4):
        store.add(*[frame_of(100, step=step, request_id=request_id) for request_id in (5, 9, 2)])
        assert store.num_bytes <= store.budget
    assert store.steps() == [2, 3]
    assert store.num_bytes == 6 * size
    assert [(frame.step, frame.request_id) for frame in store.frames()] == [(s, r) for s in (2, 3) for r in (5, 9, 2)]
    assert store.get(3).request_id == 5, "the first in the batch"
    for request_id in (5, 9, 2):
        assert store.get(2, request_id).request_id == request_id
        with pytest.raises(MissingError) as dropped:
            store.get(1, request_id)
        assert code_of(dropped) == "dropped"
    with pytest.raises(
        MissingError, match="Request 4 computed nothing in step 2; choose one that did: 5, 9, 2"
    ) as other:
        store.get(2, 4)
    assert code_of(other) == "not_in_step"
    with pytest.raises(MissingError) as missing:
        store.get(4, 5)
    assert code_of(missing) == "no_such_step"


def test_a_step_of_many_requests_names_a_few() -> None:
    store = FrameStore()
    store.add(*[frame_of(1, request_id=request_id) for request_id in range(1_000)])
    with pytest.raises(MissingError) as caught:
        store.get(1, 5_000)
    assert len(caught.value.message) < 120


def test_one_frame_is_kept_however_large() -> None:
    store = FrameStore(budget=10)
    store.add(frame_of(100, step=3))
    assert store.steps() == [3]
    store.add(frame_of(100, step=4))
    assert store.steps() == [4]


def test_a_frame_put_again_counts_once() -> None:
    store = FrameStore(budget=10**6)
    store.add(frame_of(100, step=1))
    store.add(frame_of(50, step=1))
    assert store.num_bytes == frame_of(50).num_bytes
    assert store.get(1).num_tokens == 50


def test_bytes_of_a_frame_are_those_of_all_its_arrays() -> None:
    frame = frame_of(10, layers=2, heads=3, num_new=2)
    assert frame.num_bytes == 2 * 3 * 10 + 2 * 3 * 4 + 2 * 2 * 2 * 2
    frame.queries = np.zeros((2, 3, 2, 8), np.float16)
    frame.slots = frame.seqs = np.zeros(10, np.int32)
    frame.entries = {"keys": np.zeros((2, 2, 16), np.uint8)}
    assert frame.num_bytes == 60 + 24 + 16 + 192 + 80 + 64


@pytest.mark.parametrize(("num_tokens", "moves"), [(40, False), (4_000, True)])
def test_a_large_frame_moves_to_memory_of_its_own_and_stays_the_same(num_tokens: int, moves: bool) -> None:
    frame = frame_of(num_tokens, layers=3, heads=9)
    frame.queries = CHANCE.random((3, 9, 1, 5)).astype(np.float16)
    frame.slots = np.arange(num_tokens, dtype=np.int32)
    frame.entries = {"keys": np.arange(21, dtype=np.uint8).reshape(3, 1, 7), "keys_scale": np.ones((3, 1), np.float32)}
    names = ("heads", "heads_scale", "queries", "slots", "key_norm", "value_norm")
    before = {name: getattr(frame, name).copy() for name in names}
    num_bytes, entries, norms = frame.num_bytes, dict(frame.entries), frame.norms
    frame.move_out()
    assert frame.num_bytes == num_bytes
    for name, array in before.items():
        assert getattr(frame, name).dtype == array.dtype
        np.testing.assert_array_equal(getattr(frame, name), array)
    for name, array in entries.items():
        np.testing.assert_array_equal(frame.entries[name], array)
    assert np.shares_memory(frame.entries["keys"], entries["keys"]) is not moves
    assert frame.key_norm is norms.key
    assert frame.seqs is None


def test_frames_are_read_while_others_are_added() -> None:
    store = FrameStore(budget=20 * frame_of(40).num_bytes)
    frames = [frame_of(40, step=step) for step in range(1, 400)]
    problems: list[BaseException] = []

    def read() -> None:
        try:
            while writer.is_alive():
                for step in store.steps():
                    try:
                        assert store.get(step).step == step
                    except MissingError as error:
                        assert error.code == "dropped"  # noqa: PT017
        except BaseException as error:
            problems.append(error)

    def write() -> None:
        for frame in frames:
            store.add(frame)

    writer = threading.Thread(target=write)
    reader = threading.Thread(target=read)
    writer.start()
    reader.start()
    writer.join()
    reader.join()
    assert problems == []
    assert store.steps() == list(range(380, 400))
