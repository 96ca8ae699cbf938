"""`kvviz blocks`: the example answered as vLLM answers it, odd workloads, and a recording that folds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from kvviz.commands.main import app
from kvviz.engine.workload import parse_workload, replay_workload
from kvviz.errors import ConfigError
from kvviz.log.recording import Recording
from kvviz.log.world import World

CASES = Path(__file__).parent / "cases"
EXAMPLE = CASES / "workload-example.json"


def answers_of(workload: dict[str, Any]) -> list[dict[str, Any]]:
    return replay_workload(parse_workload(orjson.dumps(workload)))


def test_the_example_has_the_example_answer() -> None:
    printed = CliRunner().invoke(app, ["blocks", str(EXAMPLE), "--json"])
    assert printed.exit_code == 0
    assert json.loads(printed.stdout) == json.loads((CASES / "workload-example.answer.json").read_bytes())


def test_the_table_says_the_same() -> None:
    printed = CliRunner().invoke(app, ["blocks", str(EXAMPLE)])
    assert printed.exit_code == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.stdout.splitlines() if "│" in line]
    assert ["c", "yes", "8", "0 1 3", "4", "1", "0"] in [row[1:] for row in rows]
    assert ["e", "no", "0", "", "1", "0", "0"] in [row[1:] for row in rows]


def test_the_replay_is_a_recording_whose_every_digest_is_right(tmp_path: Path) -> None:
    path = tmp_path / "run.kvviz"
    printed = CliRunner().invoke(app, ["blocks", str(EXAMPLE), "-o", str(path)])
    assert printed.exit_code == 0, printed.output
    recording = Recording.open(path)
    world = World(8, 4)
    num_steps = 0
    for record in recording.records():
        world.apply(record)
        assert world.broken is None
        if record[2]["type"] == "step_finished":
            num_steps += 1
            assert world.check is not None
            assert world.check["ok"]
    assert num_steps == 11, "nine operations, one of which appends three tokens"
    assert [request.prompt for request in world.requests.values() if request.state == "running"] == ["d"]
    recording.close()


def test_an_append_stops_at_the_first_token_without_a_block() -> None:
    """Three blocks of two tokens: a holds two, b one, so a's fifth token finds nothing; after b is gone it does."""
    answers = answers_of(
        {
            "block_size": 2,
            "num_blocks": 3,
            "ops": [
                {"op": "start", "id": "a", "tokens": [1, 2, 3]},
                {"op": "start", "id": "b", "tokens": [9]},
                {"op": "append", "id": "a", "tokens": [4, 5, 6]},
                {"op": "free", "id": "b"},
                {"op": "append", "id": "a", "tokens": [5]},
            ],
        }
    )
    assert [answer["ok"] for answer in answers] == [True, True, False, True, True]
    assert [answer.get("blocks") for answer in answers] == [[0, 1], [2], [0, 1], None, [0, 1, 2]]
    assert [answer["stored"] for answer in answers] == [1, 0, 1, 0, 0]


def test_what_does_not_live_cannot_be_changed() -> None:
    ops = [
        {"op": "append", "id": "x", "tokens": [1]},
        {"op": "free", "id": "x"},
        {"op": "start", "id": "x", "tokens": [1]},
        {"op": "start", "id": "x", "tokens": [1]},
    ]
    answers = answers_of({"block_size": 1, "num_blocks": 1, "ops": ops})
    assert [answer["ok"] for answer in answers] == [False, False, True, False]
    assert "blocks" not in answers[3]


def random_workload(chance: random.Random) -> dict[str, Any]:
    """Ids that live and that do not, tokens from a small alphabet so that prefixes meet."""
    names = "abcdef"
    ops: list[dict[str, Any]] = []
    for _ in range(chance.randint(0, 14)):
        name, op = chance.choice(names), chance.choice(["start", "start", "append", "free"])
        step: dict[str, Any] = {"op": op, "id": name}
        if op != "free":
            step["tokens"] = [chance.randrange(3) for _ in range(chance.randint(op == "start", 12))]
        if op == "start" and chance.random() < 0.3:
            step["salt"] = chance.choice([None, "s", "t"])
        ops.append(step)
    return {"block_size": chance.randint(1, 5), "num_blocks": chance.randint(1, 9), "ops": ops}


@pytest.mark.slow
@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.prove)])
def test_random_workloads_never_crash(count: int) -> None:
    """And the books balance: what is free and what the living hold is the pool, shared blocks counted once."""
    chance = random.Random(0)
    num_ok = 0
    for _ in range(count):
        workload = random_workload(chance)
        answers = answers_of(workload)
        assert len(answers) == len(workload["ops"])
        tables: dict[str, list[int]] = {}
        for answer in answers:
            num_ok += answer["ok"]
            if "blocks" in answer:
                tables[answer["id"]] = answer["blocks"]
            elif answer["op"] == "free":
                tables.pop(answer["id"], None)
            used = {block_id for table in tables.values() for block_id in table}
            assert len(used) + answer["free"] == workload["num_blocks"]
    assert num_ok > 1.5 * count


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"[", "must be a JSON object"),
        (b"[]", "the workload: expected an object, got a list"),
        (b'{"block_size": 0, "num_blocks": 1, "ops": []}', "block_size: expected a number of at least 1"),
        (b'{"block_size": 1, "num_blocks": 1}', "ops: missing"),
        (b'{"block_size": 1, "num_blocks": 1, "ops": [{"op": "grow", "id": "a"}]}', "ops.0"),
        (
            b'{"block_size": 1, "num_blocks": 1, "ops": [{"op": "start", "id": "a", "tokens": []}]}',
            "ops.0.start.tokens",
        ),
        (b'{"block_size": 1, "num_blocks": 1, "ops": [{"op": "start", "id": "a", "tokens": [-1]}]}', "tokens.0"),
        (b'{"block_size": 1, "num_blocks": 1, "ops": [{"op": "free", "id": 3}]}', "ops.0.free.id"),
    ],
)
def test_a_wrong_workload_is_refused_in_a_sentence(tmp_path: Path, data: bytes, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_workload(data)
    assert sentence in str(refused.value), str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["blocks", str(tmp_path / "none.json")])
    assert isinstance(outcome.exception, ConfigError)
    assert "Can't read" in str(outcome.exception)
