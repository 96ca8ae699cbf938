"""Writes recordings: logs with their headers and frames in one zip file, as docs/wire.md ("Recording") defines it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from kvviz.errors import RecordingError
from kvviz.log.frames import StepFrame

#: Header, lines and frames of one log.
LogParts = tuple[Mapping[str, Any], Iterable[bytes], Iterable[StepFrame]]


def write_recording(
    target: Path | str | BinaryIO,
    header: Mapping[str, Any],
    lines: Iterable[bytes],
    frames: Iterable[StepFrame] = (),
    lanes: Iterable[LogParts] = (),
) -> None:
    """Write a recording atomically. The `capabilities` of the header follow from the frames.

    `lanes`: the logs of a comparison's lanes after the first.
    """
    if isinstance(target, (str, Path)):
        path = Path(target)
        partial = path.with_name(f".{path.name}.partial")
        try:
            with partial.open("wb") as stream:
                write_recording(stream, header, lines, frames, lanes)
            partial.replace(path)
        except BaseException as error:
            partial.unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
            raise RecordingError(
                f"Can't write {path} ({error.strerror}); choose a folder that exists and is writable.",
                code="no_file",
            ) from error
        return
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for index, (head, log, of_steps) in enumerate([(header, lines, frames), *lanes]):
            _write_log(archive, f"lanes/{index}/" if index else "", head, log, of_steps)


def _write_log(
    archive: zipfile.ZipFile,
    prefix: str,
    header: Mapping[str, Any],
    lines: Iterable[bytes],
    frames: Iterable[StepFrame],
) -> None:
    capabilities: set[str] = set()
    _write(archive, f"{prefix}events.ndjson", b"".join(line + b"\n" for line in lines))
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
            _write(archive, f"{prefix}frames/{frame.step}-{frame.request_id}.{name}.npy", buffer.getvalue())
    head = {**header, "source": "recording", "capabilities": sorted(capabilities)}
    _write(archive, f"{prefix}header.json", orjson.dumps(head))


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Write a member with a fixed date, so that equal content makes equal files."""
    info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data)
