"""The calculator against real caches: every causal class of transformers that runs small, and kvviz's own runs."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from kvviz.calculator import Geometry, cache_bytes, geometry_of_config
from kvviz.calculator.fields import KNOWN_TYPES
from kvviz.config import EngineConfig
from kvviz.model.codecs import CODECS
from kvviz.model.geometry import LayerGeometry, ModelGeometry
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.loading import LoadedModel
from kvviz.model.run import ModelRun
from tests.support.small_models import LATENT, WINDOW, small_model
from tests.support.small_tokenizers import byte_level

#: For each class small settings with which it runs with transformers 5.24, and for the others why they do not.
CLASSES = json.loads((Path(__file__).parent / "cases" / "causal_models.json").read_text(encoding="utf-8"))
RUNS: dict[str, dict[str, Any]] = CLASSES["runs"]
#: More tokens than any window of the settings; a model adds its own learned ones.
CONTEXT = 24
LEARNED_TOKENS = {"cpmant": 32}
#: States of these are kept elsewhere than in the layers of the cache, or in a form that their config does not tell.
OTHER_STATES = ("minimax", "inkling_text", "inkling2_text", "inkling2_loop_text", "zaya", "bailing_hybrid")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def dtype_of(kind: str) -> torch.dtype:
    """Experts run on the meta device in 16 bits, or by their plain code in 32."""
    return getattr(torch, RUNS[kind].get("dtype", "float32"))


def real_cache(kind: str) -> tuple[dict[str, Any], list[dict[str, int]]]:
    """The config as transformers writes it, and bytes of each layer by what they are, after a forward."""
    config = AutoConfig.for_model(kind, **RUNS[kind]["settings"])
    if dtype_of(kind) == torch.float32:
        for part in (config, config.get_text_config()):
            part._experts_implementation = "eager"
    with torch.device(RUNS[kind]["device"]):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().to(dtype_of(kind))
    token_ids = torch.ones(1, CONTEXT, dtype=torch.long, device=RUNS[kind]["device"])
    with torch.no_grad():
        output = model(input_ids=token_ids, use_cache=True)
    cache = output.get("past_key_values", output.get("cache_params"))
    layers = [tensors_of(vars(layer)) for layer in getattr(cache, "self_attention_cache", cache).layers]
    return json.loads(json.dumps(model.config.to_dict(), default=str)), layers


def tensors_of(attributes: dict[str, Any]) -> dict[str, int]:
    """Bytes by the name of the attribute, lists and dictionaries of tensors summed."""
    sizes = {}
    for name, value in attributes.items():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        sizes[name] = sum(part.numel() * part.element_size() for part in parts if isinstance(part, torch.Tensor))
    return sizes


def total(layers: list[dict[str, int]], *names: str) -> int:
    return sum(size for layer in layers for name, size in layer.items() if name.startswith(names))


def one_less(geometry: Geometry) -> Geometry:
    """As transformers keeps windows between steps: W - 1 entries."""
    groups = tuple(replace(group, window=group.window - 1 if group.window else None) for group in geometry.groups)
    return replace(geometry, groups=groups)


@pytest.mark.parametrize("kind", RUNS)
def test_predicted_bytes_are_those_of_the_real_cache(kind: str) -> None:
    config, layers = real_cache(kind)
    geometry = geometry_of_config(config)
    context = CONTEXT + LEARNED_TOKENS.get(kind, 0)
    dtype = str(dtype_of(kind)).removeprefix("torch.")
    predicted = cache_bytes(geometry, context=context, dtype=dtype)
    accepted = {predicted.total_bytes, cache_bytes(one_less(geometry), context=context, dtype=dtype).total_bytes}
    real = total(layers, "keys", "values")
    assert real in accepted
    assert real > 0 or not geometry.groups
    assert total(layers, "index") == context * predicted.indexer_bytes_per_token
    if kind not in OTHER_STATES:
        # the convolutions of a model in 32 bits are in 32 bits too
        state, times = geometry.state, dtype_of(kind).itemsize // 2
        expected = state.recurrent_bytes + times * state.conv_bytes if state else 0
        assert total(layers, "conv", "recurrent") == expected


def test_every_causal_class_is_run_or_has_a_reason() -> None:
    classes = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert set(RUNS) | set(CLASSES["reasons"]) >= classes
    assert not set(RUNS) & set(CLASSES["reasons"])
    assert len(RUNS) >= 150


def test_what_runs_is_known() -> None:
    assert {run.get("model_type", kind) for kind, run in RUNS.items()} <= KNOWN_TYPES


# Runs of kvviz itself


SMALL: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"num_key_value_heads": 4}),
    ("gpt2", {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 256, "num_key_value_heads": None}),
    ("mistral", {"sliding_window": WINDOW}),
    ("gemma2", {"head_dim": 16, "sliding_window": WINDOW}),
    ("gemma3_text", {"head_dim": 16, "sliding_window": WINDOW, "num_hidden_layers": 6}),
    ("gpt_neox", {"num_key_value_heads": None}),
    ("qwen3", {"head_dim": 32}),
    ("deepseek_v2", {**LATENT, "head_dim": 8, "q_lora_rank": 16}),
]


@pytest.mark.parametrize(("kind", "settings"), SMALL)
def test_a_runs_memory_is_the_calculators(kind: str, settings: dict[str, Any]) -> None:
    model = small_model(kind, vocab_size=len(byte_level()), **settings)
    observed = InstrumentedModel(model, name=kind, fingerprint="test")
    try:
        config = EngineConfig(num_blocks=12, block_size=4)
        header = ModelRun(observed, byte_level(), config).header()
        check_header(header, geometry_of_config(json.loads(json.dumps(model.config.to_dict(), default=str))), "fp32")
    finally:
        observed.close()


def check_header(header: dict[str, Any], geometry: Geometry, dtype: str) -> None:
    """Bytes per token, layer by layer in sum, and of the whole pool as one sequence in whole blocks."""
    pool = header["pool"]
    num_tokens = pool["num_blocks"] * pool["block_size"]
    predicted = cache_bytes(geometry, context=num_tokens, dtype=dtype, block_size=pool["block_size"])
    assert pool["bytes_per_token"] == predicted.bytes_per_token
    assert sum(layer["bytes_per_token"] for layer in header["model"]["layers"]) == predicted.bytes_per_token
    # blocks of the pool run through all layers, so a window saves blocks only where every layer has one
    assert pool["bytes"] == predicted.total_bytes_window_ignored
    windows = {layer["window"] for layer in header["model"]["layers"]}
    assert windows == {group.window for group in geometry.groups}


def test_the_default_models_memory_is_the_calculators(default_model: LoadedModel) -> None:
    observed = InstrumentedModel(default_model.model, name=default_model.name, fingerprint=default_model.fingerprint)
    try:
        header = ModelRun(observed, default_model.tokenizer, EngineConfig(), measure_misses=False).header()
    finally:
        observed.close()
    geometry = geometry_of_config(json.loads(json.dumps(default_model.model.config.to_dict(), default=str)))
    check_header(header, geometry, "fp32")
    assert header["pool"]["bytes_per_token"] == 46_080


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16", "fp8", "int8", "int4"])
@pytest.mark.parametrize("group_size", [4, 8, 16])
def test_bytes_of_a_dtype_are_those_of_the_codec(name: str, group_size: int) -> None:
    """Where a group is no longer than a block, however many KV heads and channels there are."""
    block_size, heads, dim = 16, 3, 32
    layer = LayerGeometry(
        index=0,
        kind="full",
        window=None,
        chunk=None,
        cache="kv",
        key_shape=(heads, dim),
        value_shape=(heads, dim),
        query_heads=6,
        kv_heads=heads,
        scaling=None,
        softcap=None,
        sinks=False,
    )

    class Model:
        geometry = ModelGeometry(layers=(layer,), element_bytes=4)
        dtype = torch.float32

    codec = CODECS.make(name, {"group": group_size} if name.startswith("int") else {})
    codec.prepare(Model(), block_size)  # type: ignore[arg-type]
    stored = sum(part.num_bytes for part in codec.parts(layer, block_size))
    config = {"num_hidden_layers": 1, "num_attention_heads": 6, "num_key_value_heads": heads, "head_dim": dim}
    geometry = geometry_of_config(config)
    assert cache_bytes(geometry, context=block_size, dtype=name, group_size=group_size).total_bytes == stored
