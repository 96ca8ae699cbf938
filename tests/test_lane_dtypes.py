"""Lanes of models that compute in something else than float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kvviz.comparison.comparison import Comparison
from kvviz.comparison.figures import lane_figures
from kvviz.comparison.lane import parse_lanes
from kvviz.config import EngineConfig
from kvviz.errors import ModelError
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.rotation import check_rotation, find_rotation
from tests.support.small_models import LATENT, prompt_ids, small_model

DTYPES = {torch.float64: 8, torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}


def compared(specs: list[str], kind: str, dtype: torch.dtype, **settings: object) -> dict[str, dict[str, Any]]:
    instrumented = InstrumentedModel(small_model(kind, dtype, **settings), name="small", fingerprint="0" * 16)
    try:
        config = EngineConfig(block_size=4, num_blocks=32)
        comparison = Comparison(instrumented, None, config, parse_lanes(specs))
        comparison.add_tokens(prompt_ids(17), max_new_tokens=5)
        comparison.run()
    finally:
        instrumented.close()
    return {lane["name"]: lane for lane in lane_figures(comparison.header(), comparison.main.log.records())}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_pool_that_grows_stores_what_the_model_computes(dtype: torch.dtype) -> None:
    lanes = compared(["concat"], "llama", dtype)
    assert lanes["concat"]["bytes_per_token"] == 4 * 2 * 16 * 2 * DTYPES[dtype]
    assert lanes["concat"]["copied_bytes"] == (17 + 18 + 19 + 20) * 4 * 2 * 16 * 2 * DTYPES[dtype]
    assert lanes["concat"]["max_abs_logit_diff"] <= 1e-3 * max(1, torch.finfo(dtype).eps / 1e-4)


def test_a_pool_of_latents_grows_too() -> None:
    lanes = compared(["concat"], "deepseek_v3", torch.bfloat16, **LATENT)
    assert lanes["concat"]["bytes_per_token"] == 4 * (16 + 8) * 2
    assert lanes["concat"]["top1_agreement"] == 1.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_keys_of_few_digits_can_be_turned_back(dtype: torch.dtype) -> None:
    model = small_model("llama", dtype)
    for module in model.modules():
        if hasattr(module, "inv_freq"):  # as loading a model in this dtype leaves them
            module.inv_freq = small_model("llama").model.rotary_emb.inv_freq
    instrumented = InstrumentedModel(model, name="small", fingerprint="0" * 16)
    try:
        comparison = Comparison(instrumented, None, EngineConfig(), parse_lanes(["latent=64", "sinks=64"]))
        comparison.add_tokens(prompt_ids(17), max_new_tokens=5)
        comparison.run()
    finally:
        instrumented.close()
    for lane in lane_figures(comparison.header(), comparison.main.log.records()):
        assert lane["num_tokens"] == 5
        assert lane["mean_kl"] < 1e-3


def test_keys_that_turn_by_another_angle_are_refused_in_any_dtype() -> None:
    rotation = find_rotation(small_model("llama"))
    keys = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float32, torch.bfloat16):
        check_rotation(rotation, keys.to(dtype), rotation.rotate(keys, torch.tensor(37)).to(dtype), 37)
        with pytest.raises(ModelError, match="don't rotate"):
            check_rotation(rotation, keys.to(dtype), rotation.rotate(keys, torch.tensor(38)).to(dtype), 37)
