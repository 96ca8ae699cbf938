"""Sessions and sources: turns, order of commands, limits, idle ends, and the way from recording to live model."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kvviz.config import EngineConfig
from kvviz.errors import ConfigError, KvvizError, ModelError, RequestError
from kvviz.log.recording_writer import write_recording
from kvviz.model.prompt import PromptRequest
from kvviz.sessions.limits import Limits
from kvviz.sessions.registry import LIVE_ID
from kvviz.sources.controls import AddRequest, Play, Start, Step, command_id, parse_command
from kvviz.sources.library import Library
from kvviz.sources.live import LiveSource
from kvviz.sources.loader import Loader, LoadStatus
from kvviz.sources.recorded import RecordedLog, RecordedSource
from kvviz.sources.run_settings import RunSettings, engine_config
from kvviz.sources.turns import Turns
from kvviz.sources.worker import NICENESS, Worker
from kvviz.web.app import ServerConfig
from kvviz.web.assets import find_assets
from tests.support.fake_model import FakeModel, fake_load
from tests.support.running import running, wait_for

FIRST = AddRequest(command="add_request", prompt="hello there", max_new_tokens=8)


def make_file(path: Path, title: str = "A title", prompt: str = "some prompt") -> Path:
    model = FakeModel(RunSettings())
    model.add_prompt(PromptRequest(prompt, max_new_tokens=5))
    while model.step():
        pass
    write_recording(path, {**model.header(), "title": title}, model.log.encoded(-1, 10**6))
    return path


def test_turns_are_given_in_the_order_of_asking() -> None:
    turns, order = Turns(), []

    def take(number: int) -> None:
        with turns:
            order.append(number)

    threads = []
    with turns:
        for number in range(8):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            wait_for(lambda: turns.num_waiting == len(threads))
    for thread in threads:
        thread.join()
    assert order == list(range(8))
    with turns:
        pass


def test_a_worker_does_jobs_in_order_and_lets_others_in() -> None:
    order: list[str] = []
    begun, gate = threading.Event(), threading.Event()
    worker = Worker(lambda: None, "test")

    def long() -> None:
        begun.set()
        gate.wait(5)
        order.append("first half")
        worker.run_interposed()
        order.append("second half")

    worker.start()
    futures = [worker.submit(long), worker.submit(lambda: order.append("next"))]
    begun.wait(5)
    futures.append(worker.interpose(lambda: order.append("between")))
    gate.set()
    for future in futures:
        future.result(5)
    assert order == ["first half", "between", "second half", "next"]
    with pytest.raises(KvvizError, match="ZeroDivisionError"):
        worker.submit(lambda: 1 / 0).result(5)
    worker.close()
    with pytest.raises(RequestError, match="closed"):
        worker.submit(lambda: None).result(5)


def _niceness() -> int:
    """Of this thread, or of the process where threads have none."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id() if sys.platform == "linux" else 0)


@pytest.mark.parametrize("yields", [False, True])
def test_a_worker_that_yields_has_a_lower_priority_on_linux(yields: bool) -> None:
    worker = Worker(lambda: None, "test", yields=yields)
    worker.start()
    here = _niceness()
    assert worker.submit(_niceness).result(5) == (max(here, NICENESS) if yields and sys.platform == "linux" else here)
    worker.close()


def test_the_engine_never_runs_on_the_callers_thread() -> None:
    models: list[FakeModel] = []

    def open_model(settings: RunSettings, scenario: str | None = None) -> Any:
        models.append(FakeModel(settings))
        return models[-1]

    source = LiveSource(open_model, Turns())
    source.execute(FIRST).result(5)
    assert source.execute(Step(command="step", count=3)).result(5) == {"num_steps": 3}
    source.execute(Play(command="play")).result(5)
    source.execute(Start(command="start")).result(5)
    assert (source.play.playing, source.play.idle, source.num_steps) == (False, True, 0)
    source.close()
    source.close()
    assert models[0].threads == {"kvviz-engine"}
    assert threading.current_thread().name not in models[0].threads


