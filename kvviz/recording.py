"""A recording: the log verbatim, with its header and frames, in one zip. Format in docs/wire.md ("Recording").

Reading trusts nothing: sizes are bounded before anything is unpacked, arrays are never pickles, names are a fixed list.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
from pydantic import ValidationError

from kvviz.config import MAX_BLOCK_SIZE, MAX_NUM_BLOCKS, check_range
from kvviz.errors import ConfigError, MissingError, RecordingError
from kvviz.events import EVENT_TYPES, FORMAT_VERSION, parse_event
from kvviz.frames import FrameSource, Norms, StepFrame

#: Limits of what is read, in bytes unless they say otherwise.
MAX_FILE_BYTES = 512 * 2**20
MAX_EVENTS_BYTES = 512 * 2**20
MAX_HEADER_BYTES = 4 * 2**20
MAX_MEMBER_BYTES = 256 * 2**20
MAX_MEMBERS = 200_000
MAX_RECORDS = 2_000_000
MAX_RECORD_BYTES = 16 * 2**20

_FRAME = re.compile(r"frames/(\d{1,9})\.([a-z_]{1,20})\.npy\Z")
_KNOWN_TYPES = {event.__dataclass_fields__["type"].default for event in EVENT_TYPES}
_REQUIRED = {"model": ("num_layers", "layers"), "pool": ("num_blocks", "block_size", "bytes_per_token")}


@dataclass(frozen=True, slots=True)
class _Written:
    """One `kv_written` as a reader of entries needs it."""

    step: int
    request_id: int
    start: int
    count: int


class Recording(FrameSource):
    """An opened recording. `header`, `lines` (one JSON record each), and frames on request.

    `num_unknown` events are of types that this version does not know; they are kept in `lines` and skipped by folds.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._frames: dict[int, set[str]] = {}
        self._check_members()
        self.header = self._read_header()
        self.lines: list[bytes] = []
        self.num_unknown = 0
        self.num_steps = 0
        self._writes: dict[int, _Written] = {}
        self._steps_of: dict[int, list[int]] = {}
        self._chunks: dict[int, tuple[int, int, int]] = {}
        self._read_events()

    @classmethod
    def open(cls, source: Path | str | bytes | BinaryIO) -> Recording:
        """Open a file, its bytes or a seekable stream. Raises `RecordingError` in one sentence."""
        stream: Any = io.BytesIO(source) if isinstance(source, bytes) else source
        try:
            size = stream.seek(0, io.SEEK_END) if hasattr(stream, "seek") else Path(stream).stat().st_size
            if size > MAX_FILE_BYTES:
                raise RecordingError(
                    f"The recording has {size:,} B; at most {MAX_FILE_BYTES:,} B are read.", code="too_large"
                )
            archive = zipfile.ZipFile(stream)
        except FileNotFoundError as error:
            raise RecordingError(f"There is no file {stream!s}; check the name.", code="no_file") from error
        except (zipfile.BadZipFile, OSError, ValueError, EOFError) as error:
            raise RecordingError(
                "This is not a kvviz recording: a zip file was expected (a .kvviz made by kvviz), but it is broken or "
                "of another kind.",
            ) from error
        return cls(archive)

    def close(self) -> None:
        """Close the file."""
        self._archive.close()

    def records(self) -> Iterator[list[Any]]:
        """Records `[seq, t_us, event]` in order."""
        return (orjson.loads(line) for line in self.lines)

    def step_frame(self, step: int) -> StepFrame:
        """The frame of a step, read from the file."""
        if not {"heads", "heads_scale"} <= self._frames.get(step, set()) or step not in self._chunks:
            raise MissingError(f"This recording holds no frame of step {step}.", code="no_such_step")
        request_id, start, num_new = self._chunks[step]
        heads = self._array(step, "heads", np.uint8, 3)
        return StepFrame(
            step=step,
            request_id=request_id,
            start=start,
            num_new=num_new,
            num_tokens=heads.shape[2],
            heads=heads,
            heads_scale=self._array(step, "heads_scale", np.float32, 2),
            key_norm=self._norm(step, "key_norm", len(heads), num_new),
            value_norm=self._norm(step, "value_norm", len(heads), num_new),
        )

    def norms(self, request_id: int) -> list[Norms]:
        """Norms of a request, from all its frames."""
        steps = [step for step in self._steps_of.get(request_id, ()) if "key_norm" in self._frames.get(step, ())]
        found = []
        for step in steps:
            _, start, num_new = self._chunks[step]
            key, value = (self._array(step, name, np.float16, 2) for name in ("key_norm", "value_norm"))
            found.append(Norms(start + num_new - key.shape[1], key, value))
        return found

    def entry(self, request_id: int, position: int, layer: int, write_seq: int) -> tuple[np.ndarray, np.ndarray]:
        """K and V [heads, dim] as they were written, to 8 bits."""
        written = self._writes.get(write_seq)
        if written is None or written.request_id != request_id or not 0 <= position - written.start < written.count:
            raise MissingError(
                f"No entry at position {position} was written by record {write_seq}.", code="no_such_entry"
            )
        layers = self.header["model"]["layers"]
        if not 0 <= layer < len(layers) or not {"keys", "values"} <= self._frames.get(written.step, set()):
            raise MissingError("This recording holds no K and V of that entry.", code="not_captured")
        at = position - written.start
        vectors = []
        for name, shape in (("keys", layers[layer]["key_shape"]), ("values", layers[layer]["value_shape"])):
            stored = self._array(written.step, name, np.uint8, 3)
            scale = self._array(written.step, f"{name}_scale", np.float32, 2)
            try:
                row = stored[layer, at, : shape[0] * shape[1]].reshape(shape)
                vectors.append((row.astype(np.float32) - 128) * scale[layer, at])
            except (IndexError, ValueError) as error:
                raise MissingError("This recording's K and V do not fit its header.", code="not_captured") from error
        return vectors[0], vectors[1]

    def _check_members(self) -> None:
        infos = self._archive.infolist()
        if len(infos) > MAX_MEMBERS:
            raise RecordingError(f"The recording has {len(infos):,} members; at most {MAX_MEMBERS:,} are read.")
        for info in infos:
            if match := _FRAME.match(info.filename):
                self._frames.setdefault(int(match[1]), set()).add(match[2])

    def _read(self, name: str, limit: int) -> bytes:
        try:
            info = self._archive.getinfo(name)
            if info.file_size > limit:
                raise RecordingError(
                    f"{name} in the recording has {info.file_size:,} B; at most {limit:,} B are read.", code="too_large"
                )
            with self._archive.open(info) as member:
                data = member.read(limit + 1)
        except KeyError as error:
            raise RecordingError(f"The recording has no {name}; it is incomplete or not made by kvviz.") from error
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            raise RecordingError(f"{name} in the recording cannot be unpacked: the file is damaged.") from error
        except Exception as error:  # zlib.error, lzma.LZMAError: each decompressor has its own
            raise RecordingError(f"{name} in the recording cannot be unpacked: the file is damaged.") from error
        if len(data) > limit:
            raise RecordingError(
                f"{name} in the recording is longer than it says; the file is damaged.", code="too_large"
            )
        return data

    def _read_header(self) -> dict[str, Any]:
        try:
            header = orjson.loads(self._read("header.json", MAX_HEADER_BYTES))
        except orjson.JSONDecodeError as error:
            raise RecordingError("header.json in the recording is not JSON; the file is damaged.") from error
        version = header.get("format") if isinstance(header, dict) else None
        if not isinstance(version, int):
            raise RecordingError("header.json in the recording names no format; it was not made by kvviz.")
        if version > FORMAT_VERSION:
            raise RecordingError(
                f"The recording has format {version} and this kvviz reads up to {FORMAT_VERSION}; install a newer one.",
                code="newer_format",
            )
        for part, names in _REQUIRED.items():
            missing = [name for name in names if name not in (header.get(part) or {})]
            if missing:
                raise RecordingError(f"header.json in the recording lacks {part}.{missing[0]}; the file is damaged.")
        _check_pool(header["pool"])
        return header  # type: ignore[no-any-return]

    def _read_events(self) -> None:
        data = self._read("events.ndjson", MAX_EVENTS_BYTES)
        step = 0
        for number, line in enumerate(data.splitlines()):
            if number >= MAX_RECORDS or len(line) > MAX_RECORD_BYTES:
                raise RecordingError(f"Record {number} of the recording is beyond what is read.", code="too_large")
            try:
                seq, t_us, event = orjson.loads(line)
                kind = event["type"]
                if seq != number or not isinstance(t_us, int) or not isinstance(kind, str):
                    raise ValueError("a record is [seq, t_us, event]")
                if kind in _KNOWN_TYPES:
                    parse_event(event)
                else:
                    self.num_unknown += 1
            except (ValueError, KeyError, TypeError, ValidationError) as error:
                raise RecordingError(
                    f"Record {number} of the recording is not what kvviz writes; the file is damaged.", seq=number
                ) from error
            self.lines.append(line)
            if kind == "step_started":
                step = self.num_steps = event["step"]
            elif kind == "kv_written" and event["positions"]:
                written = _Written(step, event["request_id"], event["positions"][0], len(event["positions"]))
                self._writes[seq] = written
                self._chunks.setdefault(step, (written.request_id, written.start, written.count))
                self._steps_of.setdefault(written.request_id, []).append(step)

    def _norm(self, step: int, name: str, num_layers: int, num_new: int) -> np.ndarray:
        if name not in self._frames[step]:
            return np.full((num_layers, num_new), np.nan, np.float16)
        return self._array(step, name, np.float16, 2)

    def _array(self, step: int, name: str, dtype: Any, ndim: int) -> np.ndarray:
        """One array member; its claimed size must be the size it has."""
        member = f"frames/{step}.{name}.npy"
        data = io.BytesIO(self._read(member, MAX_MEMBER_BYTES))
        try:
            version = np.lib.format.read_magic(data)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, claimed = read(data)
            rest = data.getbuffer()[data.tell() :]
            count = int(np.prod(shape, dtype=np.int64))
            if fortran or claimed != np.dtype(dtype) or len(shape) != ndim or count * claimed.itemsize != len(rest):
                raise ValueError("not the array that was expected")
            return np.frombuffer(rest, claimed).reshape(shape)
        except (ValueError, TypeError, OverflowError) as error:
            raise MissingError(
                f"{member} in the recording is not an array as kvviz writes it.", code="damaged"
            ) from error


