"""Finds the weights of a named model and prepares them as a local directory with safetensors.

`prepare` accepts None (the default model), a `.gguf` file, a directory or a hub id. It uses the network only for files
that aren't on this machine yet. It never reads pickles and never runs code from a model's author.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock
import platformdirs

from kvviz.errors import ModelError
from kvviz.model.convert import CONVERSION_VERSION, convert, converted_name
from kvviz.model.fetch import DEFAULT_WEIGHTS, PackagedWeights, Progress, fetch, remove_leftovers

CACHE_VARIABLE = "KVVIZ_CACHE_DIR"

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]
LOCK_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Weights:
    """A directory that transformers can load offline, and the model's display name."""

    directory: Path
    name: str


def cache_directory() -> Path:
    """Directory of downloaded and converted weights: `KVVIZ_CACHE_DIR`, or the user's cache directory."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("kvviz", appauthor=False))


def default_directory(weights: PackagedWeights = DEFAULT_WEIGHTS) -> Path:
    return _converted_directory(weights.name, weights.sha256)


def _expanded(model: str) -> Path:
    try:
        return Path(model).expanduser()
    except RuntimeError:  # the home directory of an unknown user
        return Path(model)


def prepare(model: str | None, progress: Progress) -> Weights:
    """Prepare the weights named by `model`: None, `PATH.gguf`, a directory, or a hub id (looked up locally first).

    Raises `ModelError` if the model doesn't exist or its format is unsupported.
    """
    try:
        if model is None:
            return prepare_packaged(DEFAULT_WEIGHTS, progress)
        path = _expanded(model)
        if model and path.is_dir():
            return _from_directory(path, progress)
        if path.is_file():
            return _from_gguf(path, progress)
        if path.suffix == ".gguf" or model[:1] in "./~\\" or not _HUB_ID.fullmatch(model):
            raise ModelError(
                f"No model found at {model!r}; use a directory with safetensors, a .gguf file, or a hub id such as "
                f"owner/name.",
                code="no_model",
            )
        return _from_hub(model, progress)
    except OSError as error:
        if isinstance(error, ModelError):
            raise
        reason = error.strerror or str(error)
        raise ModelError(
            f"Can't store the weights in {cache_directory()} ({reason}); free some space there, or set "
            f"{CACHE_VARIABLE} to another directory.",
            code="cache_unusable",
        ) from error


def prepare_packaged(weights: PackagedWeights, progress: Progress) -> Weights:
    """Download and convert `weights` if necessary. With a warm cache, only the manifest is read."""
    target = default_directory(weights)
    if converted_name(target) is None:
        with cache_lock(progress):
            if converted_name(target) is None:
                downloads = cache_directory() / "downloads"
                gguf = fetch(weights, downloads, progress)
                _convert(gguf, target, weights.name, progress)
                gguf.unlink(missing_ok=True)
    return Weights(target, weights.name)


@contextmanager
def cache_lock(progress: Progress) -> Iterator[None]:
    """Lock the cache for writing, and report progress while another process holds the lock."""
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(directory / "lock")
    while True:
        try:
            lock.acquire(timeout=LOCK_POLL_S)
            break
        except filelock.Timeout:
            progress("fetching", None, "Waiting for another kvviz process to prepare the model")
    try:
        yield
    finally:
        lock.release()


def _converted_directory(name: str, source_sha256: str) -> Path:
    slug = re.sub(r"[^\w.-]+", "-", name)
    return cache_directory() / "models" / f"{slug}-{source_sha256[:12]}-v{CONVERSION_VERSION}"


def _convert(gguf: Path, target: Path, name: str, progress: Progress) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent)
    convert(gguf, target, name, progress)


def _from_gguf(path: Path, progress: Progress) -> Weights:
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(
                f"{path} is not a GGUF file; use a .gguf file, a directory with safetensors, or a hub id.",
                code="not_gguf",
            )
        file.seek(0)
        progress("loading", None, f"Reading {path.name}")
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target = _converted_directory(path.stem, digest)
    if converted_name(target) is None:
        with cache_lock(progress):
            if converted_name(target) is None:
                _convert(path, target, path.stem, progress)
    return Weights(target, path.stem)


def _from_directory(path: Path, progress: Progress) -> Weights:
    if any(path.glob("*.safetensors")) and (path / "config.json").is_file():
        return Weights(path, converted_name(path) or path.resolve().name)
    ggufs = sorted(path.glob("*.gguf"))
    if len(ggufs) == 1:
        return _from_gguf(ggufs[0], progress)
    raise _unreadable(str(path), {file.name for file in path.iterdir()})


def _unreadable(model: str, names: set[str]) -> ModelError:
    """Return the error that explains why a directory or a hub repository can't be loaded."""
    if any(name.endswith((".bin", ".pt", ".pth", ".ckpt")) for name in names):
        return ModelError(
            f"{model} stores its weights only as a pickle, which can run code when loaded and is therefore rejected; "
            f"convert it to safetensors with transformers' `save_pretrained` first.",
            code="pickle_refused",
        )
    missing = "config.json" if any(name.endswith(".safetensors") for name in names) else "safetensors file"
    return ModelError(
        f"{model} has no {missing}; use a directory that holds a model saved by `save_pretrained`, or a .gguf file.",
        code="no_model",
    )


def _from_hub(model: str, progress: Progress) -> Weights:
    """Return the snapshot of a hub repository: from the local hub cache if complete, else from the hub."""
    name = model.rsplit("/", 1)[-1]
    cached = _snapshot(model, local_files_only=True)
    if cached is not None and _is_whole(cached):
        return Weights(cached, name)
    progress("fetching", None, f"Downloading {model} from the hub")
    fetched = _snapshot(model, local_files_only=False)
    if fetched is None or not _is_whole(fetched):
        raise _unreadable(model, _hub_file_names(model))
    return Weights(fetched, name)


def _snapshot(model: str, *, local_files_only: bool) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, allow_patterns=_HUB_FILES, local_files_only=local_files_only))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        if local_files_only:
            return None
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{model} is neither a local file nor directory, and can't be downloaded from the hub ({reason}); check "
            f"the name and the network, or use a local path.",
            code="no_model",
        ) from error


def _hub_file_names(model: str) -> set[str]:
    from huggingface_hub import list_repo_files

    try:
        return set(list_repo_files(model))
    except Exception:
        return set()


def _is_whole(directory: Path) -> bool:
    """Whether a snapshot has a config and every safetensors file in its index."""
    if not (directory / "config.json").is_file():
        return False
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return all((directory / name).is_file() for name in names)
    return any(directory.glob("*.safetensors"))
