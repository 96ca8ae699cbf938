"""`api/calculator`: the same figures over HTTP, and one sentence for whatever else comes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvviz.calculator import Settings, Subject, calculate, listing
from kvviz.web.app import ServerConfig
from tests.support.fake_model import fake_load
from tests.support.running import Running, running

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "cases" / "calculator.json").read_text(encoding="utf-8"))
}


@pytest.fixture(scope="module")
def server() -> Any:
    with running(ServerConfig(), fake_load()) as server:
        yield server


def ask(server: Running, question: Any) -> httpx.Response:
    data = question if isinstance(question, bytes) else json.dumps(question).encode()
    return httpx.post(f"{server.url}/api/calculator", content=data, trust_env=False, timeout=60)


def test_the_answer_is_the_calculators(server: Running) -> None:
    question = {
        "models": [
            {"model": "llama-3.1-8b"},
            {"config": CASES["gemma-3-1b"]["config"], "name": "mine", "num_parameters": 999_885_952},
            {"config": json.dumps(CASES["kimi-k3"]["config"])},
            {"geometry": {"layers": 32, "kv_heads": 8, "head_dim": 128}},
        ],
        "settings": {"context": 32_768, "batch": 4, "gpu": "h100", "gpus": 2, "price_per_hour": 3},
    }
    response = ask(server, question)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    answer = response.json()
    subjects = [
        Subject.listed("llama-3.1-8b"),
        Subject.of_config(CASES["gemma-3-1b"]["config"], name="mine", num_parameters=999_885_952),
        Subject.of_config(CASES["kimi-k3"]["config"]),
        Subject.typed({"layers": 32, "kv_heads": 8, "head_dim": 128}),
    ]
    same = calculate(subjects, Settings(context=32_768, batch=4, gpu="h100", gpus=2, price_per_hour=3))
    assert answer == json.loads(json.dumps(same))
    totals = [model["total_bytes"] for model in answer["models"]]
    known = [CASES[name]["expect"]["total_bytes"]["32768"] for name in ("llama-3.1-8b", "gemma-3-1b", "kimi-k3")]
    assert totals == [4 * total for total in [*known, known[0]]]
    assert answer["machine"]["price_per_hour"] == 3
    assert answer["machine"]["usable_bytes"] == 2 * 80 * 2**30 * 9 // 10


def test_the_series_pass_through_the_figures_asked_for(server: Running) -> None:
    model = ask(server, {"models": [{"model": "gemma-3-1b"}], "settings": {"context": 5_000, "batch": 3}}).json()[
        "models"
    ][0]
    by_context = {point["context"]: point["total_bytes"] for point in model["series"]["over_context"]}
    by_batch = {point["batch"]: point["total_bytes"] for point in model["series"]["over_batch"]}
    assert by_context[5_000] == by_batch[3] == model["total_bytes"]
    assert by_context[1_024] == 3 * CASES["gemma-3-1b"]["expect"]["total_bytes"]["1024"]
    assert max(by_context) == 32_768
    assert list(by_context) == sorted(by_context)
    assert model["series"]["weight_bytes"] == 2 * 999_885_952


def test_what_can_be_chosen(server: Running) -> None:
    found = httpx.get(f"{server.url}/api/calculator", trust_env=False, timeout=60).json()
    assert found == json.loads(json.dumps(listing()))
    assert found["models"][0]["model_id"] == "smollm2-135m"
    assert found["defaults"]["context"] == 8_192
    refused = {model["model_id"]: model["kind"] for model in found["models"] if model["refused"]}
    assert refused == {
        "bert-base": "encoder_only",
        "t5-small": "encoder_decoder",
        "deepseek-v4-flash": "compressed_sparse",
    }


def test_a_card_of_ones_own(server: Running) -> None:
    question = {"models": [{"model": "llama-3.1-8b"}], "settings": {"memory_bytes": 80_000_000_000}}
    answer = ask(server, question).json()
    assert answer["machine"]["card_id"] is None
    found = answer["models"][0]["capacity"]
    assert (found["max_sequences"], found["tokens_per_s"]) == (52, None)


def test_a_refused_model_says_its_kind(server: Running) -> None:
    response = ask(server, {"models": [{"config": CASES["t5-small"]["config"]}]})
    assert response.status_code == 400
    assert response.json()["code"] == "refused"
    assert response.json()["details"] == {"kind": "encoder_decoder"}


GPT2 = {"models": [{"model": "gpt2"}]}
LLAMA = CASES["llama-3.1-8b"]["config"]


@pytest.mark.parametrize(
    ("question", "status", "sentence"),
    [
        (b"", 400, "The request is not valid JSON"),
        (b"{", 400, "The request is not valid JSON"),
        (b"[" * 200_000, 400, "The request is not valid JSON"),
        (b'{"models": [{"config": {"num_hidden_layers": NaN}}]}', 400, "The request is not valid JSON"),
        (b'{"models": [{"config": {"num_hidden_layers": 1e999}}]}', 400, "The request is not valid JSON"),
        (b"\xff\xfe", 400, "The request is not valid JSON"),
        (b"[]", 400, "request: expected an object, got a list"),
        ({}, 400, "models: missing"),
        ({"models": []}, 400, "models: expected a list with 1 or more items"),
        ({"models": [{"model": "gpt2"}] * 5}, 400, "models: expected a list with 4 or fewer items"),
        ({"models": [{}]}, 400, "Each model must have exactly one of model, config and geometry"),
        ({"models": [{"model": "gpt2", "config": LLAMA}]}, 400, "Each model must have exactly one of"),
        ({"models": [{"model": "nobody"}]}, 400, "Unknown model 'nobody'"),
        ({"models": [{"model": 5}]}, 400, "models.0.model: expected text, got 5"),
        ({"models": [{"model": "x" * 500}]}, 400, "models.0.model: expected text of at most 80 characters"),
        ({"models": [{"modell": "gpt2"}]}, 400, "models.0.modell: unknown field"),
        ({"models": [{"config": {}}]}, 400, "The config has no num_hidden_layers"),
        ({"models": [{"config": 5}]}, 400, "models.0.config"),
        ({"models": [{"config": "nope"}]}, 400, "The config is not valid JSON (line 1)"),
        ({"models": [{"config": "x" * 8_000_001}]}, 413, "The config.json is larger than 8,000,000 bytes; "),
        ({"models": [{"config": "x" * 33_000_000}]}, 413, "The request is larger than 32,000,000 bytes ("),
        ({"models": [{"config": {**LLAMA, "model_type": ["a"]}}], "settings": {"batch": 0}}, 400, "batch must be"),
        ({"models": [{"config": {**LLAMA, "num_hidden_layers": 10**12}}]}, 400, "num_hidden_layers in the config must"),
        ({"models": [{"config": {**LLAMA, "num_key_value_heads": -8}}]}, 400, "num_key_value_heads in the config must"),
        (
            {"models": [{"config": {**LLAMA, "layer_types": ["full_attention"] * 100_000}}]},
            400,
            "layer_types in the config must have at most 4,096 items (got 100,000)",
        ),
        ({"models": [{"geometry": {"layers": 1, "kv_heads": "8"}}]}, 400, "kv_heads must be a whole number"),
        (
            {"models": [{"model": "gpt2", "num_parameters": 0}]},
            400,
            "models.0.num_parameters: expected a number of at least 1",
        ),
        ({**GPT2, "settings": []}, 400, "settings: expected an object, got a list"),
        ({**GPT2, "settings": {"zap": 1}}, 400, "Unknown setting 'zap'; choose one of context, "),
        ({**GPT2, "settings": {"context": -1}}, 400, "context must be a whole number from 1"),
        ({**GPT2, "settings": {"context": "8k"}}, 400, "context must be a whole number from 1"),
        ({**GPT2, "settings": {"context": 1e30}}, 400, "context must be a whole number from 1"),
        ({**GPT2, "settings": {"dtype": ["x"]}}, 400, "dtype must be fp32, "),
        ({**GPT2, "settings": {"gpu": {"a": 1}}}, 400, "Unknown GPU"),
        ({**GPT2, "settings": {"gpu": "<script>"}}, 400, "Unknown GPU '<script>'"),
        ({**GPT2, "settings": {"utilisation": True}}, 400, "utilisation must be"),
    ],
)
def test_anything_else_gets_one_sentence(server: Running, question: Any, status: int, sentence: str) -> None:
    response = ask(server, question)
    error = response.json()
    assert response.status_code == status, error
    assert set(error) == {"code", "message", "details"}
    assert error["message"].startswith(sentence)
    assert "\n" not in error["message"]
    assert len(error["message"]) < 400


def test_figures_that_json_cannot_hold_are_refused(server: Running) -> None:
    largest = {"layers": 4_096, "kv_heads": 65_536, "head_dim": 65_536}
    for geometry, settings in (
        (largest, {"batch": 4_096, "context": 2**30}),
        (largest, {}),
        ({**largest, "layers": 9}, {}),
    ):
        response = ask(server, {"models": [{"geometry": geometry}], "settings": settings})
        assert response.status_code == (200 if geometry["layers"] == 9 else 400)
    assert response.json()["models"][0]["total_bytes"] == 9 * 2 * 65_536**2 * 2 * 8_192
    huge = dict.fromkeys(("hidden_size", "vocab_size", "intermediate_size", "max_position_embeddings"), 2**31)
    config = {**LLAMA, **huge, "num_attention_heads": 2**20, "num_hidden_layers": 4_096}
    response = ask(server, {"models": [{"config": config}], "settings": {"gpu": "h100"}})
    assert response.status_code == 400
    assert response.json()["message"].startswith("The results exceed the maximum of 9,223,372,036,854,775,807")


def test_names_are_one_printable_line(server: Running) -> None:
    config = {**LLAMA, "model_type": "a\n\x1b[31mb", "_name_or_path": "\n c\r"}
    model = ask(server, {"models": [{"config": config}]}).json()["models"][0]
    assert (model["model_type"], model["name"]) == ("a[31mb", "c")
    assert "\n" not in "".join(model["warnings"])
    response = ask(server, {"models": [{"x\ny": 1}]})
    assert response.json()["message"] == "models.0.x\\ny: unknown field; see docs/memory.md."


def test_nested_bombs_are_sentences(server: Running) -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"text_config": deep, "layer_types": deep, "attn_config": deep}
        if len(json.dumps(deep)) > 200_000:
            break
    response = ask(server, {"models": [{"config": deep}]})
    assert response.status_code == 400
    assert "\n" not in response.json()["message"]


def test_the_server_answers_it_without_torch() -> None:
    program = (
        "import sys\nfrom fastapi import FastAPI\nimport kvviz.web.calculator_routes\nfrom kvviz.calculator import *\n"
        "calculate([Subject.listed('kimi-k3')], Settings(gpu='h100'))\n"
        "print(*(name for name in ('torch', 'transformers') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
