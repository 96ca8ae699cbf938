"""Lanes of a comparison: what may be chosen, and what it makes of an engine's configuration."""

from kvviz.model.lanes.allocation import ALLOCATIONS, Allocation
from kvviz.model.lanes.lane import MAX_LANES, Lane, choices, parse_lane, parse_lanes

__all__ = ["ALLOCATIONS", "MAX_LANES", "Allocation", "Lane", "choices", "parse_lane", "parse_lanes"]
