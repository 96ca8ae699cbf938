"""The page of traces: its API, its studies in a process of their own, and the page itself in Chromium."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
import multiprocessing
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvviz.traces.generated import AGENTS, CHATS, DOCUMENTS
from kvviz.traces.simulation import simulate
from kvviz.traces.study import Question, capacities_of, study
from kvviz.traces.trace import StoredTrace
from kvviz.web import traces_jobs
from kvviz.web import traces_routes as traces_api
from kvviz.web.app import ServerConfig
from tests.support.accessibility import LOOKS, faults_of
from tests.support.browser import Watched
from tests.support.running import ProxyPath, Running, running, wait_for
from tests.support.slow_caches import slow_counts
from tests.support.tab import KeptScripts

#: 9 requests of 3 chains, block size 16.
CHAINS = [[1, 2, 3], [1, 4], [5, 6], [1, 2, 7], [5, 6, 8], [1, 4], [5, 6], [1, 2, 3], [9]]
REQUESTS = [(chain, 16 * len(chain)) for chain in CHAINS]
FILE = "\n".join(
    json.dumps({"timestamp": 60_000 * n, "input_length": tokens, "output_length": 1, "hash_ids": ids, "block_size": 16})
    for n, (ids, tokens) in enumerate(REQUESTS)
).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ServerConfig(), wrap=KeptScripts) as server:
        yield server


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{server.url}/api/traces", timeout=60) as client:
        yield client


def upload(client: httpx.Client, content: bytes = FILE) -> str:
    answer = client.post("/files", content=content)
    assert answer.status_code == 201, answer.text
    assert answer.json()["bytes"] == len(content)
    return str(answer.json()["trace"])


def finished(client: httpx.Client, **asked: Any) -> dict[str, Any]:
    begun = client.post("/jobs", params={"client": "test", **asked})
    assert begun.status_code == 201, begun.text
    job: dict[str, Any] = begun.json()
    deadline = time.monotonic() + 120
    while job["state"] in ("waiting", "running"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
        job = client.get(f"/jobs/{job['job_id']}").json()
    return job


def test_a_file_is_studied(client: httpx.Client) -> None:
    job = finished(client, trace=upload(client, gzip.compress(b"bad\n" + FILE)), blocks=4, seed=3)
    assert job["state"] == "done", job["message"]
    assert (job["progress"], job["capacity"]) == (1.0, 4)
    summary = job["summary"]
    assert (summary["requests"], summary["distinct_blocks"], summary["block_size"]) == (9, 9, 16)
    assert (summary["bad_lines"], summary["faults"]) == (
        1,
        ["line 1: expected a JSON object, got invalid JSON"],
    )
    assert sum(summary["reuse"]) == summary["references"] == sum(map(len, CHAINS))
    assert summary["reuse"][-1] == 9
    for policy, point in job["points"].items():
        expected = slow_counts(REQUESTS, policy, 4, 16, seed=3)
        assert (point["hit_tokens"], point["hit_blocks"], point["evictions"]) == (
            expected.hit_tokens,
            expected.hit_blocks,
            expected.evictions,
        )
        assert [bin[0] for bin in point["course"]] == [60_000.0 * n for n in range(9)]
        assert sum(bin[2] for bin in point["course"]) == point["hit_tokens"]
    for policy, curve in job["curves"].items():
        assert curve["blocks"] == list(range(1, 10))
        expected_tokens = [slow_counts(REQUESTS, policy, size, 16, seed=3).hit_tokens for size in curve["blocks"]]
        assert curve["hit_tokens"] == expected_tokens
    assert set(job["points"]) == set(job["curves"]) == {"lru", "fifo", "lfu", "random", "optimum"}


def test_what_is_known_is_there_at_once(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = upload(client)
    finished(client, trace=trace, blocks=3)

    def no_process(*arguments: Any) -> None:
        raise AssertionError("it is known")

    monkeypatch.setattr(traces_jobs.Jobs, "compute", no_process)
    again = client.post("/jobs", params={"client": "another", "trace": trace, "blocks": 3, "policies": "lfu,lru"})
    assert again.json()["state"] == "done"
    assert set(again.json()["points"]) == {"lfu", "lru"}


def test_a_capacity_in_memory_of_a_model(client: httpx.Client) -> None:
    # 16 tokens of 131,072 bytes are 2 MiB
    job = finished(client, trace=upload(client), memory="9MiB", model="llama-3.1-8b", policies="fifo")
    assert job["capacity"] == 4
    assert job["points"]["fifo"]["hit_tokens"] == slow_counts(REQUESTS, "fifo", 4, 16).hit_tokens
    failed = finished(client, trace=upload(client), memory="1MiB", model="llama-3.1-8b", policies="fifo")
    assert failed["state"] == "failed"
    assert (
        failed["message"]
        == "Memory of 1,048,576 bytes is smaller than one block of Llama 3.1 8B (2,097,152 bytes); increase it."
    )


def test_a_study_of_a_generated_trace() -> None:
    told: list[tuple[float, str]] = []
    question = Question(policies=("lru", "optimum"), blocks=300)
    parts = {
        (kind, policy): value for kind, policy, value in study(DOCUMENTS, question, lambda *args: told.append(args))
    }
    stored = StoredTrace.of(DOCUMENTS)
    for policy in ("lru", "optimum"):
        curve, point = parts["curve", policy], parts["point", policy]
        assert point["hit_tokens"] == simulate(stored, policy, 300).result.hit_tokens
        middle = len(curve["blocks"]) // 2
        size = curve["blocks"][middle]
        assert curve["evictions"][middle] == simulate(stored, policy, size).result.evictions
    assert set(parts["curve", "optimum"]["blocks"]) <= set(parts["curve", "lru"]["blocks"])
    assert parts["curve", "lru"]["blocks"][-1] == parts["summary", ""]["distinct_blocks"] == stored.num_blocks
    assert [progress for progress, _ in told] == sorted(progress for progress, _ in told)
    assert told[-1][0] <= 1.0


def test_capacities_of_small_and_large_traces() -> None:
    assert capacities_of(0) == [1]
    assert capacities_of(1) == [1]
    assert capacities_of(9) == list(range(1, 10))
    large = capacities_of(512_000)
    assert (large[0], large[-1], len(large)) == (1_000, 512_000, 17)


@pytest.mark.parametrize(
    ("asked", "status", "sentence"),
    [
        ({"trace": "nothing"}, 400, "The trace 'nothing' doesn't exist"),
        ({"trace": "../../etc/passwd"}, 400, "The trace '../../etc/passwd' doesn't exist"),
        ({"trace": "0" * 32}, 400, "upload the file again"),
        ({"policies": "lru,mru"}, 400, "Policy must be one of lru, fifo, lfu, random, optimum (got 'mru')"),
        ({"policies": ""}, 400, "Policy must be"),
        ({"blocks": -1}, 400, "blocks: expected a number of at least 0, got"),
        ({"seed": "x"}, 400, "seed: expected a whole number, got 'x'"),
        ({"memory": "1GiB"}, 400, "or memory and a model"),
        (
            {"memory": "1GiB", "model": "llama-3.1-8b", "blocks": 4},
            400,
            "either a number of blocks, or memory and a model",
        ),
        ({"memory": "1GiB", "model": "nobody"}, 400, "nobody"),
        ({"memory": "1 GiB of", "model": "llama-3.1-8b"}, 400, "A size must be a number with a unit, such as 40GiB"),
        ({"memory": "1GiB", "model": "llama-3.1-8b", "dtype": "x"}, 400, "dtype"),
        ({"model": "llama-3.1-8b"}, 400, "or memory and a model"),
        ({"dtype": "x"}, 400, "dtype must be fp32,"),
        ({"client": "a b"}, 400, "A client name must be 1–40 letters, digits, - or _ (got 'a b')"),
    ],
)
def test_bad_questions(client: httpx.Client, asked: dict[str, Any], status: int, sentence: str) -> None:
    answer = client.post("/jobs", params={"client": "test", "trace": "chats", **asked})
    assert answer.status_code == status
    assert sentence in answer.json()["message"]


def test_bad_files(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "The file is empty" in client.post("/files", content=b"").json()["message"]
    monkeypatch.setattr(traces_api, "MAX_TRACE_BYTES", 50)
    refused = client.post("/files", content=b"x" * 51)
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")

    def in_parts() -> Iterator[bytes]:
        for _ in range(10):
            yield b"x" * 10

    refused = client.post("/files", content=in_parts())
    assert (refused.status_code, refused.json()["details"]["limit"]) == (413, 50)
    job = finished(client, trace=upload(client, b"no trace"))
    assert job["state"] == "failed"
    assert job["message"].startswith("The file has no valid request in its 1 lines (line 1: expected a JSON object")
    job = finished(client, trace=upload(client, gzip.compress(b"{}")[:-9]))
    assert job["message"].startswith("The file is damaged after line 0")


def test_only_the_newest_files_stay(server: Running, client: httpx.Client) -> None:
    first = upload(client, FILE + b"\n ")
    for n in range(traces_api.MAX_TRACES):
        upload(client, FILE + b"\n" * (n + 2))
    answer = client.post("/jobs", params={"client": "test", "trace": first})
    assert "upload the file again" in answer.json()["message"]


def test_a_study_of_a_file_that_went_meanwhile_says_so(server: Running, client: httpx.Client) -> None:
    before = client.post(
        "/jobs", params={"client": "before", "trace": "agents", "policies": "random", "seed": 5}
    ).json()
    trace = upload(client, FILE + b"\n\n\n\n\n\n\n\n")
    waits = client.post("/jobs", params={"client": "waits", "trace": trace}).json()
    (server.app.state.traces.uploads.directory / trace).unlink()
    client.delete(f"/jobs/{before['job_id']}")

    def job() -> dict[str, Any]:
        answer: dict[str, Any] = client.get(f"/jobs/{waits['job_id']}").json()
        return answer

    wait_for(lambda: job()["state"] == "failed", 60)
    assert job()["message"] == "The file was replaced by newer uploads; upload it again."


def test_jobs_of_others_and_none(client: httpx.Client) -> None:
    for answer in (client.get("/jobs/nothing"), client.delete("/jobs/nothing")):
        assert (answer.status_code, answer.json()["code"]) == (404, "no_such_job")


def test_a_new_job_takes_the_place_of_the_old_and_cancel_ends_it(client: httpx.Client) -> None:
    def begin(seed: int, who: str = "one") -> dict[str, Any]:
        params = {"client": who, "trace": "agents", "policies": "random", "seed": seed}
        job: dict[str, Any] = client.post("/jobs", params=params).json()
        return job

    def state(job: dict[str, Any]) -> str:
        return str(client.get(f"/jobs/{job['job_id']}").json()["state"])

    first, other = begin(1), begin(1, "two")
    second = begin(2)
    assert state(first) == "cancelled"
    assert state(second) in ("waiting", "running")
    wait_for(lambda: state(other) == "running", 60)
    assert client.delete(f"/jobs/{other['job_id']}").json()["state"] == "cancelled"
    wait_for(lambda: state(second) == "running", 60)
    client.delete(f"/jobs/{second['job_id']}")
    assert state(second) == "cancelled"


def test_a_study_that_is_cancelled_at_once_leaves_no_process() -> None:
    before = set(multiprocessing.active_children())

    async def cancelled(delays_ms: tuple[float, ...]) -> None:
        jobs = traces_jobs.Jobs()
        for index, delay_ms in enumerate(delays_ms):
            job = jobs.begin("one", "agents", None, Question(policies=("random",), seed=index))
            await asyncio.sleep(delay_ms / 1_000)
            assert jobs.cancel(job.job_id).state == "cancelled"
        await jobs.close()

    with ThreadPoolExecutor(1) as thread:  # this one may have the browser's loop
        thread.submit(asyncio.run, cancelled((0, 0.5, 1, 2, 3, 4, 6, 8, 12, 30))).result(120)
    assert set(multiprocessing.active_children()) <= before


def test_the_server_answers_while_a_study_runs(client: httpx.Client) -> None:
    job = client.post("/jobs", params={"client": "slow", "trace": "agents", "policies": "lfu"}).json()
    wait_for(lambda: client.get(f"/jobs/{job['job_id']}").json()["state"] == "running", 60)
    took = []
    for _ in range(20):
        began = time.monotonic()
        assert client.get(str(client.base_url).rstrip("/")).status_code == 200
        took.append(time.monotonic() - began)
    assert sorted(took)[10] < 0.5
    client.delete(f"/jobs/{job['job_id']}")


def test_files_and_processes_end_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(ServerConfig()) as server, httpx.Client(base_url=f"{server.url}/api/traces", timeout=60) as client:
        upload(client)
        directory: Path = server.app.state.traces.uploads.directory
        assert directory.is_dir()
        client.post("/jobs", params={"client": "late", "trace": "agents"})
    assert not directory.exists()


def test_a_study_that_takes_too_long_is_ended(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces_jobs, "MAX_JOB_S", 0.0)
    job = finished(client, trace="agents", policies="random", seed=77)
    assert job["state"] == "failed"
    assert "stopped after 0 seconds" in job["message"]


def test_the_overview(client: httpx.Client) -> None:
    overview = client.get(str(client.base_url).rstrip("/")).json()
    assert [made["trace"] for made in overview["generated"]] == [CHATS.name, AGENTS.name, DOCUMENTS.name]
    assert all(made["about"] and made["seed"] for made in overview["generated"])
    assert {"model_id": "llama-3.1-8b", "name": "Llama 3.1 8B"} in overview["models"]
    assert "mamba2-codestral-7b" not in {model["model_id"] for model in overview["models"]}
    assert client.head(str(client.base_url).rstrip("/")).status_code == 200


# The page


def opened(page: Any, url: str, query: str = "", width: int = 1440, height: int = 900) -> Watched:
    page.set_viewport_size({"width": width, "height": height})
    watched = Watched(page, url.removeprefix("http://").split("/")[0])
    page.goto(f"{url}/traces{query}")
    return watched


def settle(page: Any, text: str | None = None) -> str:
    """What is announced at the end, once it has `text`."""

    def told() -> str:
        return str(page.locator("#live").text_content())

    deadline = time.monotonic() + 120
    while not (told() if text is None else text in told()):
        assert time.monotonic() < deadline, page.locator(".traces-message").text_content()
        page.wait_for_timeout(50)
    return told()


@pytest.fixture
def page(tab: Any, server: Running) -> Iterator[Any]:
    watched = opened(tab, server.url, "?trace=documents&policies=lru,optimum&blocks=1000")
    settle(tab)
    yield tab
    watched.leave()
    assert watched.errors == []
    assert watched.foreign == []


def test_the_page_shows_what_the_simulation_counts(page: Any) -> None:
    stored = StoredTrace.of(DOCUMENTS)
    best = simulate(stored, "optimum", 1_000).result
    assert page.locator(".traces-rate").text_content() == "0.0 %"
    assert f"the optimum for this cache is {100 * best.hit_rate:.1f} %" in page.locator(".traces-facts").text_content()
    rows = [row.split("\t") for row in page.locator(".traces-table tbody").inner_text().splitlines()]
    found = [f"{100 * best.hit_rate:.1f} %", f"{best.hit_tokens:,}", f"{best.hit_blocks:,}", f"{best.evictions:,}"]
    assert [rows[1][0], rows[1][1], *rows[1][3:]] == ["Optimum", *found]
    assert page.get_by_role("heading", level=1).inner_text() == "A batch of documents"
    assert "1,000 blocks of 512 tokens hold 512,000 tokens" in page.locator(".traces-facts").inner_text()
    assert "generated with seed 3" in page.locator("#asked").inner_text()
    label = page.locator(".traces-curve .plot-area").get_attribute("aria-label")
    assert f"at 1,000 blocks: LRU 0.0 %, Optimum {100 * best.hit_rate:.1f} %" in label


def test_a_chart_is_a_table_too(page: Any) -> None:
    with page.expect_download() as download:
        page.locator(".traces-curve").get_by_role("button", name="CSV").click()
    assert download.value.suggested_filename == "kvviz-hit-rate.csv"
    rows = list(csv.reader(io.StringIO(Path(download.value.path()).read_text())))
    assert rows[0] == ["Blocks", "LRU", "Optimum"]
    stored = StoredTrace.of(DOCUMENTS)
    size = int(rows[-1][0])
    assert float(rows[-1][2]) == pytest.approx(simulate(stored, "optimum", size).result.hit_rate)
    for kind in ("PNG", "SVG", "JSON"):
        with page.expect_download() as download:
            page.locator(".traces-reuse").get_by_role("button", name=kind).click()
        assert Path(download.value.path()).stat().st_size > 500


def test_everything_is_in_the_link(page: Any, server: Running) -> None:
    page.locator("#policy-lru").uncheck()
    page.get_by_label("as memory of a model").check()
    page.locator("#ask-memory").fill("80GiB")
    page.locator("#ask-memory").press("Tab")
    page.get_by_label("Prefill, tokens per second").fill("20000")
    page.get_by_label("Prefill, tokens per second").press("Tab")
    settle(page, "1,280 blocks")
    query = page.evaluate("location.search")
    assert "memory=80GiB" in query
    assert "blocks" not in query
    watched = opened(page.context.new_page(), server.url, query)
    assert settle(watched.page) == page.locator("#live").text_content()
    shown = ".traces-figure"
    assert watched.page.locator(shown).inner_text() == page.locator(shown).inner_text()
    assert "at 20,000 tokens per second" in watched.page.locator(shown).inner_text()
    # a token of Llama 3.1 8B takes 131,072 bytes: 80 GiB / (512 × 131,072) = 1,280
    holding = "80 GiB hold 1,280 blocks of 512 tokens: 655,360 tokens of Llama 3.1 8B in bf16"
    assert holding in watched.page.locator(shown).inner_text()
    watched.page.close()


def test_a_capacity_by_keyboard_and_by_a_click_in_the_chart(page: Any) -> None:
    page.get_by_label("Blocks", exact=True).fill("5500")
    page.get_by_label("Blocks", exact=True).press("Enter")
    settle(page, "5,500 blocks")
    before = page.evaluate("location.search")
    page.locator("#ask-share").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(300)
    assert page.evaluate("location.search") != before
    settle(page, page.locator("#ask-blocks").input_value()[0])
    area = page.locator(".traces-curve .plot-area")
    box = area.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(300)
    chosen = int(re.search(r"blocks=(\d+)", page.evaluate("location.search"))[1])
    assert 50 < chosen < 1_000
    settle(page, f"{chosen:,} blocks")


def test_a_file_of_ones_own(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "<b>mine<i>.jsonl"
    path.write_bytes(FILE + b"\n<i>bad</i>")
    page.locator("#policy-random").check()
    page.locator("#trace-file").set_input_files(path)
    settle(page, "in 1 block")
    assert page.locator(".traces-file-name").inner_text().startswith("<b>mine<i>.jsonl, ")
    assert page.locator("b, i").count() == 0
    assert "One bad line was skipped:\n\nline 10: expected a JSON object" in page.locator(".traces-faults").inner_text()
    assert re.search(r"trace=[0-9a-f]{32}", page.evaluate("location.search"))
    page.locator("#trace-file").set_input_files({"name": "x.jsonl", "mimeType": "", "buffer": b"nothing"})
    message = page.locator(".traces-message.traces-wrong")
    message.wait_for()
    assert "The file has no valid request in its 1 lines" in message.inner_text()


def test_a_link_to_a_file_that_is_gone(tab: Any, server: Running) -> None:
    watched = opened(tab, server.url, f"?trace={'a' * 32}")
    message = watched.page.locator(".traces-message.traces-wrong")
    message.wait_for()
    assert "upload the file again" in message.inner_text()
    box = message.bounding_box()
    assert box["y"] + box["height"] < 200
    assert not watched.page.locator(".traces-curve").is_visible()
    assert len(watched.errors) == 1  # the browser's own line about the 400
    watched.leave()


def test_cancel(tab: Any, server: Running) -> None:
    watched = opened(tab, server.url, "?trace=agents&seed=991&policies=random,lfu")
    cancel = watched.page.get_by_role("button", name="Cancel")
    cancel.wait_for()
    assert cancel.bounding_box()["y"] < 200
    cancel.click()
    watched.page.get_by_text("Cancelled. Results so far are kept.").wait_for()
    assert watched.page.get_by_role("button", name="Simulate").is_visible()
    assert watched.errors == []
    watched.leave()


def test_under_a_path_the_page_finds_its_parts(tab: Any) -> None:
    with running(ServerConfig(), wrap=lambda app: ProxyPath(app, "/kv", strips=True)) as server:
        watched = opened(tab, f"{server.url}/kv", "?trace=documents&policies=lru")
        settle(watched.page)
        assert watched.errors == []
        watched.page.get_by_role("link", name="kvviz").click()
        watched.page.wait_for_url(f"{server.url}/kv/**")
        watched.leave()


@pytest.mark.parametrize("look", LOOKS)
def test_nothing_overflows_and_axe_finds_nothing(tab: Any, server: Running, look: str) -> None:
    width, height, theme, projector = LOOKS[look]
    looks = f"&theme={theme}{'&projector=on' if projector else ''}"
    query = f"?trace=documents&policies=lru,optimum&blocks=1000{looks}"
    watched = opened(tab, server.url, query, width, height)
    settle(tab)
    tab.wait_for_function("() => document.querySelectorAll('.plot-area .main-svg').length >= 2")
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert faults_of(tab) == []
    assert watched.errors == []
    watched.leave()
