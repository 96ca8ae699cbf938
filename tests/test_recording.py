"""The recording file: it goes round, and whatever else comes is refused in one sentence."""

from __future__ import annotations

import contextlib
import functools
import io
import random
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from kvviz.config import EngineConfig
from kvviz.errors import KvvizError, MissingError, RecordingError
from kvviz.events import Event, KvWritten
from kvviz.log import recording as module
from kvviz.log.frames import StepFrame
from kvviz.log.packs import quantise_rows
from kvviz.log.recording import Recording
from kvviz.log.recording_writer import write_recording
from kvviz.log.world import World
from tests.support.packs import decode_pack
from tests.support.stub_engine import as_json, busy_log

LAYERS, HEADS, KV_HEADS, DIM = 2, 4, 2, 3
Members = dict[str, bytes]


@functools.cache
def run() -> tuple[EngineConfig, list[Event], list[bytes]]:
    config, events = busy_log(30)
    return config, events, [orjson.dumps([seq, seq * 10, event]) for seq, event in enumerate(events)]


def header(**changes: Any) -> dict[str, Any]:
    config = run()[0]
    layer = {"cache": "kv", "key_shape": [KV_HEADS, DIM], "value_shape": [KV_HEADS, DIM]}
    return {
        "format": 1,
        "kvviz": "0.1.0",
        "source": "live",
        "title": "A run",
        "capabilities": ["commands", "entries", "frames", "triangle"],
        "model": {
            "name": "stub",
            "num_layers": LAYERS,
            "layers": [{"index": index, **layer} for index in range(LAYERS)],
        },
        "pool": {"num_blocks": config.num_blocks, "block_size": config.block_size, "bytes_per_token": 96},
        **changes,
    }


@functools.cache
def frames() -> tuple[StepFrame, ...]:
    """A frame for each of the first steps that wrote anything."""
    chance, step = np.random.default_rng(0), 0
    found: list[StepFrame] = []
    for event in run()[1]:
        step = getattr(event, "step", step)
        if not isinstance(event, KvWritten) or len(found) == 5:
            continue
        num_new, num_tokens = len(event.positions), event.positions[-1] + 1
        heads, scale = quantise_rows(chance.random((LAYERS, HEADS, num_tokens)))
        norms = chance.random((2, LAYERS, num_new)).astype(np.float16)
        entries: dict[str, np.ndarray] = {}
        for name in ("keys", "values"):
            entries[name] = chance.integers(1, 256, (LAYERS, num_new, KV_HEADS * DIM), np.uint8)
            entries[f"{name}_scale"] = chance.random((LAYERS, num_new)).astype(np.float32)
        found.append(
            StepFrame(
                step=step,
                request_id=event.request_id,
                start=event.positions[0],
                num_new=num_new,
                num_tokens=num_tokens,
                heads=heads,
                heads_scale=scale,
                key_norm=norms[0],
                value_norm=norms[1],
                entries=entries,
            )
        )
    return tuple(found)


@functools.cache
def whole() -> bytes:
    target = io.BytesIO()
    write_recording(target, header(), run()[2], frames())
    return target.getvalue()


