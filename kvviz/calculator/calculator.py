"""The calculator: takes models and settings, returns all results as JSON data (docs/memory.md)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kvviz.calculator.bandwidth import contexts_up_to
from kvviz.calculator.cache import (
    SIZES,
    CacheBytes,
    GroupBytes,
    bytes_per_token_formula,
    cache_bytes,
    cache_of,
    total_formula,
)
from kvviz.calculator.capacity import Machine, capacity, stored_bytes, usable_bytes
from kvviz.calculator.fields import printable
from kvviz.calculator.gpus import CARDS, find_card
from kvviz.calculator.layers import FixedState
from kvviz.calculator.models import MODELS, ListedModel, Subject
from kvviz.calculator.remedies import remedies
from kvviz.calculator.settings import DTYPES, MAX_BATCH, Settings, find_dtype
from kvviz.errors import ConfigError, ModelError
from kvviz.messages import clipped

#: Maximum number of models per calculation.
MAX_MODELS = 4
#: The largest integer that readers of JSON in other languages support.
MAX_FIGURE = 2**63 - 1
#: Minimum range of a series, in sequences and in tokens.
_SERIES_BATCH = 256
_SERIES_CONTEXT = 131_072


def machine_of(settings: Settings) -> Machine | None:
    """The selected GPUs, or None without a GPU and a memory size. Raises `ConfigError` for an unknown GPU."""
    card = find_card(settings.gpu) if settings.gpu is not None else None
    memory = settings.memory_bytes or (card.memory_bytes if card else None)
    if memory is None:
        return None
    price = settings.price_per_hour
    return Machine(
        name=card.name if card else "this GPU",
        memory_bytes=memory,
        bandwidth=settings.bandwidth or (card.bandwidth if card else None),
        price_per_hour=price if price is not None else card.price_per_hour if card else None,
    )


def calculate(subjects: list[Subject], settings: Settings) -> dict[str, Any]:
    """All results for one to four models.

    Raises `ConfigError` for any other number of models, an unknown GPU, and results above `MAX_FIGURE`.
    """
    if not 1 <= len(subjects) <= MAX_MODELS:
        raise ConfigError(
            f"A calculation takes 1–{MAX_MODELS} models (got {len(subjects)}).",
            setting="models",
        )
    machine = machine_of(settings)
    answer = {
        "settings": settings.asked(),
        "machine": _machine(machine, settings),
        "models": [_model(subject, settings, machine) for subject in subjects],
    }
    if _largest(answer) > MAX_FIGURE:
        raise ConfigError(
            f"The results exceed the maximum of {MAX_FIGURE:,}; check the sizes in "
            "the config, the context and the batch.",
            setting="models",
        )
    return answer


def _largest(answer: Any) -> int:
    if isinstance(answer, dict):
        return max(map(_largest, answer.values()), default=0)
    if isinstance(answer, list | tuple):
        return max(map(_largest, answer), default=0)
    return answer if isinstance(answer, int) else 0


def _machine(machine: Machine | None, settings: Settings) -> dict[str, Any] | None:
    if machine is None:
        return None
    card = find_card(settings.gpu) if settings.gpu is not None else None
    return {
        **asdict(machine),
        "card_id": card.card_id if card else None,
        "source": card.source if card else None,
        "checked": card.checked if card else None,
        "price_source": card.price_source if card and settings.price_per_hour is None else None,
        "usable_bytes": usable_bytes(machine, settings.gpus, settings.utilisation),
    }


def _model(subject: Subject, settings: Settings, machine: Machine | None) -> dict[str, Any]:
    geometry = subject.geometry
    cache = cache_of(geometry, settings)
    warnings = [*geometry.warnings, *_warnings(subject, settings, machine)]
    answer: dict[str, Any] = {
        "model_id": subject.model_id,
        "name": geometry.name,
        "model_type": geometry.model_type,
        "source": subject.source,
        "checked": subject.checked,
        "num_parameters": subject.parameters.total if subject.parameters else None,
        "is_estimated": subject.is_estimated,
        "is_mixture": subject.parameters is not None and subject.parameters.experts > 0,
        "kind": geometry.kind,
        "max_context": geometry.max_context,
        "num_layers": geometry.num_layers,
        "cached_layers": geometry.cached_layers,
        **{name: getattr(cache, name) for name in SIZES},
        "uncompressed_bytes_per_token": cache.uncompressed_bytes_per_token,
        "indexer_bytes_per_token": cache.indexer_bytes_per_token,
        "fixed_state": _state(geometry.state, settings.batch),
        "layer_groups": [_group(part, settings) for part in cache.groups],
        "warnings": warnings,
        "capacity": None,
        "remedies": [],
        "series": _series(subject, settings),
    }
    if machine is not None and subject.parameters is not None and (geometry.groups or geometry.state):
        answer["capacity"] = asdict(capacity(geometry, subject.parameters, machine, settings))
        answer["remedies"] = [asdict(each) for each in remedies(geometry, subject.parameters, machine, settings)]
    return answer


def _group(part: GroupBytes, settings: Settings) -> dict[str, Any]:
    group = part.group
    return {
        "layers": group.layers,
        "type": group.type,
        "kv_heads": group.kv_heads,
        "k_dim": group.k_dim,
        "v_dim": group.v_dim,
        "window": group.window,
        "query_heads": group.query_heads,
        "kept_tokens": group.kept(settings.context),
        **{name: getattr(part, name) for name in SIZES},
        "formula": asdict(bytes_per_token_formula(group, settings.dtype, settings.group_size)),
        "total_formula": asdict(total_formula(group, part.bytes_per_token, settings.context, settings.batch)),
    }


def _state(state: FixedState | None, batch: int) -> dict[str, Any] | None:
    if state is None:
        return None
    return {
        "layers": state.layers,
        "type": state.type,
        "recurrent_elements_per_layer": state.recurrent,
        "conv_channels_per_layer": state.conv_channels,
        "conv_width": state.conv_width,
        "recurrent_bytes": state.recurrent_bytes,
        "conv_bytes": state.conv_bytes,
        "bytes_per_sequence": state.num_bytes,
        "total_bytes": batch * state.num_bytes,
    }


def _warnings(subject: Subject, settings: Settings, machine: Machine | None) -> list[str]:
    geometry, warnings = subject.geometry, []
    limit = geometry.max_context
    if limit is not None and settings.context > limit:
        warnings.append(
            f"The context of {settings.context:,} tokens exceeds the maximum of {geometry.name} ({limit:,}); the "
            "results are hypothetical."
        )
    unread = ", ".join(clipped(printable(name)) for name in subject.unread[:4])
    if machine is not None and subject.parameters is None:
        reason = f" (not understood: {unread})" if unread else ""
        warnings.append(
            f"The parameter count of {geometry.name} is unknown{reason}, so the capacity can't be calculated; add the "
            "count."
        )
    elif machine is not None and subject.model_id is None and unread:
        warnings.append(f"Not understood: {unread}. Each step is assumed to read all weights, which may be too many.")
    if machine is not None and subject.parameters is not None and subject.is_estimated:
        count = subject.parameters.total
        warnings.append(
            f"The parameter count ({count:,}) is estimated from the config; add the exact count if you know it."
        )
    if settings.gpus > 1:
        for group in geometry.groups:
            heads = group.kv_heads
            if heads % settings.gpus and settings.gpus % heads:
                warnings.append(
                    f"{heads} KV heads can't be split evenly over {settings.gpus} GPUs; every GPU is calculated with "
                    "the largest share."
                )
                break
    return warnings


def _series(subject: Subject, settings: Settings) -> dict[str, Any]:
    """Cache bytes over the context at the given batch, and over the batch at the given context.

    The weights are separate: `weight_bytes`, None if the parameter count is unknown.
    """
    geometry = subject.geometry
    furthest = max(settings.context, geometry.max_context or _SERIES_CONTEXT)
    contexts = sorted({*contexts_up_to(furthest), settings.context})
    largest = max(settings.batch, _SERIES_BATCH)
    batches = sorted({*(2**power for power in range(largest.bit_length())), settings.batch})

    def points(name: str, values: list[int], caches: list[CacheBytes], stored: list[int]) -> list[dict[str, int]]:
        return [
            {
                name: value,
                "total_bytes": cache.total_bytes,
                "total_bytes_blocks": cache.total_bytes_blocks,
                "stored_bytes": size,
            }
            for value, cache, size in zip(values, caches, stored, strict=True)
        ]

    weights = None
    if subject.parameters is not None:
        weights = find_dtype(settings.weights_dtype, "weights_dtype").weight_bytes(subject.parameters.total)
    return {
        "weight_bytes": weights,
        "over_context": points(
            "context",
            contexts,
            [cache_of(geometry, settings, context=each) for each in contexts],
            stored_bytes(geometry, settings, contexts, [settings.batch] * len(contexts)),
        ),
        "over_batch": points(
            "batch",
            batches,
            [cache_of(geometry, settings, batch=each) for each in batches],
            stored_bytes(geometry, settings, [settings.context] * len(batches), batches),
        ),
    }


def listing() -> dict[str, Any]:
    """All choices: models, GPUs (`cards`), dtypes and default settings."""
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
        found: tuple[Any, ...] = (error.details["kind"], None, None, error.message)
    else:
        per_token = cache_bytes(geometry, context=1).bytes_per_token
        found = (geometry.kind, per_token, geometry.max_context, None)
    return {**entry, **dict(zip(("kind", "bytes_per_token", "max_context", "refused"), found, strict=True))}