def test_the_same_commands_give_the_same_log() -> None:
    def run() -> list[Any]:
        source = LiveSource(lambda settings: FakeModel(settings), Turns())
        futures = []
        for prompt in ("one", "two words", "one"):
            futures.append(source.execute(AddRequest(command="add_request", prompt=prompt, max_new_tokens=6)))
            futures.append(source.execute(Step(command="step", count=4)))
        for future in futures:
            future.result(5)
        source.close()
        records = source.run.log.records()  # type: ignore[attr-defined]
        times = ("forward_us", "step_us", "layer_us", "read_us")
        return [{name: value for name, value in event.items() if name not in times} for _, _, event in records]

    assert run() == run()


def test_play_without_work_waits_for_it() -> None:
    source = LiveSource(lambda settings: FakeModel(settings), Turns())
    source.execute(Play(command="play")).result(5)
    assert source.play.playing
    source.execute(FIRST).result(5)
    wait_for(lambda: source.num_steps == 8 or source.play.rate)
    source.execute(parse_command({"command": "set_rate", "steps_per_second": None})).result(5)
    wait_for(lambda: source.play.idle)
    assert not source.play.playing
    assert source.num_steps == 8
    source.close()


def test_a_refused_start_leaves_the_old_log() -> None:
    def open_model(settings: RunSettings, scenario: str | None = None) -> Any:
        return FakeModel(settings)

    source = LiveSource(open_model, Turns())
    run = source.run
    with pytest.raises(ConfigError, match="block_size"):
        source.execute(Start(command="start", config=RunSettings(block_size=0))).result(5)
    assert source.run is run
    source.close()


def test_loader_tells_its_progress_and_its_failure() -> None:
    seen: list[LoadStatus] = []

    def load(progress: Any) -> str:
        progress("fetching", 0.123, "Fetching")
        progress("fetching", 0.124, "Fetching")
        progress("surprise", 7, "Odd")
        return "model"

    ready: list[str] = []
    loader = Loader(load, ready.append, seen.append)
    loader.start()
    wait_for(lambda: ready and seen[-1].state == "ready")
    assert [(status.state, status.progress) for status in seen] == [
        ("fetching", 0.12),
        ("loading", 1.0),
        ("ready", 1.0),
    ]

    for error, text in ((ModelError("No such model; choose one."), "No such model"), (OSError("disk"), "kvviz doctor")):

        def fail(progress: Any, error: Exception = error) -> None:
            raise error

        loader = Loader(fail, ready.append, seen.append)
        loader.start()
        wait_for(lambda: seen[-1].state == "failed")
        assert text in seen[-1].message
        seen.append(LoadStatus())


def test_recordings_on_offer(tmp_path: Path) -> None:
    make_file(tmp_path / "20 second run!.kvviz", "Second")
    make_file(tmp_path / "10-first.kvviz", "First")
    (tmp_path / "30-broken.kvviz").write_bytes(b"nonsense")
    (tmp_path / "notes.txt").write_text("no recording")
    library = Library(tmp_path)
    assert [entry.recording_id for entry in library.entries] == ["10-first", "20-second-run", "30-broken"]
    assert library.summary(library.entries[0]).title == "First"
    replay = Library(None, tmp_path / "10-first.kvviz")
    assert [entry.recording_id for entry in replay.entries] == ["10-first"]
    assert Library(tmp_path / "nowhere").entries == []
    library.close()


