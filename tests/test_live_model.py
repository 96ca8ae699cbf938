"""The server over a real, small, random model: engine, tensors, sessions that share weights, and what is saved."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from kvviz.log.recording import Recording
from kvviz.log.world import World
from kvviz.model.prompt import PromptRequest
from kvviz.sources.run_factory import open_loaded
from kvviz.sources.run_settings import RunSettings
from kvviz.web.app import ServerConfig
from tests.support.compared import PROMPT, loaded
from tests.support.packs import decode_pack
from tests.support.running import Running, Socket, running


@pytest.fixture(scope="module")
def open_model() -> Any:
    return open_loaded(loaded(), frame_bytes=2**24, max_pool_bytes=2**24)


@pytest.fixture
def server(open_model: Any):
    with running(ServerConfig(first_prompt=PROMPT), lambda progress: open_model) as server:
        yield server


def tokens(page: Socket, request_id: int = 0) -> list[int]:
    events = [record[2] for record in page.records]
    return [e["token_id"] for e in events if e["type"] == "token_sampled" and e["request_id"] == request_id]


def test_the_folded_world_has_the_engines_digest_at_every_step(server: Running) -> None:
    with server.connect() as page:
        page.play()
        pool = page.hellos[0]["header"]["pool"]
        world = World(pool["num_blocks"], pool["block_size"])
        num_steps = 0
        for record in page.records:
            world.apply(record)
            if record[2]["type"] == "step_finished":
                num_steps += 1
                assert world.check is not None
                assert world.check["ok"], record
        assert num_steps == 64


def test_frames_hold_what_the_page_is_told(server: Running) -> None:
    with server.connect() as page, httpx.Client(base_url=f"{server.url}/api/sessions/live/", trust_env=False) as client:
        page.do("step", count=3)
        written = [record for record in page.records if record[2]["type"] == "kv_written"]
        head, arrays = decode_pack(client.get("frames/3?layer=1").content)
        num_tokens = len(PROMPT) + 2
        assert (head["num_tokens"], head["num_new"], head["log_id"]) == (num_tokens, 1, page.hellos[0]["log_id"])
        assert arrays["mean"].shape == (4, num_tokens)
        mean = arrays["mean"] * arrays["mean_scale"][:, None]
        np.testing.assert_allclose(mean.sum(-1), 1, atol=0.05)
        seq = written[-1][0]
        _, entry = decode_pack(client.get(f"entry?request=0&position={num_tokens - 1}&layer=2&write_seq={seq}").content)
        norm = np.sqrt((entry["key"] ** 2).sum())
        assert norm == pytest.approx(float(arrays["key_norm"][2, 0]), rel=1e-2)
        wrong = client.get(f"entry?request=0&position=0&layer=2&write_seq={seq}")
        assert (wrong.status_code, wrong.json()["code"]) == (404, "no_such_entry")
        _, triangle = decode_pack(client.get("triangle/1?layer=0&head=3").content)
        assert triangle["weights"].shape == (len(PROMPT), len(PROMPT))
        _, scores = decode_pack(client.get("scores/3?layer=0&position=0").content)
        assert scores["dot"].shape == (4,)


def test_a_past_step_never_shows_present_tensors(server: Running) -> None:
    with server.connect() as page, httpx.Client(base_url=f"{server.url}/api/sessions/live/", trust_env=False) as client:
        page.do("start", config={"num_blocks": 8, "block_size": 8, "prefix_cache": False})
        for _ in range(2):
            page.do("add_request", prompt=PROMPT, max_new_tokens=10, template=False)
            page.play()
        first = next(record for record in page.records if record[2]["type"] == "kv_written")
        gone = client.get(f"entry?request=0&position=0&layer=0&write_seq={first[0]}")
        assert (gone.status_code, gone.json()["code"]) == (410, "gone")
        assert gone.json()["details"]["since_step"] > 1


def test_a_saved_session_replays_as_it_was(server: Running) -> None:
    with server.connect() as page, httpx.Client(base_url=server.url, trust_env=False) as client:
        page.play()
        saved = client.get("/api/sessions/live/recording")
        assert saved.status_code == 200
        recording = Recording.open(saved.content)
        assert list(recording.records()) == page.records
        assert recording.header["capabilities"] == ["entries", "frames"]
        assert recording.header["title"] == PROMPT
        uploaded = client.post("/api/recordings", content=saved.content).json()
        for path in ("frames/9?layer=2", "heads/9?layer=1", "norms/0"):
            live = decode_pack(client.get(f"/api/sessions/live/{path}").content)[1]
            replayed = decode_pack(client.get(f"/api/sessions/{uploaded['id']}/{path}").content)[1]
            for name in live:
                np.testing.assert_array_equal(live[name], replayed[name], err_msg=f"{path} {name}")
        seq = next(record[0] for record in page.records if record[2]["type"] == "kv_written")
        question = f"entry?request=0&position=3&layer=1&write_seq={seq}"
        live = decode_pack(client.get(f"/api/sessions/live/{question}").content)[1]
        replayed = decode_pack(client.get(f"/api/sessions/{uploaded['id']}/{question}").content)[1]
        np.testing.assert_allclose(replayed["key"], live["key"], atol=np.abs(live["key"]).max() / 100)


def test_each_request_of_a_step_is_served_live_and_from_its_recording(server: Running) -> None:
    prompts = (PROMPT, "jumps over", "a lazy dog and a quick fox")
    with server.connect() as page, httpx.Client(base_url=server.url, trust_env=False) as client:
        for prompt in prompts[1:]:
            page.do("add_request", prompt=prompt, max_new_tokens=20, template=False)
        page.do("step", count=8)
        chunks = [record[2]["chunks"] for record in page.records if record[2]["type"] == "step_scheduled"][-1]
        assert [chunk["request_id"] for chunk in chunks] == [0, 1, 2]
        saved = client.get("/api/sessions/live/recording")
        uploaded = client.post("/api/recordings", content=saved.content).json()
        for chunk in chunks:
            request_id, num_tokens = chunk["request_id"], chunk["start"] + chunk["num_tokens"]
            for path in (f"frames/8?layer=2&request={request_id}", f"heads/8?layer=1&request={request_id}"):
                head, live = decode_pack(client.get(f"/api/sessions/live/{path}").content)
                assert (head["request_id"], head["num_tokens"]) == (request_id, num_tokens)
                replayed = decode_pack(client.get(f"/api/sessions/{uploaded['id']}/{path}").content)[1]
                for name in live:
                    np.testing.assert_array_equal(live[name], replayed[name], err_msg=f"{path} {name}")
            weights = live["heads"] * live["heads_scale"][:, None]
            where = f"layer=1&request={request_id}"
            _, triangle = decode_pack(client.get(f"/api/sessions/live/triangle/8?head=3&{where}").content)
            assert triangle["weights"].shape == (1, num_tokens)
            np.testing.assert_allclose(triangle["weights"][0] * triangle["weights_scale"][0], weights[3], atol=0.01)
            _, scores = decode_pack(client.get(f"/api/sessions/live/scores/8?position=1&{where}").content)
            np.testing.assert_allclose(scores["weight"], weights[:, 1], atol=1e-6)
        for session in ("live", uploaded["id"]):
            other = client.get(f"/api/sessions/{session}/frames/8?request=9")
            assert (other.status_code, other.json()["code"]) == (404, "not_in_step")


@pytest.mark.slow
def test_sessions_that_take_turns_compute_what_one_alone_does(server: Running) -> None:
    with server.connect() as alone:
        alone.play()
        expected = tokens(alone)
    pages = [server.connect("?session=new") for _ in range(2)]
    for page in pages:
        page.until_type("status")
        page.do("set_rate", steps_per_second=None)
    for page in pages:
        page.send("play")
    for page in pages:
        page.until_status(lambda status: status["play"]["idle"])
        assert tokens(page) == expected
        page.connection.close()


def test_settings_reach_the_engine(server: Running) -> None:
    with server.connect() as page:
        bytes_per_token = page.until_type("hello")["header"]["pool"]["bytes_per_token"]
        page.do(
            "start", config={"block_size": 4, "pool_bytes": 40 * bytes_per_token + 1, "prefill_chunk": 10, "seed": 5}
        )
        header = page.hellos[-1]["header"]
        assert (header["pool"]["num_blocks"], header["pool"]["block_size"], header["seed"]) == (10, 4, 5)
        too_long = page.ask("add_request", prompt=PROMPT, template=False)
        assert (too_long["code"], too_long["details"]["num_blocks"]) == ("never_fits", 10)
        huge = page.ask("start", config={"num_blocks": 65_536})
        assert (huge["code"], huge["details"]["setting"]) == ("bad_setting", "num_blocks")
        page.do("add_request", prompt=PROMPT[:20], template=False, max_new_tokens=2, temperature=0.7, top_k=5, seed=1)
        assert page.ask("add_request", prompt="x", template=True)["code"] == "no_template"
        page.do("step", count=9)
        chunks = [chunk for record in page.records for chunk in record[2].get("chunks", ())]
        assert [chunk["num_tokens"] for chunk in chunks[-3:]] == [10, 10, 1]


def test_a_log_begins_with_all_of_its_requests_or_the_old_one_stays(server: Running) -> None:
    with server.connect() as page:
        page.do("start", config={})
        page.do("add_request", prompt=PROMPT, template=False, max_new_tokens=3)
        page.do("step", count=9)
        log_id, records = page.hellos[-1]["log_id"], list(page.records)
        good = {"prompt": "fox", "template": False, "max_new_tokens": 2}
        refused = page.ask("start", config={"block_size": 8}, requests=[good, {**good, "prompt": ""}])
        assert (refused["type"], refused["code"]) == ("error", "empty_prompt")
        bad = page.ask("start", requests=[{**good, "max_new_tokens": 0}])
        assert bad["code"] == "bad_command"
        assert "requests.0.max_new_tokens" in bad["message"]
        assert page.ask("step")["type"] == "ack"
        assert (page.hellos[-1]["log_id"], page.records) == (log_id, records)
        began = page.do("start", config={"block_size": 8}, requests=[good, {**good, "prompt": "dog"}])
        assert began["request_ids"] == [0, 1]
        assert page.hellos[-1]["header"]["pool"]["block_size"] == 8
        page.do("step", count=9)
        assert sum(record[2]["type"] == "request_finished" for record in page.records) >= 2


def test_without_capture_nothing_is_pushed(server: Running) -> None:
    with server.connect() as page:
        page.do("start", config={"capture": False})
        page.packs.clear()
        page.do("add_request", prompt=PROMPT, template=False, max_new_tokens=4)
        page.do("step", count=9)
        page.do("pause")
        assert page.packs == []
        assert httpx.get(f"{server.url}/api/sessions/live/frames/2", trust_env=False).status_code == 404


def test_an_open_model_makes_independent_sessions(open_model: Any) -> None:
    first, second = open_model(RunSettings()), open_model(RunSettings(num_blocks=4))
    assert first.log.log_id != second.log.log_id
    first.add_prompt(PromptRequest(PROMPT, max_new_tokens=2))
    assert not second.has_work
    while first.step():
        pass
    assert (first.num_steps, second.num_steps) == (2, 0)