def members_of(data: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def packed(members: Members) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target.getvalue()


def with_member(name: str, data: bytes) -> bytes:
    return packed({**members_of(whole()), name: data})


def with_header(**changes: Any) -> bytes:
    return with_member("header.json", orjson.dumps(header(**changes)))


def with_events(change: Callable[[list[Any]], list[Any]]) -> bytes:
    records = change([orjson.loads(line) for line in run()[2]])
    return with_member("events.ndjson", b"".join(orjson.dumps(record) + b"\n" for record in records))


def npy(array: np.ndarray, **options: Any) -> bytes:
    target = io.BytesIO()
    np.lib.format.write_array(target, array, **options)
    return target.getvalue()


def one_sentence(error: KvvizError) -> None:
    assert error.message == str(error)
    assert error.message.strip()
    assert "\n" not in error.message
    assert error.message.endswith((".", ")"))
    assert len(error.message) < 300
    assert error.code


def refused(data: bytes, code: str = "bad_recording") -> RecordingError:
    with pytest.raises(RecordingError) as caught:
        Recording.open(data).close()
    one_sentence(caught.value)
    assert caught.value.code == code
    return caught.value


def asked_for_everything(recording: Recording) -> Iterator[Callable[[], object]]:
    """Every question that a page may ask of a recording."""
    layers = (0, LAYERS, -1)
    for step in (*range(7), 10**6):
        for layer in layers:
            yield functools.partial(recording.pack_step, step, layer)
            yield functools.partial(recording.pack_heads, step, layer)
            yield functools.partial(recording.pack_step, step, layer, request_id=1)
            yield functools.partial(recording.pack_heads, step, layer, 10**6)
        yield functools.partial(recording.pack_triangle, step, 0, 0)
        yield functools.partial(recording.pack_scores, step, 0, 0, 1)
    for request_id in (0, 99):
        yield functools.partial(recording.pack_norms, request_id)
        for seq, event in enumerate(run()[1][:40]):
            if isinstance(event, KvWritten):
                for position in (event.positions[0], event.positions[-1], 10**6):
                    for layer in layers:
                        yield functools.partial(recording.pack_entry, request_id, position, layer, seq)


def opens_or_says_why(data: bytes) -> bool:
    """Open a file and ask it for everything; nothing but one sentence of ours may come of it."""
    try:
        recording = Recording.open(data)
    except RecordingError as error:
        one_sentence(error)
        return False
    with contextlib.closing(recording):
        for ask in asked_for_everything(recording):
            try:
                ask()
            except (RecordingError, MissingError) as error:
                one_sentence(error)
    return True


# What is written is read.


def test_it_goes_round() -> None:
    config, events, lines = run()
    with contextlib.closing(Recording.open(whole())) as recording:
        assert recording.lines == lines
        assert list(recording.records()) == [[seq, seq * 10, as_json(event)] for seq, event in enumerate(events)]
        assert recording.header == header(source="recording", capabilities=["entries", "frames"])
        assert (recording.num_unknown, recording.num_steps) == (0, 30)
        world = World(config.num_blocks, config.block_size)
        for record in recording.records():
            world.apply(record)
        assert world.check is not None
        assert world.check["ok"]
        for frame in frames():
            read = recording.step_frame(frame.step, frame.request_id)
            for name in ("step", "request_id", "start", "num_new", "num_tokens"):
                assert getattr(read, name) == getattr(frame, name)
            for name in ("heads", "heads_scale", "key_norm", "value_norm"):
                np.testing.assert_array_equal(getattr(read, name), getattr(frame, name))


def with_old_names(members: Members) -> Members:
    """Members as they were named when a step computed one request: `frames/STEP.…`."""
    return {re.sub(r"/(\d+)-\d+\.", r"/\1.", name): data for name, data in members.items()}


def test_an_old_file_has_one_frame_a_step() -> None:
    chunks = chunks_of_steps()
    alone = [frame for frame in frames() if len(chunks[frame.step]) == 1]
    assert alone
    with contextlib.closing(Recording.open(packed(with_old_names(members_of(whole()))))) as recording:
        for frame in frames():
            if frame not in alone:
                with pytest.raises(MissingError) as caught:
                    recording.step_frame(frame.step, frame.request_id)
                assert caught.value.code == "no_such_step"
        for frame in alone:
            for request_id in (None, frame.request_id):
                read = recording.step_frame(frame.step, request_id)
                assert read.request_id == frame.request_id
                np.testing.assert_array_equal(read.heads, frame.heads)
            with pytest.raises(MissingError) as caught:
                recording.step_frame(frame.step, 10**6)
            assert caught.value.code == "not_in_step"
        seq = next(seq for seq, event in enumerate(run()[1]) if isinstance(event, KvWritten))
        key, _ = recording.entry(frames()[0].request_id, frames()[0].start, 1, seq)
        assert key.shape == (KV_HEADS, DIM)


def chunks_of_steps() -> dict[int, list[int]]:
    chunks: dict[int, list[int]] = {}
    step = 0
    for event in run()[1]:
        step = getattr(event, "step", step)
        if isinstance(event, KvWritten):
            chunks.setdefault(step, []).append(event.request_id)
    return chunks


def test_entries_go_round() -> None:
    by_step = {(frame.step, frame.request_id): frame for frame in frames()}
    step = 0
    with contextlib.closing(Recording.open(whole())) as recording:
        for seq, event in enumerate(run()[1]):
            step = getattr(event, "step", step)
            if not isinstance(event, KvWritten) or (step, event.request_id) not in by_step:
                continue
            entries = by_step[step, event.request_id].entries
            for index, position in enumerate(event.positions):
                key, value = recording.entry(event.request_id, position, 1, seq)
                for got, name in ((key, "keys"), (value, "values")):
                    expected = (entries[name][1, index].astype(np.float32) - 128) * entries[f"{name}_scale"][1, index]
                    np.testing.assert_array_equal(got, expected.reshape(KV_HEADS, DIM))
            with pytest.raises(MissingError, match="wrote no entry"):
                recording.entry(event.request_id, event.positions[-1] + 1, 1, seq)
            with pytest.raises(MissingError, match="wrote no entry"):
                recording.entry(event.request_id + 1, event.positions[0], 1, seq)


def test_norms_of_a_request_are_laid_end_to_end() -> None:
    with contextlib.closing(Recording.open(whole())) as recording:
        _, arrays = decode_pack(recording.pack_norms(0))
        of_request = [frame for frame in frames() if frame.request_id == 0]
        expected = np.concatenate([frame.key_norm for frame in of_request], axis=1)
        np.testing.assert_array_equal(arrays["key_norm"], expected)


def test_equal_content_makes_equal_files(tmp_path: Path) -> None:
    write_recording(tmp_path / "a.kvviz", header(), run()[2], frames())
    assert (tmp_path / "a.kvviz").read_bytes() == whole()


@pytest.mark.parametrize("kind", ["path", "name", "bytes", "stream"])
def test_it_is_opened_from_many_things(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "run.kvviz"
    path.write_bytes(whole())
    source: Any = {"path": path, "name": str(path), "bytes": whole(), "stream": io.BytesIO(whole())}[kind]
    with contextlib.closing(Recording.open(source)) as recording:
        assert recording.num_steps == 30


def test_without_frames_it_says_so() -> None:
    target = io.BytesIO()
    write_recording(target, header(), run()[2])
    with contextlib.closing(Recording.open(target.getvalue())) as recording:
        assert recording.header["capabilities"] == []
        with pytest.raises(MissingError) as caught:
            recording.pack_step(1, 0)
        assert caught.value.code == "no_such_step"
        with pytest.raises(MissingError) as caught:
            recording.pack_norms(0)
        assert caught.value.code == "dropped"


def test_norms_may_be_left_out() -> None:
    members = {name: data for name, data in members_of(whole()).items() if "_norm" not in name}
    with contextlib.closing(Recording.open(packed(members))) as recording:
        frame = recording.step_frame(frames()[0].step)
        assert np.isnan(frame.key_norm).all()
        assert frame.key_norm.shape == (LAYERS, frame.num_new)


# Writing is all or nothing.


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "run.kvviz"
    path.write_bytes(b"what was there before")

    def breaking() -> Iterator[bytes]:
        yield run()[2][0]
        assert path.read_bytes() == b"what was there before"
        raise MissingError("The log is gone.")

    with pytest.raises(MissingError):
        write_recording(path, header(), breaking())
    assert path.read_bytes() == b"what was there before"
    assert list(tmp_path.iterdir()) == [path]
    write_recording(path, header(), run()[2])
    assert list(tmp_path.iterdir()) == [path]
    Recording.open(path).close()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="choose a folder") as caught:
        write_recording(tmp_path / "none" / "run.kvviz", header(), run()[2])
    one_sentence(caught.value)
    assert caught.value.code == "no_file"


# Files that are no recordings.


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"none\.kvviz") as caught:
        Recording.open(tmp_path / "none.kvviz")
    assert caught.value.code == "no_file"
    with pytest.raises(RecordingError):
        Recording.open(tmp_path)


