"""Loads a model by name. Importing this module imports neither torch nor transformers.

`load` imports both, and a server calls it in a background thread. The imports take five of the eight seconds between
the command and the live model.
"""

from __future__ import annotations

import gc
import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvviz.errors import ConfigError, KvvizError, ModelError
from kvviz.model.fetch import Progress
from kvviz.model.weights import Weights, prepare

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: Dtypes that a model can be loaded in; short forms are accepted too.
DTYPES = ("float32", "bfloat16", "float16", "float64")
_SHORT_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}

#: Number of 64-bit words per tensor that enter the fingerprint by position, in addition to the sum of all.
_NUM_SAMPLES = 4096


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory, ready to be instrumented.

    `fingerprint` is 32 hex digits computed from the weights in memory, so it changes with the weights and their dtype.
    `num_parameters` and `weight_bytes` count tied weights once. `tokenizer` is None if there is none.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    name: str
    fingerprint: str
    dtype: str
    num_parameters: int
    weight_bytes: int


def check_dtype(dtype: str) -> str:
    """Return the full name of a dtype. Raises `ConfigError` if it is unsupported."""
    name = _SHORT_DTYPES.get(dtype, dtype)
    if name not in DTYPES:
        raise ConfigError(
            f"dtype must be one of {', '.join(DTYPES)} (got {dtype!r}); float32 is the default.", setting="dtype"
        )
    return name


def load(model: str | None, dtype: str, progress: Progress) -> LoadedModel:
    """Load the model named by `model` (see `kvviz.model.weights.prepare`) in `dtype`; download its weights if needed.

    Raises `ConfigError` for an unknown dtype and `ModelError` for any problem with the model.
    """
    dtype = check_dtype(dtype)
    weights = prepare(model, progress)
    with _quiet_collector():
        try:
            loaded = _load_directory(weights, dtype, progress)
        except KvvizError:
            raise
        except Exception as error:
            raise ModelError(
                f"Can't load {weights.name} ({_first_line(error)}); choose a causal language model that transformers "
                f"supports.",
                code="not_loadable",
            ) from error
    progress("loading", 1.0, f"Loaded {weights.name}")
    return loaded


def from_objects(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None, *, name: str | None = None
) -> LoadedModel:
    """Describe a model and tokenizer already in memory, and put the model in evaluation mode.

    Raises `ModelError` if `model` is not a transformers model.
    """
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise ModelError(
            f"Expected a transformers model, got {type(model).__name__}; load it with AutoModelForCausalLM.",
            code="not_a_model",
        )
    path = str(model.name_or_path or "").rstrip("/\\")
    return _describe(model, tokenizer, name or Path(path).name or type(model).__name__, fingerprint_of(model))


def _describe(model: Any, tokenizer: Any, name: str, fingerprint: str) -> LoadedModel:
    parameters = list(model.eval().parameters())
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        name=name,
        fingerprint=fingerprint,
        dtype=str(parameters[0].dtype).removeprefix("torch."),
        num_parameters=sum(parameter.numel() for parameter in parameters),
        weight_bytes=sum(parameter.nbytes for parameter in parameters),
    )


def fingerprint_of(model: torch.nn.Module) -> str:
    """Return 32 hex digits computed from names, dtypes, shapes and values of all weights.

    A tensor contributes the sum of its 64-bit words, which detects a single change, and up to 4,096 words at fixed
    places, which detect a permutation. This is cheap enough for every load.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}:".encode())
        if not tensor.is_meta and tensor.numel():
            digest.update(_sum_and_samples(tensor))
    return digest.hexdigest()[:32]


def _sum_and_samples(tensor: torch.Tensor) -> bytes:
    """The wrapping sum of a tensor's 64-bit words, evenly spaced words, and the bytes after the last word."""
    import torch

    data = tensor.detach().reshape(-1).view(torch.uint8).cpu().numpy()
    num_words = len(data) // 8
    words = data[: 8 * num_words].view(np.uint64)
    stride = max(1, -(-num_words // _NUM_SAMPLES))
    parts = (words.sum(dtype=np.uint64), words[::stride], data[8 * num_words :])
    return b"".join(part.tobytes() for part in parts)


def _load_directory(weights: Weights, dtype: str, progress: Progress) -> LoadedModel:
    """Load model and tokenizer, without using the network, pickles or third-party code."""
    progress("loading", 0.0, f"Loading {weights.name}")
    _read_ahead(weights.directory)
    import torch

    progress("loading", 0.35, f"Loading {weights.name}")
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    config = AutoConfig.from_pretrained(weights.directory, **local)
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise ModelError(
            f"{weights.name} has the model type {config.model_type!r}, which is not a causal language model; choose "
            f"one that transformers' AutoModelForCausalLM loads.",
            code="not_causal",
        )
    progress("loading", 0.75, f"Loading {weights.name}")
    with _no_progress_bars(logging):
        model = AutoModelForCausalLM.from_pretrained(
            weights.directory, config=config, dtype=getattr(torch, dtype), use_safetensors=True, **local
        )
    progress("loading", 0.95, f"Loading {weights.name}")
    with ThreadPoolExecutor(1) as pool:  # summing reads the mapped weights without holding the GIL
        fingerprint = pool.submit(fingerprint_of, model)
        tokenizer = _load_tokenizer(weights, local)
        return _describe(model, tokenizer, weights.name, fingerprint.result())


def _load_tokenizer(weights: Weights, local: dict[str, Any]) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(weights.directory, **local)
    except Exception as error:
        raise ModelError(
            f"Can't load the tokenizer of {weights.name} ({_first_line(error)}); put its files next to the weights.",
            code="no_tokenizer",
        ) from error


@contextmanager
def _no_progress_bars(logging: Any) -> Iterator[None]:
    """Hide transformers' progress bars, which duplicate ours."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Turn off garbage collection while creating a million permanent objects, and exclude these from later runs.

    This saves a tenth of the import time, and pauses of a quarter of a second between decode steps.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def _read_ahead(directory: Path) -> None:
    """Preload the weights into the system's page cache while Python imports torch."""

    def read() -> None:
        for path in sorted(directory.glob("*.safetensors")):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    if hasattr(os, "posix_fadvise"):
        threading.Thread(target=read, daemon=True).start()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".:") if lines else type(error).__name__
