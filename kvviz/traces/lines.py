"""Lines of a trace: streams a plain or gzip file to validated requests."""

from __future__ import annotations

import errno
import gzip
import io
import math
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import orjson

from kvviz.errors import TraceError
from kvviz.messages import shown
from kvviz.traces.block_sizes import MAX_BLOCK_SIZE, NUM_SAMPLED, BlockSize
from kvviz.traces.trace_request import TraceRequest

#: Maximum number of tokens in a prompt or an answer.
MAX_LENGTH = 2**31 - 1
MAX_TIMESTAMP = 2.0**53
#: Longer lines are skipped and counted as bad. A prompt of 4 million tokens fits.
MAX_LINE_BYTES = 8 * 2**20
#: Number of bad lines reported individually.
NUM_FAULTS_SHOWN = 5

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Faults:
    """Bad lines: their number, and the first of them as (line number from 1, problem)."""

    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, sentence: str) -> None:
        self.count += 1
        if len(self.first) < NUM_FAULTS_SHOWN:
            self.first.append((line, sentence))

    def sentences(self) -> list[str]:
        """Describe the first bad lines, and count the others."""
        described = [f"line {line}: {sentence}" for line, sentence in self.first]
        more = self.count - len(described)
        return [*described, f"lines after these: {more:,} more"] if more else described


