"""Watch the KV cache of a real language model, step by step."""

from kvviz.version import __version__

__all__ = ["__version__"]
