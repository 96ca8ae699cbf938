"""The commands: what they call, what they print, and how they fail; never with a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import kvviz
from kvviz.bench import decode, lanes, serving
from kvviz.commands import doctor, serve
from kvviz.commands.terminal import LoadingLine, print_error, print_replay, remember_interrupts
from kvviz.errors import ConfigError, RecordingError
from kvviz.messages import escaped
from kvviz.sources.loader import LoadStatus
from kvviz.web import app as server
from kvviz.web.app import ServerConfig
from tests.support.command import run_command
from tests.support.small_models import small_model
from tests.support.small_tokenizers import words_tokenizer

#: Replays a file, asks for the page and the events from within, says what was imported, and interrupts itself.
REPLAY = """
import json, os, signal, sys, threading, time, urllib.request
began = time.monotonic()
from kvviz.commands import main as cli
from kvviz.web import app as server
real = server.serve_app
def run(config, **options):
    def look(url):
        def ask():
            page = urllib.request.urlopen(url).read()
            status = json.load(urllib.request.urlopen(url + "api/status"))
            took = time.monotonic() - began
            print(json.dumps({"page": len(page), "model": status["model"]["state"], "seconds": took,
                              "torch": any(name in sys.modules for name in ("torch", "transformers"))}))
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=ask).start()
    real(config, on_url=look)