def _check_pool(pool: Mapping[str, Any]) -> None:

    try:
        check_range("pool.num_blocks", pool["num_blocks"], 1, MAX_NUM_BLOCKS)
        check_range("pool.block_size", pool["block_size"], 1, MAX_BLOCK_SIZE)
    except ConfigError as error:
        raise RecordingError(f"header.json in the recording: {error.message}") from error


def write_recording(
    target: Path | str | BinaryIO,
    header: Mapping[str, Any],
    lines: Iterable[bytes],
    frames: Iterable[StepFrame] = (),
) -> None:
    """Write a recording. A file appears whole or not at all. `capabilities` of the header follow from the frames."""
    if isinstance(target, (str, Path)):
        path = Path(target)
        partial = path.with_name(f".{path.name}.partial")
        try:
            with partial.open("wb") as stream:
                write_recording(stream, header, lines, frames)
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise RecordingError(
                f"{path} cannot be written ({error.strerror}); choose a folder that exists and is writable.",
                code="no_file",
            ) from error
        return
    capabilities: set[str] = set()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        _write(archive, "events.ndjson", b"".join(line + b"\n" for line in lines))
        for frame in frames:
            arrays = {
                "heads": frame.heads,
                "heads_scale": frame.heads_scale.astype(np.float32),
                "key_norm": frame.key_norm,
                "value_norm": frame.value_norm,
                **frame.entries,
            }
            capabilities |= {"frames"} | ({"entries"} if frame.entries else set())
            for name, array in arrays.items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
                _write(archive, f"frames/{frame.step}.{name}.npy", buffer.getvalue())
        head = {**header, "source": "recording", "capabilities": sorted(capabilities)}
        _write(archive, "header.json", orjson.dumps(head))


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """A member with a fixed date, so that equal content makes equal files."""
    info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data)
