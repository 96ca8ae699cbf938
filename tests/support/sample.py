"""A seeded, stratified sample of an exhaustive set of cases: `pytest` runs the sample, `pytest --prove` all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")


def sampled(
    cases: Iterable[Case],
    *,
    group: Callable[[Case], Hashable] = lambda case: None,
    per_group: int = 1,
    always: Collection[Case] = (),
    never: Collection[Case] = (),
) -> list[Any]:
    """Values for `parametrize`. Those in `always` (what failed once) and `per_group` more of each group run under
    `pytest`. The others are marked `prove`, and so are those in `never`: slow ones with quick ones in their group.
    A case that is a tuple fills several parameters.
    """
    cases = list(cases)
    missing = [case for case in (*always, *never) if case not in cases]
    assert not missing, f"not among the cases: {missing}"
    left: dict[Hashable, list[Case]] = {}
    for case in cases:
        if case not in always and case not in never:
            left.setdefault(group(case), []).append(case)
    chance = random.Random(0)
    chosen = [case for group in left.values() for case in chance.sample(group, min(per_group, len(group)))]
    parameters = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        marks = () if case in always or case in chosen else pytest.mark.prove
        parameters.append(pytest.param(*values, id="-".join(map(str, values)), marks=marks))
    return parameters
