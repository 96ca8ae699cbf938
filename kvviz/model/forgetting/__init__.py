"""Forgetting policies by name. Each module in this package registers its own, so a new policy needs only a module."""

from importlib import import_module
from pkgutil import iter_modules

from kvviz.model.forgetting.policy import POLICIES, ForgettingPolicy, LayerView

__all__ = ["POLICIES", "ForgettingPolicy", "LayerView"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
