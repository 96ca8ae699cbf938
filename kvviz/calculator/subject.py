"""A model that the calculator is asked about: of the list, by its config, or by typed numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvviz.calculator.estimate import estimated_parameters
from kvviz.calculator.layers import Geometry
from kvviz.calculator.models import find_model
from kvviz.calculator.parameters import Parameters, parameters_of
from kvviz.calculator.reading import geometry_of_config
from kvviz.calculator.typed import geometry_of_numbers
from kvviz.config import check_range

MAX_PARAMETERS = 10**14


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model that is asked about.

    `parameters`: None where they are not known; `is_estimated`: they are by the config alone. `source`, `checked`: of
    the list.
    """

    geometry: Geometry
    parameters: Parameters | None = None
    is_estimated: bool = False
    model_id: str | None = None
    source: str | None = None
    checked: str | None = None

    @classmethod
    def listed(cls, model_id: str) -> Subject:
        """A model of the list. Raises `ConfigError`, and `ModelError` for one that is refused."""
        model = find_model(model_id)
        subject = cls.of_config(model.config, name=model.name, num_parameters=model.num_parameters)
        return replace(subject, model_id=model.model_id, source=model.source, checked=model.checked)

    @classmethod
    def of_config(
        cls, config: Mapping[str, Any], *, name: str | None = None, num_parameters: int | None = None
    ) -> Subject:
        """A model by its config. Parameters that nobody gives are estimated where they can be.

        Raises `ModelError`, and `ConfigError` for a number of parameters outside its limits.
        """
        _check_parameters(num_parameters)
        geometry = geometry_of_config(config, name)
        total = estimated_parameters(config, geometry) if num_parameters is None else num_parameters
        return cls(
            geometry=geometry,
            parameters=None if total is None else parameters_of(config, total),
            is_estimated=num_parameters is None and total is not None,
        )

    @classmethod
    def typed(
        cls, numbers: Mapping[str, Any], *, name: str | None = None, num_parameters: int | None = None
    ) -> Subject:
        """A model by its numbers, see `geometry_of_numbers`. Raises `ConfigError`."""
        _check_parameters(num_parameters)
        return cls(
            geometry=geometry_of_numbers(numbers, name),
            parameters=None if num_parameters is None else Parameters(total=num_parameters),
        )


def _check_parameters(num_parameters: int | None) -> None:
    if num_parameters is not None:
        check_range("num_parameters", num_parameters, 1, MAX_PARAMETERS)
