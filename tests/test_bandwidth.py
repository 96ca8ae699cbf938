"""The bandwidth bound: arithmetic against hand computations, and `GET api/bandwidth`."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import httpx
import pytest

from kvviz.calculator.bandwidth import Reads, bandwidth_series, contexts_up_to, step_bound
from kvviz.calculator.gpus import CARDS, find_card
from kvviz.calculator.models import BIG_MODELS
from kvviz.errors import ConfigError
from kvviz.web.app import ServerConfig
from tests.support.fake_model import fake_load
from tests.support.running import Running, running

LLAMA_8B, LLAMA_70B, DEEPSEEK = BIG_MODELS


def test_bytes_per_token_are_those_of_the_worked_values() -> None:
    assert LLAMA_8B.bytes_per_token("bf16") == 131_072  # 2 x 32 x 8 x 128 x 2
    assert LLAMA_70B.bytes_per_token("bf16") == 327_680  # 2 x 80 x 8 x 128 x 2
    assert DEEPSEEK.bytes_per_token("bf16") == 70_272  # 61 x (512 + 64) x 2
    assert LLAMA_8B.bytes_per_token("fp8") == 65_536
    assert DEEPSEEK.bytes_per_token("int4") == 17_568


def test_a_dense_model_by_hand() -> None:
    """Llama 3.1 8B in 16 bits on 3.35 TB/s."""
    reads = Reads.of_model(LLAMA_8B, "bf16")
    assert reads.weight_bytes(1) == reads.weight_bytes(64) == reads.stored_bytes == 16_060_522_496
    # 16,060,522,496 / 131,072 = 122,532.0625, so 122,532 tokens are not enough
    assert reads.crossing(1) == 122_533
    assert reads.cache_bytes(122_532) < 16_060_522_496 <= reads.cache_bytes(122_533)
    assert reads.crossing(8) == 15_317  # 15,316.5078
    bound = step_bound(reads, 65_536, 1, 3.35e12)
    assert bound.cache_bytes == 8_589_934_592
    assert bound.step_us == pytest.approx(24_650_457_088 / 3.35e12 * 1e6)
    assert bound.tokens_per_s == pytest.approx(135.90, abs=0.01)
    eight = step_bound(reads, 65_536, 8, 3.35e12)
    assert eight.cache_bytes == 8 * 8_589_934_592
    assert eight.tokens_per_s == pytest.approx(8 * 3.35e12 / (16_060_522_496 + 68_719_476_736))


def test_a_mixture_reads_the_experts_that_are_in_use() -> None:
    """DeepSeek V3: parameters by hand from its geometry, then 8 of 256 experts for one token, more for several."""
    attention = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168
    expert = 3 * 7168 * 2048
    always = (
        61 * (attention + 2 * 7168)  # attention and two norms in each layer
        + 3 * 3 * 7168 * 18_432  # three dense layers
        + 58 * (expert + 256 * 7168 + 256)  # the shared expert and the router of the others
        + 2 * 129_280 * 7168  # embeddings and head
        + 7168  # last norm
    )
    assert always + 58 * 256 * expert == DEEPSEEK.num_parameters
    reads = Reads.of_model(DEEPSEEK, "fp8")
    assert reads.stored_bytes == 671_026_419_200
    assert reads.weight_bytes(1) == always + 58 * 8 * expert == 37_552_297_472
    # without the table of input embeddings this is the maker's figure
    assert round((reads.weight_bytes(1) - 129_280 * 7168) / 1e9) == 37
    assert reads.weight_bytes(2) == round(always + 58 * 256 * expert * (1 - (31 / 32) ** 2))
    assert reads.weight_bytes(4_096) == reads.stored_bytes
    assert reads.weight_bytes(1) < reads.weight_bytes(2) < 2 * reads.weight_bytes(1)


def test_what_one_card_holds() -> None:
    reads = Reads.of_model(LLAMA_8B, "bf16")
    card = find_card("rtx4090")
    room = 24 * 2**30 - 16_060_522_496
    assert reads.capacity(1, card.memory_bytes) == room // 131_072 == 74_075
    assert reads.capacity(4, card.memory_bytes) == room // (4 * 131_072)
    assert Reads.of_model(LLAMA_70B, "bf16").capacity(1, card.memory_bytes) == 0


def header(**model: Any) -> dict[str, Any]:
    layer = {"bytes_per_token": 1_536, "window": None}
    return {
        "model": {
            "name": "SmolLM2",
            "dtype": "float32",
            "weight_bytes": 538_060_032,
            "max_positions": 8_192,
            "layers": [layer] * 30,
            **model,
        }
    }


def test_the_run_is_read_from_its_header() -> None:
    reads = Reads.of_header(header())
    assert reads is not None
    assert (reads.bytes_per_token, reads.weight_bytes(3)) == (46_080, 538_060_032)
    assert reads.crossing(1) == 11_677  # 538,060,032 / 46,080 = 11,676.65
    assert Reads.of_header({"model": {"name": "none", "weight_bytes": 0, "layers": []}}) is None
    assert Reads.of_header({}) is None


def test_a_window_bounds_what_its_layer_reads() -> None:
    layers = [{"bytes_per_token": 100, "window": 512}] * 3 + [{"bytes_per_token": 100, "window": None, "chunk": None}]
    reads = Reads.of_header(header(layers=layers))
    assert reads is not None
    assert reads.cache_bytes(512) == 512 * 400
    assert reads.cache_bytes(2_000) == 3 * 512 * 100 + 2_000 * 100
    assert reads.crossing(1) == -(-(538_060_032 - 153_600) // 100)
    bounded = Reads.of_header(header(layers=layers[:3]))
    assert bounded is not None
    assert bounded.crossing(1) is None
    assert bounded.capacity(1, 2**40) is None


def test_a_series_doubles_up_to_the_limit() -> None:
    assert contexts_up_to(1_000) == [128, 256, 512, 1_000]
    assert contexts_up_to(256) == [128, 256]
    assert contexts_up_to(77) == [77]
    series = bandwidth_series(Reads.of_model(LLAMA_8B, "bf16"), 1, 1e12)
    assert [point.context for point in series] == [2**power for power in range(7, 18)]
    assert all(a.tokens_per_s > b.tokens_per_s for a, b in pairwise(series))


def test_what_is_not_there_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match="Unknown GPU 'h900'; choose one of a100-40, "):
        find_card("h900")
    with pytest.raises(ConfigError, match=r"dtype must be one of fp32, bf16, fp8, int4 \(got 'int3'\)"):
        Reads.of_model(LLAMA_8B, "int3")
    with pytest.raises(ConfigError, match=r"batch must be a whole number from 1 to 4,096 \(got 0\)"):
        step_bound(Reads.of_model(LLAMA_8B, "bf16"), 128, 0, 1e12)


def test_every_card_and_model_names_its_source() -> None:
    assert len({card.card_id for card in CARDS}) == len(CARDS) >= 8
    for each in (*CARDS, *BIG_MODELS):
        assert re.search(r"\b20\d\d\b", each.source)
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", each.checked)


@pytest.fixture(scope="module")
def server() -> Any:
    with running(ServerConfig(), fake_load()) as server:
        with server.connect() as page:
            page.do("step", count=3)
        yield server


def get(server: Running, query: str) -> httpx.Response:
    return httpx.get(f"{server.url}/api/bandwidth{query}", trust_env=False, timeout=60)


def test_the_api_answers_with_the_same_figures(server: Running) -> None:
    answer = get(server, "?card=h200&dtype=fp8&batch=4&session=live").json()
    assert answer["card"]["bandwidth"] == 4.8e12
    assert answer["can_measure"] is True
    assert [model["model_id"] for model in answer["models"]][-3:] == ["llama-3.1-8b", "llama-3.1-70b", "deepseek-v3"]
    by_hand = 4 * 4.8e12 / (8_030_261_248 + 4 * 65_536 * 1_024)
    llama = next(model for model in answer["models"] if model["model_id"] == "llama-3.1-8b")
    point = next(point for point in llama["points"] if point["context"] == 1_024)
    assert point["tokens_per_s"] == pytest.approx(by_hand)
    assert llama["crossing"] == 30_634  # 8,030,261,248 / (4 x 65,536) = 30,633.0
    alone = get(server, "").json()
    assert [alone["card"]["card_id"], alone["dtype"], alone["batch"]] == ["h100", "bf16", 1]
    assert alone["can_measure"] is False
    assert len(alone["models"]) == 3


@pytest.mark.slow
def test_this_machine_is_measured_for_a_live_session_only(server: Running) -> None:
    answer = get(server, "?card=here&session=live").json()
    assert 1e8 < answer["card"]["bandwidth"] < 1e13
    assert answer["card"]["source"].startswith("measured here")
    assert answer["models"][0]["capacity"] is None
    again = get(server, "?card=here&session=live").json()
    assert again["card"] == answer["card"]
    refused = get(server, "?card=here")
    assert refused.status_code == 400
    assert refused.json()["message"].startswith("The GPU 'here' is the machine of a live session")


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("?card=h900", 400, "Unknown GPU 'h900'"),
        ("?card=../../etc/passwd", 400, "Unknown GPU"),
        ("?dtype=int3", 400, "dtype must be one of fp32, bf16, fp8, int4"),
        ("?batch=0", 400, "batch: expected a number of at least 1, got '0'"),
        ("?batch=9999999", 400, "batch: expected a number of at most 4,096"),
        ("?batch=many", 400, "batch: expected a whole number, got 'many'"),
        (f"?card={'x' * 500}", 400, "card: expected text of at most 80 characters"),
        ("?session=nobody", 404, "Session 'nobody' doesn't exist"),
    ],
)
def test_bad_values_get_one_sentence(server: Running, query: str, status: int, message: str) -> None:
    response = get(server, query)
    assert response.status_code == status
    assert response.json()["message"].startswith(message)