class LineReader:
    """Reads the requests of one trace in file order.

    `block_size` (tokens) is that of the first request, else the given one, else the default or what the number of
    hashes implies. Lines with another block size are bad. `on_bytes` is called with the number of bytes read so far.
    Reading ends when `stop()` returns true; `is_stopped` is then true.
    """

    def __init__(
        self,
        block_size: int | None = None,
        *,
        on_bytes: Callable[[int], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        if block_size is not None and not 1 <= block_size <= MAX_BLOCK_SIZE:
            raise TraceError(
                f"Block size must be 1–{MAX_BLOCK_SIZE:,} tokens (got {shown(block_size)}).",
                code="bad_setting",
            )
        self._size = BlockSize(block_size)
        self._times: dict[str, float] = {}
        self._first_line = b""
        self.faults = Faults()
        self.num_requests = 0
        self.is_stopped = False
        self._on_bytes, self._stop = on_bytes, stop

    @property
    def block_size(self) -> int:
        return self._size.size

    @property
    def block_size_note(self) -> str | None:
        """That the block size is inferred, or doesn't match the requests read; None if there is nothing to say."""
        return self._size.note

    def read(self, file: IO[bytes], name: str) -> Iterator[TraceRequest]:
        """Read requests from an open file. Raises `TraceError` if it is truncated or has no valid request."""
        requests = self._requests(file, name)
        sample = list(islice(requests, NUM_SAMPLED))
        self._size.settle(sample)
        for request in chain(sample, requests):
            self._size.check(request)
            yield request

    def _requests(self, file: IO[bytes], name: str) -> Iterator[TraceRequest]:
        number = 0
        try:
            text = _text(file)
            while line := text.readline(MAX_LINE_BYTES + 1):
                if self._stopped():
                    return
                number += 1
                if number == 1:
                    self._first_line = line[:1_000]
                if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                    self.faults.add(number, f"expected at most {MAX_LINE_BYTES:,} bytes, got more")
                    while line and not line.endswith(b"\n") and not self._stopped():
                        line = text.readline(MAX_LINE_BYTES)
                        self._tell(file)
                    continue
                self._tell(file)
                request = self._request(line.removeprefix(_BOM) if number == 1 else line, number)
                if request is not None:
                    self.num_requests += 1
                    yield request
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TraceError(
                f"{name} is damaged after line {number:,}: its gzip data is truncated or invalid; download it again.",
            ) from error
        except OSError as error:
            raise _unreadable(name, error) from error
        if not self.num_requests and not self.is_stopped:
            raise TraceError(_nothing(name, self.faults, self._first_line))

    def _stopped(self) -> bool:
        self.is_stopped = self.is_stopped or self._stop()
        return self.is_stopped

    def _tell(self, file: IO[bytes]) -> None:
        if self._on_bytes is not None:
            self._on_bytes(file.tell() if file.seekable() else 0)

    def _request(self, line: bytes, number: int) -> TraceRequest | None:
        if not line.strip():
            return None
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            self.faults.add(number, "expected a JSON object, got invalid JSON")
            return None
        try:
            request = self._checked(value)
            self._check_block_size(value)
        except _Bad as bad:
            self.faults.add(number, str(bad))
            return None
        return request

    def _checked(self, value: Any) -> TraceRequest:
        if not isinstance(value, dict):
            raise _Bad(f"expected a JSON object, got {shown(value)}")
        timestamp = self._timestamp(value)
        for name in ("input_length", "output_length", "hash_ids"):
            if name not in value:
                raise _Bad(f"{name} is missing")
        for name in ("input_length", "output_length"):
            _check_whole(name, value[name], 0, MAX_LENGTH)
        request = TraceRequest(timestamp, value["input_length"], value["output_length"], _hashes(value["hash_ids"]))
        if isinstance(session := value.get("session_id"), str | int):
            self._times[str(session)] = timestamp
        return request

    def _timestamp(self, value: dict[str, Any]) -> float:
        """The timestamp, or that of the previous request of the same session plus `delay`."""
        name = "timestamp" if "timestamp" in value or "delay" not in value else "delay"
        if name not in value:
            raise _Bad("timestamp is missing")
        number = value[name]
        if type(number) not in (int, float) or not 0 <= number <= MAX_TIMESTAMP or not math.isfinite(number):
            raise _Bad(f"{name}: expected a number of at least 0, got {shown(number)}")
        if name == "timestamp":
            return float(number)
        previous = self._times.get(str(value.get("session_id")))
        if previous is None:
            raise _Bad("delay: expected an earlier request with the same session_id and a timestamp")
        return previous + float(number)

    def _check_block_size(self, value: dict[str, Any]) -> None:
        size = value.get("block_size")
        if size is None:
            return
        _check_whole("block_size", size, 1, MAX_BLOCK_SIZE)
        if not self.num_requests:
            self._size.set(size)
        elif size != self.block_size:
            raise _Bad(f"expected block_size {self.block_size:,} as in earlier lines, got {size:,}")


def open_trace(path: Path, name: str | None = None) -> IO[bytes]:
    """Open a trace file. Errors call it `name`, by default its path.

    Raises `TraceError` if it is unreadable.
    """
    try:
        if path.is_char_device():
            raise OSError(errno.EINVAL, "not a file")
        return path.open("rb")
    except (OSError, ValueError) as error:
        raise _unreadable(str(path) if name is None else name, error) from error


class _Bad(Exception):
    """The problem with a line."""


def _text(file: IO[bytes]) -> IO[bytes]:
    """Decompress gzip, recognised by its first bytes regardless of the file name."""
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(file)  # type: ignore[type-var]
    is_gzip = buffered.peek(2)[:2] == _GZIP_MAGIC
    return gzip.GzipFile(fileobj=buffered) if is_gzip else buffered  # type: ignore[return-value]


def _hashes(ids: Any) -> array[int]:
    """The hashes as numbers. Of texts, such as hexadecimal digests, the hash is that of the text."""
    if not isinstance(ids, list):
        raise _Bad(f"hash_ids: expected a list, got {shown(ids)}")
    if ids and all(isinstance(each, str) and each for each in ids):
        return array("Q", (int.from_bytes(blake2b(each.encode(), digest_size=8).digest()) for each in ids))
    try:
        hashes = array("Q", ids)
        wrong = set(map(type, ids)) - {int}
    except (TypeError, OverflowError):
        wrong = {object}
    if wrong:
        culprit = next(each for each in ids if type(each) is not int or not 0 <= each < 2**64)
        raise _Bad(f"hash_ids: expected whole numbers from 0 to 2⁶⁴ − 1, or texts, got {shown(culprit)}")
    return hashes


def _check_whole(name: str, value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise _Bad(f"{name}: expected a whole number from {low:,} to {high:,}, got {shown(value)}")


def _nothing(name: str, faults: Faults, first_line: bytes) -> str:
    if not faults.count:
        return f"{name} is empty; a trace has one JSON object per line, see docs/traces.md."
    if b"," in first_line and b"{" not in first_line:
        return (
            f"{name} looks like CSV; a trace needs the hash_ids of each request, in one JSON object per line, see "
            "docs/traces.md."
        )
    line, sentence = faults.first[0]
    return f"{name} has no valid request in its {faults.count:,} lines (line {line}: {sentence}); see docs/traces.md."


def _unreadable(name: str, error: Exception) -> TraceError:
    reason = (error.strerror if isinstance(error, OSError) else None) or "no such file"
    return TraceError(f"Can't read {name} ({reason}); use a .jsonl or .jsonl.gz file.", code="no_file")
