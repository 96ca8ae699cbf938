"""`kvviz simulate`: files good and bad, what is printed, Ctrl-C, and the bench."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tracemalloc
from array import array
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kvviz.bench import simulate as bench_simulate
from kvviz.errors import ModelError, TraceError
from kvviz.traces import lines
from kvviz.traces.block_sizes import fits, inferred
from kvviz.traces.cache_size import blocks_in, size_bytes
from kvviz.traces.generated import AGENTS, BENCH, CHATS, DOCUMENTS, GENERATED, Generated
from kvviz.traces.lines import LineReader
from kvviz.traces.trace import TraceFile
from kvviz.traces.trace_request import TraceRequest
from tests.support.command import run_command
from tests.support.slow_caches import slow_counts

GOOD: dict[str, Any] = {"timestamp": 0, "input_length": 1_500, "output_length": 5, "hash_ids": [1, 2, 3]}


def line(**changes: Any) -> str:
    return json.dumps({**GOOD, **changes})


run = partial(run_command, "simulate")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three requests of two chains."""
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join([line(), line(timestamp=5, input_length=800, hash_ids=[1, 9]), line(timestamp=7)]))
    return path


def test_json_of_one_cache(trace: Path) -> None:
    code, out, err = run(trace, "--blocks", "2", "--policy", "lru", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "policy": "lru",
        "blocks": 2,
        "block_size": 512,
        "requests": 3,
        "total_tokens": 3_800,
        "hit_tokens": 1_024,  # 1 twice: 1 and 2 stay of three, then 9 and 1
        "hit_rate": 1_024 / 3_800,
        "references": 8,
        "hit_blocks": 2,
        "block_hit_rate": 0.25,
        "evictions": 4,  # 3; 2; then of 1 9 2 3 the last two of the order: 9 and 3
        "distinct_blocks": 4,
        "saved_s": 0.1024,
        "prefill_tokens_per_s": 10_000.0,
        "seed": None,
        "bad_lines": 0,
        "block_size_note": None,
        "partial": False,
    }


def test_json_of_a_sweep_is_a_list_in_its_order(trace: Path) -> None:
    for policy in ("lru", "fifo", "optimum"):
        code, out, _ = run(trace, "--sweep", "4, 1,0", "--policy", policy, "--json")
        assert code == 0
        assert [answer["blocks"] for answer in json.loads(out)] == [4, 1, 0]
        single = [json.loads(run(trace, "--blocks", size, "--policy", policy, "--json")[1]) for size in "410"]
        assert json.loads(out) == single


def test_a_last_block_counts_no_more_than_the_prompt_has(trace: Path) -> None:
    answer = json.loads(run(trace, "--json")[1])
    assert answer["blocks"] == 0
    assert answer["hit_tokens"] == 512 + 1_500
    assert answer["evictions"] == 0


def test_a_table(trace: Path) -> None:
    code, out, _ = run(trace, "--sweep", "1,0", "--prefill", "512")
    assert code == 0
    assert "3 requests, 3,800 prompt tokens, 8 references to 4 blocks of 512 tokens" in out
    assert [row.split() for row in out.splitlines()[2:]] == [
        ["lru", "1", "26.95%", "1,024", "2", "5", "2", "s"],
        ["lru", "no", "limit", "52.95%", "2,012", "4", "0", "4", "s"],
    ]


def test_names_of_other_programs(trace: Path) -> None:
    answers = [
        json.loads(run(trace, "--blocks", "2", "--policy", name, "--json")[1]) for name in ("Optimal", "optimum")
    ]
    assert answers[0] == answers[1]
    assert answers[0]["policy"] == "optimum"


def test_random_tells_its_seed(trace: Path) -> None:
    answer = json.loads(run(trace, "--blocks", "2", "--policy", "random", "--seed", "7", "--json")[1])
    assert answer["seed"] == 7


