"""The `ws` endpoint: finds the session of a connection and serves it."""

from __future__ import annotations

import asyncio
import re
import time

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from kvviz.errors import KvvizError, RequestError
from kvviz.sessions.registry import Sessions
from kvviz.sessions.session import Session
from kvviz.web.client import Client, refuse
from kvviz.web.cursor import Cursor

_SEQ = re.compile(r"-?[0-9]{1,18}")


async def serve_websocket(websocket: WebSocket, sessions: Sessions) -> None:
    """Serve a websocket: find the session, then follow its log. On failure, send an `error` and close."""
    await websocket.accept()
    sessions.num_clients += 1
    try:
        if sessions.num_clients > sessions.limits.max_clients:
            raise RequestError(
                f"{sessions.limits.max_clients} pages are connected, which is the limit; close one.",
                code="too_many_clients",
                limit=sessions.limits.max_clients,
            )
        query = websocket.query_params
        after = _parse_after(query.get("after"))
        session = await _find_or_wait(websocket, sessions, query.get("session") or None)
        leap = sessions.limits.leap_records if query.get("fetch") == "1" else None
        cursor = Cursor(session, session.source.run, after, query.get("log"), leap=leap)
        await Client(websocket, sessions, session, cursor).serve()
    except KvvizError as error:
        await refuse(websocket, error)
    except WebSocketDisconnect:
        pass
    finally:
        sessions.num_clients -= 1


async def _find_or_wait(websocket: WebSocket, sessions: Sessions, session_id: str | None) -> Session:
    """The session. While there is nothing to show yet, wait for the model and send its status and beats."""
    if session_id == "new":
        return await sessions.create_live()
    shown, next_beat_s = b"", time.monotonic() + sessions.limits.beat_s
    gone = asyncio.create_task(_disconnect(websocket))
    try:
        while True:
            arrival = sessions.arrival
            session = await sessions.find(session_id)
            if session is not None:
                return session
            status = orjson.dumps(sessions.status(None))
            if status != shown:
                shown = status
                await websocket.send_text(status.decode())
            if time.monotonic() >= next_beat_s:
                next_beat_s = time.monotonic() + sessions.limits.beat_s
                await websocket.send_text('{"type":"beat","head_seq":-1}')
            arrived = asyncio.create_task(arrival.wait())
            wait_s = max(0.0, next_beat_s - time.monotonic())
            await asyncio.wait((gone, arrived), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            arrived.cancel()
            if gone.done():
                gone.result()
    finally:
        gone.cancel()


async def _disconnect(websocket: WebSocket) -> None:
    """Wait until the client disconnects, ignoring its messages. Raises `WebSocketDisconnect`."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
    raise WebSocketDisconnect


def _parse_after(text: str | None) -> int:
    if text is None or text == "":
        return -1
    after = int(text) if _SEQ.fullmatch(text) else None
    if after is None or after < -1:
        raise RequestError(
            f"after must be a sequence number or -1 (got {text[:40]!r}); omit it to start at the beginning.",
            code="bad_parameter",
        )
    return after
