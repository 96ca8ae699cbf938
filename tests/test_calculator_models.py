"""The calculator against kvviz's own runs and codecs. Caches of transformers' classes: `test_sweep.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from kvviz.calculator import Geometry, cache_bytes, geometry_of_config
from kvviz.config import EngineConfig
from kvviz.model.codecs import CODECS
from kvviz.model.geometry import LayerGeometry, ModelGeometry
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.loading import LoadedModel
from kvviz.model.run import ModelRun
from tests.support.small_models import LATENT, WINDOW, small_model
from tests.support.small_tokenizers import byte_level

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
    instrumented = InstrumentedModel(model, name=kind, fingerprint="test")
    try:
        config = EngineConfig(num_blocks=12, block_size=4)
        header = ModelRun(instrumented, byte_level(), config).header()
        check_header(header, geometry_of_config(json.loads(json.dumps(model.config.to_dict(), default=str))), "fp32")
    finally:
        instrumented.close()


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
    instrumented = InstrumentedModel(
        default_model.model, name=default_model.name, fingerprint=default_model.fingerprint
    )
    try:
        header = ModelRun(instrumented, default_model.tokenizer, EngineConfig(), measure_misses=False).header()
    finally:
        instrumented.close()
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