@pytest.mark.parametrize("data", [b"", b"PK", b"nonsense", b"{}", bytes(1000), b"PK\x05\x06" + bytes(18)])
def test_no_zip_is_refused(data: bytes) -> None:
    refused(data)


@pytest.mark.parametrize("percent", range(0, 100, 5))
def test_a_cut_file_is_refused(percent: int) -> None:
    refused(whole()[: len(whole()) * percent // 100])


def test_changed_bits_are_never_another_exception() -> None:
    chance = random.Random(0)
    num_opened = 0
    for _ in range(40):
        data = bytearray(whole())
        for _ in range(chance.choice([1, 1, 8, 64])):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        num_opened += opens_or_says_why(bytes(data))
    assert num_opened < 40


def test_changed_bits_in_the_directory_are_never_another_exception() -> None:
    """The end of a zip file, where its members are listed, is where a damaged or hostile one does most."""
    small = packed({name: data for name, data in members_of(whole()).items() if not name.startswith("frames/1")})
    chance = random.Random(1)
    start = small.rindex(b"PK\x01\x02", 0, len(small) - 200)
    for _ in range(300):
        data = bytearray(small)
        for _ in range(chance.choice([1, 2, 6])):
            data[chance.randrange(start, len(data))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        with contextlib.suppress(RecordingError):
            Recording.open(bytes(data)).close()


@pytest.mark.parametrize("missing", ["header.json", "events.ndjson"])
def test_a_missing_member_is_named(missing: str) -> None:
    members = members_of(whole())
    del members[missing]
    assert missing in refused(packed(members)).message


def test_a_missing_array_is_missing() -> None:
    members = members_of(whole())
    step = frames()[0].step
    del members[f"frames/{STEM}.heads_scale.npy"]
    with contextlib.closing(Recording.open(packed(members))) as recording:
        with pytest.raises(MissingError) as caught:
            recording.step_frame(step)
        assert caught.value.code == "no_such_step"
    assert opens_or_says_why(packed(members))


# Headers.


@pytest.mark.parametrize(
    "text", [b"", b"{", b"nonsense", b"[1]", b'"x"', b"null", b"3", b"{}", b'{"format": "1"}', b"\xff\xfe", b"[" * 5000]
)
def test_a_header_that_is_none_is_refused(text: bytes) -> None:
    refused(with_member("header.json", text))


@pytest.mark.parametrize("version", [2, 99, 10**30])
def test_a_newer_format_is_refused_in_plain_words(version: int) -> None:
    text = b'{"format": %d}' % version
    if version < 2**53:
        assert "upgrade kvviz" in refused(with_member("header.json", text), "newer_format").message
    else:
        refused(with_member("header.json", text))


MODEL, POOL = header()["model"], header()["pool"]


@pytest.mark.parametrize(
    "changes",
    [
        {"model": None},
        {"model": "num_layers layers"},
        {"model": 7},
        {"model": []},
        {"model": {}},
        {"model": {**MODEL, "num_layers": 0}},
        {"model": {**MODEL, "num_layers": "2"}},
        {"model": {**MODEL, "num_layers": 10**9}},
        {"model": {**MODEL, "layers": None}},
        {"model": {**MODEL, "layers": [3]}},
        {"model": {**MODEL, "layers": [{"key_shape": 3}]}},
        {"model": {**MODEL, "layers": [{"key_shape": [1, 2, 3]}]}},
        {"model": {**MODEL, "layers": [{"key_shape": [-1, 2]}]}},
        {"model": {**MODEL, "layers": [{"key_shape": ["1", 2]}]}},
        {"model": {**MODEL, "layers": [{"value_shape": [2**60, 2]}]}},
        {"pool": None},
        {"pool": "num_blocks block_size bytes_per_token"},
        {"pool": {**POOL, "num_blocks": 0}},
        {"pool": {**POOL, "num_blocks": 10**9}},
        {"pool": {**POOL, "num_blocks": True}},
        {"pool": {**POOL, "num_blocks": 1.5}},
        {"pool": {**POOL, "block_size": 257}},
        {"pool": {**POOL, "block_size": None}},
        {"pool": {**POOL, "bytes_per_token": -1}},
    ],
)
def test_a_wrong_header_is_refused(changes: dict[str, Any]) -> None:
    message = refused(with_header(**changes)).message
    assert next(iter(changes)) in message


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {**MODEL, "num_layers": 7}},
        {"model": {**MODEL, "layers": []}},
        {"model": {**MODEL, "layers": [{}] * LAYERS}},
        {"model": {**MODEL, "layers": [{"key_shape": [2**50, 2**50], "value_shape": [1, 1]}] * LAYERS}},
        {"model": {**MODEL, "layers": [{"key_shape": [7, 11], "value_shape": [1, 1]}] * 50}},
        {"more": {"than": ["is", "known"]}, "title": 7},
    ],
)
def test_a_header_that_does_not_fit_the_file_is_no_other_exception(changes: dict[str, Any]) -> None:
    assert opens_or_says_why(with_header(**changes))


