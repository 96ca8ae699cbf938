"""A fair lock, so that no session starves another."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Turns:
    """A first-come, first-served lock, used as a context manager around one forward pass.

    `threading.Lock` isn't fair: a session that plays at full speed would acquire it again and again.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = False

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def __enter__(self) -> Turns:
        with self._guard:
            if not self._taken:
                self._taken = True
                return self
            mine = threading.Event()
            self._waiting.append(mine)
        mine.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().set()  # hands the lock over, so it stays taken
            else:
                self._taken = False
