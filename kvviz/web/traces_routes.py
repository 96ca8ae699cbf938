"""The HTTP API `api/traces`: generated traces, uploaded files, and studies of them (docs/traces.md)."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from starlette.responses import Response

from kvviz.calculator import listing
from kvviz.calculator.models import find_model
from kvviz.calculator.settings import DTYPES, find_dtype
from kvviz.errors import TraceError
from kvviz.messages import shown
from kvviz.traces.cache_size import size_bytes
from kvviz.traces.generated import GENERATED, find_generated
from kvviz.traces.lines import MAX_LINE_BYTES
from kvviz.traces.simulation import MAX_CAPACITY, POLICIES, check_policy
from kvviz.traces.study import MAX_STUDY_REFERENCES, Question
from kvviz.web.bodies import save_body
from kvviz.web.replies import json_response
from kvviz.web.traces_jobs import Jobs

#: Limit of an uploaded file, compressed or not.
MAX_TRACE_BYTES = 64 * 2**20
#: Uploaded files to keep. A newer one replaces the oldest.
MAX_TRACES = 4
MAX_SEED = 2**53 - 1
_CLIENT = re.compile(r"[A-Za-z0-9_-]{1,40}")
_FILE_ID = re.compile(r"[0-9a-f]{32}")


class Uploads:
    """Uploaded files, named by a hash of their content. Only the newest `MAX_TRACES` are kept."""

    def __init__(self) -> None:
        self.directory: Path | None = None

    async def receive(self, request: Request) -> tuple[str, int]:
        """Save a request's body; its id and size in bytes. Raises `TraceError` if it is empty or too large."""
        too_large = TraceError(
            f"The trace is larger than {MAX_TRACE_BYTES:,} bytes; compress it with gzip, use only the start, "
            "or run kvviz simulate in a terminal, which has no limit.",
            code="too_large",
            limit=MAX_TRACE_BYTES,
        )
        directory = self._made()
        path = directory / f"{secrets.token_hex(8)}.part"
        try:
            digest, num_bytes = await save_body(request, path, too_large)
            if not num_bytes:
                raise TraceError("The file is empty; a trace has one JSON object per line, see docs/traces.md.")
            path.replace(directory / digest)
        finally:
            path.unlink(missing_ok=True)
        kept = sorted((each for each in directory.iterdir() if not each.suffix), key=lambda each: each.stat().st_mtime)
        for old in kept[:-MAX_TRACES]:
            old.unlink(missing_ok=True)
        return digest, num_bytes

    def find(self, trace_id: str) -> Path | None:
        """The file with that id; None for a generated trace. Raises `TraceError` if the id is neither."""
        if self.directory is not None and _FILE_ID.fullmatch(trace_id):
            path = self.directory / trace_id
            if path.is_file():
                return path
        find_generated(trace_id)
        return None

    def close(self) -> None:
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _made(self) -> Path:
        if self.directory is None:
            self.directory = Path(tempfile.mkdtemp(prefix="kvviz-traces-"))
        return self.directory


class Traces:
    """State shared by the routes. `close` ends all jobs and deletes all files."""

    def __init__(self) -> None:
        self.uploads = Uploads()
        self.jobs = Jobs()

    async def close(self) -> None:
        await self.jobs.close()
        self.uploads.close()


def add_traces(app: FastAPI) -> Traces:
    traces = Traces()
    router = APIRouter(prefix="/api/traces")

    @router.api_route("", methods=["GET", "HEAD"])
    async def overview() -> Response:
        return json_response(_overview())

    @router.post("/files")
    async def upload(request: Request) -> Response:
        trace_id, num_bytes = await traces.uploads.receive(request)
        return json_response({"trace": trace_id, "bytes": num_bytes}, 201)

    @router.post("/jobs")
    async def begin(
        client: str,
        trace: Annotated[str, Query(max_length=40)],
        policies: Annotated[str, Query(max_length=80)] = ",".join(POLICIES),
        seed: Annotated[int, Query(ge=0, le=MAX_SEED)] = 0,
        blocks: Annotated[int | None, Query(ge=0, le=MAX_CAPACITY)] = None,
        memory: Annotated[str | None, Query(max_length=40)] = None,
        model: Annotated[str | None, Query(max_length=80)] = None,
        dtype: Annotated[str, Query(max_length=20)] = "bf16",
    ) -> Response:
        if not _CLIENT.fullmatch(client):
            raise TraceError(
                f"A client name must be 1–40 letters, digits, - or _ (got {shown(client)}).",
                code="bad_parameter",
            )
        path = traces.uploads.find(trace)
        question = _question(policies, seed, blocks, memory, model, dtype)
        return json_response(traces.jobs.begin(client, trace, path, question).answer(), 201)

    @router.api_route("/jobs/{job_id}", methods=["GET", "HEAD"])
    async def state(job_id: str) -> Response:
        return json_response(traces.jobs.find(job_id).answer())

    @router.delete("/jobs/{job_id}")
    async def cancel(job_id: str) -> Response:
        return json_response(traces.jobs.cancel(job_id).answer())

    app.include_router(router)
    app.state.traces = traces
    return traces


def _overview() -> dict[str, Any]:
    return {
        "generated": [
            {"trace": made.name, "title": made.title, "about": made.about, "seed": made.seed} for made in GENERATED
        ],
        "policies": list(POLICIES),
        "models": [
            {"model_id": model["model_id"], "name": model["name"]}
            for model in listing()["models"]
            if model["bytes_per_token"]
        ],
        "dtypes": list(DTYPES),
        "limits": {
            "bytes": MAX_TRACE_BYTES,
            "references": MAX_STUDY_REFERENCES,
            "line_bytes": MAX_LINE_BYTES,
            "capacity": MAX_CAPACITY,
            "seed": MAX_SEED,
        },
    }


def _question(
    policies: str, seed: int, blocks: int | None, memory: str | None, model: str | None, dtype: str
) -> Question:
    chosen = tuple(dict.fromkeys(check_policy(name) for name in policies.split(",")))
    find_dtype(dtype)
    if memory is None and model is None:
        return Question(policies=chosen, seed=seed, blocks=blocks)
    if blocks is not None or memory is None or model is None:
        raise TraceError(
            "Set the capacity as either a number of blocks, or memory and a model.",
            code="bad_setting",
        )
    find_model(model)
    return Question(policies=chosen, seed=seed, memory_bytes=size_bytes(memory), model_id=model, dtype=dtype)
