"""The cache engine: decides which token goes into which slot of which block. Knows no torch.

May import: config, errors, events, log, messages, version.
"""

from kvviz.engine.engine import Engine
from kvviz.engine.runner import Runner

__all__ = ["Engine", "Runner"]
