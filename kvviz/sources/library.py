"""The recordings of a server: included ones, the one to replay, and uploads."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from kvviz.errors import MissingError
from kvviz.log.recording import Recording

SUFFIX = ".kvviz"


@dataclass(frozen=True, slots=True)
class Entry:
    """One recording. `recording_id` is also the id of the session that plays it."""

    recording_id: str
    path: Path
    uploaded: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """Title, steps and size of a recording, for lists."""

    title: str
    num_steps: int
    num_bytes: int

    @classmethod
    def of(cls, recording: Recording, path: Path) -> Summary:
        return cls(str(recording.header.get("title") or path.stem), recording.num_steps, path.stat().st_size)


class Library:
    """Recordings by id, in display order. Uploads are in a temporary directory until `close`."""

    def __init__(self, directory: Path | None, replay: Path | None = None) -> None:
        paths = [replay] if replay else []
        if directory is not None and directory.is_dir():
            paths += sorted(directory.glob(f"*{SUFFIX}"))
        self._entries: dict[str, Entry] = {}
        self._summaries: dict[str, Summary] = {}
        self._lock = threading.Lock()
        self.uploads: Path | None = None
        for path in paths:
            self._put(path, uploaded=False)

    @property
    def entries(self) -> list[Entry]:
        with self._lock:
            return list(self._entries.values())

    def get(self, recording_id: str) -> Entry | None:
        return self._entries.get(recording_id)

    def summary(self, entry: Entry) -> Summary:
        """Title and size, read from the file once. Raises `RecordingError` if the file can't be read."""
        known = self._summaries.get(entry.recording_id)
        if known is None:
            with contextlib.closing(Recording.open(entry.path)) as recording:
                known = Summary.of(recording, entry.path)
            self.note(entry, known)
        return known

    def note(self, entry: Entry, summary: Summary) -> None:
        self._summaries[entry.recording_id] = summary

    def num_bytes(self, entry: Entry) -> int:
        try:
            return entry.path.stat().st_size
        except OSError:
            return 0

    def upload_path(self) -> Path:
        with self._lock:
            if self.uploads is None:
                self.uploads = Path(tempfile.mkdtemp(prefix="kvviz-"))
            return self.uploads / f"upload-{secrets.token_hex(6)}{SUFFIX}"

    def add(self, path: Path) -> Entry:
        return self._put(path, uploaded=True)

    def remove(self, recording_id: str) -> None:
        with self._lock:
            entry = self._entries.get(recording_id)
            if entry is None or not entry.uploaded:
                raise MissingError(
                    f"Uploaded recording {recording_id!r} doesn't exist; choose one from the list.",
                    code="no_such_recording",
                )
            del self._entries[recording_id]
        self._summaries.pop(recording_id, None)
        entry.path.unlink(missing_ok=True)

    def close(self) -> None:
        if self.uploads is not None:
            shutil.rmtree(self.uploads, ignore_errors=True)

    def _put(self, path: Path, *, uploaded: bool) -> Entry:
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-")[:64] or "recording"
        with self._lock:
            recording_id, number = stem, 2
            while recording_id in self._entries:
                recording_id, number = f"{stem}-{number}", number + 1
            entry = Entry(recording_id, path, uploaded)
            self._entries[recording_id] = entry
        return entry
