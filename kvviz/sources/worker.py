"""A thread that does all the work of one owner, so the owner's data needs no locks."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from kvviz.errors import KvvizError, RequestError

T = TypeVar("T")

#: Niceness of low-priority threads; a browser's is 0.
NICENESS = 10

logger = logging.getLogger("kvviz")


class Worker:
    """Runs jobs in order in one thread, and calls `tick` between them.

    - `tick`: called when no job is waiting. It may do some work, and returns the seconds until its next call (0: at
      once; None: not before `wake()`).
    - `yields`: lower the thread's priority, see docs/decisions/0008.

    Work passed to `interpose` runs before all jobs; a long job calls `run_interposed()` to run it in between. Futures
    raise `KvvizError` for any failure.
    """

    def __init__(self, tick: Callable[[], float | None], name: str, *, yields: bool = False) -> None:
        self._tick = tick
        self._changed = threading.Condition()
        self._interposed: deque[Callable[[], None]] = deque()
        self._jobs: deque[Callable[[], None]] = deque()
        self._woken = False
        self._closed = False
        self._yields = yields
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._closed

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` after all earlier jobs."""
        return self._append(self._jobs, work)

    def interpose(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` before the next job, or during a long job when it calls `run_interposed()`."""
        return self._append(self._interposed, work)

    def run_interposed(self) -> None:
        """Run all interposed work. Called in the thread by a long job."""
        while self._interposed:
            self._interposed.popleft()()

    def wake(self) -> None:
        """Request another call of `tick`."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """Reject pending work, and wait for the thread to end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _append(self, queue: deque[Callable[[], None]], work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def carry_out() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                if self._closed:
                    raise RequestError("The session was closed; open another one.", code="session_closed")
                result = work()
            except BaseException as error:
                future.set_exception(as_kvviz_error(error))
            else:
                future.set_result(result)

        with self._changed:
            if not self._closed:
                queue.append(carry_out)
                self._changed.notify_all()
                return future
        carry_out()
        return future

    def _work(self) -> None:
        if self._yields:
            _lower_priority()
        while (job := self._next_job()) is not None:
            job()
        for job in (*self._interposed, *self._jobs):
            job()

    def _next_job(self) -> Callable[[], None] | None:
        while True:
            with self._changed:
                if self._closed:
                    return None
                if self._interposed:
                    return self._interposed.popleft()
                if self._jobs:
                    return self._jobs.popleft()
                self._woken = False
            wait_s = self._tick()
            with self._changed:
                if not (self._woken or self._interposed or self._jobs or self._closed):
                    self._changed.wait(wait_s)


def _lower_priority() -> None:
    """Lower the priority of this thread and of threads that it starts. Does nothing except on Linux."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))


def as_kvviz_error(error: BaseException) -> KvvizError:
    """The error itself if it is a `KvvizError`; otherwise log it, and return an error for the user."""
    if isinstance(error, KvvizError):
        return error
    logger.error("Unexpected error in the engine's thread", exc_info=error)
    return KvvizError(
        f"The engine failed unexpectedly ({type(error).__name__}); see the terminal for details, and start a new log.",
        code="engine_failed",
    )
