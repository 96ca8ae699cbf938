"""Terminal output shared by the commands: errors and progress."""

from __future__ import annotations

import shlex
import signal
import threading
from pathlib import Path
from types import FrameType, TracebackType

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from kvviz.messages import escaped

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


_interrupted = threading.Event()


def remember_interrupts() -> None:
    """Let `LoadingLine` raise a Ctrl-C again that a library discarded.

    Python ignores a KeyboardInterrupt in a finalizer or a callback, and imports are full of both.
    """
    _interrupted.clear()
    signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _interrupted.set()
    raise KeyboardInterrupt


def _check_interrupt() -> None:
    if _interrupted.is_set() and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def stderr() -> Console:
    """The console for progress and errors. Results go to standard output."""
    return Console(stderr=True, highlight=False)


def print_error(sentence: str) -> None:
    stderr().print(Text(escaped(sentence), style="red"), soft_wrap=True)


def print_replay(path: Path) -> None:
    """Print how to view a recording, as a command that a shell takes as it is."""
    name = str(path)
    typer.echo(f"View it with: kvviz replay {shlex.quote(f'./{name}' if name.startswith('-') else name)}")


class LoadingLine:
    """A progress bar for downloading, loading and counting. Without a terminal, each new message is one line.

    `update` is a `kvviz.model.fetch.Progress` and can be called from any thread.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or stderr()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last = ""
        self._counted = ""

    def __enter__(self) -> LoadingLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def update(self, state: str, fraction: float | None, message: str) -> None:
        """Show `message` with a bar at `fraction` (0–1; None: unknown)."""
        _check_interrupt()
        if not self._console.is_terminal:
            if message and message != self._last:
                self._console.print(escaped(message), soft_wrap=True, markup=False)
            self._last = message
            return
        total = None if fraction is None else 1.0
        self._show(message, fraction or 0.0, total)

    def count(self, what: str, done: int, total: int) -> None:
        """Show progress as `done` of `total`. Does nothing without a terminal."""
        _check_interrupt()
        if self._console.is_terminal:
            self._show(f"{done:,} of {total:,} {what}", min(done, total), total, is_new=what != self._counted)
            self._counted = what

    def _show(self, message: str, done: float, total: float | None, *, is_new: bool = False) -> None:
        """Update the bar, which redraws ten times a second, or at once if `is_new`."""
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task(escaped(message))
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, description=escaped(message), completed=done, total=total, refresh=is_new)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