def test_a_recorded_log_reads_like_a_live_one(tmp_path: Path) -> None:
    source = RecordedSource(make_file(tmp_path / "x.kvviz"))
    log = source.run.log
    assert log.head_seq == len(log.encoded(-1, 10**6)) - 1
    assert log.encoded(log.head_seq, 5) == []
    assert log.encoded(2, 2) == log.encoded(-1, 10**6)[3:5]
    again = RecordedSource(tmp_path / "x.kvviz")
    assert again.run.log.log_id == log.log_id
    odd = RecordedLog([b' [ 0, 5, {"type": "step_started", "step": 1}]', b"[1,6,{}]"])
    assert odd.encoded(-1, 2) == [b'[0,5,{"type":"step_started","step":1}]', b"[1,6,{}]"]
    for opened in (source, again):
        opened.close()


def test_assets_in_both_layouts(tmp_path: Path) -> None:
    assets = find_assets()
    assert (assets.static / "js").is_dir()
    assert (assets.templates / "index.html").is_file()
    package = tmp_path / "site-packages" / "kvviz"
    (package / "_web" / "static").mkdir(parents=True)
    installed = find_assets(package)
    assert installed.static == package / "_web" / "static"
    assert installed.templates == package / "_web" / "templates"
    assert installed.recordings == package / "recordings"


def test_engine_config_from_settings() -> None:
    def config(**settings: Any) -> EngineConfig:
        return engine_config(RunSettings(**settings), bytes_per_token=1_000, max_pool_bytes=10_000_000)

    assert config() == EngineConfig()
    with pytest.raises(ConfigError, match="limit for the host tier"):
        config(num_host_blocks=60_000)
    assert config(block_size=4, pool_bytes=100_000, capture=False) == EngineConfig(block_size=4, num_blocks=25)
    with pytest.raises(ConfigError, match="not both"):
        config(num_blocks=3, pool_bytes=100_000)
    with pytest.raises(ConfigError, match="smaller than one block"):
        config(pool_bytes=15_999)
    with pytest.raises(ConfigError, match="at most 625 blocks"):
        config(num_blocks=626)


def test_command_ids() -> None:
    assert command_id({"id": 7}) == 7
    for data in ({"id": "7"}, {"id": True}, {"id": -1}, {"id": 2**60}, {}, [], None):
        assert command_id(data) is None


def test_the_recording_is_shown_until_the_model_is_ready(tmp_path: Path) -> None:
    make_file(tmp_path / "intro.kvviz", "Intro")
    gate = threading.Event()

    def load(progress: Any) -> Any:
        progress("fetching", 0.4, "Fetching: 40 %")
        gate.wait(10)
        return fake_load()(progress)

    config = ServerConfig(recordings_dir=tmp_path)
    with running(config, load, waits=False) as server, server.connect() as page:
        assert page.until_type("hello")["session_id"] == "intro"
        page.until_status(lambda status: status["model"]["state"] == "fetching")
        assert page.status["model"] == {
            "state": "fetching",
            "progress": 0.4,
            "message": "Fetching: 40 %",
            "live_session_id": None,
        }
        with server.connect("?session=new") as early:
            assert early.until_type("error")["code"] == "model_not_ready"
        with server.connect("?session=live") as waiting:
            assert waiting.until_type("status")["model"]["state"] == "fetching"
            gate.set()
            assert waiting.until_type("hello")["session_id"] == LIVE_ID
        page.until_status(lambda status: status["model"]["live_session_id"] == LIVE_ID)
        with server.connect() as later:
            assert later.until_type("hello")["kind"] == "live"


def test_without_a_model_and_when_loading_fails(tmp_path: Path) -> None:
    path = make_file(tmp_path / "only.kvviz")
    with running(ServerConfig(replay_path=path)) as server, server.connect() as page:
        page.until_status(lambda status: status["model"]["state"] == "none")
        assert page.hellos[0]["session_id"] == "only"

    def fail(progress: Any) -> Any:
        raise ModelError("The weights are not there; run `kvviz doctor`.")

    with running(ServerConfig(replay_path=path), fail) as server, server.connect() as page:
        page.until_status(lambda status: status["model"]["state"] == "failed")
        assert "not there" in page.status["model"]["message"]
        with server.connect("?session=live") as other:
            assert other.until_type("error")["code"] == "no_such_session"


