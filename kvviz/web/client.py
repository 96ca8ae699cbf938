"""A websocket client: one task reads commands, another one follows the log."""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import Future
from typing import Any

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from kvviz.errors import KvvizError, RequestError
from kvviz.sessions.registry import Sessions
from kvviz.sessions.session import Session
from kvviz.sources.controls import MAX_COLUMNS, Pause, Play, SetRate, Subscribe, command_id, parse_command
from kvviz.sources.source import Run
from kvviz.web.cursor import Cursor
from kvviz.web.replies import error_json

#: Close code after an `error` that ends the connection.
CLOSE_REFUSED = 4000


class Client:
    """Serves one accepted websocket until it closes.

    When woken, the writer sends in this order: a `hello` if the session began a new log, records up to the head,
    replies to commands, errors not caused by a command, the status if it changed, the newest step's frame, and a beat
    if one is due. It awaits each send, so a slow client slows down only itself.
    """

    def __init__(self, websocket: WebSocket, sessions: Sessions, session: Session, cursor: Cursor) -> None:
        self._websocket = websocket
        self._sessions = sessions
        self._session = session
        self._cursor = cursor
        self._limits = sessions.limits
        self._wake = asyncio.Event()
        self._replies: list[dict[str, Any]] = []
        self._has_capacity = asyncio.Event()  # set while few replies are queued; commands are read only then
        self._has_capacity.set()
        self._num_pending = 0
        self._status = b""
        self._pushed_step = 0
        self._num_failures = session.source.failure[0] if session.source.failure else 0
        self._layer = 0
        self._columns = MAX_COLUMNS
        self._request_id: int | None = None
        self._wants_frames = True
        self._next_beat_s = time.monotonic() + self._limits.beat_s

    async def serve(self) -> None:
        """Read and write until the client disconnects or the session ends."""
        leave = self._session.watch(self._wake.set)
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            leave()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        while True:
            await self._has_capacity.wait()
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            data = None
            try:
                if text is None:
                    raise RequestError("Commands must be JSON text messages (got a binary message).", code="bad_json")
                data = self._decode(text)
                self._carry_out(data)
            except KvvizError as error:
                self._reply(command_id(data), error)

    def _decode(self, text: str) -> Any:
        if len(text) > self._limits.max_message_bytes or len(text.encode()) > self._limits.max_message_bytes:
            raise RequestError(
                f"The message is larger than {self._limits.max_message_bytes:,} bytes ({len(text.encode()):,}); "
                "shorten the prompt.",
                code="too_large",
                limit=self._limits.max_message_bytes,
            )
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise RequestError(
                f"A command must be a JSON object ({error.msg}, character {error.pos}).",
                code="bad_json",
            ) from error

    def _carry_out(self, data: Any) -> None:
        command = parse_command(data)
        if isinstance(command, Subscribe):
            self._subscribe(command)
            self._reply(command.id, None)
            return
        waits = not isinstance(command, (Play, Pause, SetRate))
        if waits and self._num_pending >= self._limits.max_pending_commands:
            raise RequestError(
                f"{self._num_pending} commands are still pending; wait for their replies.",
                code="too_many_commands",
                limit=self._limits.max_pending_commands,
            )
        self._num_pending += 1
        future: Future[Any] = self._session.source.execute(command)
        asyncio.wrap_future(future).add_done_callback(lambda done: self._on_done(command.id, done))

    def _on_done(self, message_id: int | None, done: asyncio.Future[Any]) -> None:
        self._num_pending -= 1
        if not done.cancelled():
            error = done.exception()
            self._reply(message_id, error if isinstance(error, KvvizError) else done.result())

    def _reply(self, message_id: int | None, outcome: Any) -> None:
        if isinstance(outcome, KvvizError):
            self._replies.append({"type": "error", "id": message_id, **error_json(outcome)})
        else:
            self._replies.append({"type": "ack", "id": message_id, "result": outcome})
        if len(self._replies) >= self._limits.max_pending_commands:
            self._has_capacity.clear()
        self._wake.set()

    def _subscribe(self, command: Subscribe) -> None:
        num_layers = self._session.source.run.header.get("model", {}).get("num_layers")
        if command.layer is not None and num_layers is not None and command.layer >= num_layers:
            raise RequestError(
                f"subscribe: layer must be 0–{num_layers - 1} (got {command.layer}).",
                code="no_such_layer",
            )
        self._layer = self._layer if command.layer is None else command.layer
        self._columns = self._columns if command.columns is None else command.columns
        self._wants_frames = self._wants_frames if command.frames is None else command.frames
        if "request" in command.model_fields_set:
            self._request_id = command.request
        self._pushed_step = 0

    async def _write(self) -> None:
        await self._send(await self._cursor.hello())
        while not self._session.closed:
            self._wake.clear()
            if await self._catch_up():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), max(0.0, self._next_beat_s - time.monotonic()))
        error = RequestError("The session was closed; reload the page for the default one.", code="session_closed")
        await refuse(self._websocket, error)

    async def _catch_up(self) -> bool:
        """Send everything new; True if there is no more. Keeps no reference to the run afterwards."""
        source = self._session.source
        run = source.run
        if run.log is not self._cursor.log:
            self._cursor = Cursor(self._session, run, leap=self._cursor.leap)
            self._pushed_step = 0
            await self._send(await self._cursor.hello())
        # Read before the records are sent, so that replies, status and frame are never ahead of the records.
        replies, self._replies = self._replies, []
        failure, finished_step = source.failure, source.num_steps
        status = orjson.dumps(self._sessions.status(self._session))
        at_head = await self._send_records()
        for reply in replies:
            await self._send(reply)
        self._has_capacity.set()
        if failure is not None and failure[0] != self._num_failures:
            self._num_failures = failure[0]
            await self._send({"type": "error", "id": None, **error_json(failure[1])})
        if status != self._status:
            self._status = status
            await self._websocket.send_text(status.decode())
        if at_head and run is source.run:
            await self._push(run, finished_step)
        if time.monotonic() >= self._next_beat_s:
            self._next_beat_s = time.monotonic() + self._limits.beat_s
            await self._send({"type": "beat", "head_seq": run.log.head_seq})
        return at_head

    async def _send_records(self) -> bool:
        """Send one batch; True if there is no more."""
        batch = self._cursor.next_records(self._limits.batch_records)
        if batch is None:
            await self._send(await self._cursor.hello())
            return False
        if batch.num_records:
            await self._websocket.send_text(batch.message)
        return batch.num_records < self._limits.batch_records

    async def _push(self, run: Run, step: int) -> None:
        if step <= self._pushed_step or not self._wants_frames:
            return
        self._pushed_step = step
        with contextlib.suppress(KvvizError):  # not captured: the page gets the error when it requests the frame
            pack = await self._session.step_pack(run, step, self._layer, self._columns, self._request_id)
            await self._websocket.send_bytes(pack)

    async def _send(self, message: dict[str, Any]) -> None:
        await self._websocket.send_text(orjson.dumps(message).decode())


async def refuse(websocket: WebSocket, error: KvvizError) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await websocket.send_text(orjson.dumps({"type": "error", "id": None, **error_json(error)}).decode())
        await websocket.close(CLOSE_REFUSED, error.code)
