"""All limits of a server, in one frozen dataclass."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All limits of a server. Sizes are in bytes, times in seconds.

    - `idle_s`: a live session without clients is closed after this time; the default session is only paused.
    - `replaceable_s`: a live session without clients can be replaced by a new one after this time.
    - `beat_s`: the longest silence on a websocket.
    - `leap_records`: a page that misses more records than this fetches them over HTTP, at most `fetch_records` at a
      time.
    """

    max_live_sessions: int = 3
    max_recordings: int = 16
    max_clients: int = 200
    idle_s: float = 1_800.0
    replaceable_s: float = 60.0
    beat_s: float = 15.0
    frame_bytes: int = 256 * 2**20
    max_pool_bytes: int = 2 * 2**30
    max_upload_bytes: int = 256 * 2**20
    max_uploads_bytes: int = 2**30
    max_message_bytes: int = 2**20
    max_pending_commands: int = 64
    batch_records: int = 1_000
    leap_records: int = 4_000
    fetch_records: int = 20_000
