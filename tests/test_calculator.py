"""The calculator against known answers: models, what fits, published mistakes; and properties that always hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.calculator import (
    CARDS,
    MODELS,
    Geometry,
    Machine,
    Parameters,
    Settings,
    Subject,
    bytes_per_token_formula,
    cache_bytes,
    calculate,
    capacity,
    estimated_parameters,
    find_model,
    geometry_of_config,
    geometry_of_numbers,
    heads_per_gpu,
    parameters_of,
    parse_config,
    remedies,
    total_formula,
)
from kvviz.calculator.cache import Term
from kvviz.calculator.settings import DTYPES, find_dtype
from kvviz.commands.calc import binary, decimal
from kvviz.errors import ConfigError, KvvizError, ModelError

HERE = Path(__file__).parent / "cases"
GIB, KIB = 2**30, 2**10


def read(name: str) -> list[dict[str, Any]]:
    return json.loads((HERE / name).read_text(encoding="utf-8"))


CASES = {case["id"]: case for case in read("calculator.json")}
REFUSED = {name for name, case in CASES.items() if "refuse" in case["expect"]}
COUNTED = sorted(set(CASES) - REFUSED)


def geometry(name: str) -> Geometry:
    return geometry_of_config(CASES[name]["config"], name)


# Known answers


@pytest.mark.parametrize("name", COUNTED)
def test_every_figure_of_a_known_model(name: str) -> None:
    expect = CASES[name]["expect"]
    found = geometry(name)
    assert found.kind == expect["kind"]
    assert found.max_context == expect.get("max_context")
    assert found.cached_layers == expect["cached_layers"]
    groups = [
        {name: getattr(group, name) for name in ("layers", "kv_heads", "k_dim", "v_dim", "window", "type")}
        for group in found.groups
    ]
    assert groups == expect["layer_groups"]
    for context, total in expect["total_bytes"].items():
        cache = cache_bytes(found, context=int(context))
        assert cache.bytes_per_token == expect["bytes_per_token_bf16"]
        assert cache.marginal_bytes_per_token == expect["marginal_bytes_per_token_long_ctx"]
        assert cache.total_bytes == total
        assert cache.total_bytes_window_ignored == expect["total_bytes_window_ignored"][context]
        latent = expect.get("mla_uncompressed_total_bytes")
        if latent is None:
            assert cache.uncompressed_bytes_per_token is None
        else:
            assert cache.uncompressed_bytes_per_token == expect["mla_uncompressed_bytes_per_token_bf16"]
            assert cache.uncompressed_bytes_per_token * int(context) == latent[context]


@pytest.mark.parametrize("name", COUNTED)
def test_fixed_state_and_indexer_are_apart(name: str) -> None:
    """Elements as published, bytes as measured with transformers."""
    expect = CASES[name]["expect"]
    found, state = geometry(name), expect.get("fixed_state_per_sequence")
    measured = expect.get("measured_transformers_5_24", {})
    cache = cache_bytes(found, context=8_192, batch=3)
    assert cache.indexer_bytes_per_token == measured.get("indexer_bytes_per_token", 0)
    if state is None:
        assert found.state is None
        assert cache.fixed_state_bytes == 0
        return
    assert found.state is not None
    assert found.state.layers == state["layers"]
    assert found.state.recurrent == state["recurrent_elements_per_layer"]
    assert (found.state.conv_channels, found.state.conv_width) == (
        state["conv_channels_per_layer"],
        state["conv_width_transformers"],
    )
    assert found.state.recurrent_bytes == state["bytes_recurrent_fp32"]
    assert found.state.conv_bytes == state["bytes_conv_bf16_transformers_width"]
    assert cache.fixed_state_bytes == 3 * measured["fixed_state_bytes"]


@pytest.mark.parametrize("name", COUNTED)
def test_only_types_that_are_not_known_are_warned_about(name: str) -> None:
    assert geometry(name).warnings == ()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_has_no_such_cache_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ModelError) as refusal:
        geometry(name)
    assert refusal.value.details["kind"] == CASES[name]["expect"]["kind"]
    assert "\n" not in refusal.value.message
    figures = {"t5-small": "12,288 bytes", "deepseek-v4-flash": "6,880 bytes", "bert-base": "no KV cache"}
    assert figures[name] in refusal.value.message


@pytest.mark.parametrize("case", read("capacity.json"), ids=lambda case: f"{case['case']}-{case['context']}")
def test_what_fits(case: dict[str, Any]) -> None:
    model = find_model(case["case"])
    assert model.num_parameters == case["weight_params"]
    found = capacity(
        model.geometry,
        Parameters(total=case["weight_params"]),
        Machine(name="card", memory_bytes=case["gpu_bytes"]),
        Settings(
            context=case["context"],
            gpus=case["gpus"],
            utilisation=case["utilisation"],
            block_size=case["block_size"],
            overhead_bytes=case["overhead_bytes"],
            weights_dtype={1: "fp8", 2: "bf16"}[case["weight_bytes"] // case["weight_params"]],
        ),
    )
    for name in ("weight_bytes", "kv_budget_bytes", "bytes_per_sequence", "fixed_state_bytes", "max_sequences", "fits"):
        assert getattr(found, name) == case[name], name
    assert found.weights_fit is (case["kv_budget_bytes"] >= 0)


def with_window(name: str, window: int) -> Geometry:
    """As an engine with other slots for a window has it."""
    found = geometry(name)
    groups = tuple(replace(group, window=window if group.window else None) for group in found.groups)
    return replace(found, groups=groups)


QWEN3_4B = {
    "model_type": "qwen3",
    "hidden_size": 2_560,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
VISION = {
    "model_type": "some_vlm",
    "num_hidden_layers": 33,
    "vision_config": {"num_hidden_layers": 33, "hidden_size": 1_152, "num_attention_heads": 16},
    "text_config": {
        "model_type": "llama",
        "num_hidden_layers": 40,
        "hidden_size": 5_120,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
    },
}
#: What this calculator says where each published figure went wrong.
OURS = {
    "vllm-fit-8x": lambda: cache_bytes(geometry("llama-2-7b"), context=1, dtype="fp16").total_bytes,
    "lesson-per-head": lambda: cache_bytes(geometry("llama-2-7b"), context=32_768, dtype="fp16").total_bytes,
    "llama70b-340gb": lambda: cache_bytes(geometry("llama-3.1-70b"), context=131_072, dtype="fp16").total_bytes,
    "lmcache-head-dim": lambda: cache_bytes(geometry_of_config(QWEN3_4B), context=1).total_bytes,
    "hf-mem-gemma4-31b": lambda: cache_bytes(geometry("gemma-4-31b"), context=1).bytes_per_token,
    "ollama-gemma4-26b": lambda: cache_bytes(with_window("gemma-4-26b-a4b", 1_536), context=131_072).total_bytes,
    "gguf-parser-gpt-oss": lambda: cache_bytes(geometry("gpt-oss-20b"), context=131_072).total_bytes,
    "node-llama-cpp-q8": lambda: cache_bytes(geometry("llama-2-7b"), context=8_192, dtype="q8_0").total_bytes,
    "vllm-vulkan-gb-gib": lambda: float(binary(8 * GIB).removesuffix(" GiB")),
    "omlx-vlm-nested": lambda: geometry_of_config(VISION).num_layers,
    "fastdeploy-kv0": lambda: heads_per_gpu(2, 4),
}
MISTAKES = {case["id"]: case for case in read("mistakes.json") if case["status"] == "verified"}


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_a_published_mistake_is_not_made_here(name: str) -> None:
    case = MISTAKES[name]
    units = {"GiB": GIB, "KiB": KIB, "round": round, "max": max}
    for side in ("wrong", "correct"):
        assert eval(case[side]["expr"], {"__builtins__": {}}, units) == case[side]["value"]
    assert OURS[name]() == case["correct"]["value"]
    assert OURS[name]() != case["wrong"]["value"]


# The list


def test_the_list_has_every_known_model_and_its_counted_parameters() -> None:
    models = {model.model_id: model for model in MODELS}
    assert len(models) == len(MODELS)
    assert set(CASES) <= set(models)
    for name, case in CASES.items():
        measured = case["expect"].get("measured_transformers_5_24", {})
        assert models[name].num_parameters == measured.get("text_params")
        if name in REFUSED:
            continue
        assert replace(models[name].geometry, name="") == replace(geometry(name), name="")


#: What each maker says a token uses, in thousands of millions (model cards and papers).
ACTIVE = {
    "mixtral-8x7b": 12.9,
    "qwen3-30b-a3b": 3.3,
    "deepseek-v2": 21,
    "deepseek-v3": 37,
    "kimi-k2": 32,
    "gpt-oss-20b": 3.6,
    "llama-4-scout": 17,
    "jamba-v0.1": 12,
    "gemma-4-26b-a4b": 3.8,
}


@pytest.mark.parametrize("name", sorted(ACTIVE))
def test_experts_are_told_from_other_weights(name: str) -> None:
    """Counted with both embedding tables, which some makers leave out."""
    found = find_model(name).parameters
    assert found is not None
    active = found.total - found.experts * (1 - found.share)
    text = CASES[name]["config"] if name in CASES else find_model(name).config
    text = text.get("text_config", text)
    table = text["vocab_size"] * text["hidden_size"]
    assert (active - table) / 1e9 * 0.94 <= ACTIVE[name] <= active / 1e9 * 1.03


def test_parameters_of_a_dense_model_are_all_read() -> None:
    assert parameters_of(CASES["llama-3.1-8b"]["config"], 100) == Parameters(total=100)


ESTIMATED = {
    model.model_id: estimated_parameters(model.config, model.geometry)
    for model in MODELS
    if model.model_id not in REFUSED and model.num_parameters
}


@pytest.mark.parametrize("name", sorted(name for name, estimate in ESTIMATED.items() if estimate))
def test_an_estimate_is_near_the_count(name: str) -> None:
    assert ESTIMATED[name] == pytest.approx(find_model(name).num_parameters, rel=0.014)


def test_what_is_no_ordinary_decoder_is_not_estimated() -> None:
    assert sum(estimate is not None for estimate in ESTIMATED.values()) >= 37
    assert ESTIMATED["qwen3-next-80b-a3b"] is ESTIMATED["jamba-v0.1"] is ESTIMATED["gemma-3n-e4b"] is None
    subject = Subject.of_config(CASES["llama-3.1-8b"]["config"])
    assert (subject.is_estimated, subject.parameters) == (True, Parameters(total=8_029_995_008))
    (warning,) = calculate([subject], Settings(gpu="h100"))["models"][0]["warnings"]
    assert warning.startswith("The parameter count (8,029,995,008) is estimated from the config")
    assert calculate([subject], Settings())["models"][0]["warnings"] == []


def test_every_card_has_its_price_with_a_source_or_none() -> None:
    assert {"a100-40", "a100-80", "h100", "h200", "b200", "mi300x", "l4", "l40s", "t4", "a10g", "m4-max"} < {
        card.card_id for card in CARDS
    }
    for card in CARDS:
        assert (card.price_per_hour is None) == (card.price_source is None)


# Reading a config


LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4_096,
}


def per_token(config: dict[str, Any]) -> int:
    return cache_bytes(geometry_of_config(config), context=1).bytes_per_token


@pytest.mark.parametrize("nesting", ["text_config", "llm_config", "language_config"])
def test_nesting_changes_nothing(nesting: str) -> None:
    decoy = {"model_type": "wrapper", "vision_config": {"num_hidden_layers": 99}, "num_hidden_layers": 99}
    inner = geometry_of_config({**decoy, nesting: LLAMA}, "x")
    assert inner == geometry_of_config(LLAMA, "x")
    assert geometry_of_config({"thinker_config": {**decoy, "text_config": LLAMA}}, "x") == inner


def test_a_nested_config_may_leave_sizes_to_its_class() -> None:
    """Gemma 3 4B as its file is: 34 layers, 4 KV heads and 256 channels by default, window 1,024 in 29 layers."""
    text = {"model_type": "gemma3_text", "hidden_size": 2_560, "num_hidden_layers": 34, "sliding_window": 1_024}
    found = geometry_of_config({"model_type": "gemma3", "text_config": text})
    shapes = [(group.layers, group.kv_heads, group.k_dim, group.window) for group in found.groups]
    assert shapes == [(29, 4, 256, 1_024), (5, 4, 256, None)]
    assert found.max_context == 131_072
    assert found.warnings == (
        "The config omits some sizes; the defaults of gemma3_text are used: num_attention_heads 8, "
        "num_key_value_heads 4, head_dim 256.",
    )
    with pytest.raises(ModelError, match="The config has no num_hidden_layers"):
        geometry_of_config({key: value for key, value in LLAMA.items() if key != "num_hidden_layers"})


def test_a_recurrent_model_looks_through_its_window() -> None:
    config = {
        "model_type": "recurrent_gemma",
        "num_hidden_layers": 26,
        "hidden_size": 2_560,
        "num_attention_heads": 10,
        "num_key_value_heads": 1,
        "attention_window_size": 2_048,
        "block_types": ["recurrent", "recurrent", "attention"],
        "max_position_embeddings": 8_192,
    }
    found = geometry_of_config(config)
    assert [(group.layers, group.type, group.window) for group in found.groups] == [(8, "sliding", 2_048)]
    assert "18 layers keep a fixed state; the config doesn't give its size" in found.warnings[-1]


def test_an_unknown_type_with_ordinary_fields_says_what_was_assumed() -> None:
    found = geometry_of_config({**LLAMA, "model_type": "brand_new"})
    assert cache_bytes(found, context=1).bytes_per_token == per_token(LLAMA) == 2 * 4 * 2 * 32 * 2
    (warning,) = found.warnings
    assert warning == (
        "The model type brand_new is unknown; its standard fields were read as: "
        "4 layers, 2 KV heads, K dimension 32, V dimension 32."
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"num_hidden_layers": None}, "The config has no num_hidden_layers (or "),
        ({"num_attention_heads": None}, "The config has no num_attention_heads (or "),
        ({"hidden_size": None}, "The config has no head_dim (or hidden_size, "),
        ({"hidden_size": 255}, "The config has no head_dim, and its hidden size 255 is not a multiple of its 8 heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers in the config must be a whole number from 1 to"),
        ({"num_hidden_layers": -4}, "num_hidden_layers in the config must be a whole number from 1 to"),
        ({"num_hidden_layers": 4.5}, "num_hidden_layers in the config must be a whole number from 1 to"),
        ({"num_hidden_layers": float("nan")}, "num_hidden_layers in the config must be a whole number from 1 to"),
        ({"num_hidden_layers": True}, "num_hidden_layers in the config must be a whole number from 1 to"),
        ({"num_hidden_layers": 10**9}, "The config must have at most 4,096 layers (got 1,000,000,000)"),
        ({"num_key_value_heads": "two"}, "num_key_value_heads in the config must be a whole number"),
        ({"layer_types": ["full_attention"]}, "The config has 4 layers, but types for only 1"),
        ({"layer_types": ["full_attention", "x", "x", "x"]}, "Layer 1 of the config has the unknown type 'x'"),
        ({"layer_types": ["sliding_attention"] * 4}, "The config has no sliding_window, "),
        (
            {"layer_types": ["full_attention"] * 10**6},
            "layer_types in the config must have at most 4,096 items (got 1,000,000)",
        ),
        ({"kv_lora_rank": 512}, "The config has no qk_rope_head_dim, "),
        ({"layer_types": "full_attention"}, "layer_types in the config must be a list (got 'full_attention')"),
        ({"block_configs": {"0": {}}}, "block_configs in the config must be a list (got an object)"),
        ({"hybrid_override_pattern": 7}, "hybrid_override_pattern in the config must be a list (got 7)"),
        ({"num_key_value_heads": [1, 2]}, "The config has 4 layers, but num_key_value_heads has only 2 items"),
        ({"num_attention_heads": [8, 8, 8]}, "The config has 4 layers, but num_attention_heads has only 3 items"),
        (
            {"attention_chunk_size": 64, "no_rope_layers": [1, 1]},
            "no_rope_layers in the config must have 0 or 1 for each",
        ),
        ({"attention_chunk_size": 64, "no_rope_layers": ["no"] * 4}, "no_rope_layers in the config must have 0 or 1"),
        ({"multi_query": "no"}, "multi_query in the config must be true or false (got 'no')"),
    ],
)
def test_a_config_that_lacks_or_breaks_something_gets_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ModelError) as error:
        geometry_of_config({**LLAMA, **change})
    assert error.value.message.startswith(sentence)
    assert "\n" not in error.value.message


@pytest.mark.parametrize("text", ["", "nope", "[1]", "[" * 100_000, "1" * 5_000, '"x"', "null"])
def test_what_is_no_config_gets_one_sentence(text: str) -> None:
    with pytest.raises(ModelError, match=r"use a model's (unmodified )?config\.json"):
        parse_config(text)


def test_a_config_as_transformers_writes_it_is_read() -> None:
    assert per_token(parse_config(json.dumps({**LLAMA, "time_step_limit": [0.0, float("inf")]}))) == per_token(LLAMA)


def test_kv_heads_in_all_their_spellings() -> None:
    base = {**LLAMA, "num_key_value_heads": None}
    assert per_token(base) == 4 * per_token(LLAMA)
    for name in ("num_kv_heads", "n_kv_heads", "num_attention_groups", "num_query_groups"):
        assert per_token({**base, name: 2}) == per_token(LLAMA)
    assert per_token({**base, "multi_query": True}) == per_token(LLAMA) // 2
    assert per_token({**base, "multi_query_attention": True, "multi_query_group_num": 2}) == per_token(LLAMA)
    assert per_token({**base, "attn_config": {"kv_n_heads": 2}}) == per_token(LLAMA)
    falcon = {**base, "model_type": "falcon", "multi_query": True, "num_kv_heads": 4}
    assert per_token(falcon) == per_token(LLAMA) // 2
    assert per_token({**falcon, "new_decoder_architecture": True}) == 2 * per_token(LLAMA)


def test_lists_by_layer() -> None:
    listed = geometry_of_config({**LLAMA, "num_key_value_heads": [1, 0, 4, 2]})
    assert [group.kv_heads for group in listed.groups] == [1, 4, 2]
    assert listed.kind == "per_layer"
    assert cache_bytes(listed, context=1).bytes_per_token == (1 + 4 + 2) * 2 * 32 * 2
    overridden = geometry_of_config({**LLAMA, "per_layer_config": {"3": {"head_dim": 64, "num_key_value_heads": 1}}})
    assert cache_bytes(overridden, context=1).bytes_per_token == (3 * 2 * 32 + 64) * 2 * 2


def test_layers_of_an_image_are_left_out_and_said() -> None:
    text = {**LLAMA, "model_type": "mllama_text_model", "cross_attention_layers": [1]}
    found = geometry_of_config({"model_type": "mllama", "text_config": text})
    assert (found.kind, found.cached_layers, found.num_layers) == ("gqa", 3, 4)
    assert found.warnings == ("Cross-attention layers also cache K and V of images; these aren't counted.",)


def test_a_window_that_is_off_or_null_is_none() -> None:
    for fields in (
        {"sliding_window": None},
        {"sliding_window": 64, "use_sliding_window": False},
        {"model_type": "qwen2", "sliding_window": 64},
        {"model_type": "mistral", "sliding_window": None},
    ):
        assert [group.window for group in geometry_of_config({**LLAMA, **fields}).groups] == [None]
    left_out = geometry_of_config({**LLAMA, "model_type": "mistral", "max_position_embeddings": 32_768})
    assert [group.window for group in left_out.groups] == [4_096]
    assert left_out.warnings == ("The config has no sliding_window; the default of mistral is used: 4,096 tokens.",)


def test_typed_numbers() -> None:
    by_numbers = geometry_of_numbers({"layers": 32, "kv_heads": 8, "head_dim": 128, "query_heads": 32})
    assert by_numbers.groups == geometry("llama-3.1-8b").groups
    assert by_numbers.kind == "gqa"
    mixed = geometry_of_numbers({"layers": 26, "kv_heads": 1, "head_dim": 256, "window": 512, "windowed_layers": 22})
    assert cache_bytes(mixed, context=8_192).total_bytes == CASES["gemma-3-1b"]["expect"]["total_bytes"]["8192"]
    latent = geometry_of_numbers({"layers": 60, "latent_dim": 512, "rotary_dim": 64})
    assert (latent.kind, cache_bytes(latent, context=1).bytes_per_token) == ("mla", 69_120)
    assert geometry_of_numbers({"layers": 2, "kv_heads": 1, "head_dim": 4, "query_heads": 8}).kind == "mqa"
    assert geometry_of_numbers({"layers": 2, "kv_heads": 8, "head_dim": 4}).kind == "mha"


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ({}, "The geometry has no layers; add it."),
        ({"layers": 2, "kv_heads": 2}, "The geometry has no head_dim; add it."),
        ({"layers": 2, "latent_dim": 2}, "The geometry has no rotary_dim; add it."),
        ({"layers": 0, "kv_heads": 2, "head_dim": 2}, "layers must be a whole number from 1 to 4096 (got 0)"),
        ({"layers": 2, "heads": 2}, "Unknown field 'heads' in the geometry; choose one of layers, "),
        ({"layers": 2, "kv_heads": 2, "head_dim": 2, "windowed_layers": 1}, "1 windowed layers need a window"),
        (
            {"layers": 2, "kv_heads": 2, "head_dim": 2, "windowed_layers": 3, "window": 9},
            "3 windowed layers need a window",
        ),
    ],
)
def test_senseless_numbers_get_one_sentence(numbers: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        geometry_of_numbers(numbers)
    assert error.value.message.startswith(sentence)


@pytest.mark.parametrize("num_parameters", [-3, 0, 10**15])
def test_parameters_have_limits_however_the_model_is_given(num_parameters: int) -> None:
    geometry = {"layers": 2, "kv_heads": 2, "head_dim": 2}
    with pytest.raises(ConfigError, match=r"^num_parameters must be a whole number from 1 to"):
        Subject.typed(geometry, num_parameters=num_parameters)
    with pytest.raises(ConfigError, match=r"^num_parameters must be a whole number from 1 to"):
        Subject.of_config(LLAMA, num_parameters=num_parameters)


# Bytes of numbers, formulas


def test_bytes_of_a_vector_with_its_scales() -> None:
    assert find_dtype("int4").vector_bytes(128, 32) == (64, 16)  # four groups of a step and a low end, fp16
    assert find_dtype("int8").vector_bytes(128, 128) == (128, 4)
    assert find_dtype("int8").vector_bytes(80, 32) == (80, 12)  # the last group is shorter
    assert find_dtype("int4").vector_bytes(7, 32) == (4, 4)
    assert find_dtype("q8_0").vector_bytes(128, 1) == (128, 8)  # 34 bytes for 32 numbers
    assert find_dtype("q4_0").vector_bytes(128, 1) == (64, 8)  # 18 bytes for 32 numbers
    assert find_dtype("fp8").vector_bytes(128, 1) == (128, 0)
    assert find_dtype("float16") is find_dtype("fp16")


def product(terms: tuple[Term, ...]) -> float:
    result = 1.0
    for term in terms:
        if term.parts:
            assert sum(part.value for part in term.parts) == term.value
        result *= term.value
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3.2", "gemma-4-26b-a4b", "hunyuan-large"])
def test_terms_multiply_to_the_figure(name: str, dtype: str) -> None:
    cache = cache_bytes(geometry(name), context=5_000, batch=3, dtype=dtype)
    for part in cache.groups:
        formula = bytes_per_token_formula(part.group, dtype)
        assert product(formula.terms) == formula.value == part.bytes_per_token
        total = total_formula(part.group, part.bytes_per_token, 5_000, 3)
        assert product(total.terms) == total.value == part.total_bytes


def test_a_formula_reads_as_one_writes_it() -> None:
    (group,) = geometry("llama-3.1-8b").groups
    assert bytes_per_token_formula(group, "bf16").text == "2 × 32 × 8 × 128 × 2 = 131,072 bytes per token"
    assert bytes_per_token_formula(group, "int4").text == "2 × 32 × 8 × (64 + 16) = 40,960 bytes per token"
    (latent,) = geometry("deepseek-v2").groups
    assert bytes_per_token_formula(latent, "bf16").text == "60 × (512 + 64) × 2 = 69,120 bytes per token"
    assert [term.name for term in bytes_per_token_formula(latent, "bf16").terms[1].parts] == ["latent", "rotary"]


def test_gib_and_gb_are_told_apart() -> None:
    assert (binary(17_179_869_184), decimal(17_179_869_184)) == ("16.0 GiB", "17.2 GB")
    assert (binary(131_072), decimal(131_072)) == ("128 KiB", "131 kB")
    assert (binary(1_073_741_824), decimal(1_073_741_824)) == ("1.00 GiB", "1.07 GB")
    assert (binary(1_023), decimal(999)) == ("1,023 bytes", "999 bytes")
    assert (binary(-(2**30)), decimal(5 * 10**12)) == ("-1.00 GiB", "5,000 GB")


# Several cards, prefixes, remedies


H100 = Machine(name="H100", memory_bytes=80 * GIB, bandwidth=3.35e12, price_per_hour=4.0)


def fits(name: str, **settings: Any) -> Any:
    model = find_model(name)
    assert model.parameters is not None
    return capacity(model.geometry, model.parameters, H100, Settings(**settings))


def test_kv_heads_are_split_and_then_copied() -> None:
    """Llama 3.1 8B has eight: on 16 cards each is there twice, so all together take twice the bytes."""
    per_sequence = 8_192 * 131_072
    assert [fits("llama-3.1-8b", gpus=gpus).bytes_per_sequence // per_sequence for gpus in (1, 2, 8, 16, 32)] == [
        1,
        1,
        1,
        2,
        4,
    ]
    assert [fits("llama-3.1-8b", gpus=gpus).copies for gpus in (1, 8, 16, 32)] == [1, 1, 2, 4]
    assert fits("llama-3.1-8b", gpus=3).kv_heads_per_gpu == 3


def test_a_latent_is_on_every_card() -> None:
    alone = fits("deepseek-v3", gpus=1).bytes_per_sequence
    assert alone == 8_192 * 70_272
    assert fits("deepseek-v3", gpus=8).bytes_per_sequence == 8 * alone
    assert fits("deepseek-v3", gpus=8).copies == 8


def test_a_prefix_is_stored_once() -> None:
    """1,000 shared tokens are 62 whole blocks of 16: 992 tokens once, 7,200 in each sequence."""
    found = fits("llama-3.1-8b", prefix=1_000)
    assert found.shared_prefix_bytes == 992 * 131_072
    assert found.bytes_per_further_sequence == 7_200 * 131_072
    budget = 72 * GIB - 16_060_522_496
    assert found.max_sequences == (budget - 992 * 131_072) // (7_200 * 131_072)
    assert found.max_sequences_without_prefix == budget // (8_192 * 131_072)


def test_a_window_shares_what_is_within_it() -> None:
    """Gemma 3 1B, window 512: of a prefix of 8,000 of 8,192 tokens 320 are still within the window."""
    found = fits("gemma-3-1b", prefix=8_000)
    sliding, full = 22_528, 4_096
    assert found.shared_prefix_bytes == 512 * sliding + 8_000 * full
    assert found.bytes_per_further_sequence == (512 - 320) * sliding + 192 * full


def test_a_fixed_state_takes_room_and_is_no_part_of_the_totals() -> None:
    found = fits("mamba2-codestral-7b")
    assert found.bytes_per_sequence == found.fixed_state_bytes == 273_678_336
    assert cache_bytes(geometry("mamba2-codestral-7b"), context=8_192).total_bytes == 0
    assert found.longest_context is None


def test_the_longest_context_is_the_last_that_fits() -> None:
    longest = fits("llama-3.1-8b", batch=4).longest_context
    budget = 72 * GIB - 16_060_522_496
    assert longest == budget // (4 * 16 * 131_072) * 16
    assert fits("llama-3.1-8b", context=longest, batch=4).fits
    assert not fits("llama-3.1-8b", context=longest + 1, batch=4).fits
    assert fits("llama-3.1-70b").longest_context == 0


def test_speed_and_cost_by_hand() -> None:
    found = fits("llama-3.1-8b", batch=8, gpus=2)
    seconds = (16_060_522_496 + 8 * 8_192 * 131_072) / (2 * 3.35e12)
    assert found.step_us == pytest.approx(seconds * 1e6)
    assert found.tokens_per_s == pytest.approx(8 / seconds)
    assert found.cost_per_million_tokens == pytest.approx(2 * 4.0 / 3_600 * seconds / 8 * 1e6)
    too_many = fits("llama-3.1-8b", batch=4_000)
    assert (too_many.fits, too_many.tokens_per_s, too_many.cost_per_million_tokens) == (False, None, None)


def test_what_would_help_is_what_the_calculator_says_of_it() -> None:
    model = find_model("llama-2-7b")
    assert model.parameters is not None
    settings = Settings(context=8_192, batch=4)
    found = {each.name: each for each in remedies(model.geometry, model.parameters, H100, settings)}
    assert set(found) == {"gqa", "fp8_cache", "window", "offload", "fp8_weights", "another_card", "more_cards"}
    now = capacity(model.geometry, model.parameters, H100, settings)
    grouped = replace(model.geometry, groups=(replace(model.geometry.groups[0], kv_heads=8),))
    assert found["gqa"].value == 8
    assert found["gqa"].total_bytes == cache_bytes(grouped, context=8_192, batch=4).total_bytes == 4 * 8_192 * 131_072
    assert found["gqa"].max_sequences == capacity(grouped, model.parameters, H100, settings).max_sequences
    assert found["fp8_cache"].max_sequences == fits("llama-2-7b", batch=4, dtype="fp8").max_sequences
    assert found["more_cards"].max_sequences == fits("llama-2-7b", batch=4, gpus=2).max_sequences
    assert found["offload"].parked == 256 * GIB // (8_192 * 524_288) == 64
    assert found["offload"].max_sequences == now.max_sequences + 64
    assert found["offload"].return_s == pytest.approx(8_192 * 524_288 / 64e9)
    assert found["another_card"].value == "h200"
    assert found["window"].longest_context is None
    assert [each.name for each in found.values() if each.needs_training] == ["gqa", "window"]
    assert "gqa" not in {each.name for each in remedies(geometry("llama-3.1-8b"), Parameters(total=1), H100, settings)}


def test_what_would_not_help_is_not_named() -> None:
    """A model without K and V gains nothing from a smaller cache; weights that are too much gain from few things."""
    without = find_model("mamba2-codestral-7b")
    assert without.parameters is not None
    names = [each.name for each in remedies(without.geometry, without.parameters, H100, Settings())]
    assert names == ["offload", "fp8_weights", "another_card", "more_cards"]
    large = find_model("llama-3.1-70b")
    assert large.parameters is not None
    found = remedies(large.geometry, large.parameters, H100, Settings())
    assert [(each.name, each.fits) for each in found] == [("fp8_weights", True), ("more_cards", True)]


def test_a_context_beyond_the_models_own_is_warned_about() -> None:
    answer = calculate([Subject.listed("gpt2")], Settings(context=2_048))
    (warning,) = answer["models"][0]["warnings"]
    assert warning.startswith("The context of 2,048 tokens exceeds the maximum of GPT-2 (1,024)")
    assert calculate([Subject.listed("gpt2")], Settings(context=1_024))["models"][0]["warnings"] == []


def test_without_parameters_nothing_is_said_about_what_fits() -> None:
    subject = Subject.of_config(LLAMA, name="mine")
    (model,) = calculate([subject], Settings(context=100, gpu="h100"))["models"]
    assert model["capacity"] is None
    assert model["warnings"] == [
        "The parameter count of mine is unknown, so the capacity can't be calculated; add the count."
    ]
    known = Subject.of_config(LLAMA, name="mine", num_parameters=1_000)
    assert calculate([known], Settings(gpu="h100"))["models"][0]["capacity"]["weight_bytes"] == 2_000


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"context": 0}, "context must be a whole number from 1 to"),
        ({"batch": 5_000}, "batch must be a whole number from 1 to 4096 (got 5000)"),
        ({"prefix": 8_192}, "prefix must be a whole number from 0 to 8191 (got 8192)"),
        ({"dtype": "int3"}, "dtype must be fp32, bf16, fp16, fp8, int8, int4, q8_0, q4_0 (got 'int3')"),
        ({"weights_dtype": 8}, "weights_dtype must be fp32, "),
        ({"utilisation": 0}, "utilisation must be "),
        ({"utilisation": float("nan")}, "utilisation must be "),
        ({"gpus": 10_000}, "gpus must be a whole number from 1 to 1024"),
        ({"price_per_hour": -1}, "price_per_hour must be "),
        ({"bandwidth": float("inf")}, "bandwidth must be "),
    ],
)
def test_settings_outside_their_limits_get_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        Settings(**settings)
    assert error.value.message.startswith(sentence)


# Properties


DIMS = st.integers(1, 300)
GEOMETRIES = st.builds(
    lambda layers, heads, k, v, window, windowed, queries: geometry_of_numbers(
        {
            "layers": layers + windowed,
            "kv_heads": heads,
            "head_dim": k,
            "v_head_dim": v,
            "query_heads": heads * queries,
            "window": window,
            "windowed_layers": windowed,
        }
    ),
    st.integers(1, 60),
    st.integers(1, 64),
    DIMS,
    DIMS,
    st.integers(1, 5_000),
    st.integers(1, 60),
    st.integers(1, 8),
)
CONTEXTS = st.integers(1, 100_000)
DTYPE_NAMES = st.sampled_from(sorted(DTYPES))


@given(GEOMETRIES, CONTEXTS, st.integers(0, 1_000), DTYPE_NAMES)
def test_more_context_never_takes_less(found: Geometry, context: int, more: int, dtype: str) -> None:
    shorter = cache_bytes(found, context=context, dtype=dtype)
    longer = cache_bytes(found, context=context + more, dtype=dtype)
    assert shorter.total_bytes <= longer.total_bytes
    assert shorter.total_bytes_blocks <= longer.total_bytes_blocks
    grown = longer.total_bytes - shorter.total_bytes
    assert more * shorter.marginal_bytes_per_token <= grown <= more * shorter.bytes_per_token


@given(GEOMETRIES, CONTEXTS, st.integers(1, 500), DTYPE_NAMES, st.integers(1, 300))
def test_a_batch_is_so_many_sequences(found: Geometry, context: int, batch: int, dtype: str, block: int) -> None:
    one = cache_bytes(found, context=context, dtype=dtype, block_size=block)
    many = cache_bytes(found, context=context, batch=batch, dtype=dtype, block_size=block)
    for name in ("total_bytes", "total_bytes_blocks", "total_bytes_window_ignored"):
        assert getattr(many, name) == batch * getattr(one, name)
    assert many.bytes_per_token == one.bytes_per_token


@given(GEOMETRIES, CONTEXTS, st.integers(1, 50), st.integers(1, 300))
def test_blocks_add_less_than_one_block_a_sequence_and_group(
    found: Geometry, context: int, batch: int, block: int
) -> None:
    cache = cache_bytes(found, context=context, batch=batch, block_size=block)
    for part in cache.groups:
        added = part.total_bytes_blocks - part.total_bytes
        assert 0 <= added < batch * block * part.bytes_per_token
        assert part.total_bytes_blocks % (block * part.bytes_per_token) == 0
    assert cache_bytes(found, context=context, block_size=1).total_bytes_blocks * batch == cache.total_bytes


@given(GEOMETRIES, CONTEXTS, st.integers(1, 512))
def test_dtypes_stand_in_their_ratios(found: Geometry, context: int, group_size: int) -> None:
    totals = {
        name: cache_bytes(found, context=context, dtype=name, group_size=group_size).total_bytes for name in DTYPES
    }
    assert totals["fp32"] == 2 * totals["bf16"] == 2 * totals["fp16"] == 4 * totals["fp8"]
    assert totals["fp8"] < totals["int8"]
    assert totals["int4"] <= totals["int8"]
    assert totals["q4_0"] <= totals["q8_0"]
    assert totals["int8"] <= 5 * totals["fp8"]


@given(GEOMETRIES, st.integers(1, 4_000), st.integers(1, 12), st.integers(1, 64), st.integers(0, 3_999))
def test_what_fits_fits_and_one_more_does_not(
    found: Geometry, context: int, gpus: int, block: int, prefix: int
) -> None:
    settings = Settings(context=context, gpus=gpus, block_size=block, prefix=prefix % context)
    result = capacity(found, Parameters(total=10**9), Machine(name="", memory_bytes=40 * GIB), settings)
    needed = result.shared_prefix_bytes if settings.prefix else 0
    each = result.bytes_per_further_sequence if settings.prefix else result.bytes_per_sequence
    assert needed + result.max_sequences * each <= result.kv_budget_bytes or result.max_sequences == 0
    assert needed + (result.max_sequences + 1) * each > result.kv_budget_bytes
    assert result.max_sequences >= result.max_sequences_without_prefix or not settings.prefix
    assert result.bytes_per_sequence >= cache_bytes(found, context=context, block_size=block).total_bytes_blocks


HOSTILE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.sampled_from([10**30, float("nan"), float("inf"), -0.5, "", "x" * 1_000, "full_attention", "M*-", {}]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "0", "num_heads"]), inner),
    max_leaves=6,
)
NAMES = sorted(
    {name for case in CASES.values() for name in case["config"]}
    | {"block_types", "hybrid_layer_pattern", "attn_type_list", "per_layer_config", "kv_sharing_modes"}
    | {"cross_attention_layers", "window_length", "indexer_types", "no_rope_layers", "attn_layer_indices"}
)


@given(st.sampled_from(COUNTED), st.dictionaries(st.sampled_from(NAMES), HOSTILE, max_size=5))
def test_no_config_causes_anything_but_a_sentence(name: str, changes: dict[str, Any]) -> None:
    sentence = "calculated"
    try:
        subject = Subject.of_config({**CASES[name]["config"], **changes}, num_parameters=10**9)
        answer = calculate([subject], Settings(gpu="h100", gpus=2))
        json.dumps(answer, allow_nan=False)
    except KvvizError as error:
        sentence = error.message
    assert sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("model_type", ["bamba", "jamba", "lfm2", "lfm2_moe"])
def test_a_mixed_model_must_say_which_layers_attend(model_type: str) -> None:
    config = {"model_type": model_type, "num_hidden_layers": 8, "num_attention_heads": 8, "hidden_size": 512}
    with pytest.raises(ModelError, match=f"Only some layers of a {model_type} model have attention"):
        geometry_of_config(config)


# Configs that were once refused, or answered wrongly


def found(name: str) -> dict[str, Any]:
    return json.loads((HERE / "found" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "per_token", "parameters"),
    [
        ("qwen3-coder-480b", 62 * 2 * 8 * 128 * 2, 480e9),  # no shared expert: a width of 0
        ("hunyuan-a13b", 32 * 2 * 8 * 128 * 2, 80e9),  # sizes listed by layer
        ("granite-4.0-1b", 40 * 2 * 4 * 128 * 2, None),  # 0 experts
        ("longcat-flash", 28 * 2 * (512 + 64) * 2, None),  # two attentions in each layer; 560 B parameters
        ("dbrx", 40 * 2 * 8 * 128 * 2, None),  # experts in a nested ffn_config; 132 B parameters
    ],
)
def test_a_config_that_was_misread(name: str, per_token: int, parameters: float | None) -> None:
    subject = Subject.of_config(found(name))
    assert cache_bytes(subject.geometry, context=1).bytes_per_token == per_token
    if parameters is None:
        assert subject.parameters is None
        answer = calculate([subject], Settings(gpu="h100"))["models"][0]
        assert answer["capacity"] is None
        (warning,) = (each for each in answer["warnings"] if "so the capacity can't be calculated" in each)
        assert "(not understood: " in warning
    else:
        assert subject.parameters is not None
        assert subject.parameters.total == pytest.approx(parameters, rel=0.01)


@pytest.mark.parametrize(("name", "value"), [("vocab_size", "1000"), ("vocab_size", -1), ("hidden_size", float("inf"))])
def test_a_field_that_the_estimate_cannot_use_is_named(name: str, value: Any) -> None:
    subject = Subject.of_config({**LLAMA, "head_dim": 32, "vocab_size": 1_000, "intermediate_size": 512, name: value})
    warning = calculate([subject], Settings(gpu="h100"))["models"][0]["warnings"][-1]
    assert f"(not understood: {name})" in warning


def test_phi4_flash_caches_in_nine_layers() -> None:
    """Eight layers have a window, one the whole context, and the others reuse it (arXiv:2507.06607)."""
    geometry = geometry_of_config(found("phi4flash"))
    assert cache_bytes(geometry, context=32_768).total_bytes == (8 * 512 + 32_768) * 2 * 20 * 64 * 2 == 188_743_680


def test_an_optional_field_of_the_cache_may_be_none_in_any_spelling() -> None:
    for name in ("v_head_dim", "head_dim", "sliding_window", "attention_chunk_size", "index_head_dim", "kv_lora_rank"):
        for nothing in (0, None):
            assert per_token({**LLAMA, name: nothing}) == per_token(LLAMA), (name, nothing)
    assert per_token({**LLAMA, "head_dim": [32] * 4}) == per_token(LLAMA)
    assert per_token({**LLAMA, "v_head_dim": [16] * 4}) == 4 * 2 * (32 + 16) * 2


def test_minicpm3_has_40_heads_without_its_latent() -> None:
    """Its config leaves the value dimension to its class: 2,560 ÷ 40. 62 × 40 × (64 + 32 + 64) × 2 bytes."""
    config = {
        "model_type": "minicpm3",
        "num_hidden_layers": 62,
        "hidden_size": 2_560,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
        "kv_lora_rank": 256,
        "q_lora_rank": 768,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
    }
    cache = cache_bytes(geometry_of_config(config), context=1)
    assert cache.bytes_per_token == 62 * (256 + 32) * 2
    assert cache.uncompressed_bytes_per_token == 793_600


def test_the_refusal_of_t5gemma_counts_its_kv_heads() -> None:
    with pytest.raises(ModelError, match=f"{26 * 2 * 4 * 256 * 2:,} bytes per token"):
        geometry_of_config(found("t5gemma"))


def test_the_class_in_architectures_names_the_model_type() -> None:
    config = {name: value for name, value in found("qwen3-coder-480b").items() if name != "model_type"}
    assert geometry_of_config(config).model_type == "qwen3_moe"
    with pytest.raises(ModelError, match="encoder"):
        geometry_of_config({**LLAMA, "model_type": None, "architectures": ["T5ForConditionalGeneration"]})


def test_pattern_fields_that_are_not_understood_bound_the_total() -> None:
    warnings = geometry_of_config({**LLAMA, "model_type": "brand_new", "skip_every": 3}).warnings
    assert warnings[1].startswith("Not understood: skip_every. The total assumes")
    warnings = geometry_of_config({**LLAMA, "model_type": "brand_new", "sliding_window": 64}).warnings
    assert "the total is a lower bound" in warnings[1]


#: Fields that only the parameter estimate reads.
ESTIMATE_FIELDS = (
    "vocab_size",
    "intermediate_size",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "n_shared_experts",
    "first_k_dense_replace",
    "decoder_sparse_step",
    "expert_layer_period",
    "expert_layer_offset",
    "mlp_only_layers",
    "mlp_layer_types",
    "q_lora_rank",
    "tie_word_embeddings",
)


@pytest.mark.parametrize("value", [0, None, [], [8] * 4, [1, 2, 3, 4], -(10**18), 10**30, -50, 0.5, "x", {}, True])
@pytest.mark.parametrize("name", ESTIMATE_FIELDS)
def test_a_field_of_the_estimate_never_refuses_the_cache(name: str, value: Any) -> None:
    config = {**LLAMA, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "vocab_size": 1_000}
    subject = Subject.of_config({**config, name: value})
    assert cache_bytes(subject.geometry, context=1).bytes_per_token == per_token(LLAMA)
    assert subject.parameters is None or subject.parameters.total > 0
