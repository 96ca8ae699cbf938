"""The fields of a `config.json`: each is found by any of its names and validated."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from kvviz.errors import ModelError
from kvviz.messages import clipped, shown

_TYPES = json.loads(files("kvviz.calculator").joinpath("model_types.json").read_text(encoding="utf-8"))
#: Model types whose geometry was compared with their real caches or their published code.
KNOWN_TYPES: frozenset[str] = frozenset(_TYPES["known"])
#: Encoders have no KV cache. Those that can also decode are rejected only if the config doesn't say `is_decoder`.
ENCODERS: frozenset[str] = frozenset(_TYPES["encoders"])
ENCODER_DECODERS: frozenset[str] = frozenset(_TYPES["encoder_decoders"])
#: Default sizes by model type, which a nested config may omit. Source: transformers 5.24.
DEFAULTS: dict[str, dict[str, int]] = _TYPES["defaults"]

MAX_CONFIG_BYTES = 8_000_000
#: Limits above the values of any real model.
MAX_LAYERS = 4_096
MAX_NUMBER = 2**31
#: Fields in which multimodal configs nest the language model's config, outermost first.
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
    """Parse a config from JSON, including the `Infinity` that transformers writes. Raises `ModelError`."""
    if len(text) > MAX_CONFIG_BYTES:
        raise ModelError(
            f"The config.json is larger than {MAX_CONFIG_BYTES:,} bytes; use a model's unmodified config.json.",
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
    """The fields of a model's text config. A null field counts as absent."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.outer = config
        self.values = _text_part(config)
        self.outer_type = self._name_of(config)
        self.model_type = self._name_of(self.values) or self.outer_type or _type_of_architecture(config)
        #: Names of the fields that were asked for.
        self.read: set[str] = set()
        #: Sizes that the config omits, from the defaults of its class.
        self.left_out = self._left_out(is_nested=self.values is not config)
        self.values = {**self.left_out, **self.values}

    def _left_out(self, *, is_nested: bool) -> dict[str, int]:
        """Defaults of omitted sizes: all of them in a nested config, otherwise only the head dimension."""
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
        self.read.add(name)
        return self.values.get(name) is not None

    def get(self, *names: str) -> Any:
        """The first of these fields that is present, or None."""
        self.read.update(names)
        return next((self.values[name] for name in names if self.values.get(name) is not None), None)

    def number(self, *names: str) -> int | None:
        """The first of these fields that is present, or None; 0 means none.

        A list with the same number for each layer is that number. Raises `ModelError` for anything else.
        """
        name, value = self._first(names)
        return None if value is None or (value == 0 and not isinstance(value, bool)) else whole(value, name)

    def need(self, *names: str) -> int:
        """Like `number`, but also raises `ModelError` for 0, or if none of the fields is present."""
        name, value = self._first(names)
        if value is None:
            raise missing(names)
        return whole(value, name)

    def _first(self, names: Sequence[str]) -> tuple[str, Any]:
        self.read.update(names)
        name = next((name for name in names if self.values.get(name) is not None), "")
        value = self.values.get(name)
        if isinstance(value, list | tuple) and value and all(each == value[0] for each in value):
            value = value[0]
        return name, value

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean field. Raises `ModelError` for any other value."""
        self.read.add(name)
        value = self.values.get(name)
        if value is not None and value not in (True, False):
            raise _wrong(name, "true or false", value)
        return default if value is None else bool(value)

    def items(self, *names: str, or_number: bool = False) -> list[Any] | None:
        """The first of these fields that is present, as a list with one item per layer; or None.

        `or_number`: skip fields with a single number for all layers. Raises `ModelError` for anything else, and for
        more than `MAX_LAYERS` items.
        """
        self.read.update(names)
        for name in names:
            value = self.values.get(name)
            if value is not None and not isinstance(value, list | tuple) and not or_number:
                raise _wrong(name, "a list", value)
            if isinstance(value, list | tuple):
                if len(value) > MAX_LAYERS:
                    raise ModelError(
                        f"{name} in the config must have at most {MAX_LAYERS:,} items (got {len(value):,}); use a "
                        "model's unmodified config.json.",
                        code="bad_config",
                        field=name,
                    )
                return list(value)
        return None

    def at_layer(self, index: int) -> Fields:
        """The fields of one layer, with its overrides in `per_layer_config`."""
        other = self.part("per_layer_config").values.get(str(index))
        if not isinstance(other, Mapping):
            return self
        layer = Fields({})
        layer.values, layer.model_type, layer.read = {**self.values, **other}, self.model_type, self.read
        return layer

    def part(self, name: str) -> Fields:
        """A nested object as `Fields`, empty if it is absent."""
        self.read.add(name)
        value = self.values.get(name)
        part = Fields({})
        part.values = value if isinstance(value, Mapping) else {}
        return part


def _squeezed(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


_TYPE_OF_CLASS = {_squeezed(name): name for name in (*DEFAULTS, *ENCODERS, *ENCODER_DECODERS, *KNOWN_TYPES)}
_CLASS_ENDINGS = re.compile("(ForCausalLM|ForConditionalGeneration|LMHeadModel|Model)$")


def _type_of_architecture(config: Mapping[str, Any]) -> str:
    """The model type of the class in `architectures`; empty if it isn't known."""
    names = config.get("architectures")
    name = names[0] if isinstance(names, list | tuple) and names else None
    return _TYPE_OF_CLASS.get(_squeezed(_CLASS_ENDINGS.sub("", printable(name))), "")


def printable(name: Any) -> str:
    """A name from a config as one line of printable text; empty if it is not a string."""
    text = name[:MAX_NAME_LENGTH] if isinstance(name, str) else ""
    return "".join(character for character in text if character.isprintable()).strip()


def _wrong(name: str, expected: str, value: Any) -> ModelError:
    return ModelError(
        f"{name} in the config must be {expected} (got {shown(value)}); use a model's unmodified config.json.",
        code="bad_config",
        field=name,
    )


def whole(value: Any, name: str, low: int = 1) -> int:
    """`value` as a whole number of at least `low`. Raises `ModelError`, which names the field."""
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= MAX_NUMBER:
        raise ModelError(
            f"{clipped(name)} in the config must be a whole number from {low} to {MAX_NUMBER:,} (got {shown(value)}); "
            "use a model's unmodified config.json.",
            code="bad_config",
            field=name,
        )
    return number


def missing(names: Sequence[str]) -> ModelError:
    """The error for a missing field. `names`: its usual name, then its alternatives."""
    others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
    return ModelError(
        f"The config has no {names[0]}{others}, which the calculation needs; add it, or use a custom geometry.",
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
