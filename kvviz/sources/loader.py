"""Loads the model in the background, and reports progress."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kvviz.errors import KvvizError

logger = logging.getLogger("kvviz")

#: Python's thread switch interval while the model loads, a tenth of the default: the page loads at the same time, and
#: the loading thread must not block the event loop.
SWITCH_S = 0.0005

LoadState: TypeAlias = Literal["fetching", "converting", "loading", "ready", "failed", "none"]

#: Called with a state, a fraction from 0 to 1 (None: unknown) and a message.
Progress: TypeAlias = Callable[[str, float | None, str], None]

#: Loads a model in the calling thread. Raises `KvvizError` if it fails.
Load: TypeAlias = Callable[[Progress], Any]


@dataclass(frozen=True, slots=True)
class LoadStatus:
    """Loading progress. `progress` is in whole percents, so there are at most a hundred status messages."""

    state: LoadState = "none"
    progress: float | None = None
    message: str = ""


class Loader:
    """Calls `load` in a thread, then `on_ready` with its result. Calls `on_change` after every change of `status`."""

    def __init__(self, load: Load, on_ready: Callable[[Any], None], on_change: Callable[[LoadStatus], None]) -> None:
        self.status = LoadStatus("loading", None, "The model is loading.")
        self._load = load
        self._on_ready = on_ready
        self._on_change = on_change
        self._thread = threading.Thread(target=self._run, name="kvviz-loading", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        switch_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            self._on_ready(self._load(self._progress))
        except KvvizError as error:
            self._set(LoadStatus("failed", None, error.message))
        except Exception as error:
            logger.exception("The model could not be loaded")
            self._set(
                LoadStatus(
                    "failed",
                    None,
                    f"Can't load the model ({type(error).__name__}); run `kvviz doctor` to find the problem.",
                )
            )
        else:
            self._set(LoadStatus("ready", 1.0, "The model is ready."))
        finally:
            sys.setswitchinterval(switch_s)

    def _progress(self, state: str, share: float | None, message: str) -> None:
        known: dict[str, LoadState] = {"fetching": "fetching", "converting": "converting"}
        progress = None if share is None else round(min(1.0, max(0.0, share)), 2)
        self._set(LoadStatus(known.get(state, "loading"), progress, message))

    def _set(self, status: LoadStatus) -> None:
        if status != self.status:
            self.status = status
            self._on_change(status)