server.serve_app = run
sys.argv = ["kvviz", "replay", sys.argv[1], "--no-open"]
cli.main()
"""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServerConfig]:
    """Configs of the servers that would have been started."""
    configs: list[ServerConfig] = []

    def fake_run(config: ServerConfig, load: Any = None, **options: Any) -> None:
        configs.append(config)
        options["on_url"]("http://127.0.0.1:8000/")
        options["on_model_status"](LoadStatus("loading", 0.5, "Loading [b]Tiny"))
        options["on_model_status"](LoadStatus("ready", 1.0, "The model is ready."))

    monkeypatch.setattr(server, "serve_app", fake_run)
    return configs


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "small-llama"
    small_model("llama").save_pretrained(directory)
    words_tokenizer().save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def recording(model_directory: Path) -> Path:
    path = model_directory.parent / "run.kvviz"
    options = ["--model", model_directory, "--max-new-tokens", "5", "--block-size", "4", "--num-blocks", "8"]
    code, out, err = run_command("record", "word5 word6 word7", "-o", path, *options)
    assert code == 0, err
    assert f"{path}: " in out
    assert f"kvviz replay {path}" in out
    return path


def test_bare_command_serves_with_defaults(served: list[ServerConfig]) -> None:
    done = run_command()
    assert done.code == 0
    (config,) = served
    assert (config.host, config.port, config.model, config.dtype) == ("127.0.0.1", None, None, "float32")
    assert "http://127.0.0.1:8000/" in done.out
    assert "Loading [b]Tiny" in done.err
    assert "The model is ready." in done.err


def test_options_without_a_command_are_those_of_serve(served: list[ServerConfig]) -> None:
    assert run_command("--no-open", "--port", "9001").code == 0
    assert (
        run_command("serve", "--host", "0.0.0.0", "--root-path", "/k", "--allow-host", "a", "--allow-host", "b").code
        == 0
    )
    assert run_command("serve", "--model", "some/model", "--dtype", "bf16").code == 0
    assert served[0].port == 9001
    assert not served[0].open_browser
    assert (served[1].host, served[1].root_path, served[1].allow_hosts) == ("0.0.0.0", "/k", ("a", "b"))
    assert (served[2].model, served[2].dtype) == ("some/model", "bfloat16")


def test_browser_is_opened_where_there_is_one(served: list[ServerConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "browser_name", lambda: "Browser")
    assert run_command().code == 0
    assert run_command("--no-open").code == 0
    assert [config.open_browser for config in served] == [True, False]


def test_no_screen_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert serve.browser_name() is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("serve", "--dtype", "int3"), "dtype must be one of"),
        (("serve", "--root-path", "http://x"), "A root path must start with / and have no scheme, host or query"),
        (("record", "hi", "--block-size", "0"), "block_size must be"),
        (("record", "hi", "--model", "./nothing"), "No model found at"),
        (("record", "hi", "-o", "/no/such/folder/run.kvviz"), "Can't write"),
        (("record", "hi", "-o", "a" * 250), "Can't write"),
        (("record", "hi", "-o", "a" * 300), "Can't write"),
        (("events", "nothing.kvviz"), "File not found"),
        (("replay", "nothing.kvviz"), "File not found"),
        (("replay", __file__), "not a kvviz recording"),
        (("replay", "/dev/zero"), "/dev/zero is not a file"),
        (("events", "/dev/zero"), "/dev/zero is not a file"),
        (("simulate", "/dev/zero"), "Can't read /dev/zero (not a file)"),
        (("simulate", "/proc/self/mem"), "Can't read /proc/self/mem ("),
        (("blocks", "/proc/self/mem"), "Can't read /proc/self/mem ("),
        (("blocks", "/dev/zero"), "/dev/zero is larger than 67,108,864 bytes"),
        (("record", "\udcff"), "prompt must be text in UTF-8 (character 1 isn't)"),
        (("compare", "\udcff"), "prompt must be text in UTF-8 (character 1 isn't)"),
        (("record", "hi", "--model", "~nosuchuser/m"), "No model found at '~nosuchuser/m'"),
        (("serve", "--allow-host", "*"), "An allowed host must be a name or an address, without a port or * (got '*')"),
        (("serve", "--allow-host", "a:80"), "An allowed host must be a name or an address, without a port"),
    ],
)
def test_errors_are_one_sentence(served: list[ServerConfig], arguments: tuple[str, ...], sentence: str) -> None:
    code, out, err = run_command(*arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [("serve", "--nonsense"), ("record",), ("fly",), ("serve", "--port", "x")])
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    code, _, err = run_command(*arguments)
    assert code == 2
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve", "--port", "x"), "'--port': expected a whole number, got 'x'."),
        (("serve", "--port", "70000"), "'--port': expected a port from 0 to 65535, got 70000."),
        (("record", "hi", "--block-size", "1.5"), "'--block-size': expected a whole number, got '1.5'."),
        (("record", "hi", "--temperature", "warm"), "'--temperature': expected a number, got 'warm'."),
        (("record", "hi", "--seed", ""), "'--seed': expected a whole number, got empty text."),
    ],
)
def test_an_option_that_is_no_number_is_refused_in_plain_words(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, _, printed = run_command(*arguments)
    assert code == 2
    assert words in printed
    for foreign in ("integer", "string", "float"):
        assert foreign not in printed


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "\u202e", "no.such.name.invalid"])
def test_a_host_that_is_none_is_one_sentence(host: str) -> None:
    with pytest.raises(ConfigError, match="is not a name or address of this machine"):
        server.bind(host, 0)


def test_what_a_file_contains_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = run_command("blocks", Path(__file__).parent / "cases" / "found" / "blocks_escape_id.json")
    assert done.code == 0
    assert "[/red]\\u202e\\x00\\x1b" in done.out
    assert not any(sign in done.out for sign in "\x1b\x00\u202e")
    assert escaped("a\x1b[31m\nü\u202e😀\ud800") == "a\\x1b[31m\nü\\u202e😀\\ud800"


def test_the_command_to_view_a_recording_is_a_shells(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("run.kvviz", "-x", "two words"):
        print_replay(Path(name))
    commands = [line.removeprefix("View it with: ") for line in capsys.readouterr().out.splitlines()]
    assert [shlex.split(command)[2:] for command in commands] == [["run.kvviz"], ["./-x"], ["two words"]]


def test_numbers_are_taken_as_they_are_typed(served: list[ServerConfig]) -> None:
    assert run_command("serve", "--port", "0").code == 0
    assert run_command("serve", "--port", "65535").code == 0
    assert [config.port for config in served] == [0, 65_535]


def test_errors_are_red_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    print_error("No [such] thing; choose another.")
    assert capsys.readouterr().err.startswith("\x1b[31mNo [such] thing; choose another.")


def test_version_is_the_one_of_the_build() -> None:
    assert run_command("--version") == (0, f"kvviz {kvviz.__version__}\n", "")
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project.get("version", kvviz.__version__) == kvviz.__version__


def test_help_names_every_command() -> None:
    code, printed, _ = run_command("--help")
    assert code == 0
    for command in ("serve", "record", "events", "replay", "bench", "doctor"):
        assert command in printed


def test_events_are_the_records_of_the_file(recording: Path) -> None:
    code, out, _ = run_command("events", recording)
    assert code == 0
    with zipfile.ZipFile(recording) as archive:
        assert out == archive.read("events.ndjson").decode()
        header = json.loads(archive.read("header.json"))
    records = [json.loads(line) for line in out.splitlines()]
    assert [record[0] for record in records] == list(range(len(records)))
    sampled = [event for _, _, event in records if event["type"] == "token_sampled"]
    assert [event["position"] for event in sampled] == [3, 4, 5, 6, 7]
    assert {"request_id", "position", "token_id"} <= sampled[0].keys()
    assert header["pool"]["num_blocks"] == 8
    assert header["pool"]["block_size"] == 4
    assert header["title"] == "word5 word6 word7"
    assert header["capabilities"] == ["entries", "frames"]


def test_events_survive_a_closed_pipe(tmp_path: Path, recording: Path) -> None:
    long = tmp_path / "long.kvviz"
    with zipfile.ZipFile(recording) as source, zipfile.ZipFile(long, "w") as target:
        target.writestr("header.json", source.read("header.json"))
        target.writestr("events.ndjson", "".join(f'[{seq},0,{{"type":"later"}}]\n' for seq in range(50_000)))
    events = subprocess.Popen(
        [sys.executable, "-m", "kvviz", "events", str(long)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert events.stdout is not None
    assert events.stderr is not None
    assert events.stdout.readline() == b'[0,0,{"type":"later"}]\n'
    events.stdout.close()
    assert events.wait(60) == 0
    assert events.stderr.read() == b""


def test_a_terminal_without_our_signs_shows_others() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "kvviz", "calc", "llama-3.1-8b"], env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"131,072" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("redirection", [">&-", "> /dev/full"])
def test_events_without_a_place_to_go_say_so(recording: Path, redirection: str) -> None:
    command = f'"{sys.executable}" -m kvviz events "{recording}" {redirection}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "events" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_record_shows_on_a_terminal_how_far_it_is(
    model_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pty

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, end = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(terminal, 65_536):
                shown.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    options = ["--model", model_directory, "--max-new-tokens", "5", "--block-size", "4", "--num-blocks", "8"]
    prompt = " ".join(f"word{n}" for n in range(5, 14))
    with open(end, "w", encoding="utf-8") as stderr:
        code, printed, _ = run_command(
            *("record", prompt, "-o", tmp_path / "run.kvviz", *options, "--prefill-chunk", "4"), stderr=stderr
        )
    reader.join(30)
    os.close(terminal)
    text = b"".join(shown).decode()
    assert code == 0, text
    assert text.index("0 of 9 prompt tokens computed") < text.index("1 of 5 tokens generated")
    assert len(printed.splitlines()) == 2
    assert printed.startswith(f"{tmp_path / 'run.kvviz'}: ")


def test_record_counts_nothing_where_there_is_no_terminal(model_directory: Path, tmp_path: Path) -> None:
    options = ["--model", model_directory, "--max-new-tokens", "3", "--block-size", "4", "--num-blocks", "8"]
    code, out, err = run_command("record", "word5 word6", "-o", tmp_path / "run.kvviz", *options)
    assert code == 0
    *loading, last = err.splitlines()
    assert set(loading) <= {"Loading small-llama", "Loaded small-llama"}
    assert last == "Checking small-llama against its plain forward pass"
    assert len(out.splitlines()) == 2


def test_a_count_is_drawn_step_by_step() -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=100, highlight=False, no_color=True)
    with LoadingLine(console) as line:
        line.update("loading", 1.0, "Loading Tiny")
        for done in (0, 64, 128):
            line.count("prompt tokens computed", done, 150)
        line.count("tokens generated", 375, 1_500)
    text = drawn.getvalue()
    assert (
        text.index("Loading Tiny")
        < text.index("0 of 150 prompt tokens computed")
        < text.index("375 of 1,500 tokens generated")
        < text.index("25%")
    )


def test_replay_needs_no_torch_and_ends_with_ctrl_c(recording: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REPLAY, str(recording)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["model"] == "none"
    assert not answer["torch"]
    assert answer["page"] > 100


def test_interrupted_loading_is_quiet(model_directory: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kvviz", "record", "word5", "-o", str(tmp_path / "x.kvviz")]
    process = subprocess.Popen([*command, "--model", str(model_directory)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "Loading small-llama\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert "Traceback" not in process.stderr.read()
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_that_a_library_discards_is_raised_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    remember_interrupts()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with LoadingLine() as line, pytest.raises(KeyboardInterrupt):
            line.update("loading", None, "Loading the model")
    finally:
        remember_interrupts()
        signal.signal(signal.SIGINT, before)


@pytest.mark.weights
def test_live_server_from_the_command(default_model: object, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kvviz", "--no-open", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        url = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        end = time.monotonic() + 120
        state: dict[str, Any] = {}
        while state.get("state") != "ready":
            assert time.monotonic() < end, state
            state = json.load(urllib.request.urlopen(f"{url}api/status"))["model"]
            assert state["state"] in ("loading", "ready"), state
            time.sleep(0.1)
        assert state["live_session_id"]
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert "The model is ready." in errors


def test_bench_prints_what_it_measured(model_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spread = decode.Spread(0.875, 0.75, 1.0, 0.5)
    at_context = decode.DecodeResult(64, spread, 20.0, 17.5, 0.25, 2_048)
    monkeypatch.setattr(decode, "CONTEXTS", (64,))
    monkeypatch.setattr(decode, "measure_decode", lambda *arguments: at_context)
    monkeypatch.setattr(serving, "measure_serving", lambda _: serving.ServingResult(spread, spread, 0.03, 5e5))
    monkeypatch.setattr(lanes, "measure_lanes", lambda _: lanes.LanesResult(512, {"mha": 2.0}, {"int8": 1.5}))
    code, out, _ = run_command("bench", "--json", "--model", model_directory)
    assert code == 0
    answer = json.loads(out)
    assert answer["decode"][0]["ratio"] == {"median": 0.875, "low": 0.75, "high": 1.0, "worst": 0.5}
    assert (answer["serving"]["pool_ops_per_s"], answer["lanes"]["decode"]) == (5e5, {"int8": 1.5})
    assert (answer["memory"], answer["page"]) == (None, [])
    monkeypatch.setenv("COLUMNS", "200")
    code, printed, _ = run_command("bench", "--model", model_directory)
    assert code == 0
    for figure in ("0.88 (0.75–1.00)", "2.0 KiB", "500,000 operations", "mha 2.00", "int8 1.50"):
        assert figure in printed
    assert run_command("bench", "nothing").code == 2


def test_doctor_ends_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: iter([doctor.Finding("torch", "problem", "missing")]))
    assert run_command("doctor").code == 1
    monkeypatch.setattr(doctor, "examine", lambda: iter([doctor.Finding("torch", "ok", "there")]))
    assert run_command("doctor").code == 0


def test_library_records_a_loaded_model(tmp_path: Path) -> None:
    model, tokenizer = small_model("llama"), words_tokenizer()
    seen: list[tuple[int, int]] = []
    prompts: list[int] = []
    own = model.config._attn_implementation
    recording = kvviz.record(
        model,
        tokenizer,
        "word5 word6 word7 word8 word9",
        path=tmp_path / "run.kvviz",
        max_new_tokens=3,
        block_size=2,
        on_prompt=prompts.append,
        on_step=lambda *counts: seen.append(counts),
    )
    events = [event for _, _, event in recording.records()]
    assert events[0]["type"] == "request_added"
    assert events[0]["token_ids"] == [5, 6, 7, 8, 9]
    assert sum(event["type"] == "token_sampled" for event in events) == 3
    assert prompts == [5]
    assert seen == [(5, 1), (6, 2), (7, 3)]
    assert (tmp_path / "run.kvviz").is_file()
    assert model.config._attn_implementation == own
    in_memory = kvviz.record(model, tokenizer, "word5 word6 word7 word8 word9", max_new_tokens=3, block_size=2)
    timeless = [[(key, value) for key, value in event.items() if not key.endswith("_us")] for event in events]
    again = [event for _, _, event in in_memory.records()]
    assert timeless == [[(key, value) for key, value in event.items() if not key.endswith("_us")] for event in again]


def test_library_errors_are_those_of_kvviz(tmp_path: Path) -> None:
    model, tokenizer = small_model("llama"), words_tokenizer()
    with pytest.raises(ConfigError):
        kvviz.record(model, tokenizer, "word5", block_size=0)
    with pytest.raises(RecordingError):
        kvviz.record(model, tokenizer, "word5", path=tmp_path / "none" / "run.kvviz", max_new_tokens=1)
    assert issubclass(ConfigError, kvviz.KvvizError)


def test_library_serves_a_loaded_model(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[ServerConfig, Any]] = []
    monkeypatch.setattr(server, "serve_app", lambda config, load=None, **options: started.append((config, load)))
    kvviz.serve(small_model("llama"), words_tokenizer(), port=9002)
    kvviz.serve("owner/name")
    (config, load), (other, default_load) = started
    assert config.port == 9002
    assert callable(load(lambda state, fraction, message: None))
    assert (other.model, default_load) == ("owner/name", None)


def test_public_names_exist() -> None:
    for name in kvviz.__all__:
        assert getattr(kvviz, name) is not None
    assert set(dir(kvviz)) == set(kvviz.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = kvviz.nothing  # type: ignore[attr-defined]
