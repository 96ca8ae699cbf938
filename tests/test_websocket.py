"""The websocket on a real socket: following, reconnecting, commands, frames, and what must not break it."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import threading
import time
import weakref
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from kvviz.sessions.limits import Limits
from kvviz.sources.controls import COMMAND_NAMES
from kvviz.web.app import ServerConfig
from tests.support.fake_model import NUM_LAYERS, fake_load
from tests.support.running import Running, Socket, running, wait_for


@pytest.fixture
def server():
    with running(load=fake_load()) as server:
        yield server


def play_out(socket: Socket) -> None:
    """Run the waiting request to its end and receive all of it."""
    while socket.do("step", count=50)["num_steps"]:
        pass
    live = socket.ask("step")
    assert live["type"] == "ack"


def test_hello_records_and_status(server: Running) -> None:
    with server.connect() as socket:
        hello = socket.until_type("hello")
        assert (hello["session_id"], hello["kind"], hello["first_seq"], hello["checkpoint"]) == (
            "live",
            "live",
            0,
            None,
        )
        assert hello["head_seq"] == 0
        socket.until_type("records")
        assert [record[0] for record in socket.records] == [0]
        assert socket.records[0][2]["type"] == "request_added"
        status = socket.until_type("status")
        assert status["play"] == {"playing": False, "rate": 1.0, "idle": False}
        assert status["model"]["state"] == "ready"
        assert status["model"]["live_session_id"] == "live"
        assert status["clients"] == 1


def test_step_gives_dense_records_then_the_frame(server: Running) -> None:
    with server.connect() as socket:
        assert socket.do("step", count=3) == {"num_steps": 3}
        pack = socket.until_pack(step=3)
        assert (pack["layer"], pack["columns"]) == (0, 512)
        assert socket.records[-1][2] | {"step_us": 0, "forward_us": 0} == {
            "type": "step_finished",
            "step": 3,
            "digest": socket.records[-1][2]["digest"],
            "forward_us": 0,
            "step_us": 0,
        }
        assert [record[0] for record in socket.records] == list(range(len(socket.records)))


def test_the_same_batch_is_the_same_for_two_clients(server: Running) -> None:
    with server.connect() as first, server.connect() as second:
        first.do("step", count=10)
        head = server.source.run.log.head_seq
        first.until_seq(head)
        second.until_seq(head)
        assert first.records == second.records
        first.until_status(lambda status: status["clients"] == 2)
        second.connection.close()
        first.until_status(lambda status: status["clients"] == 1)


@pytest.mark.slow
def test_reconnecting_at_fifty_random_moments_has_no_gap_and_no_repeat() -> None:
    chance = random.Random(1)
    received: list[Any] = []
    query, num_cuts_while_running = "", 0
    with (
        running(ServerConfig(limits=Limits(batch_records=7)), fake_load(forward_s=0.02)) as server,
        server.connect() as driver,
    ):
        source = server.source
        driver.do("set_rate", steps_per_second=None)
        for _ in range(5):
            driver.do("add_request", prompt="once more with feeling", max_new_tokens=200)
        driver.do("play")
        for _ in range(50):
            socket = server.connect(query)
            with contextlib.suppress(TimeoutError):
                for _ in range(chance.randrange(8)):
                    socket.receive(0.1)
            num_cuts_while_running += source.play.playing
            cut(socket, chance)
            received += socket.records
            log_id = socket.hellos[-1]["log_id"] if socket.hellos else ""
            query = f"?after={received[-1][0]}&log={log_id}" if received and log_id else query
        wait_for(lambda: not source.play.playing)
        log = source.run.log
        with server.connect(query) as socket:
            if received[-1][0] < log.head_seq:
                socket.until_seq(log.head_seq)
            received += socket.records
        assert num_cuts_while_running > 25
        assert [record[0] for record in received] == list(range(log.head_seq + 1))
        assert received == log.records()


def cut(socket: Socket, chance: random.Random) -> None:
    """End a connection politely, or as a pulled cable does."""
    if chance.random() < 0.5:
        socket.connection.close()
    else:
        with contextlib.suppress(OSError):
            socket.connection.socket.shutdown(2)


def test_after_of_another_log_starts_from_the_beginning(server: Running) -> None:
    with server.connect() as socket:
        socket.do("step", count=2)
    for query in ("?after=3&log=other", "?after=99999"):
        with server.connect(query) as socket:
            socket.until_type("records")
            assert socket.records[0][0] == 0


def test_a_folded_log_gives_a_checkpoint() -> None:
    with running(load=fake_load(max_records=100)) as server, server.connect() as socket:
        socket.do("set_rate", steps_per_second=None)
        for _ in range(40):
            socket.do("step", count=1)
        socket.do("add_request", prompt="more", max_new_tokens=40)
        socket.do("step", count=100)
        log = server.source.run.log
        assert log.first_seq > 0
        socket.until_seq(log.head_seq)
        with server.connect() as late:
            hello = late.until_type("hello")
            assert hello["first_seq"] == log.first_seq
            assert hello["checkpoint"]["seq"] == log.first_seq - 1
            late.until_seq(log.head_seq)
            assert late.records[0][0] == log.first_seq
        with server.connect(f"?after={log.first_seq + 2}") as recent:
            hello = recent.until_type("hello")
            assert hello["checkpoint"] is None
            recent.until_seq(log.head_seq)
            assert recent.records[0][0] == log.first_seq + 3


@pytest.mark.slow
def test_a_client_that_fell_behind_the_fold_gets_a_new_hello() -> None:
    with running(load=fake_load(max_records=2_000)) as server, server.connect() as slow, server.connect() as driver:
        driver.do("set_rate", steps_per_second=None)
        for _ in range(2):
            driver.do("add_request", prompt="x" * 200, max_new_tokens=500)
        driver.do("step", count=1_000)
        log = server.source.run.log
        slow.until_seq(log.head_seq)
        expected = slow.hellos[-1]["first_seq"]
        tail = [record[0] for record in slow.records if record[0] >= expected][-(log.head_seq - expected + 1) :]
        assert tail == list(range(expected, log.head_seq + 1))


def test_a_long_history_is_left_to_be_fetched() -> None:
    """With `fetch=1` the socket goes on behind the head, and what it left out comes over HTTP, answer by answer."""
    limits = Limits(leap_records=20, fetch_records=30)
    with running(ServerConfig(limits=limits), fake_load()) as server, server.connect() as driver:
        driver.do("step", count=20)
        log = server.source.run.log
        with server.connect("?fetch=1") as socket:
            hello = socket.until_type("hello")
            assert hello["fetch"]
            assert hello["head_seq"] == log.head_seq > 60
            driver.do("step", count=1)
            socket.until_seq(log.head_seq)
            assert socket.records[0][0] == hello["head_seq"] + 1
            fetched: list[Any] = []
            while not fetched or fetched[-1][0] < hello["head_seq"]:
                after = fetched[-1][0] if fetched else -1
                query = {"log": hello["log_id"], "after": after}
                answer = httpx.get(f"{server.url}/api/sessions/live/records", params=query).json()
                assert len(answer) <= limits.fetch_records
                fetched += answer
            assert (fetched + socket.records)[: log.head_seq + 1] == log.records()
        with server.connect() as socket:
            assert not socket.until_type("hello")["fetch"]
        with server.connect(f"?fetch=1&after={log.head_seq - 20}&log={log.log_id}") as socket:
            assert not socket.until_type("hello")["fetch"]
        other = httpx.get(f"{server.url}/api/sessions/live/records", params={"log": "another"})
        assert (other.status_code, other.json()["code"]) == (404, "no_such_log")


def test_a_fetch_of_folded_records_says_that_they_are_gone() -> None:
    with running(ServerConfig(), fake_load(max_records=50)) as server, server.connect() as driver:
        driver.do("step", count=30)
        log = server.source.run.log
        assert log.first_seq > 0
        gone = httpx.get(f"{server.url}/api/sessions/live/records", params={"log": log.log_id})
        assert (gone.status_code, gone.json()["code"]) == (410, "gone")


def test_start_begins_a_new_log_on_the_open_socket(server: Running) -> None:
    with server.connect() as socket, server.connect() as other:
        socket.do("step", count=2)
        old = socket.hellos[-1]["log_id"]
        new = socket.do("start", config={"block_size": 4, "num_blocks": 8, "prefix_cache": False, "seed": 3})["log_id"]
        assert new != old
        for page in (socket, other):
            if page.hellos[-1:] == [] or page.hellos[-1]["log_id"] != new:
                page.until(lambda message: message["type"] == "hello" and message["log_id"] == new)
            assert page.hellos[-1]["header"]["pool"]["num_blocks"] == 8
            assert page.hellos[-1]["head_seq"] == -1
        reply = socket.ask("add_request", prompt="x" * 100)
        assert reply["code"] == "never_fits"
        assert reply["details"].keys() >= {"num_tokens", "num_blocks_needed", "num_blocks", "block_size"}
        socket.records.clear()
        assert socket.do("add_request", prompt="small", max_new_tokens=3) == {"request_id": 0}
        socket.do("step", count=9)
        assert [record[0] for record in socket.records] == list(range(len(socket.records)))
        bad = socket.ask("start", config={"block_size": 1_000})
        assert (bad["code"], bad["details"]["high"]) == ("bad_setting", 256)
        assert socket.do("step") == {"num_steps": 0}


def test_an_old_log_lets_go_of_its_model(server: Running) -> None:
    with server.connect() as socket, server.connect() as other:
        source = server.source
        for page in (socket, other):
            page.do("step")
        old = weakref.ref(source.model)
        socket.do("start")
        wait_for(lambda: gc.collect() >= 0 and old() is None)


def test_play_pause_rate(server: Running) -> None:
    with server.connect() as socket:
        socket.do("set_rate", steps_per_second=20)
        socket.do("play")
        began = time.monotonic()
        socket.until(lambda message: message["type"] == "pack" and message["step"] >= 5)
        assert 0.1 < time.monotonic() - began < 10
        socket.do("pause")
        socket.until_status(lambda status: not status["play"]["playing"])
        source = server.source
        num_steps = source.num_steps
        time.sleep(0.15)
        assert source.num_steps <= num_steps + 1
        socket.do("set_rate", steps_per_second=None)
        socket.do("play")
        socket.until_status(lambda status: status["play"]["idle"])
        assert socket.status["play"] == {"playing": False, "rate": None, "idle": True}


def test_pause_cuts_short_the_steps_that_are_owed() -> None:
    with running(load=fake_load(forward_s=0.02)) as server, server.connect() as socket:
        first, second = socket.send("step", count=40), socket.send("step", count=40)
        time.sleep(0.2)
        pause = socket.send("pause")
        replies = {}
        while len(replies) < 3:
            reply = socket.until_type("ack")
            replies[reply["id"]] = reply["result"]
        assert 0 < replies[first]["num_steps"] < 40
        assert replies[second] == {"num_steps": 0}
        assert replies[pause] is None


def test_cancel_and_reset(server: Running) -> None:
    with server.connect() as socket:
        socket.do("step")
        assert socket.do("reset_prefix_cache") == {"ok": False}
        socket.do("cancel", request_id=0)
        assert socket.ask("cancel", request_id=0)["code"] == "no_request"
        assert socket.do("reset_prefix_cache") == {"ok": True}
        types = [record[2]["type"] for record in socket.records]
        assert types[-3:] == ["request_finished", "blocks_released", "prefix_cache_reset"]


def test_subscribe(server: Running) -> None:
    with server.connect() as socket:
        socket.do("step")
        socket.do("subscribe", layer=2, columns=64)
        pack = socket.until_pack(layer=2)
        assert (pack["step"], pack["columns"]) == (1, 64)
        assert socket.ask("subscribe", layer=NUM_LAYERS)["code"] == "no_such_layer"
        assert socket.ask("subscribe", columns=513)["code"] == "bad_command"
        socket.do("subscribe", frames=False)
        socket.packs.clear()
        socket.do("step", count=5)
        socket.do("pause")
        assert socket.packs == []


def test_subscribe_to_a_request(server: Running) -> None:
    """What is pushed is of that request while it takes part, else of the first in the batch: one pack a step."""
    with server.connect() as socket:
        for prompt, count in (("second", 9), ("third", 3)):
            socket.do("add_request", prompt=prompt, max_new_tokens=count)
        socket.do("subscribe", request=2)
        for _ in range(6):
            socket.packs.clear()
            socket.do("step")
            socket.until_pack()
            socket.until_seq(socket.records[-1][0])
            chunks = [record[2] for record in socket.records if record[2]["type"] == "step_scheduled"][-1]["chunks"]
            took_part = [chunk["request_id"] for chunk in chunks]
            expected = 2 if 2 in took_part else took_part[0]
            assert [(pack["step"], pack["request_id"]) for pack in socket.packs] == [(chunks_step(socket), expected)]
        assert 2 not in took_part
        assert len(took_part) == 2
        socket.packs.clear()
        socket.do("subscribe", request=1)
        assert socket.until_pack()["request_id"] == 1
        socket.do("subscribe", layer=1)
        assert socket.until_pack(layer=1)["request_id"] == 1, "what is absent keeps its value"
        socket.packs.clear()
        socket.do("subscribe", request=None)
        assert socket.until_pack()["request_id"] == 0
        assert socket.ask("subscribe", request=-1)["code"] == "bad_command"
        assert socket.ask("subscribe", request="0")["code"] == "bad_command"


def chunks_step(socket: Socket) -> int:
    """The last step whose schedule has come."""
    return [record[2]["step"] for record in socket.records if record[2]["type"] == "step_scheduled"][-1]


def test_a_frame_is_packed_once_for_all(server: Running) -> None:
    with server.connect() as first, server.connect() as second:
        for socket in (first, second):
            socket.until_type("status")
        first.do("step")
        for socket in (first, second):
            socket.until_pack()
        assert server.source.run.frames.num_packed == 1


@pytest.mark.slow
def test_a_slow_client_skips_frames_and_never_records() -> None:
    with running(load=fake_load()) as server, server.connect() as slow, server.connect() as fast:
        fast.do("set_rate", steps_per_second=None)
        for _ in range(2):
            fast.do("add_request", prompt="y" * 500, max_new_tokens=1_000)
        for _ in range(2):
            fast.do("step", count=1_000)
        log = server.source.run.log
        slow.until_seq(log.head_seq)
        assert [record[0] for record in slow.records] == list(range(log.head_seq + 1))
        assert len(slow.packs) < 2_000


def test_session_new_is_ones_own(server: Running) -> None:
    with server.connect() as shared, server.connect("?session=new") as own:
        hello = own.until_type("hello")
        assert hello["session_id"] not in ("live", "new")
        own.do("step", count=4)
        shared.until_type("status")
        assert server.source.num_steps == 0
        session_id = hello["session_id"]
    with server.connect(f"?session={session_id}") as again:
        again.until_type("records")
        assert again.records[-1][2]["type"] == "step_finished"


def test_sessions_take_turns_and_none_starves() -> None:
    with running(load=fake_load(forward_s=0.003)) as server:
        pages = [server.connect(query) for query in ("", "?session=new", "?session=new")]
        for page in pages:
            page.until_type("status")
            page.do("set_rate", steps_per_second=None)
        for page in pages:
            page.send("play")
        for page in pages:
            page.until_status(lambda status: status["play"]["idle"])
            kinds = [record[2].get("reason", {}).get("code") for record in page.records]
            assert "failed" not in kinds
            page.connection.close()


def test_a_failing_step_is_told_and_the_session_lives_on(server: Running) -> None:
    with server.connect() as socket:
        socket.do("cancel", request_id=0)
        socket.do("add_request", prompt="poison")
        reply = socket.ask("step")
        assert (reply["type"], reply["code"]) == ("error", "engine_failed")
        socket.do("add_request", prompt="poison")
        socket.do("play")
        failure = socket.until(lambda message: message["type"] == "error")
        assert failure["id"] is None
        socket.do("add_request", prompt="fine", max_new_tokens=2)
        assert socket.do("step", count=5) == {"num_steps": 2}


HOSTILE: list[tuple[Any, str]] = [
    ("", "bad_json"),
    ("{", "bad_json"),
    ("nul", "bad_json"),
    ("[" * 100_000, "bad_json"),
    ('{"id": 1, "command": "step", "count": NaN}', "bad_json"),
    ('{"command": "add_request", "prompt": "\\ud800"}', "bad_json"),
    (b"\x00\xff binary", "bad_json"),
    ("null", "bad_command"),
    ("[]", "bad_command"),
    ('"step"', "bad_command"),
    ("12", "bad_command"),
    ("{}", "unknown_command"),
    ('{"command": null}', "unknown_command"),
    ('{"command": ["step"]}', "unknown_command"),
    ('{"command": {"a": 1}}', "unknown_command"),
    ('{"command": "__class__"}', "unknown_command"),
    ('{"command": "step", "count": "3"}', "bad_command"),
    ('{"command": "step", "count": 0}', "bad_command"),
    ('{"command": "step", "count": -1}', "bad_command"),
    ('{"command": "step", "count": 1e300}', "bad_command"),
    ('{"command": "step", "count": 99999999999999999999999999}', "bad_command"),
    ('{"command": "step", "count": true}', "bad_command"),
    ('{"command": "step", "surprise": 1}', "bad_command"),
    ('{"command": "step", "id": "x"}', "bad_command"),
    ('{"command": "set_rate"}', "bad_command"),
    ('{"command": "set_rate", "steps_per_second": 0}', "bad_command"),
    ('{"command": "set_rate", "steps_per_second": 65}', "bad_command"),
    ('{"command": "add_request"}', "bad_command"),
    ('{"command": "add_request", "prompt": 5}', "bad_command"),
    ('{"command": "add_request", "prompt": ""}', "empty_prompt"),
    ('{"command": "add_request", "prompt": "x", "max_new_tokens": 0}', "bad_command"),
    ('{"command": "add_request", "prompt": "x", "max_new_tokens": 9007199254740991}', "bad_setting"),
    ('{"command": "add_request", "prompt": "x", "temperature": -1}', "bad_command"),
    ('{"command": "add_request", "prompt": "x", "top_p": 0}', "bad_command"),
    ('{"command": "add_request", "prompt": "x", "continues": 77}', "no_request"),
    ('{"command": "cancel", "request_id": 9}', "no_request"),
    ('{"command": "start", "config": []}', "bad_command"),
    ('{"command": "start", "config": {"block_size": "16"}}', "bad_command"),
    ('{"command": "start", "config": {"block_size": 0}}', "bad_setting"),
    ('{"command": "start", "config": {"num_blocks": 100000000}}', "bad_setting"),
    ('{"command": "start", "config": {"path": "/etc/passwd"}}', "bad_command"),
    ('{"command": "subscribe", "layer": -1}', "bad_command"),
    (json.dumps({"command": "add_request", "prompt": "x" * 1_100_000}), "too_large"),
]


def test_hostile_messages_get_an_error_and_the_session_lives_on(server: Running) -> None:
    with server.connect() as socket:
        for message, code in HOSTILE:
            socket.connection.send(message)
            error = socket.until(lambda came: came["type"] in ("ack", "error"))
            assert (error["type"], error["code"]) == ("error", code), (message[:80], error)
            assert 10 < len(error["message"]) < 400
        assert socket.do("step") == {"num_steps": 1}


def test_an_error_names_the_field_and_what_came(server: Running) -> None:
    with server.connect() as socket:
        error = socket.ask("step", count="many")
        assert error["message"].startswith("step: count: ")
        assert "'many'" in error["message"]
        unknown = socket.ask("fly")
        assert unknown["details"]["commands"] == list(COMMAND_NAMES)


def test_a_monstrous_message_closes_only_its_own_socket(server: Running) -> None:
    with server.connect() as bystander:
        with server.connect() as socket:
            with contextlib.suppress(ConnectionClosed):
                socket.connection.send("x" * 20_000_000)
            with pytest.raises(ConnectionClosed):
                socket.until(lambda message: False)
        assert bystander.do("step") == {"num_steps": 1}


def test_unicode_prompts_come_back_as_they_went(server: Running) -> None:
    prompt = "<script>alert(1)</script> \"'\\ \0 \u202e 中文 العربية 👩‍👩‍👧‍👦 " + "w" * 10_000
    with server.connect() as socket:
        socket.do("start", config={"num_blocks": 4_000})
        socket.do("add_request", prompt=prompt[:3_000], max_new_tokens=1)
        added = [record[2] for record in socket.records if record[2]["type"] == "request_added"]
        assert added[-1]["prompt"] == prompt[:3_000]
        assert socket.ask("add_request", prompt=prompt)["code"] == "context_full"


def test_a_flood_of_commands_is_answered_one_by_one(server: Running) -> None:
    with server.connect() as socket:
        for _ in range(500):
            socket.send("step", count=0)
        for _ in range(500):
            assert socket.until_type("error")["code"] == "bad_command"
        assert socket.do("step") == {"num_steps": 1}


def test_too_many_commands_at_once() -> None:
    limits = Limits(max_pending_commands=4)
    with running(ServerConfig(limits=limits), fake_load(forward_s=0.2)) as server, server.connect() as socket:
        for _ in range(10):
            socket.send("step")
        assert socket.until_type("error")["code"] == "too_many_commands"
        socket.do("pause")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?session=nobody", "no_such_session"),
        ("?session=../../etc/passwd", "no_such_session"),
        ("?session=%00", "no_such_session"),
        ("?after=x", "bad_parameter"),
        ("?after=-2", "bad_parameter"),
        ("?after=1e3", "bad_parameter"),
        ("?after=99999999999999999999999", "bad_parameter"),
    ],
)
def test_a_wrong_query_is_refused_with_a_sentence(server: Running, query: str, code: str) -> None:
    with server.connect(query) as socket:
        assert socket.receive()["code"] == code
        with pytest.raises(ConnectionClosed) as closed:
            socket.receive()
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4000, code)


def test_too_many_clients() -> None:
    limits = Limits(max_clients=2)
    with running(ServerConfig(limits=limits), fake_load()) as server, server.connect() as first, server.connect():
        first.until_type("hello")
        with server.connect() as third:
            assert third.receive()["code"] == "too_many_clients"
        wait_for(lambda: server.app.state.sessions.num_clients == 2)


def test_beats_come_in_silence_and_in_noise() -> None:
    limits = Limits(beat_s=0.1)
    with running(ServerConfig(limits=limits), fake_load()) as server, server.connect() as socket:
        for _ in range(3):
            assert socket.until_type("beat")["head_seq"] == 0
        socket.do("set_rate", steps_per_second=64)
        socket.do("play")
        assert socket.until_type("beat")
    assert Limits().beat_s < 20


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1", "x", ""])
def test_another_origin_is_refused(server: Running, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        server.connect(additional_headers={"Origin": origin})
    assert refused.value.response.status_code == 403
    assert b"but sent this request to" in refused.value.response.body


def test_the_same_origin_is_let_in(server: Running) -> None:
    with server.connect(additional_headers={"Origin": server.url}) as socket:
        socket.until_type("hello")


def test_a_client_may_vanish_in_the_middle_of_a_burst(server: Running) -> None:
    with server.connect() as driver:
        driver.do("set_rate", steps_per_second=None)
        driver.do("add_request", prompt="z" * 300, max_new_tokens=900)
        driver.do("play")
        stop = threading.Event()
        for _ in range(30):
            socket = server.connect()
            socket.receive()
            socket.connection.socket.close()
        stop.set()
        wait_for(lambda: server.app.state.sessions.num_clients == 1)
        driver.do("pause")


def test_waiting_for_the_model_without_any_recording(tmp_path) -> None:
    config = ServerConfig(recordings_dir=tmp_path, limits=Limits(beat_s=0.1))
    gate = threading.Event()

    def load(progress: Any) -> Any:
        progress("fetching", 0.25, "Fetching the model: 25 %.")
        gate.wait(10)
        return fake_load()(progress)

    with running(config, load, waits=False) as server, server.connect() as socket:
        assert socket.until_type("status")["model"]["progress"] == 0.25
        assert socket.until_type("beat")["head_seq"] == -1
        sessions = server.app.state.sessions
        with server.connect() as other:
            other.until_type("status")
            wait_for(lambda: sessions.num_clients == 2)
        wait_for(lambda: sessions.num_clients == 1)  # a page that leaves while it waits is noticed
        gate.set()
        assert socket.until_type("hello")["session_id"] == "live"
