"""What a question to the calculator can choose from."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kvviz.calculator.cache import cache_bytes
from kvviz.calculator.calculator import MAX_MODELS
from kvviz.calculator.cards import CARDS
from kvviz.calculator.dtypes import DTYPES
from kvviz.calculator.models import MODELS, ListedModel
from kvviz.calculator.settings import MAX_BATCH, Settings
from kvviz.errors import ModelError


def listing() -> dict[str, Any]:
    """What can be chosen: models with what they keep, cards, dtypes, and the settings' defaults."""
    return {
        "models": [_listed(model) for model in MODELS],
        "cards": [asdict(card) for card in CARDS],
        "dtypes": [asdict(dtype) for dtype in DTYPES.values()],
        "defaults": Settings().asked(),
        "max_models": MAX_MODELS,
        "max_batch": MAX_BATCH,
    }


def _listed(model: ListedModel) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "model_id": model.model_id,
        "name": model.name,
        "num_parameters": model.num_parameters,
        "source": model.source,
        "checked": model.checked,
    }
    try:
        geometry = model.geometry
    except ModelError as error:
        return {
            **entry,
            "kind": error.details["kind"],
            "bytes_per_token": None,
            "max_context": None,
            "refused": error.message,
        }
    per_token = cache_bytes(geometry, context=1).bytes_per_token
    return {
        **entry,
        "kind": geometry.kind,
        "bytes_per_token": per_token,
        "max_context": geometry.max_context,
        "refused": None,
    }
