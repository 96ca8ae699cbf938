"""Models for the calculator: listed with their sources, read from a config, or given as a custom geometry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from typing import Any

from kvviz.calculator.cache import cache_bytes
from kvviz.calculator.layers import Geometry, geometry_of_numbers
from kvviz.calculator.parameters import Parameters, estimated_parameters, parameters_of, unread_fields
from kvviz.calculator.reading import geometry_of_config
from kvviz.calculator.settings import find_dtype
from kvviz.config import check_range
from kvviz.errors import ConfigError
from kvviz.messages import shown

#: When the list was last compared with its sources.
CHECKED = "2026-11-30"
#: Dtypes of the bandwidth experiment, for both weights and cache. Scales aren't counted there.
BANDWIDTH_DTYPES = ("fp32", "bf16", "fp8", "int4")
_BIG = ("llama-3.1-8b", "llama-3.1-70b", "deepseek-v3")
MAX_PARAMETERS = 10**14


@dataclass(frozen=True, kw_only=True)
class ListedModel:
    """One listed model. `config` is its `config.json`, reduced to the fields used here.

    `num_parameters` counts the text model as transformers builds it; None if transformers can't build it. `source` is
    where the config comes from, as read on `checked`.
    """

    model_id: str
    name: str
    num_parameters: int | None
    source: str
    config: dict[str, Any] = field(repr=False)
    checked: str = CHECKED

    @cached_property
    def geometry(self) -> Geometry:
        """The model's geometry. Raises `ModelError` if its cache doesn't hold one entry per token."""
        return geometry_of_config(self.config, self.name)

    @cached_property
    def parameters(self) -> Parameters | None:
        """The model's parameters, or None if they aren't counted."""
        return None if self.num_parameters is None else parameters_of(self.config, self.num_parameters)

    @property
    def max_context(self) -> int:
        return self.geometry.max_context or 0

    def bytes_per_token(self, dtype: str) -> int:
        """Cache bytes per token in `dtype`, without scales. Raises `ConfigError` for an unknown dtype."""
        bits = _bandwidth_bits(dtype)
        return cache_bytes(self.geometry, context=1, dtype="fp8").bytes_per_token * bits // 8


def _read_list() -> tuple[ListedModel, ...]:
    text = files("kvviz.calculator").joinpath("models.json").read_text(encoding="utf-8")
    return tuple(ListedModel(**entry) for entry in json.loads(text))


#: All listed models, the default model first.
MODELS = _read_list()


def find_model(model_id: str) -> ListedModel:
    """The listed model with that id. Raises `ConfigError`."""
    wanted = model_id.strip().lower()
    for model in MODELS:
        if model.model_id == wanted:
            return model
    raise ConfigError(
        f"Unknown model {shown(model_id)}; choose one from `kvviz calc --list`, or use its config.json.",
        setting="model",
    )


def _bandwidth_bits(dtype: str) -> int:
    if dtype not in BANDWIDTH_DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(BANDWIDTH_DTYPES)} (got {shown(dtype)}).", setting="dtype")
    return find_dtype(dtype).bits


#: The models of the bandwidth experiment.
BIG_MODELS = tuple(find_model(model_id) for model_id in _BIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One model to calculate.

    - `parameters`: None if unknown.
    - `is_estimated`: whether `parameters` are estimated from the config.
    - `unread`: fields of the config's feed-forward layers that aren't understood.
    - `model_id`, `source`, `checked`: from the list; None for other models.
    """

    geometry: Geometry
    parameters: Parameters | None = None
    is_estimated: bool = False
    unread: tuple[str, ...] = ()
    model_id: str | None = None
    source: str | None = None
    checked: str | None = None

    @classmethod
    def listed(cls, model_id: str) -> Subject:
        """A listed model. Raises `ConfigError` for an unknown id and `ModelError` for a rejected kind of model."""
        model = find_model(model_id)
        subject = cls.of_config(model.config, name=model.name, num_parameters=model.num_parameters)
        return replace(subject, model_id=model.model_id, source=model.source, checked=model.checked)

    @classmethod
    def of_config(
        cls, config: Mapping[str, Any], *, name: str | None = None, num_parameters: int | None = None
    ) -> Subject:
        """A model from its config. A missing parameter count is estimated if possible.

        Raises `ModelError`, and `ConfigError` for a parameter count out of range.
        """
        _check_parameters(num_parameters)
        geometry = geometry_of_config(config, name)
        total = estimated_parameters(config, geometry) if num_parameters is None else num_parameters
        return cls(
            geometry=geometry,
            parameters=None if total is None else parameters_of(config, total),
            is_estimated=num_parameters is None and total is not None,
            unread=tuple(unread_fields(config)),
        )

    @classmethod
    def typed(
        cls, numbers: Mapping[str, Any], *, name: str | None = None, num_parameters: int | None = None
    ) -> Subject:
        _check_parameters(num_parameters)
        return cls(
            geometry=geometry_of_numbers(numbers, name),
            parameters=None if num_parameters is None else Parameters(total=num_parameters),
        )


def _check_parameters(num_parameters: int | None) -> None:
    if num_parameters is not None:
        check_range("num_parameters", num_parameters, 1, MAX_PARAMETERS)