# Events.


def test_unknown_types_are_counted_and_kept() -> None:
    def add(records: list[Any]) -> list[Any]:
        new = [[len(records), 5, {"type": "block_painted", "colour": "red"}], [len(records) + 1, 5, {"type": ""}]]
        return records + new

    with contextlib.closing(Recording.open(with_events(add))) as recording:
        assert recording.num_unknown == 2
        assert len(recording.lines) == len(run()[2]) + 2
        assert recording.lines[-2] == b'[%d,5,{"type":"block_painted","colour":"red"}]' % len(run()[2])


def test_unknown_fields_are_ignored_and_kept() -> None:
    def add(records: list[Any]) -> list[Any]:
        return [[seq, t_us, {**event, "new_field": [1]}] for seq, t_us, event in records]

    with contextlib.closing(Recording.open(with_events(add))) as recording:
        assert recording.num_unknown == 0
        assert b"new_field" in recording.lines[0]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"{}",
        b"[]",
        b"[0,0]",
        b"[0,0,null]",
        b"[0,0,[]]",
        b"[0,0,{}]",
        b'[0,0,{"type":3}]',
        b'[0,0,{"type":["step_started"]}]',
        b'[0,0,{"type":"step_started"}]',
        b'[0,0,{"type":"step_started","step":"1"}]',
        b'[0,0,{"type":"step_started","step":1.0}]',
        b'[0,0,{"type":"step_started","step":true}]',
        b'[0,0,{"type":"step_started","step":NaN}]',
        b'[0,0,{"type":"step_started","step":1}',
        b'[0,0,{"type":"step_started","step":1}]]',
        b'[0,0.5,{"type":"step_started","step":1}]',
        b'["0",0,{"type":"step_started","step":1}]',
        b'[1,0,{"type":"step_started","step":1}]',
        b'[-1,0,{"type":"step_started","step":1}]',
        b'[0,0,{"type":"step_finished","step":1,"digest":7,"forward_us":1,"step_us":1}]',
        b'[0,0,{"type":"request_finished","request_id":0,"reason":{"code":"tired"}}]',
        b'[0,0,{"type":"prefix_cache_reset","block_ids":3}]',
        b'[0,0,{"type":"step_started","step":1,"x":"\xff"}]',
        b"[" * 100_000,
    ],
)
def test_a_wrong_record_is_refused_by_number(line: bytes) -> None:
    error = refused(with_member("events.ndjson", line + b"\n"))
    assert "Record 0" in error.message
    assert error.details == {"seq": 0}


