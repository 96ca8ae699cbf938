"""A seeded part of many cases for `pytest`; all of them for `make prove`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def sample(cases: Iterable[Any], count: int, *, seed: int = 0, by: Iterable[Callable[[Any], Any]] = ()) -> list[Any]:
    """The cases as parameters, those beyond about `count` marked `prove`; every value of `by` keeps at least one."""
    cases = list(cases)
    order = list(range(len(cases)))
    random.Random(seed).shuffle(order)
    chosen: set[int] = set()
    for key in by:
        seen = {key(cases[index]) for index in chosen}
        for index in order:
            if len(chosen) < count and key(cases[index]) not in seen:
                seen.add(key(cases[index]))
                chosen.add(index)
    chosen.update([index for index in order if index not in chosen][: count - len(chosen)])
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    rest = pytest.mark.prove
    return [pytest.param(*each, marks=() if index in chosen else rest) for index, each in enumerate(values)]
