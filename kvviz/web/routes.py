"""The HTTP API of docs/wire.md: status, recordings, records and frames."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from fastapi.types import DecoratedCallable
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from kvviz.errors import MissingError, RecordingError
from kvviz.log.packs import FrameSource
from kvviz.sessions.registry import Sessions
from kvviz.sessions.session import Session
from kvviz.sources.controls import MAX_COLUMNS
from kvviz.sources.run_settings import MAX_ID
from kvviz.web.bodies import save_body
from kvviz.web.calculator_routes import add_memory_routes
from kvviz.web.replies import NO_STORE, json_response

#: Whole numbers in the query and in the path.
Number = Annotated[int, Query(ge=0, le=MAX_ID)]
InPath = Annotated[int, PathParameter(ge=0, le=MAX_ID)]
#: The request in a step's batch; None: the first one.
OfRequest = Annotated[int | None, Query(alias="request", ge=0, le=MAX_ID)]


def api_routes(sessions: Sessions) -> APIRouter:
    router = APIRouter(prefix="/api")
    _add_recordings(router, sessions)
    _add_records(router, sessions)
    _add_frames(router, sessions)
    add_memory_routes(router, sessions)

    @_reads(router, "/status")
    async def status() -> Response:
        session = await sessions.find(None)
        return json_response(sessions.status(session))

    return router


def _reads(router: APIRouter, path: str) -> Callable[[DecoratedCallable], DecoratedCallable]:
    """A route for GET and HEAD. The server omits the body for HEAD."""
    return router.api_route(path, methods=["GET", "HEAD"])


def _add_recordings(router: APIRouter, sessions: Sessions) -> None:
    @_reads(router, "/recordings")
    async def recordings() -> Response:
        return json_response(await sessions.list_recordings())

    @router.post("/recordings")
    async def upload(request: Request) -> Response:
        path, limit = sessions.library.upload_path(), sessions.limits.max_upload_bytes
        too_large = RecordingError(
            f"The recording is larger than {limit:,} bytes; record fewer steps, or no frames.",
            code="too_large",
            limit=limit,
        )
        try:
            await save_body(request, path, too_large)
            return json_response(await sessions.add_recording(path), 201)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    @_reads(router, "/sessions/{session_id}/recording")
    async def download(session_id: str) -> Response:
        session = await _session(sessions, session_id)
        spare = sessions.library.upload_path()
        try:
            path = await session.file(spare)
        except BaseException:
            spare.unlink(missing_ok=True)
            raise
        return _Download(
            spare, path, media_type="application/zip", filename=f"{_file_stem(session)}.kvviz", headers=NO_STORE
        )


class _Download(FileResponse):
    """A file whose temporary copy `spare` is removed however the response ends: sent, refused or broken off."""

    def __init__(self, spare: Path, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self._spare = spare

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._spare.unlink(missing_ok=True)


def _add_records(router: APIRouter, sessions: Sessions) -> None:
    @_reads(router, "/sessions/{session_id}/records")
    async def records(session_id: str, log: str, after: Annotated[int, Query(ge=-1, le=MAX_ID)] = -1) -> Response:
        run = (await _session(sessions, session_id)).source.run
        if log != run.log.log_id:
            raise MissingError("The session has started a new log; reconnect.", code="no_such_log")
        encoded = run.log.encoded(after, sessions.limits.fetch_records)
        if encoded and not encoded[0].startswith(b"[%d," % (after + 1)):
            raise MissingError(f"Record {after + 1} is no longer in the log; reconnect.", code="gone")
        return Response(b"[" + b",".join(encoded) + b"]", headers=NO_STORE, media_type="application/json")


def _add_frames(router: APIRouter, sessions: Sessions) -> None:
    async def answer(session_id: str, make: Callable[[FrameSource], bytes], *, reads_pool: bool) -> Response:
        session = await _session(sessions, session_id)
        frames = session.source.run.frames
        data = await (session.between_steps if reads_pool else session.read)(lambda: make(frames))
        return Response(data, headers=NO_STORE, media_type="application/octet-stream")

    @_reads(router, "/sessions/{session_id}/frames/{step}")
    async def step_frame(
        session_id: str,
        step: InPath,
        layer: Number = 0,
        columns: Annotated[int, Query(ge=1, le=MAX_COLUMNS)] = 512,
        request_id: OfRequest = None,
    ) -> Response:
        return await answer(
            session_id, lambda frames: frames.pack_step(step, layer, columns, request_id), reads_pool=False
        )

    @_reads(router, "/sessions/{session_id}/norms/{request_id}")
    async def norms(session_id: str, request_id: InPath) -> Response:
        return await answer(session_id, lambda frames: frames.pack_norms(request_id), reads_pool=False)

    @_reads(router, "/sessions/{session_id}/heads/{step}")
    async def heads(session_id: str, step: InPath, layer: Number = 0, request_id: OfRequest = None) -> Response:
        return await answer(session_id, lambda frames: frames.pack_heads(step, layer, request_id), reads_pool=False)

    @_reads(router, "/sessions/{session_id}/entry")
    async def entry(
        session_id: str,
        request_id: Annotated[int, Query(alias="request", ge=0, le=MAX_ID)],
        position: Number,
        layer: Number,
        write_seq: Number,
    ) -> Response:
        return await answer(
            session_id, lambda frames: frames.pack_entry(request_id, position, layer, write_seq), reads_pool=True
        )

    @_reads(router, "/sessions/{session_id}/triangle/{step}")
    async def triangle(
        session_id: str, step: InPath, layer: Number, head: Number, request_id: OfRequest = None
    ) -> Response:
        return await answer(
            session_id,
            lambda frames: frames.pack_triangle(step, layer, head, request_id=request_id),
            reads_pool=True,
        )

    @_reads(router, "/sessions/{session_id}/scores/{step}")
    async def scores(
        session_id: str, step: InPath, layer: Number, position: Number, request_id: OfRequest = None
    ) -> Response:
        return await answer(
            session_id, lambda frames: frames.pack_scores(step, layer, position, request_id), reads_pool=True
        )


async def _session(sessions: Sessions, session_id: str) -> Session:
    session = await sessions.find(session_id)
    if session is None:
        raise MissingError(
            "The live session doesn't exist yet, since the model is still loading; try again later.",
            code="no_such_session",
        )
    session.touch()
    return session


def _file_stem(session: Session) -> str:
    title = str(session.source.run.header.get("title") or session.session_id)
    return re.sub(r"[^A-Za-z0-9_-]+", "-", title).strip("-")[:60] or "kvviz"
