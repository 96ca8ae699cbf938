"""Finds the model of a command: in the list, from a config file or a hub model, or as a custom geometry."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvviz.calculator import Subject, find_model, parse_config
from kvviz.calculator.fields import MAX_CONFIG_BYTES
from kvviz.errors import ConfigError, ModelError
from kvviz.messages import shown

DEFAULT_MODEL = "smollm2-135m"


def subject_of(
    model: str | None, config: str | None, numbers: Mapping[str, Any], num_parameters: int | None
) -> Subject:
    """The model of a command: a listed id, a config (file, `-` for standard input, listed id or hub id), or numbers.

    Without any of these, `DEFAULT_MODEL`. Raises `ConfigError` or `ModelError`.
    """
    typed = {name: number for name, number in numbers.items() if number is not None}
    ways = [way for way in (model, config, typed or None) if way is not None]
    if len(ways) > 1:
        raise ConfigError(
            "Specify the model only once: a model from the list, --config, or a custom geometry.",
            setting="model",
        )
    if typed:
        return Subject.typed(typed, num_parameters=num_parameters)
    name = next((way for way in (config, model) if way is not None), DEFAULT_MODEL)
    if not name:
        raise ConfigError(
            f"The model must not be empty; use a model or file, or omit it for {DEFAULT_MODEL}.",
            setting="model",
        )
    path = Path(name)
    if name == "-" or _is_path(path):
        text = sys.stdin.buffer.read(MAX_CONFIG_BYTES + 1) if name == "-" else _read(path)
        given = None if name == "-" else path.parent.name if path.name == "config.json" else path.stem
        return Subject.of_config(parse_config(text), name=given, num_parameters=num_parameters)
    if name.count("/") == 1:
        fetched = parse_config(fetch_config(name))
        return Subject.of_config(fetched, name=name.split("/")[1], num_parameters=num_parameters)
    found = Subject.listed(name)
    if num_parameters is None:
        return found
    return Subject.of_config(find_model(name).config, name=found.geometry.name, num_parameters=num_parameters)


def _is_path(path: Path) -> bool:
    try:
        return path.suffix == ".json" or path.is_absolute() or path.exists()
    except (OSError, ValueError):  # for example, the name is too long
        return True


def _read(path: Path) -> bytes:
    try:
        file_path = path / "config.json" if path.is_dir() else path
        with file_path.open("rb") as file:
            return file.read(MAX_CONFIG_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "invalid name"
        raise ModelError(
            f"Can't read {shown(str(path))} ({reason}); use a model's config.json, or a model from "
            "`kvviz calc --list`.",
            code="no_file",
        ) from None


def fetch_config(hub_id: str) -> bytes:
    """The config of a model on the hub, from the local cache or the network. Raises `ModelError`."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(hub_id, "config.json")).read_bytes()
    except Exception as error:  # from any of several libraries
        raise ModelError(
            f"Can't download the config of {shown(hub_id)} ({type(error).__name__}); check the id and the "
            "network, or pass the file with --config FILE.",
            code="no_config",
        ) from None
