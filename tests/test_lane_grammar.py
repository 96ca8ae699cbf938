"""What may be written for a lane, and what is said of everything else."""

from __future__ import annotations

import pytest

from kvviz.comparison.lane import parse_lane
from kvviz.config import EngineConfig
from kvviz.errors import ConfigError


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("int8,self=5", "has no option 'self' (options: group, recent)"),
        ("window,=5", "has no option ''"),
        ("int8,group=16,group=32", "sets the option 'group' twice"),
        ("window=8,budget=9", "sets the option 'budget' twice"),
        ("window=99999999999999", "from 2 to 65536 (got 99999999999999)"),
        ("window=６４", "expects a whole number in '６４'"),
    ],
)
def test_an_option_that_does_not_do_is_named(spec: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_lane(spec)
    assert said in refused.value.message


def test_allocations_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="sets num_blocks to both 4 and 8"):
        parse_lane("small=4+offload=8").config(EngineConfig())
    config = parse_lane("no-cache+no-prefix+contiguous").config(EngineConfig())
    assert (config.kv_cache, config.prefix_cache, config.reserve) == (False, False, True)
