"""A client's position in a log: the first message, and the next records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvviz.sessions.session import Session
from kvviz.sources.source import Run


class Cursor:
    """A position in the log of one run. `seq` is the last record that the client has.

    There is no queue: a slow client is a cursor that lags behind. If the log has folded records that the cursor needs,
    the client gets a new `hello` with a checkpoint and continues from there. A cursor doesn't keep the run's frames
    alive.

    `leap`: if more records than this are missing, the client fetches them over HTTP and the cursor jumps to the head;
    None: never.
    """

    def __init__(
        self, session: Session, run: Run, after: int = -1, log_id: str | None = None, *, leap: int | None = None
    ) -> None:
        self.log = run.log
        self.seq = after
        self.leap = leap
        self._header = run.header
        self._session = session
        if (log_id is not None and log_id != run.log.log_id) or after > run.log.head_seq or after < -1:
            self.seq = -1

    async def hello(self) -> dict[str, Any]:
        """The first message, with a checkpoint if the log no longer has the next record."""
        log, checkpoint = self.log, None
        first_seq = log.first_seq
        if self.seq + 1 < first_seq:  # the log's own thread folds records, so read the checkpoint there
            first_seq, checkpoint = await self._session.between_steps(lambda: (log.first_seq, log.checkpoint()))
            self.seq = first_seq - 1
        head_seq = log.head_seq
        leaps = self.leap is not None and head_seq - self.seq > self.leap
        if leaps:
            self.seq = head_seq
        return {
            "type": "hello",
            "session_id": self._session.session_id,
            "kind": self._session.source.kind,
            "log_id": log.log_id,
            "header": self._header,
            "first_seq": first_seq,
            "head_seq": head_seq,
            "fetch": leaps,
            "checkpoint": checkpoint,
        }

    def next_records(self, limit: int) -> RecordBatch | None:
        """At most `limit` next records; empty at the head; None if the log no longer has the next record."""
        encoded = self.log.encoded(self.seq, limit)
        if encoded and _seq_of(encoded[0]) != self.seq + 1:
            return None
        key = (self.log.log_id, self.seq, len(encoded))
        batch: RecordBatch | None = self._session.batches.get(key)
        if batch is None:
            batch = RecordBatch(len(encoded), _records_message(encoded))
            self._session.batches.put(key, batch)
        self.seq += len(encoded)
        return batch


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Several records as one message, encoded once for all clients at the same position."""

    num_records: int
    message: str


def _seq_of(record: bytes) -> int:
    """The `seq` of an encoded record `[seq, t_us, event]`."""
    return int(record[1 : record.index(b",")])


def _records_message(encoded: list[bytes]) -> str:
    return (b'{"type":"records","records":[' + b",".join(encoded) + b"]}").decode()
