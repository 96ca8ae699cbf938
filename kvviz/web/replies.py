"""JSON responses, and errors as `{"code", "message", "details"}` with the HTTP status for the code."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from kvviz.errors import KvvizError, MissingError
from kvviz.messages import fault_in_words
from kvviz.web.guard import SECURITY_HEADERS

logger = logging.getLogger("kvviz")

_STATUS_OF_CODE = {
    "gone": 410,
    "too_large": 413,
    "too_many_sessions": 429,
    "too_many_clients": 429,
    "model_not_ready": 503,
    "session_closed": 503,
    "engine_failed": 500,
}

#: For responses that depend on the current state of a session.
NO_STORE = {"Cache-Control": "no-store"}


def error_json(error: KvvizError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "details": error.details}


def json_response(data: Any, status_code: int = 200) -> Response:
    return Response(orjson.dumps(data), status_code, headers=NO_STORE, media_type="application/json")


def error_response(error: KvvizError, status_code: int | None = None) -> Response:
    if status_code is None:
        status_code = _STATUS_OF_CODE.get(error.code, 404 if isinstance(error, MissingError) else 400)
    return json_response(error_json(error), status_code)


def add_error_handlers(app: FastAPI) -> None:
    """Return all errors of routes as JSON."""

    @app.exception_handler(KvvizError)
    async def on_kvviz_error(request: Request, error: KvvizError) -> Response:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def on_bad_parameter(request: Request, error: RequestValidationError) -> Response:
        fault = error.errors()[0]
        name = str(fault["loc"][-1])
        message = f"{name}: {fault_in_words(fault)}; see docs/wire.md."
        return error_response(KvvizError(message, code="bad_parameter", parameter=name), 400)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        phrase = HTTPStatus(error.status_code).phrase
        message = f"{request.method} {request.url.path[:200]}: {phrase.lower()}; open the page at the server's root."
        response = error_response(KvvizError(message, code=phrase.lower().replace(" ", "_")), error.status_code)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def on_any_error(request: Request, error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        message = f"The server failed unexpectedly ({type(error).__name__}); see the terminal for details."
        response = error_response(KvvizError(message, code="internal"), 500)
        response.headers.update(SECURITY_HEADERS)  # this response bypasses the middleware
        return response