def test_records_must_be_dense() -> None:
    assert refused(with_events(lambda records: records[:5] + records[6:])).details == {"seq": 5}
    assert refused(with_events(lambda records: records[:5] + records[4:])).details == {"seq": 5}


def test_line_ends_of_another_system_are_taken() -> None:
    data = with_member("events.ndjson", b"\r\n".join(run()[2]))
    with contextlib.closing(Recording.open(data)) as recording:
        assert recording.lines == run()[2]


def test_positions_that_no_request_has_are_not_looked_up() -> None:
    """A hostile position must not make a reader allocate for it."""

    def far(records: list[Any]) -> list[Any]:
        for _, _, event in records:
            if event["type"] == "kv_written":
                event["positions"] = [position + 10**12 for position in event["positions"]]
        return records

    def backwards(records: list[Any]) -> list[Any]:
        for _, _, event in records:
            if event["type"] == "kv_written":
                event["positions"] = [-5 - position for position in event["positions"]]
        return records

    for change in (far, backwards):
        data = with_events(change)
        assert opens_or_says_why(data)
        with contextlib.closing(Recording.open(data)) as recording, pytest.raises(MissingError):
            recording.pack_norms(0)


# Sizes.


def claiming(data: bytes, name: str, size: int) -> bytes:
    """A zip whose directory claims another size for a member."""
    changed = bytearray(data)
    at = data.index(b"PK\x01\x02")
    while True:
        length = int.from_bytes(data[at + 28 : at + 30], "little")
        if data[at + 46 : at + 46 + length] == name.encode():
            changed[at + 24 : at + 28] = size.to_bytes(4, "little")
            return bytes(changed)
        at = data.index(b"PK\x01\x02", at + 4)


