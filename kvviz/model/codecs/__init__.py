"""Codecs by name. Each module in this package registers its own, so a new codec needs only a module."""

from importlib import import_module
from pkgutil import iter_modules

from kvviz.model.codecs.codec import CODECS, Calibrated, Codec, Part, Rotated

__all__ = ["CODECS", "Calibrated", "Codec", "Part", "Rotated"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
