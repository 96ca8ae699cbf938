"""Studies of traces in a process of their own, so that streams and the model go on; answers are kept by content."""

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
from pathlib import Path
from typing import Any

from kvviz.errors import KvvizError, MissingError, TraceError
from kvviz.traces.generated import find_generated
from kvviz.traces.study import Question, study
from kvviz.traces.trace import Trace, TraceFile

#: A job that takes longer is ended.
MAX_JOB_S = 900.0
#: Jobs whose state can still be asked for.
MAX_JOBS = 64
#: Parts of answers that are kept.
MAX_PARTS = 512
#: How much the process gives way to the model and the page.
NICENESS = 10
_POLL_S = 0.05

PartKey = tuple[str, str, str, int, int | None]


@dataclass(slots=True, eq=False)
class Job:
    """One study. `state`: waiting, running, done, failed or cancelled. `progress` 0–1; `message`: what is at work."""

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
    """All jobs of a server. A client's new job takes the place of its old one."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._known: OrderedDict[PartKey, Any] = OrderedDict()
        self._turn = asyncio.Lock()

    def begin(self, client_id: str, trace_id: str, path: Path | None, question: Question) -> Job:
        """Begin a study, of a file or for `path` None of a generated trace. What is known is there at once."""
        for other in self._jobs.values():
            if other.client_id == client_id:
                self._cancel(other)
        job = Job(secrets.token_hex(8), client_id, trace_id, path, question)
        self._jobs[job.job_id] = job
        while len(self._jobs) > MAX_JOBS:
            self._cancel(self._jobs.popitem(last=False)[1])
        try:
            self._fill(job)
        except KvvizError as error:  # such as a memory in which no block fits
            job.state, job.message = "failed", error.message
        if job.state == "waiting":
            job.task = asyncio.create_task(self._run(job))
        return job

    def find(self, job_id: str) -> Job:
        job = self._jobs.get(job_id)
        if job is None:
            raise MissingError("This study is no longer kept; start it again.", code="no_such_job")
        return job

    def cancel(self, job_id: str) -> Job:
        """End a job that has not ended; what it has found stays. Raises `MissingError`."""
        job = self.find(job_id)
        self._cancel(job)
        return job

    async def close(self) -> None:
        tasks = [job.task for job in self._jobs.values() if job.task is not None and not job.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cancel(self, job: Job) -> None:
        if job.state in ("waiting", "running"):
            job.state = "cancelled"
            if job.task is not None:
                job.task.cancel()

    def _key(self, job: Job, kind: str, policy: str) -> PartKey:
        seed = job.question.seed if policy == "random" else 0
        return kind, job.trace_id, policy, seed, job.capacity if kind == "point" else None

    def _fill(self, job: Job) -> None:
        """Give a job what is known, and have it done when that is all."""
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
                self._fill(job)  # another may have found it meanwhile
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
        await asyncio.to_thread(process.start)
        theirs.close()
        deadline = time.monotonic() + MAX_JOB_S
        try:
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
            process.kill()
            ours.close()
            await asyncio.shield(asyncio.to_thread(process.join))


def work(pipe: Connection, trace_id: str, path: Path | None, question: Question) -> None:
    """The process: send what the study finds, and how far it is."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    try:
        if path is not None and not path.is_file():
            raise TraceError("The file is no longer kept, since newer files replaced it; upload it again.")
        trace: Trace = find_generated(trace_id) if path is None else TraceFile(path, name="The file")
        for part in study(trace, question, lambda *told: pipe.send(("progress", *told))):
            pipe.send(part)
        pipe.send(("done",))
    except KvvizError as error:
        pipe.send(("failed", error.message))
    except (BrokenPipeError, KeyboardInterrupt):
        pass