@pytest.mark.parametrize("name", ["header.json", "events.ndjson"])
def test_a_member_that_claims_to_be_huge_is_refused(name: str) -> None:
    refused(claiming(whole(), name, 2**32 - 2), "too_large")


def test_an_array_that_claims_to_be_huge_is_refused() -> None:
    step = frames()[0].step
    with contextlib.closing(Recording.open(claiming(whole(), f"frames/{STEM}.heads.npy", 2**32 - 2))) as recording:
        with pytest.raises(RecordingError) as caught:
            recording.step_frame(step)
        assert caught.value.code == "too_large"


@pytest.mark.parametrize("size", [0, 1, 10])
def test_a_member_that_claims_too_little_is_refused(size: int) -> None:
    assert not opens_or_says_why(claiming(whole(), "events.ndjson", size))


@pytest.mark.parametrize("name", ["header.json", "events.ndjson"])
def test_a_bomb_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes of nothing in a few kilobytes: stopped at the limit for one line or one header, not at the end."""
    monkeypatch.setattr(module, "MAX_RECORD_BYTES", 2**20)
    data = with_member(name, bytes(8 * 2**20))
    assert len(data) < len(whole()) + 20_000
    refused(data, "too_large")


def test_only_so_many_of_everything_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("MAX_FILE_BYTES", len(whole()) - 1),
        ("MAX_RECORDS", len(run()[2]) - 1),
        ("MAX_RECORD_BYTES", 60),
        ("MAX_EVENTS_BYTES", 1_000),
        ("MAX_HEADER_BYTES", 10),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            refused(whole(), "too_large")
    monkeypatch.setattr(module, "MAX_MEMBERS", len(members_of(whole())) - 1)
    assert "members" in refused(whole()).message


# Arrays.

STEP = frames()[0].step
STEM = f"{STEP}-{frames()[0].request_id}"
SHAPE = frames()[0].heads.shape


def other_shape(claimed: str) -> bytes:
    """The right bytes under a header of another shape."""
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {claimed}, }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin-1") + frames()[0].heads.tobytes()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\xff\xff",
        b"\x93NUMPY\x09\x00" + bytes(100),
        npy(frames()[0].heads)[:-1],
        npy(frames()[0].heads) + b"x",
        npy(np.array([{"a": 1}, None], dtype=object), allow_pickle=True),
        npy(np.full(SHAPE, None, dtype=object), allow_pickle=True),
        npy(np.asfortranarray(frames()[0].heads)),
        npy(frames()[0].heads.astype(np.int8)),
        npy(frames()[0].heads.astype(np.uint16)),
        npy(frames()[0].heads.astype(np.float64)),
        npy(frames()[0].heads[0]),
        npy(frames()[0].heads[:1]),
        npy(frames()[0].heads[:, :0]),
        npy(frames()[0].heads[:, :, :-1]),
        npy(frames()[0].heads[None]),
        npy(np.zeros((1, 1), dtype=[("a", "u1"), ("b", "f4")])),
        other_shape("(1000000000, 1000000000, 1000000000)"),
        other_shape("(4294967296, 4294967296, 1)"),
        other_shape("(-2, -4, 17)"),
        other_shape("(2, 4, 17.0)"),
        other_shape("(2, 4, None)"),
        other_shape("'everything'"),
        other_shape("__import__('os').getcwd()"),
        other_shape("(" * 3_000),
        other_shape("'''"),
        other_shape("[\n"),
    ],
)
@pytest.mark.filterwarnings("ignore:Reading `.npy`")
def test_an_array_that_is_not_ours_is_missing(data: bytes) -> None:
    changed = with_member(f"frames/{STEM}.heads.npy", data)
    with contextlib.closing(Recording.open(changed)) as recording:
        with pytest.raises(MissingError) as caught:
            recording.step_frame(STEP)
        one_sentence(caught.value)
        assert caught.value.code == "damaged"
        assert recording.step_frame(frames()[1].step).step == frames()[1].step, "the other steps are still there"
    assert opens_or_says_why(changed)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("heads_scale", np.ones((LAYERS, HEADS + 1), np.float32)),
        ("heads_scale", np.full((LAYERS, HEADS), np.nan, np.float32)),
        ("heads_scale", np.full((LAYERS, HEADS), np.inf, np.float32)),
        ("key_norm", np.ones((LAYERS + 1, frames()[0].num_new), np.float16)),
        ("key_norm", np.ones((LAYERS, 0), np.float16)),
        ("key_norm", np.ones((LAYERS, 10_000), np.float16)),
        ("value_norm", np.ones((LAYERS, frames()[0].num_new + 1), np.float16)),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_missing(name: str, array: np.ndarray) -> None:
    changed = with_member(f"frames/{STEM}.{name}.npy", npy(array))
    with contextlib.closing(Recording.open(changed)) as recording:
        with pytest.raises(MissingError) as caught:
            recording.step_frame(STEP)
        assert caught.value.code == "damaged"
    assert opens_or_says_why(changed)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("keys", np.ones((LAYERS, 1, 1), np.uint8)),
        ("keys", np.ones((LAYERS, frames()[0].num_new, 2), np.uint8)),
        ("values_scale", np.ones((LAYERS, 1, 1), np.float32)),
        ("values_scale", np.full((LAYERS, frames()[0].num_new), -np.inf, np.float32)),
    ],
)
def test_entries_that_do_not_fit_are_missing(name: str, array: np.ndarray) -> None:
    changed = with_member(f"frames/{STEM}.{name}.npy", npy(array))
    seq = next(seq for seq, event in enumerate(run()[1]) if isinstance(event, KvWritten))
    with contextlib.closing(Recording.open(changed)) as recording:
        with pytest.raises(MissingError) as caught:
            recording.entry(frames()[0].request_id, frames()[0].start, 0, seq)
        one_sentence(caught.value)
        assert caught.value.code == "damaged"
    assert opens_or_says_why(changed)


# Names.


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "/etc/passwd",
        "..\\..\\x",
        "C:\\x",
        "frames/../../1.heads.npy",
        "frames/1.heads.npy/../../x",
        "frames/999999999999999999999.heads.npy",
        "frames/-1.heads.npy",
        "frames/1.../x.npy",
        "frames/٣.heads.npy",
        "frames/007.heads.npy",
        "frames/007-0.heads.npy",
        "frames/1-.heads.npy",
        "frames/1--1.heads.npy",
        "frames/1-0-0.heads.npy",
        "frames/1-99999999999999999.heads.npy",
        "frames/1-٣.heads.npy",
        "frames/7.HEADS.npy\n",
        "frames/",
        "x" * 60_000,
        "<script>alert(1)</script>",
    ],
)
def test_other_names_are_never_followed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    assert opens_or_says_why(packed({**members_of(whole()), name: b"x"}))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_refused_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "bad.kvviz"
    path.write_bytes(with_header(format=9))
    opened: list[Any] = []
    real = zipfile.ZipFile.close

    def close(self: zipfile.ZipFile) -> None:
        opened.append(self.filename)
        real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "close", close)
        with pytest.raises(RecordingError):
            Recording.open(path)
    assert str(path) in [str(name) for name in opened]