def test_live_sessions_are_limited_and_idle_ones_make_room() -> None:
    limits = Limits(max_live_sessions=3, replaceable_s=0.2)
    with running(ServerConfig(limits=limits), fake_load()) as server:
        pages = [server.connect("?session=new") for _ in range(2)]
        ids = [page.until_type("hello")["session_id"] for page in pages]
        with server.connect("?session=new") as refused:
            error = refused.until_type("error")
            assert (error["code"], error["details"]) == ("too_many_sessions", {"limit": 3})
        pages[0].connection.close()
        time.sleep(0.4)
        with server.connect("?session=new") as fresh:
            fresh.until_type("hello")
            with server.connect(f"?session={ids[0]}") as ended:
                assert ended.until_type("error")["code"] == "no_such_session"
            assert pages[1].do("step") == {"num_steps": 1}
        pages[1].connection.close()


def test_sessions_opened_at_the_same_moment_stay_within_the_limit(tmp_path: Path) -> None:
    for number in range(5):
        make_file(tmp_path / f"r{number}.kvviz", prompt=f"prompt {number}")
    limits = Limits(max_live_sessions=3, max_recordings=2)
    with running(ServerConfig(limits=limits, recordings_dir=tmp_path), fake_load()) as server:
        sessions = server.sessions

        async def opened() -> list[Any]:
            lives = [sessions.create_live() for _ in range(12)]
            recordings = [sessions.find(f"r{number}") for number in range(5)]
            return await asyncio.gather(*lives, *recordings, return_exceptions=True)

        results = server.on_loop(opened())
        refused = [result for result in results[:12] if isinstance(result, RequestError)]
        assert len(refused) == 12 - 2, "the default live session counts too"
        assert {error.code for error in refused} == {"too_many_sessions"}
        kinds = [session.source.kind for session in sessions.by_id.values()]
        assert kinds.count("live") == 3
        assert kinds.count("recording") <= 2


def test_idle_sessions_end_and_the_default_one_pauses() -> None:
    limits = Limits(idle_s=0.3)
    with running(ServerConfig(limits=limits, first_prompt="x" * 20), fake_load(forward_s=0.01)) as server:
        sessions = server.sessions.by_id
        with server.connect("?session=new") as own, server.connect() as page:
            own_id = own.until_type("hello")["session_id"]
            page.do("play")
            time.sleep(0.6)
            assert own_id in sessions
            assert server.source.play.playing
        wait_for(lambda: own_id not in sessions)
        wait_for(lambda: not server.source.play.playing)
        with server.connect() as page:
            page.until_type("hello")


def test_recordings_open_at_once_are_limited(tmp_path: Path) -> None:
    for number in range(3):
        make_file(tmp_path / f"r{number}.kvviz", prompt=f"prompt {number}")
    limits = Limits(max_recordings=2)
    with running(ServerConfig(recordings_dir=tmp_path, limits=limits)) as server:
        with server.connect("?session=r0") as first, server.connect("?session=r1") as second:
            first.until_type("hello")
            second.until_type("hello")
            with server.connect("?session=r2") as third:
                assert third.until_type("error")["code"] == "too_many_sessions"
        wait_for(lambda: server.app.state.sessions.num_clients == 0)
        with server.connect("?session=r2") as third, server.connect("?session=r0") as first:
            third.until_type("hello")
            first.until_type("hello")
        assert len(server.sessions.by_id) == 2


def test_a_closed_session_tells_its_clients() -> None:
    with running(load=fake_load()) as server, server.connect("?session=new") as page:
        session_id = page.until_type("hello")["session_id"]
        sessions = server.sessions
        server.on_loop(sessions.end(sessions.by_id[session_id]))
        assert page.until_type("error")["code"] == "session_closed"
