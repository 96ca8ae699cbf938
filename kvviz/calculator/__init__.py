"""What a cache costs, by arithmetic alone: models, cards, bytes, what fits, how fast. No torch, no live engine.

The arithmetic and its conventions are in docs/memory.md. `calculate` gives everything at once, as `kvviz calc --json`
and `POST api/calculator` do; the functions below it give its parts.

May import: config, errors, messages.
"""

from kvviz.calculator.cache import CacheBytes, GroupBytes, cache_bytes
from kvviz.calculator.calculator import calculate, machine_of
from kvviz.calculator.capacity import Capacity, Machine, capacity, heads_per_gpu
from kvviz.calculator.cards import CARDS, Card, find_card
from kvviz.calculator.catalogue import listing
from kvviz.calculator.estimate import estimated_parameters
from kvviz.calculator.fields import parse_config
from kvviz.calculator.formula import Formula, Term, bytes_per_token_formula, total_formula
from kvviz.calculator.layers import FixedState, Geometry, LayerGroup
from kvviz.calculator.models import MODELS, ListedModel, find_model
from kvviz.calculator.parameters import Parameters, parameters_of
from kvviz.calculator.reading import geometry_of_config
from kvviz.calculator.remedies import Remedy, remedies
from kvviz.calculator.settings import Settings
from kvviz.calculator.subject import Subject
from kvviz.calculator.typed import geometry_of_numbers

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
