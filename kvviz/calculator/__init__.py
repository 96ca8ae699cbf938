"""Calculates the cost of a cache: models, GPUs, bytes, capacity and speed. Needs no torch and no engine.

The arithmetic is in docs/memory.md. `calculate` returns all results at once, like `kvviz calc --json` and `POST
api/calculator`; the other functions return parts of them.

May import: config, errors, messages.
"""

from kvviz.calculator.cache import (
    CacheBytes,
    Formula,
    GroupBytes,
    Term,
    bytes_per_token_formula,
    cache_bytes,
    total_formula,
)
from kvviz.calculator.calculator import calculate, listing, machine_of
from kvviz.calculator.capacity import Capacity, Machine, capacity, heads_per_gpu
from kvviz.calculator.fields import parse_config
from kvviz.calculator.gpus import CARDS, Card, find_card
from kvviz.calculator.layers import FixedState, Geometry, LayerGroup, geometry_of_numbers
from kvviz.calculator.models import MODELS, ListedModel, Subject, find_model
from kvviz.calculator.parameters import Parameters, estimated_parameters, parameters_of
from kvviz.calculator.reading import geometry_of_config
from kvviz.calculator.remedies import Remedy, remedies
from kvviz.calculator.settings import Settings

__all__ = [
    "CARDS",
    "MODELS",
    "CacheBytes",
    "Capacity",
    "Card",
    "FixedState",
    "Formula",
    "Geometry",
    "GroupBytes",
    "LayerGroup",
    "ListedModel",
    "Machine",
    "Parameters",
    "Remedy",
    "Settings",
    "Subject",
    "Term",
    "bytes_per_token_formula",
    "cache_bytes",
    "calculate",
    "capacity",
    "estimated_parameters",
    "find_card",
    "find_model",
    "geometry_of_config",
    "geometry_of_numbers",
    "heads_per_gpu",
    "listing",
    "machine_of",
    "parameters_of",
    "parse_config",
    "remedies",
    "total_formula",
]
