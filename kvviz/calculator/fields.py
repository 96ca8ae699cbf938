"""The fields of a `config.json`: one number by any of its names, or one clear sentence about what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from kvviz.errors import ModelError
from kvviz.messages import clipped, shown

_TYPES = json.loads(files("kvviz.calculator").joinpath("model_types.json").read_text(encoding="utf-8"))
#: Read here and compared with what they really keep, or with their published code.
KNOWN_TYPES: frozenset[str] = frozenset(_TYPES["known"])
#: They read a whole text at once. Those that can be told to decode are refused only where they are not.
ENCODERS: frozenset[str] = frozenset(_TYPES["encoders"])
ENCODER_DECODERS: frozenset[str] = frozenset(_TYPES["encoder_decoders"])
#: Sizes of a class by its type, which a config inside of another may leave out. Source: transformers 5.24.
DEFAULTS: dict[str, dict[str, int]] = _TYPES["defaults"]


MAX_CONFIG_BYTES = 1_000_000
#: No model has as many layers, or a field as large.
MAX_LAYERS = 4_096
MAX_NUMBER = 2**31
#: Where wrappers keep the language model, outermost first.
_NESTED = (
    "thinker_config",
    "llm_config",
    "language_config",
    "text_config",
    "language_model",
    "text_cfg",
    "llm",
    "decoder",
)
_MAX_DEPTH = 4
MAX_NAME_LENGTH = 80
HEAD_DIM_NAMES = ("head_dim", "attention_head_dim", "d_kv", "kv_channels", "head_size", "attention_head_size")


def parse_config(text: str | bytes) -> dict[str, Any]:
    """A config out of JSON text, which may hold Infinity as transformers writes it. Raises `ModelError`."""
    if len(text) > MAX_CONFIG_BYTES:
        raise ModelError(
            f"A config.json may have {MAX_CONFIG_BYTES:,} bytes, but this one has {len(text):,}; give the file of the "
            "model itself.",
            code="too_large",
        )
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ModelError(
            f"The config is not valid JSON{where}; use a model's unmodified config.json.", code="bad_config"
        ) from None
    if not isinstance(config, dict):
        raise ModelError(
            f"A config must be a JSON object (got {shown(config)}); use a model's config.json.", code="bad_config"
        )
    return config


class Fields:
    """The fields of a model's text part. What is null counts as absent."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.outer = config
        self.values = _text_part(config)
        self.outer_type = self._name_of(config)
        self.model_type = self._name_of(self.values) or self.outer_type
        #: Sizes that the config leaves to its class.
        self.left_out = self._left_out(is_nested=self.values is not config)
        self.values = {**self.left_out, **self.values}

    def _left_out(self, *, is_nested: bool) -> dict[str, int]:
        """The channels of a head; all sizes only in a config inside of another, which may hold nothing else."""
        defaults = DEFAULTS.get(self.model_type, {})
        if is_nested and any(name not in self.values for name in ("num_hidden_layers", "num_attention_heads")):
            return {name: size for name, size in defaults.items() if name not in self.values}
        if "head_dim" not in defaults or any(name in self.values for name in HEAD_DIM_NAMES):
            return {}
        return {"head_dim": defaults["head_dim"]}

    @staticmethod
    def _name_of(values: Mapping[str, Any]) -> str:
        name = values.get("model_type")
        return printable(name)

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def get(self, *names: str) -> Any:
        """The first of these fields that is there, or None."""
        return next((self.values[name] for name in names if self.values.get(name) is not None), None)

    def number(self, *names: str) -> int | None:
        """A whole number of at least 1 by the first of its names that is there; None where none is.

        Raises `ModelError`.
        """
        for name in names:
            value = self.values.get(name)
            if value is not None:
                return whole(value, name)
        return None

    def need(self, *names: str) -> int:
        """The same; raises `ModelError` also where it is missing."""
        found = self.number(*names)
        if found is None:
            raise missing(names)
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        """A field that says yes or no. Raises `ModelError` for what is neither."""
        value = self.values.get(name)
        if value is not None and value not in (True, False):
            raise _wrong(name, "true or false", value)
        return default if value is None else bool(value)

    def items(self, *names: str, or_number: bool = False) -> list[Any] | None:
        """A list with an item for each layer, by the first of its names that is there, or None.

        `or_number`: a field with one number for all layers is skipped. Raises `ModelError`.
        """
        for name in names:
            value = self.values.get(name)
            if value is not None and not isinstance(value, list | tuple) and not or_number:
                raise _wrong(name, "a list", value)
            if isinstance(value, list | tuple):
                if len(value) > MAX_LAYERS:
                    raise ModelError(
                        f"{name} of the config may have {MAX_LAYERS:,} items, but has {len(value):,}; give a model's "
                        "config.json as it is.",
                        code="bad_config",
                        field=name,
                    )
                return list(value)
        return None

    def at_layer(self, index: int) -> Fields:
        """The fields as they are for one layer, where `per_layer_config` says otherwise than the rest."""
        other = self.part("per_layer_config").values.get(str(index))
        if not isinstance(other, Mapping):
            return self
        layer = Fields({})
        layer.values, layer.model_type = {**self.values, **other}, self.model_type
        return layer

    def part(self, name: str) -> Fields:
        """A nested object as fields of its own; empty where there is none."""
        value = self.values.get(name)
        part = Fields({})
        part.values = value if isinstance(value, Mapping) else {}
        return part


def printable(name: Any) -> str:
    """A name from a config, shown on one line; empty if it is not a string."""
    text = name[:MAX_NAME_LENGTH] if isinstance(name, str) else ""
    return "".join(character for character in text if character.isprintable()).strip()


def _wrong(name: str, expected: str, value: Any) -> ModelError:
    return ModelError(
        f"{name} of the config must be {expected}, but is {shown(value)}; give a model's config.json as it is.",
        code="bad_config",
        field=name,
    )


def whole(value: Any, name: str, low: int = 1) -> int:
    """`value` as a whole number from `low` on. Raises `ModelError` that names the field."""
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= MAX_NUMBER:
        raise ModelError(
            f"{clipped(name)} of the config must be a whole number from {low} to {MAX_NUMBER:,}, but is {shown(value)}"
            "; give a model's config.json as it is.",
            code="bad_config",
            field=name,
        )
    return number


def missing(names: Sequence[str]) -> ModelError:
    """That a field is missing, by its usual name and its others."""
    others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
    return ModelError(
        f"The config has no {names[0]}{others}, without which its cache cannot be known; add it, or type the geometry.",
        code="bad_config",
        field=names[0],
    )


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(_MAX_DEPTH):
        inner = next((config[name] for name in _NESTED if isinstance(config.get(name), Mapping) and config[name]), None)
        if inner is None:
            break
        config = inner
    return config
