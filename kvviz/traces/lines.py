"""Lines of a trace: from a file, plain or gzip, to requests that have been checked. Text is streamed."""

from __future__ import annotations

import gzip
import io
import math
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from kvviz.errors import TraceError
from kvviz.messages import shown

DEFAULT_BLOCK_SIZE = 512
MAX_BLOCK_SIZE = 2**20
#: Tokens of one prompt or answer.
MAX_LENGTH = 2**31 - 1
MAX_TIMESTAMP = 2.0**53
#: A longer line is skipped and counted as bad, however long it goes on. A prompt of 4 million tokens fits.
MAX_LINE_BYTES = 8 * 2**20
#: How many bad lines are told one by one.
NUM_FAULTS_SHOWN = 5

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Request:
    """One line. `timestamp` as in the file (milliseconds in public traces), lengths in tokens, hashes below 2⁶⁴."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: array[int]


@dataclass(slots=True)
class Faults:
    """Bad lines: how many, and the first of them as (line number from 1, what is wrong)."""

    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, sentence: str) -> None:
        self.count += 1
        if len(self.first) < NUM_FAULTS_SHOWN:
            self.first.append((line, sentence))

    def sentences(self) -> list[str]:
        """The first of them, and how many more there are."""
        told = [f"line {line}: {sentence}" for line, sentence in self.first]
        more = self.count - len(told)
        return [*told, f"lines after them: {more:,} more"] if more else told


class LineReader:
    """Reads the requests of one trace in the order of the file.

    `block_size` (tokens) is that of the first request, or the given one when it names none; lines that name another
    are bad. `on_bytes` gets the bytes read so far. When `stop()` is true the reading ends, and `is_stopped` is true.
    """

    def __init__(
        self,
        block_size: int = DEFAULT_BLOCK_SIZE,
        *,
        on_bytes: Callable[[int], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        if not 1 <= block_size <= MAX_BLOCK_SIZE:
            raise TraceError(
                f"A block has 1 to {MAX_BLOCK_SIZE:,} tokens, but {shown(block_size)} came; give another block size.",
                code="bad_setting",
            )
        self.block_size = block_size
        self.faults = Faults()
        self.num_requests = 0
        self.is_stopped = False
        self._on_bytes, self._stop = on_bytes, stop

    def read(self, file: IO[bytes], name: str) -> Iterator[Request]:
        """The requests of an open file. Raises `TraceError` when it ends in the middle or has no request at all."""
        text = _text(file)
        number = 0
        try:
            while line := text.readline(MAX_LINE_BYTES + 1):
                if self._stopped():
                    return
                number += 1
                if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                    self.faults.add(number, f"a line has at most {MAX_LINE_BYTES:,} bytes, but this one has more")
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
                f"{name} is damaged after line {number:,}: its gzip data end too early or are wrong; fetch it again.",
            ) from error
        except OSError as error:
            raise _unreadable(name, error) from error
        if not self.num_requests and not self.is_stopped:
            raise TraceError(_nothing(name, self.faults))

    def _stopped(self) -> bool:
        self.is_stopped = self.is_stopped or self._stop()
        return self.is_stopped

    def _tell(self, file: IO[bytes]) -> None:
        if self._on_bytes is not None:
            self._on_bytes(file.tell() if file.seekable() else 0)

    def _request(self, line: bytes, number: int) -> Request | None:
        if not line.strip():
            return None
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            self.faults.add(number, "a JSON object is expected, but this is no JSON")
            return None
        try:
            request = _checked(value)
            self._check_block_size(value)
        except _Bad as bad:
            self.faults.add(number, str(bad))
            return None
        return request

    def _check_block_size(self, value: dict[str, Any]) -> None:
        size = value.get("block_size")
        if size is None:
            return
        _check_whole("block_size", size, 1, MAX_BLOCK_SIZE)
        if not self.num_requests:
            self.block_size = size
        elif size != self.block_size:
            raise _Bad(f"block_size {self.block_size:,} is expected as before, but {size:,} came")


def open_trace(path: Path, name: str | None = None) -> IO[bytes]:
    """The file, open for reading; `name` is what errors call it, by default the path.

    Raises `TraceError` in one sentence when it cannot be.
    """
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:
        raise _unreadable(str(path) if name is None else name, error) from error


class _Bad(Exception):
    """What is wrong with a line."""


def _text(file: IO[bytes]) -> IO[bytes]:
    """The file's text: gzip is known by its first bytes, whatever the file is called."""
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(file)  # type: ignore[type-var]
    is_gzip = buffered.peek(2)[:2] == _GZIP_MAGIC
    return gzip.GzipFile(fileobj=buffered) if is_gzip else buffered  # type: ignore[return-value]


def _checked(value: Any) -> Request:
    if not isinstance(value, dict):
        raise _Bad(f"a JSON object is expected, but {shown(value)} came")
    for name in ("timestamp", "input_length", "output_length", "hash_ids"):
        if name not in value:
            raise _Bad(f"{name} is missing")
    timestamp, ids = value["timestamp"], value["hash_ids"]
    if type(timestamp) not in (int, float) or not 0 <= timestamp <= MAX_TIMESTAMP or not math.isfinite(timestamp):
        raise _Bad(f"timestamp: a number of at least 0 is expected, but {shown(timestamp)} came")
    for name in ("input_length", "output_length"):
        _check_whole(name, value[name], 0, MAX_LENGTH)
    if not isinstance(ids, list):
        raise _Bad(f"hash_ids: a list is expected, but {shown(ids)} came")
    try:
        hashes = array("Q", ids)
        wrong = set(map(type, ids)) - {int}
    except (TypeError, OverflowError):
        wrong = {object}
    if wrong:
        culprit = next(each for each in ids if type(each) is not int or not 0 <= each < 2**64)
        raise _Bad(f"hash_ids: whole numbers from 0 to 2⁶⁴ − 1 are expected, but {shown(culprit)} came")
    return Request(float(timestamp), value["input_length"], value["output_length"], hashes)


def _check_whole(name: str, value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise _Bad(f"{name}: a whole number from {low:,} to {high:,} is expected, but {shown(value)} came")


def _nothing(name: str, faults: Faults) -> str:
    if not faults.count:
        return f"{name} is empty; a trace has one JSON object a line, see docs/traces.md."
    line, sentence = faults.first[0]
    return f"{name} has no request in its {faults.count:,} lines (line {line}: {sentence}); see docs/traces.md."


def _unreadable(name: str, error: Exception) -> TraceError:
    reason = (error.strerror if isinstance(error, OSError) else None) or "no such name"
    return TraceError(f"{name} cannot be read ({reason}); name a .jsonl or .jsonl.gz file.", code="no_file")
