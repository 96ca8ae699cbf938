"""Recordings: a log with its header and frames in one zip file. docs/wire.md ("Recording") defines the format.

The reader treats files as untrusted: it checks sizes before unpacking, never unpickles, and reads fixed names only.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
from pydantic import ValidationError

from kvviz.errors import KvvizError, MissingError, RecordingError
from kvviz.events import EVENT_TYPES, parse_record
from kvviz.log.frames import Norms, StepFrame, not_in_step
from kvviz.log.packs import FrameSource
from kvviz.log.recording_header import RecordingHeader, parse_header

#: Limits on reading, in bytes unless stated otherwise.
MAX_FILE_BYTES = 512 * 2**20
MAX_EVENTS_BYTES = 256 * 2**20
MAX_HEADER_BYTES = 4 * 2**20
MAX_MEMBER_BYTES = 256 * 2**20
MAX_MEMBERS = 200_000
MAX_RECORDS = 2_000_000
MAX_RECORD_BYTES = 16 * 2**20

#: Step, request (absent in files from versions that computed one request per step) and array name.
_FRAME = re.compile(r"frames/([0-9]{1,9})(?:-([0-9]{1,16}))?\.([a-z_]{1,20})\.npy\Z")
_KNOWN_TYPES = {event.__dataclass_fields__["type"].default for event in EVENT_TYPES}


@dataclass(frozen=True, slots=True)
class _Written:
    """The parts of a `kv_written` event needed to read entries."""

    step: int
    request_id: int
    start: int
    count: int


class Recording(FrameSource):
    """An opened recording: its `header`, its `lines` (one JSON record each), and frames on request.

    `lanes` holds the logs of a comparison's lanes after the first. `num_unknown` events have types unknown to this
    version; they stay in `lines`, and folds skip them.
    """

    def __init__(self, archive: zipfile.ZipFile, prefix: str = "") -> None:
        self._archive = archive
        self._prefix = prefix
        self._members: dict[str, set[str]] = {}  # array names by stem: STEP-REQUEST, or STEP in older files
        self._check_members()
        self.header, self._needed = self._read_header()
        self.lines: list[bytes] = []
        self.num_unknown = 0
        self.num_steps = 0
        self._writes: dict[int, _Written] = {}
        self._steps_of: dict[int, list[int]] = {}
        self._chunks: dict[int, dict[int, tuple[int, int]]] = {}  # by step and request: start, new tokens
        self._num_tokens: dict[int, int] = {}
        self._read_events()
        self.lanes: list[Recording] = []
        if not prefix:
            self._read_lanes()

    @classmethod
    def open(cls, source: Path | str | bytes | BinaryIO) -> Recording:
        """Open a path, bytes or a seekable stream. Raises `RecordingError`."""
        stream: Any = io.BytesIO(source) if isinstance(source, bytes) else source
        try:
            if not hasattr(stream, "seek") and Path(stream).exists() and not Path(stream).is_file():
                raise RecordingError(f"{stream!s} is not a file; choose a .kvviz file.", code="no_file")
            size = stream.seek(0, io.SEEK_END) if hasattr(stream, "seek") else Path(stream).stat().st_size
            if size > MAX_FILE_BYTES:
                raise RecordingError(
                    f"The recording is too large: {size:,} B (maximum {MAX_FILE_BYTES:,} B).", code="too_large"
                )
            archive = zipfile.ZipFile(stream)
        except FileNotFoundError as error:
            raise RecordingError(f"File not found: {stream!s}; check the name.", code="no_file") from error
        except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
            raise RecordingError(
                "This is not a kvviz recording, or it is damaged: expected a zip file (a .kvviz file written by "
                "kvviz).",
            ) from error
        try:
            return cls(archive)
        except BaseException:
            archive.close()
            raise

    def close(self) -> None:
        self._archive.close()

    def records(self) -> Iterator[list[Any]]:
        return (orjson.loads(line) for line in self.lines)

    def step_frame(self, step: int, request_id: int | None = None) -> StepFrame:
        chunks = self._chunks.get(step)
        if not chunks:
            raise MissingError(f"This recording has no frame of step {step}.", code="no_such_step")
        if request_id is None:
            request_id = next(iter(chunks))
        elif request_id not in chunks:
            raise not_in_step(step, request_id, chunks)
        stem = self._stem(step, request_id)
        if not {"heads", "heads_scale"} <= self._members.get(stem, set()):
            raise MissingError(
                f"This recording has no frame of request {request_id} in step {step}.", code="no_such_step"
            )
        start, num_new = chunks[request_id]
        heads = self._array(stem, "heads", np.uint8, (self._num_layers, None, start + num_new))
        key_norm, value_norm = self._norms_of(stem, start, num_new)
        return StepFrame(
            step=step,
            request_id=request_id,
            start=start,
            num_new=num_new,
            num_tokens=start + num_new,
            heads=heads,
            heads_scale=self._array(stem, "heads_scale", np.float32, heads.shape[:2]),
            key_norm=key_norm,
            value_norm=value_norm,
        )

    def norms(self, request_id: int) -> list[Norms]:
        found = []
        for step in self._steps_of.get(request_id, ()):
            start, num_new = self._chunks[step][request_id]
            stem = self._stem(step, request_id)
            if {"key_norm", "value_norm"} <= self._members.get(stem, set()):
                key, value = self._norms_of(stem, start, num_new)
                found.append(Norms(start + num_new - key.shape[1], key, value))
        return found

    def entry(self, request_id: int, position: int, layer: int, write_seq: int) -> tuple[np.ndarray, np.ndarray]:
        """K and V [heads, dim] as written, in 8 bits, even if their block has been moved or copied since."""
        written = self._writes.get(write_seq)
        if written is None or written.request_id != request_id or not 0 <= position - written.start < written.count:
            raise MissingError(f"Record {write_seq} wrote no entry at position {position}.", code="no_such_entry")
        layers = self._needed.model.layers
        stem = self._stem(written.step, request_id)
        if not 0 <= layer < len(layers) or not {"keys", "values"} <= self._members.get(stem, set()):
            raise MissingError("This recording has no K and V of that entry.", code="not_captured")
        vectors = []
        for name, shape in (("keys", layers[layer].key_shape), ("values", layers[layer].value_shape)):
            stored = self._array(stem, name, np.uint8, (self._num_layers, written.count, None))
            scale = self._array(stem, f"{name}_scale", np.float32, stored.shape[:2])
            width = math.prod(shape)
            if layer >= self._num_layers or width > stored.shape[2]:
                raise MissingError(
                    "This recording's K and V don't match its header; the file is damaged.", code="damaged"
                )
            at = layer, position - written.start
            vectors.append((stored[at][:width].reshape(shape).astype(np.float32) - 128) * scale[at])
        return vectors[0], vectors[1]

    def _read_lanes(self) -> None:
        """Read the lanes after the first. The size limits apply to all logs together."""
        if [lane.index for lane in self._needed.lanes] != list(range(len(self._needed.lanes))):
            raise RecordingError("header.json in the recording lists lanes out of order; the file is damaged.")
        for index in range(1, len(self._needed.lanes)):
            self.lanes.append(Recording(self._archive, f"lanes/{index}/"))
            logs = [recording.lines for recording in (self, *self.lanes)]
            num_bytes = sum(len(line) for lines in logs for line in lines)
            if sum(map(len, logs)) > MAX_RECORDS or num_bytes > MAX_EVENTS_BYTES:
                raise RecordingError(
                    f"The lanes of the recording are too large (maximum {MAX_RECORDS:,} records and "
                    f"{MAX_EVENTS_BYTES:,} B).",
                    code="too_large",
                )

    @property
    def _num_layers(self) -> int:
        return self._needed.model.num_layers

    def _stem(self, step: int, request_id: int) -> str:
        """Name prefix of a frame's members. An older file has one frame per step, so its steps must have one chunk."""
        stem, old = f"{step}-{request_id}", f"{step}"
        is_old = stem not in self._members and old in self._members and len(self._chunks.get(step, ())) == 1
        return old if is_old else stem

    def _check_members(self) -> None:
        infos = self._archive.infolist()
        if len(infos) > MAX_MEMBERS:
            raise RecordingError(f"The recording has too many members: {len(infos):,} (maximum {MAX_MEMBERS:,}).")
        for info in infos:
            if match := _FRAME.match(info.filename.removeprefix(self._prefix)):
                stem = f"{int(match[1])}" + (f"-{int(match[2])}" if match[2] else "")
                self._members.setdefault(stem, set()).add(match[3])

    @contextmanager
    def _member(self, name: str, limit: int) -> Iterator[BinaryIO]:
        """Open a member. Any fault, also while reading, is raised as `RecordingError`."""
        name = f"{self._prefix}{name}"
        try:
            info = self._archive.getinfo(name)
        except KeyError as error:
            raise RecordingError(
                f"The recording has no {name}; it is incomplete or wasn't written by kvviz."
            ) from error
        if info.file_size > limit:
            raise RecordingError(
                f"{name} in the recording is too large: {info.file_size:,} B (maximum {limit:,} B).", code="too_large"
            )
        try:
            with self._archive.open(info) as member, io.BufferedReader(member, 2**18) as reader:  # type: ignore[type-var]
                yield reader
        except KvvizError:
            raise
        except Exception as error:  # zlib.error, lzma.LZMAError: each decompressor has its own
            raise RecordingError(f"Can't unpack {name} in the recording; the file is damaged.") from error

    def _read_header(self) -> tuple[dict[str, Any], RecordingHeader]:
        with self._member("header.json", MAX_HEADER_BYTES) as member:
            return parse_header(member.read())

    def _read_events(self) -> None:
        step = 0
        with self._member("events.ndjson", MAX_EVENTS_BYTES) as member:
            for number, line in enumerate(iter(lambda: member.readline(MAX_RECORD_BYTES + 1), b"")):
                if number >= MAX_RECORDS or len(line) > MAX_RECORD_BYTES:
                    raise RecordingError(f"The recording is too large at record {number}.", code="too_large")
                line = line.rstrip(b"\r\n")
                event = _check_record(number, line)
                self.lines.append(line)
                match event["type"]:
                    case "step_started":
                        step = event["step"]
                        self.num_steps += 1
                    case "request_added":
                        self._num_tokens[event["request_id"]] = len(event["token_ids"])
                    case "token_sampled":
                        request_id = event["request_id"]
                        self._num_tokens[request_id] = self._num_tokens.get(request_id, 0) + 1
                    case "kv_written":
                        self._note_write(number, step, event)
                    case kind if kind not in _KNOWN_TYPES:
                        self.num_unknown += 1

    def _note_write(self, seq: int, step: int, event: Mapping[str, Any]) -> None:
        """Remember where entries were written, unless the positions don't belong to the request."""
        request_id, positions = event["request_id"], event["positions"]
        num_tokens = self._num_tokens.get(request_id, 0)
        if not positions or positions[0] < 0 or positions[-1] >= num_tokens:
            return
        if positions != list(range(positions[0], positions[0] + len(positions))):
            return
        self._writes[seq] = _Written(step, request_id, positions[0], len(positions))
        chunks = self._chunks.setdefault(step, {})
        if request_id not in chunks:
            chunks[request_id] = positions[0], len(positions)
            self._steps_of.setdefault(request_id, []).append(step)

    def _norms_of(self, stem: str, start: int, num_new: int) -> tuple[np.ndarray, np.ndarray]:
        """Norms f16 [L, k] of the entries up to the frame's last; NaN where the file has none."""
        if not {"key_norm", "value_norm"} <= self._members.get(stem, set()):
            nothing = np.full((self._num_layers, num_new), np.nan, np.float16)
            return nothing, nothing
        key = self._array(stem, "key_norm", np.float16, (self._num_layers, None))
        value = self._array(stem, "value_norm", np.float16, key.shape)
        if not num_new <= key.shape[1] <= start + num_new:
            raise _damaged(f"frames/{stem}.key_norm.npy")
        return key, value

    def _array(self, stem: str, name: str, dtype: Any, shape: tuple[int | None, ...]) -> np.ndarray:
        """Read an array of that shape (None: any size but 0). The size it claims must be the size it has."""
        member = f"frames/{stem}.{name}.npy"
        with self._member(member, MAX_MEMBER_BYTES) as reader:
            data = io.BytesIO(reader.read())
        try:
            version = np.lib.format.read_magic(data)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            has, fortran, claimed = read(data)
            rest = data.getbuffer()[data.tell() :]
            fits = len(has) == len(shape) and all(
                h == w or (w is None and h > 0) for h, w in zip(has, shape, strict=True)
            )
            if fortran or claimed != np.dtype(dtype) or not fits or math.prod(has) * claimed.itemsize != len(rest):
                raise ValueError("unexpected shape or dtype")
            array = np.frombuffer(rest, claimed).reshape(has)
        except Exception as error:  # the header is a Python literal, and its parser has as many exceptions
            raise _damaged(member) from error
        if array.dtype == np.float32 and not np.isfinite(array).all():
            raise _damaged(member)
        return array


def _check_record(number: int, line: bytes) -> dict[str, Any]:
    """Parse the event in a line of JSON. Raises `RecordingError` if it isn't the record with that number."""
    try:
        seq, t_us, found = orjson.loads(line)
        event: dict[str, Any] = found
        kind = event["type"]
        if seq != number or not isinstance(t_us, int) or not isinstance(kind, str):
            raise ValueError("a record is [seq, t_us, event]")
        if kind in _KNOWN_TYPES:
            parse_record(line)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise RecordingError(
            f"Record {number} of the recording is invalid; the file is damaged.", seq=number
        ) from error
    return event


def _damaged(member: str) -> MissingError:
    return MissingError(f"{member} in the recording is not a valid array; the file is damaged.", code="damaged")
