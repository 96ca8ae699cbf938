"""Watch the KV cache of a real language model, step by step.

Public names are imported on first use, so `import kvviz` loads neither torch nor a web server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kvviz.errors import KvvizError
from kvviz.version import __version__

if TYPE_CHECKING:
    from kvviz.api import record, serve
    from kvviz.config import EngineConfig
    from kvviz.engine import Engine
    from kvviz.log.recording import Recording

__all__ = ["Engine", "EngineConfig", "KvvizError", "Recording", "__version__", "record", "serve"]

_HOMES = {
    "Engine": "kvviz.engine",
    "EngineConfig": "kvviz.config",
    "Recording": "kvviz.log.recording",
    "record": "kvviz.api",
    "serve": "kvviz.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kvviz' has no attribute {name!r} (public names: {', '.join(__all__)})")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
