"""Model types by how a config of theirs is read."""

from __future__ import annotations

import json
from importlib.resources import files

_TYPES = json.loads(files("kvviz.calculator").joinpath("model_types.json").read_text(encoding="utf-8"))
#: Read here and compared with what they really keep, or with their published code.
KNOWN_TYPES: frozenset[str] = frozenset(_TYPES["known"])
#: They read a whole text at once. Those that can be told to decode are refused only where they are not.
ENCODERS: frozenset[str] = frozenset(_TYPES["encoders"])
ENCODER_DECODERS: frozenset[str] = frozenset(_TYPES["encoder_decoders"])
#: Sizes of a class by its type, which a config inside of another may leave out. Source: transformers 5.24.
DEFAULTS: dict[str, dict[str, int]] = _TYPES["defaults"]
