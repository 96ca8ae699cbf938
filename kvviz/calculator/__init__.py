"""What a cache costs, by arithmetic alone: models, cards, bytes, what fits, how fast. No torch, no live engine.

The arithmetic and its conventions are in docs/memory.md. `calculate` gives everything at once, as `kvviz calc --json`
and `POST api/calculator` do; the functions below it give its parts.

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
