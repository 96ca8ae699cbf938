"""Trace studies, each in its own process so that the server and the model stay responsive. Results are cached."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from kvviz.errors import KvvizError, MissingError, TraceError
from kvviz.traces.generated import find_generated
from kvviz.traces.study import Question, study
from kvviz.traces.trace import Trace, TraceFile

#: Time limit of a job in seconds.
MAX_JOB_S = 900.0
#: Number of jobs whose state can still be requested.
MAX_JOBS = 64
#: Number of cached partial results.
MAX_PARTS = 512
#: Niceness of the process, so that the model and the page take precedence.
NICENESS = 10
_POLL_S = 0.05

PartKey = tuple[str, str, str, int, int | None]


@dataclass(slots=True, eq=False)
class Job:
    """One study.

    - `state`: waiting, running, done, failed or cancelled.
    - `progress`: 0–1.
    - `message`: the current activity, or the error.
    - `capacity`: cache size in blocks.
    - `parts`: results by kind, then by policy.
    """

    job_id: str
    client_id: str
    trace_id: str
    path: Path | None
    question: Question
    state: str = "waiting"
    progress: float = 0.0
    message: str = ""
    capacity: int | None = None
    parts: dict[str, dict[str, Any]] = field(default_factory=lambda: {"summary": {}, "curve": {}, "point": {}})
    task: asyncio.Task[None] | None = None

    def answer(self) -> dict[str, Any]:
        return {
            "job_id": self.job_id,
            "trace": self.trace_id,
            "state": self.state,
            "progress": self.progress,
            "message": self.message,
            "capacity": self.capacity,
            "summary": self.parts["summary"].get(""),
            "curves": self.parts["curve"],
            "points": self.parts["point"],
        }


class Jobs:
    """All jobs of a server. A client's new job replaces its previous one."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._known: OrderedDict[PartKey, Any] = OrderedDict()
        self._turn = asyncio.Lock()
        self._ends: set[asyncio.Future[None]] = set()

    def begin(self, client_id: str, trace_id: str, path: Path | None, question: Question) -> Job:
        """Start a study of the file at `path`; None: of a generated trace. Cached results are available at once."""
        for other in self._jobs.values():
            if other.client_id == client_id:
                self._cancel(other)
        job = Job(secrets.token_hex(8), client_id, trace_id, path, question)
        self._jobs[job.job_id] = job
        while len(self._jobs) > MAX_JOBS:
            self._cancel(self._jobs.popitem(last=False)[1])
        try:
            self._fill(job)
        except KvvizError as error:  # for example, no block fits in the memory
            job.state, job.message = "failed", error.message
        if job.state == "waiting":
            job.task = asyncio.create_task(self._run(job))
        return job

    def find(self, job_id: str) -> Job:
        job = self._jobs.get(job_id)
        if job is None:
            raise MissingError("This study has expired; start it again.", code="no_such_job")
        return job

    def cancel(self, job_id: str) -> Job:
        """Stop a job unless it has ended. Its results so far are kept. Raises `MissingError`."""
        job = self.find(job_id)
        self._cancel(job)
        return job

    async def close(self) -> None:
        tasks = [job.task for job in self._jobs.values() if job.task is not None and not job.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*self._ends, return_exceptions=True)

    def _cancel(self, job: Job) -> None:
        if job.state in ("waiting", "running"):
            job.state = "cancelled"
            if job.task is not None:
                job.task.cancel()

    def _key(self, job: Job, kind: str, policy: str) -> PartKey:
        seed = job.question.seed if policy == "random" else 0
        return kind, job.trace_id, policy, seed, job.capacity if kind == "point" else None

    def _fill(self, job: Job) -> None:
        """Add cached results to a job, and mark it done if none is missing."""
        summary = self._known.get(self._key(job, "summary", ""))
        if summary is None:
            return
        job.capacity = job.question.capacity(summary["block_size"], summary["distinct_blocks"])
        job.parts["summary"][""] = summary
        missing = 0
        for policy in job.question.policies:
            for kind in ("curve", "point"):
                part = self._known.get(self._key(job, kind, policy))
                if part is None:
                    missing += 1
                else:
                    job.parts[kind][policy] = part
        if not missing:
            job.state, job.progress = "done", 1.0

    def _take(self, job: Job, kind: str, policy: str, value: Any) -> None:
        if kind == "summary":
            job.capacity = job.question.capacity(value["block_size"], value["distinct_blocks"])
        job.parts[kind][policy] = value
        self._known[self._key(job, kind, policy)] = value
        while len(self._known) > MAX_PARTS:
            self._known.popitem(last=False)

    async def _run(self, job: Job) -> None:
        try:
            async with self._turn:
                self._fill(job)  # another job may have computed them in the meantime
                if job.state == "done":
                    return
                job.state = "running"
                await self.compute(job)
                job.state, job.progress = "done", 1.0
        except KvvizError as error:
            job.state, job.message = "failed", error.message

    async def compute(self, job: Job) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(theirs, job.trace_id, job.path, job.question), daemon=True)
        # Cancelling this task doesn't cancel the thread that starts the process; `_end` waits for it.
        start = asyncio.ensure_future(asyncio.to_thread(process.start))
        deadline = time.monotonic() + MAX_JOB_S
        try:
            await asyncio.shield(start)
            theirs.close()
            while True:
                if not ours.poll():
                    if time.monotonic() > deadline:
                        raise TraceError(
                            f"The study was stopped after {MAX_JOB_S:,.0f} seconds; choose fewer policies "
                            "or a shorter trace.",
                            code="too_large",
                        )
                    await asyncio.sleep(_POLL_S)
                    continue
                kind, *rest = ours.recv()
                if kind == "done":
                    return
                if kind == "failed":
                    raise TraceError(rest[0])
                if kind == "progress":
                    job.progress, job.message = rest
                else:
                    self._take(job, kind, *rest)
        except EOFError as error:
            raise TraceError(
                "The study's process ended unexpectedly, perhaps out of memory; try a shorter trace.", code="ended"
            ) from error
        finally:
            end = asyncio.ensure_future(_end(process, start))
            self._ends.add(end)
            end.add_done_callback(self._ends.discard)
            ours.close()
            await asyncio.shield(end)


async def _end(process: BaseProcess, start: asyncio.Future[None]) -> None:
    """Kill a process once it has started, and wait until it is gone."""
    await asyncio.wait([start])
    if process.pid is not None:
        process.kill()
        await asyncio.to_thread(process.join)


def work(pipe: Connection, trace_id: str, path: Path | None, question: Question) -> None:
    """The job's process: send results and progress through `pipe`."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    try:
        if path is not None and not path.is_file():
            raise TraceError("The file was replaced by newer uploads; upload it again.")
        trace: Trace = find_generated(trace_id) if path is None else TraceFile(path, name="The file")
        for part in study(trace, question, lambda *progress: pipe.send(("progress", *progress))):
            pipe.send(part)
        pipe.send(("done",))
    except KvvizError as error:
        pipe.send(("failed", error.message))
    except (BrokenPipeError, KeyboardInterrupt):
        pass
