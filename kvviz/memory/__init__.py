"""What a cache costs, by arithmetic alone: models, cards, bytes, what fits, how fast. No torch, no live engine.

The arithmetic and its conventions are in docs/memory.md. `calculate` gives everything at once, as `kvviz calc --json`
and `POST api/calculator` do; the functions below it give its parts.
"""

from kvviz.memory.cache import CacheBytes, GroupBytes, cache_bytes
from kvviz.memory.calculator import calculate, machine_of
from kvviz.memory.capacity import Capacity, Machine, capacity, heads_per_gpu
from kvviz.memory.cards import CARDS, Card, find_card
from kvviz.memory.choices import listing
from kvviz.memory.estimate import estimated_parameters
from kvviz.memory.fields import parse_config
from kvviz.memory.formula import Formula, Term, bytes_per_token_formula, total_formula
from kvviz.memory.geometry import FixedState, Geometry, LayerGroup
from kvviz.memory.models import MODELS, ListedModel, find_model
from kvviz.memory.parameters import Parameters, parameters_of
from kvviz.memory.reading import geometry_of_config
from kvviz.memory.remedies import Remedy, remedies
from kvviz.memory.settings import Settings
from kvviz.memory.subject import Subject
from kvviz.memory.typed import geometry_of_numbers

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
