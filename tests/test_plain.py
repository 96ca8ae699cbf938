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
from kvviz.log.recording import Recording, write_recording
from kvviz.messages import shown
from kvviz.sources.controls import MAX_ID, RunSettings, Start, parse_command
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
        (10**400, "a number beyond all limits"),
        (0.25, "0.25"),
        (1e26, "1e+26"),
        ("", "an empty text"),
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
    assert caught.value.message == f"A command is a JSON object with a 'command' field, but {came} came."


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ({"command": None}, "but nothing came there; the commands are start,"),
        ({"command": ["step"]}, "but a list came there; the commands are start,"),
        ({"command": "fly"}, "There is no command 'fly'; the commands are start,"),
        ({"command": "step", "count": "3"}, "step: count: a whole number is expected, but '3' came; "),
        ({"command": "step", "count": 1.5}, "step: count: a whole number is expected, but 1.5 came; "),
        ({"command": "step", "count": True}, "a whole number is expected, but true came"),
        ({"command": "step", "count": None}, "a whole number is expected, but nothing came"),
        ({"command": "step", "count": 0}, "a number of at least 1 is expected, but 0 came"),
        ({"command": "step", "count": 5_000}, "a number of at most 1,000 is expected, but 5,000 came"),
        ({"command": "step", "id": [1]}, "step: id: a whole number is expected, but a list came"),
        ({"command": "step", "surprise": 1}, "step: surprise: there is no such field; leave it out."),
        ({"command": "set_rate"}, "set_rate: steps_per_second: it is missing; "),
        ({"command": "set_rate", "steps_per_second": "fast"}, "a number is expected, but 'fast' came"),
        ({"command": "set_rate", "steps_per_second": 0}, "a number of at least 0.1 is expected, but 0 came"),
        ({"command": "add_request", "prompt": None}, "prompt: a text is expected, but nothing came"),
        ({"command": "add_request", "prompt": {}}, "prompt: a text is expected, but an object came"),
        ({"command": "add_request", "prompt": "x", "template": "yes"}, "true or false is expected, but 'yes' came"),
        ({"command": "add_request", "prompt": "x", "top_p": 0}, "a number above 0 is expected, but 0 came"),
        ({"command": "add_request", "prompt": "x", "salt": "s" * 300}, "a text of at most 256 characters is expected"),
        ({"command": "start", "config": []}, "start: config: an object is expected, but a list came"),
        ({"command": "start", "config": {"seed": "7"}}, "start: config.seed: a whole number is expected, but '7' came"),
        ({"command": "start", "config": {"prefix_cache": 1}}, "true or false is expected, but 1 came"),
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
    assert "config.pool_bytes: a number of at most 9,007,199,254,740,991 is expected, but " in message
    assert not FOREIGN.search(message)
    largest = parse_command({"command": "start", "config": {"pool_bytes": MAX_ID}})
    assert largest == Start(command="start", config=RunSettings(pool_bytes=MAX_ID))


def test_the_limit_of_a_pool_comes_over_the_websocket() -> None:
    with running(load=fake_load()) as server, server.connect() as socket:
        socket.connection.send('{"id": 1, "command": "start", "config": {"pool_bytes": 99999999999999999999999}}')
        error = socket.until_type("error")
        assert (error["id"], error["code"]) == (1, "bad_command")
        assert "at most 9,007,199,254,740,991 is expected, but 1e+23 came" in error["message"]


def test_a_query_is_refused_in_plain_words() -> None:
    with running(load=fake_load()) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        for path, words in (
            ("frames/x", "step: a whole number is expected, but 'x' came; "),
            ("frames/1?columns=0", "columns: a number of at least 1 is expected, but '0' came; "),
            ("frames/1?layer=1.5", "layer: a whole number is expected, but '1.5' came; "),
            ("frames/99999999999999999999", "step: a number of at most 9,007,199,254,740,991 is expected"),
            ("triangle/1?layer=1", "head: it is missing; "),
        ):
            message = client.get(f"/api/sessions/live/{path}").json()["message"]
            assert words in message
            assert not FOREIGN.search(message)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pool": {"num_blocks": "12", "block_size": 4, "bytes_per_token": 1}}, "a whole number is expected, but '12'"),
        ({"pool": []}, "wrong pool (an object is expected, but a list came)"),
        ({"pool": {"num_blocks": 0, "block_size": 4, "bytes_per_token": 1}}, "a number of at least 1 is expected"),
        ({"model": None}, "wrong model (an object is expected, but nothing came)"),
        ({"model": {"num_layers": 1, "layers": {}}}, "wrong model.layers (a list is expected, but an object came)"),
        ({"model": {"num_layers": 1}}, "wrong model.layers (it is missing)"),
        ({"model": {"num_layers": 1, "layers": [{"key_shape": 3}]}}, "a list is expected, but 3 came"),
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
