"""One thread that does all the work of one owner, so that what it owns needs no locks."""

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

#: Niceness of threads that give way, beside a browser's 0.
NICENESS = 10

logger = logging.getLogger("kvviz")


class Worker:
    """Does jobs in the order of asking, and between them what `tick` wants.

    `tick()` is called in the thread whenever no job waits; it may do something, and answers after how many seconds it
    wants to be called again (0: at once, None: not before `wake()`). Work given to `interpose` goes before all jobs,
    and a long job lets it in with `run_interposed()`. A future raises `KvvizError` whatever went wrong. `yields`: other
    programs that want a core come first, see docs/decisions/0008.
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
        """Do this after all jobs that came before."""
        return self._append(self._jobs, work)

    def interpose(self, work: Callable[[], T]) -> Future[T]:
        """Do this as soon as the thread is between two pieces of work."""
        return self._append(self._interposed, work)

    def run_interposed(self) -> None:
        """Do what has been interposed. Called by a long job, in the thread."""
        while self._interposed:
            self._interposed.popleft()()

    def wake(self) -> None:
        """Have `tick` called again."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """Refuse what still waits, and return when the thread has ended."""
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
    """Make this thread, and those that it will start, give way to others; where a thread has no priority, nothing."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))


def as_kvviz_error(error: BaseException) -> KvvizError:
    """The error itself when it is meant for a person; else one that is, and the traceback goes to the terminal."""
    if isinstance(error, KvvizError):
        return error
    logger.error("The engine's thread met an error that it did not expect", exc_info=error)
    return KvvizError(
        f"The engine failed unexpectedly ({type(error).__name__}); the terminal has the details. Begin a new log.",
        code="engine_failed",
    )
