"""Refusals say in plain words what was expected and what came, wherever the data came from."""

from __future__ import annotations

import io
import json
import re
import zipfile
from typing import Any

import httpx
import orjson
import pytest

from kvviz.errors import RecordingError, RequestError
from kvviz.log.recording import Recording
from kvviz.log.recording_writer import write_recording
from kvviz.messages import shown
from kvviz.sources.controls import Start, parse_command
from kvviz.sources.run_settings import MAX_ID, RunSettings
from tests.support.fake_model import fake_load
from tests.support.page_logs import make_log
from tests.support.running import running

#: Words of Python and of its libraries, which nobody who sends a command has to know.
FOREIGN = re.compile(
    r"\b(int|str|bool|float|dict|list\[|tuple|None|NoneType|True|False|nan|inf|dictionary|integer|boolean|string|instance"
    r"|BaseModel|RunSettings|input|inputs|parse)\b"
)


def refusal(**command: Any) -> str:
    with pytest.raises(RequestError) as caught:
        parse_command(command)
    return caught.value.message


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "nothing"),
        (True, "true"),
        (False, "false"),
        (12, "12"),
        (1_000_000, "1,000,000"),
        (-(10**30), "-1e+30"),
        (10**400, "a number too large to show"),
        (0.25, "0.25"),
        (1e26, "1e+26"),
        ("", "empty text"),
        ("many", "'many'"),
        ("x" * 100, "'" + "x" * 56 + "..."),
        ([1, 2], "a list"),
        ({"a": 1}, "an object"),
        (b"x", "something else"),
    ],
)
def test_values_have_plain_names(value: Any, words: str) -> None:
    assert shown(value) == words


@pytest.mark.parametrize(
    ("data", "came"), [(None, "nothing"), ([], "a list"), ("step", "'step'"), (12, "12"), (1.5, "1.5"), (True, "true")]
)
def test_what_is_no_command_is_named(data: Any, came: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_command(data)
    assert caught.value.message == f"A command must be a JSON object with a 'command' field (got {came})."


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ({"command": None}, "(got nothing); choose one of start,"),
        ({"command": ["step"]}, "(got a list); choose one of start,"),
        ({"command": "fly"}, "Unknown command 'fly'; choose one of start,"),
        ({"command": "step", "count": "3"}, "step: count: expected a whole number, got '3'; "),
        ({"command": "step", "count": 1.5}, "step: count: expected a whole number, got 1.5; "),
        ({"command": "step", "count": True}, "expected a whole number, got true"),
        ({"command": "step", "count": None}, "expected a whole number, got nothing"),
        ({"command": "step", "count": 0}, "expected a number of at least 1, got 0"),
        ({"command": "step", "count": 5_000}, "expected a number of at most 1,000, got 5,000"),
        ({"command": "step", "id": [1]}, "step: id: expected a whole number, got a list"),
        ({"command": "step", "surprise": 1}, "step: surprise: unknown field; remove it."),
        ({"command": "set_rate"}, "set_rate: steps_per_second: missing; "),
        ({"command": "set_rate", "steps_per_second": "fast"}, "expected a number, got 'fast'"),
        ({"command": "set_rate", "steps_per_second": 0}, "expected a number of at least 0.1, got 0"),
        ({"command": "add_request", "prompt": None}, "prompt: expected text, got nothing"),
        ({"command": "add_request", "prompt": {}}, "prompt: expected text, got an object"),
        ({"command": "add_request", "prompt": "x", "template": "yes"}, "expected true or false, got 'yes'"),
        ({"command": "add_request", "prompt": "x", "top_p": 0}, "expected a number above 0, got 0"),
        ({"command": "add_request", "prompt": "x", "salt": "s" * 300}, "expected text of at most 256 characters"),
        ({"command": "start", "config": []}, "start: config: expected an object, got a list"),
        ({"command": "start", "config": {"seed": "7"}}, "start: config.seed: expected a whole number, got '7'"),
        ({"command": "start", "config": {"prefix_cache": 1}}, "expected true or false, got 1"),
    ],
)
def test_a_command_is_refused_in_plain_words(command: dict[str, Any], words: str) -> None:
    message = refusal(**command)
    assert words in message
    assert not FOREIGN.search(message)
    assert message.endswith(".")


@pytest.mark.parametrize("text", [str(2**64), str(10**26), str(2**63), str(MAX_ID + 1)])
def test_a_pool_beyond_all_limits_is_told_the_limit(text: str) -> None:
    """Also when the reader of JSON has made a float of the number, as it does beyond 64 bits."""
    message = refusal(**orjson.loads(f'{{"command": "start", "config": {{"pool_bytes": {text}}}}}'))
    assert "config.pool_bytes: expected a number of at most 9,007,199,254,740,991, got " in message
    assert not FOREIGN.search(message)
    largest = parse_command({"command": "start", "config": {"pool_bytes": MAX_ID}})
    assert largest == Start(command="start", config=RunSettings(pool_bytes=MAX_ID))


def test_the_limit_of_a_pool_comes_over_the_websocket() -> None:
    with running(load=fake_load()) as server, server.connect() as socket:
        socket.connection.send('{"id": 1, "command": "start", "config": {"pool_bytes": 99999999999999999999999}}')
        error = socket.until_type("error")
        assert (error["id"], error["code"]) == (1, "bad_command")
        assert "at most 9,007,199,254,740,991, got 1e+23" in error["message"]


def test_a_query_is_refused_in_plain_words() -> None:
    with running(load=fake_load()) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        for path, words in (
            ("frames/x", "step: expected a whole number, got 'x'; "),
            ("frames/1?columns=0", "columns: expected a number of at least 1, got '0'; "),
            ("frames/1?layer=1.5", "layer: expected a whole number, got '1.5'; "),
            ("frames/99999999999999999999", "step: expected a number of at most 9,007,199,254,740,991"),
            ("triangle/1?layer=1", "head: missing; "),
        ):
            message = client.get(f"/api/sessions/live/{path}").json()["message"]
            assert words in message
            assert not FOREIGN.search(message)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pool": {"num_blocks": "12", "block_size": 4, "bytes_per_token": 1}}, "expected a whole number, got '12'"),
        ({"pool": []}, "wrong pool (expected an object, got a list)"),
        ({"pool": {"num_blocks": 0, "block_size": 4, "bytes_per_token": 1}}, "expected a number of at least 1"),
        ({"model": None}, "wrong model (expected an object, got nothing)"),
        ({"model": {"num_layers": 1, "layers": {}}}, "wrong model.layers (expected a list, got an object)"),
        ({"model": {"num_layers": 1}}, "wrong model.layers (missing)"),
        ({"model": {"num_layers": 1, "layers": [{"key_shape": 3}]}}, "expected a list, got 3"),
    ],
)
def test_a_header_is_refused_in_plain_words(change: dict[str, Any], words: str) -> None:
    header, records = make_log(num_requests=1)
    made = io.BytesIO()
    write_recording(made, header, [orjson.dumps(record) for record in records])
    changed = io.BytesIO()
    with zipfile.ZipFile(made) as source, zipfile.ZipFile(changed, "w") as target:
        target.writestr("events.ndjson", source.read("events.ndjson"))
        target.writestr("header.json", json.dumps({**header, **change}))
    with pytest.raises(RecordingError) as caught:
        Recording.open(changed.getvalue())
    assert words in caught.value.message
    assert not FOREIGN.search(caught.value.message)