def test_memory_of_a_model_is_a_number_of_blocks(trace: Path) -> None:
    # Llama 3.1 8B in 16 bits: 131,072 bytes a token, 64 MiB a block of 512
    code, out, _ = run(trace, "--memory", "40GiB", "--model", "llama-3.1-8b", "--json")
    assert code == 0
    assert json.loads(out)["blocks"] == 640
    assert blocks_in(40 * 2**30, "llama-3.1-8b", "fp8", 16) == 40_960
    assert size_bytes("1.5 kb") == 1_500
    assert size_bytes("2TiB") == 2**41
    assert size_bytes("80000000000") == 80_000_000_000


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--blocks", "-1"], "blocks (got -1)"),
        (["--blocks", "9" * 30], "blocks (got 1e+30)"),
        (["--policy", "mru"], "Policy must be one of lru, fifo, lfu, random, optimum (got 'mru')"),
        (["--sweep", "1,x"], "such as 1000,2000,4000 (got 'x')"),
        (["--sweep", ""], "such as 1000,2000,4000 (got empty text)"),
        (["--sweep", ",".join("1" * 201)], "A sweep must have 1–200 capacities (got 201)"),
        (["--sweep", "1", "--blocks", "1"], "Set the cache size only once"),
        (["--memory", "1GB"], "--memory and --model must be used together"),
        (["--model", "llama-3.1-8b"], "--memory and --model must be used together"),
        (["--memory", "much", "--model", "llama-3.1-8b"], "A size must be a number with a unit, such as 40GiB"),
        (["--memory", "1kB", "--model", "llama-3.1-8b"], "smaller than one block of Llama 3.1 8B (67,108,864 bytes)"),
        (["--memory", "1GB", "--model", "nobody"], "nobody"),
        (["--memory", "1GB", "--model", "llama-3.1-8b", "--dtype", "int3"], "int3"),
        (["--block-size", "0"], "Block size must be 1–1,048,576 tokens (got 0)"),
        (["--prefill", "0"], "Prefill speed must be above 0"),
        (["--prefill", "nan"], "Prefill speed must be above 0"),
    ],
)
def test_settings_that_cannot_be(trace: Path, arguments: list[str], sentence: str) -> None:
    code, out, err = run(trace, *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(ModelError, match="keeps a fixed-size state instead of blocks"):
        blocks_in(2**40, "mamba2-codestral-7b", "bf16", 16)


BAD = [
    ("not json", "expected a JSON object, got invalid JSON"),
    ("[1]", "expected a JSON object, got a list"),
    ('{"timestamp": NaN}', "expected a JSON object, got invalid JSON"),
    ("\x00", "expected a JSON object, got invalid JSON"),
    ("[" * 5_000, "expected a JSON object, got invalid JSON"),
    (line(input_length=-1), "input_length: expected a whole number from 0 to 2,147,483,647, got -1"),
    (line(input_length=1.5), "input_length: expected a whole number from 0 to 2,147,483,647, got 1.5"),
    (line(input_length=True), "input_length: expected a whole number from 0 to 2,147,483,647, got true"),
    (line(output_length="5"), "output_length: expected a whole number from 0 to 2,147,483,647, got '5'"),
    (line(input_length=10**30), "input_length: expected a whole number from 0 to 2,147,483,647, got 1e+30"),
    (line(timestamp=None), "timestamp: expected a number of at least 0, got nothing"),
    (line(timestamp=-0.5), "timestamp: expected a number of at least 0, got -0.5"),
    (line(timestamp=True), "timestamp: expected a number of at least 0, got true"),
    (line(hash_ids=None), "hash_ids: expected a list, got nothing"),
    (line(hash_ids=[1, -2]), "hash_ids: expected whole numbers from 0 to 2⁶⁴ − 1, or texts, got -2"),
    (line(hash_ids=[1, 2**64]), "hash_ids: expected whole numbers from 0 to 2⁶⁴ − 1, or texts, got 1.84467440737e+19"),
    (line(hash_ids=[1, True]), "hash_ids: expected whole numbers from 0 to 2⁶⁴ − 1, or texts, got true"),
    (line(hash_ids=["a", 1]), "hash_ids: expected whole numbers from 0 to 2⁶⁴ − 1, or texts, got 'a'"),
    (line(hash_ids=[[1]]), "hash_ids: expected whole numbers from 0 to 2⁶⁴ − 1, or texts, got a list"),
    (line(block_size=0), "block_size: expected a whole number from 1 to 1,048,576, got 0"),
    (line(block_size=16), "expected block_size 512 as in earlier lines, got 16"),
    ('{"timestamp": 1, "input_length": 5, "output_length": 1}', "hash_ids is missing"),
    ('{"input_length": 5, "output_length": 1, "hash_ids": []}', "timestamp is missing"),
]


@pytest.mark.parametrize(("bad", "sentence"), BAD)
def test_a_bad_line_is_told_and_nothing_stops(tmp_path: Path, bad: str, sentence: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{line()}\n\n{bad}\n{line()}\n", encoding="utf-8")
    code, out, err = run(path, "--json")
    answer = json.loads(out)
    assert (code, answer["requests"], answer["bad_lines"], answer["hit_tokens"]) == (0, 2, 1, 1_500)
    assert err == f"Bad line 3: {sentence}\n"


def found(name: str) -> Path:
    return Path(__file__).parent / "cases" / "found" / name


def test_a_block_size_is_inferred_where_the_trace_and_the_user_name_none() -> None:
    """8 requests of 160 tokens with 10 hashes each: only 16 tokens per block fit. 128 of 1,280 tokens hit."""
    code, out, _ = run(found("blocks16-no-field.jsonl"), "--json")
    answer = json.loads(out)
    assert (code, answer["block_size"], answer["hit_rate"]) == (0, 16, 0.1)
    assert answer["block_size_note"] == (
        "The block size of 16 tokens is inferred from the number of hash_ids per request."
    )
    given = json.loads(run(found("blocks16-no-field.jsonl"), "--block-size", "16", "--json")[1])
    assert given == {**answer, "block_size_note": None}
    assert json.loads(run(found("too-few-tokens.jsonl"), "--json")[1])["block_size"] == 16


def test_a_given_block_size_that_fits_no_request_is_said() -> None:
    _, out, err = run(found("blocks16-no-field.jsonl"), "--block-size", "512")
    assert "blocks of 512 tokens" in out
    assert err == (
        "8 of 8 requests don't match the block size of 512 tokens (request 1 has 10 hash_ids for 160 tokens). "
        "A block size of 16 would fit the first 8.\n"
    )


@pytest.mark.parametrize("rounds_up", [True, False])
@pytest.mark.parametrize("size", [1, 16, 64, 100, 512, 784, 4_096])
def test_an_inferred_block_size_fits_every_request(size: int, rounds_up: bool) -> None:
    chance = random.Random(size)
    lengths = [chance.randrange(1, 20 * size + 1) for _ in range(300)]
    counts = [-(-length // size) if rounds_up else length // size for length in lengths]
    requests = [
        TraceRequest(0.0, length, 1, array("Q", range(count))) for length, count in zip(lengths, counts, strict=True)
    ]
    guess = inferred(requests)
    assert guess is not None
    assert all(fits(request, guess) for request in requests)
    assert guess == size or abs(guess - size) <= max(1, size // 50)


def test_nothing_is_inferred_where_nothing_fits() -> None:
    assert inferred([TraceRequest(0.0, 100, 1, array("Q", range(10))), TraceRequest(0.0, 100, 1, array("Q"))]) is None
    assert inferred([]) is None


def test_hashes_may_be_texts() -> None:
    answer = json.loads(run(found("hex-ids.jsonl"), "--json")[1])
    assert (answer["requests"], answer["distinct_blocks"], answer["hit_rate"]) == (2, 2, 0.5)


def test_a_delay_counts_from_the_sessions_previous_request() -> None:
    file = TraceFile(found("sessions-delay.jsonl"))
    (batch,) = list(file)
    assert batch.timestamps.tolist() == [0, 500]
    assert file.faults.sentences() == ["line 3: hash_ids is missing"]


def test_csv_is_recognised(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.csv", b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,374,44\n")
    code, _, err = run(path)
    assert code == 2
    assert "looks like CSV; a trace needs the hash_ids of each request" in err


def test_only_the_first_bad_lines_are_told(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("x\n" * 7 + line() + "\n" + "x\n" * 1_000)
    code, out, err = run(path, "--json")
    assert (code, json.loads(out)["bad_lines"]) == (0, 1_007)
    told = err.splitlines()
    assert [each.split(":")[0] for each in told[:-1]] == [f"Bad line {n}" for n in range(1, 6)]
    assert told[-1] == "Bad lines after these: 1,002 more"


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_files_that_are_no_trace(tmp_path: Path) -> None:
    packed = gzip.compress((line() + "\n").encode() * 5_000)
    noise = random.Random(1).randbytes(500)
    files = {
        tmp_path / "missing.jsonl": "Can't read {path} (No such file or directory)",
        tmp_path: "Can't read {path} (Is a directory)",
        write(tmp_path / "empty.jsonl", b""): "is empty; a trace has one JSON object per line",
        write(tmp_path / "blank.jsonl", b"\n \r\n"): "is empty; a trace has one JSON object per line",
        write(tmp_path / "bad.jsonl", b"x\ny\n"): "has no valid request in its 2 lines (line 1: expected a JSON object",
        write(tmp_path / "wide.jsonl", line().encode("utf-16")): "has no valid request in its 1 lines",
        write(tmp_path / "noise.jsonl.gz", noise): "has no valid request in its",
        write(tmp_path / "cut.gz", packed[:-20]): "its gzip data is truncated or invalid; download it again",
        write(tmp_path / "wrong.gz", packed[:60] + bytes(9) + packed[69:]): "its gzip data is truncated or invalid",
        write(tmp_path / "head.gz", packed[:4]): "its gzip data is truncated or invalid",
        tmp_path / ("n" * 300): "Can't read {path} (File name too long)",
    }
    for path, sentence in files.items():
        code, out, err = run(path)
        assert (code, out) == (2, ""), path
        assert sentence.replace("{path}", str(path)) in err
        assert len(err.strip().splitlines()) == 1


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    for name, data in (("a.gz", (line() + "\n").encode()), ("b.jsonl", gzip.compress(line().encode()))):
        code, out, _ = run(write(tmp_path / name, data), "--json")
        assert (code, json.loads(out)["requests"]) == (0, 1)


def test_line_ends_and_marks_of_other_systems(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + (line() + "\r\n" + line()).encode()
    answer = json.loads(run(write(tmp_path / "trace.jsonl", data), "--json")[1])
    assert (answer["requests"], answer["bad_lines"]) == (2, 0)


def test_block_sizes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", (line(block_size=16) + "\n" + line()).encode())
    assert json.loads(run(path, "--json")[1])["hit_tokens"] == 48
    path = write(tmp_path / "b.jsonl", (line() + "\n" + line()).encode())
    assert json.loads(run(path, "--json", "--block-size", "100")[1])["hit_tokens"] == 300


def test_a_long_line_is_skipped_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gzip file of 64 kB that would be a line of 64 MB."""
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 2**16)
    packed = gzip.compress(line().encode() + b"\n" + b"[" * 2**26 + b"\n" + line().encode())
    assert len(packed) < 100_000
    path = write(tmp_path / "bomb.gz", packed)
    tracemalloc.start()
    code, out, err = run(path, "--json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (code, json.loads(out)["requests"]) == (0, 2)
    assert err == "Bad line 2: expected at most 65,536 bytes, got more\n"
    assert peak < 8 * 2**20


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on this system")
@pytest.mark.parametrize("policy", ["lru", "optimum"])
def test_ctrl_c_prints_what_is_known(tmp_path: Path, policy: str) -> None:
    """A pipe that has brought some requests; then Ctrl-C, and one more line."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    chance = random.Random(2)
    requests = [([chance.randrange(9), 20 + chance.randrange(9)], 1_000) for _ in range(8_000)]
    text = "".join(line(hash_ids=ids, input_length=length) + "\n" for ids, length in requests)
    command = [sys.executable, "-m", "kvviz", "simulate", str(path), "--blocks", "4", "--policy", policy, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with path.open("w") as pipe:
            pipe.write(text)
            pipe.flush()  # all but what a pipe holds has been read
            process.send_signal(signal.SIGINT)
            pipe.write(line() + "\n")
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    answer = json.loads(out)
    assert answer["partial"] is True
    known = answer["requests"]
    assert 1_000 < known <= len(requests)
    expected = slow_counts(requests[:known], policy, 4, 512)
    assert (answer["hit_tokens"], answer["evictions"]) == (expected.hit_tokens, expected.evictions)


def test_progress_is_told_in_bytes(trace: Path) -> None:
    told: list[int] = []
    list(TraceFile(trace, on_bytes=told.append))
    assert told[-1] == trace.stat().st_size


def test_a_second_reading_is_the_same(trace: Path) -> None:
    trace.write_text(trace.read_text() + "\nx")
    file = TraceFile(trace)
    first, second = [[batch.blocks.tolist() for batch in file] for _ in range(2)]
    assert first == second
    assert file.faults.count == 1


@pytest.mark.parametrize("made", [*GENERATED, BENCH], ids=lambda made: made.name)
def test_generated_traces_are_chains_and_the_same_each_time(made: Generated) -> None:
    requests = list(made.requests())
    assert requests == list(made.requests())
    before: dict[int, int | None] = {}
    for request in requests:
        ids = request.hash_ids
        assert -(-request.input_length // 512) == len(ids)
        for parent, block in zip([None, *ids], ids, strict=False):
            assert before.setdefault(block, parent) == parent
    assert [request.timestamp for request in requests] == sorted(request.timestamp for request in requests)


def test_generated_traces_are_what_is_said_of_them() -> None:
    assert len({request.hash_ids[0] for request in CHATS.requests()}) == 4
    assert len({request.hash_ids[16] for request in AGENTS.requests()}) == 1  # 17 blocks of 9,000 tokens are full
    documents = [request.hash_ids[0] for request in DOCUMENTS.requests()]
    assert documents == documents[:160] * 4
    bench = list(BENCH.requests())
    assert (len(bench), sum(len(request.hash_ids) for request in bench)) == (12_000, 280_000)


def test_a_request_is_read_as_it_is_written() -> None:
    import io

    reader = LineReader()
    assert list(reader.read(io.BytesIO(line(timestamp=1.5).encode()), "here")) == [
        TraceRequest(1.5, 1_500, 5, array("Q", [1, 2, 3]))
    ]
    with pytest.raises(TraceError, match="here is empty"):
        list(LineReader().read(io.BytesIO(b""), "here"))


def test_the_bench_compares_equal_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plain loop counts what the rules count; its ratios are numbers of one run."""
    chance = random.Random(3)
    chains = [[chance.randrange(20) * 10 + n for n in range(chance.randint(1, 5))] for _ in range(300)]
    for capacity in (1, 3, 30):
        expected = slow_counts([(chain, 0) for chain in chains], "lru", capacity, 512)
        assert bench_simulate.plain_lru(chains, capacity) == (expected.hit_blocks, expected.evictions)
    monkeypatch.setattr(bench_simulate, "NUM_ROUNDS", 1)
    code, out, _ = run_command("bench", "simulate", "--json")
    assert code == 0
    answer = json.loads(out)
    assert (answer["requests"], answer["references"]) == (12_000, 280_000)
    assert min(answer["lru"], answer["sweep"], answer["optimum"]) > 0


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_no_figure_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(line(hash_ids=[n % 3, 7 * n]) for n in range(2_000)))
    code, out, _ = run(str(path), "--blocks", "3", "--policy", "fifo")
    assert code == 0
    assert "…" not in out
    figures = json.loads(run(str(path), "--blocks", "3", "--policy", "fifo", "--json")[1])
    for name in ("hit_tokens", "hit_blocks", "evictions"):
        assert f"{figures[name]:,}" in " ".join(out.split())


def test_a_dtype_that_does_not_exist_is_refused_without_memory_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(line())
    code, out, err = run(str(path), "--dtype", "int3")
    assert (code, out) == (2, "")
    assert err.startswith("dtype must be fp32, bf16, ")
