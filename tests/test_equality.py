"""Logits and tokens through the paged cache equal transformers' own, for every family and layout."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from transformers.cache_utils import DynamicCache

from kvviz.config import EngineConfig
from kvviz.errors import ModelError
from kvviz.model.instrumented import InstrumentedModel
from tests.support.sample import sampled
from tests.support.small_models import (
    LATENT,
    OLD_SIZES,
    WINDOW,
    PagedRun,
    fill_block,
    greedy_ids,
    plain_logits,
    prompt_ids,
    small_model,
)

FAMILIES: dict[str, dict[str, object]] = {
    "gpt2": OLD_SIZES,
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "mistral": {"sliding_window": WINDOW},
    "gemma2": {"head_dim": 16, "sliding_window": WINDOW},
    "gemma3_text": {"head_dim": 16, "sliding_window": WINDOW},
    "phi3": {},
    "gpt_neox": {},
    "opt": {"ffn_dim": 128, "word_embed_proj_dim": 64},
    "gpt_oss": {
        "head_dim": 16,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "sliding_window": WINDOW,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "deepseek_v2": LATENT | {"q_lora_rank": None, "n_routed_experts": 2},
    "deepseek_v3": LATENT | {"q_lora_rank": 16, "n_routed_experts": 8, "n_group": 2, "topk_group": 1},
}
PROMPT_LENGTH, NUM_NEW = 37, 20


def observe(model, kind: str) -> InstrumentedModel:
    return InstrumentedModel(model, name=kind, fingerprint="test")


@torch.inference_mode()
def own_chunked_difference(model, token_ids: list[int], chunk: int) -> float:
    """How far the model's own forward moves when transformers' own cache feeds it in chunks: its own rounding."""
    cache = DynamicCache(config=model.config)
    parts = []
    for start in range(0, len(token_ids), chunk):
        ids = torch.tensor([token_ids[start : start + chunk]])
        parts.append(model(input_ids=ids, cache=cache, use_cache=True).logits[0].double())
    return (torch.cat(parts) - plain_logits(model, token_ids)).abs().max().item()


@functools.cache
def said_by_transformers(kind: str) -> tuple[list[int], torch.Tensor]:
    """All ids of `generate()` and the plain logits of all but the last, once for all block sizes and chunks."""
    model = small_model(kind, **FAMILIES[kind])
    want = greedy_ids(model, prompt_ids(PROMPT_LENGTH), NUM_NEW)
    return want, plain_logits(model, want[:-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "block_size", "chunk"),
    sampled(itertools.product(FAMILIES, [1, 7, 16], [64, 16]), group=lambda case: case[0], per_group=2),
)
def test_fp32_logits_and_tokens_equal_transformers(kind: str, block_size: int, chunk: int) -> None:
    model, token_ids = small_model(kind, **FAMILIES[kind]), prompt_ids(PROMPT_LENGTH)
    want, expected = said_by_transformers(kind)
    instrumented = observe(model, kind)
    try:
        run = PagedRun(instrumented, EngineConfig(block_size=block_size, num_blocks=70, prefill_chunk=chunk))
        assert run(token_ids, NUM_NEW) == want
        assert not torch.isnan(run.logits).any()
        assert (run.logits - expected).abs().max() <= 1e-5
        assert run.num_forwards == -(-PROMPT_LENGTH // chunk) + NUM_NEW - 1 == run.engine.num_steps
    finally:
        instrumented.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAMILIES)
def test_fp64_logits_equal_to_a_billionth_of_their_range(kind: str) -> None:
    settings = dict(FAMILIES[kind])
    model = small_model(kind, torch.float64, **settings)
    if kind == "gpt_oss":  # its fused expert kernel knows no float64; transformers' plain one does
        model.set_experts_implementation("eager")
    token_ids = prompt_ids(PROMPT_LENGTH)
    want = greedy_ids(model, token_ids, NUM_NEW)
    expected = plain_logits(model, want[:-1])
    limit = 1e-9 * (expected.max() - expected.min()).item()
    if kind == "deepseek_v2":  # rotates in complex64, so chunks alone move its own logits
        limit = max(limit, 4 * own_chunked_difference(model, want[:-1], 1))
        assert limit < 1e-6
    instrumented = observe(model, kind)
    try:
        run = PagedRun(instrumented, EngineConfig(block_size=7, num_blocks=10, prefill_chunk=16))
        assert run(token_ids, NUM_NEW) == want
        assert (run.logits - expected).abs().max().item() <= limit
    finally:
        instrumented.close()


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3_text", "deepseek_v3"])
def test_the_pool_is_the_only_store(kind: str) -> None:
    """One changed number in a referenced slot of any layer changes the next logits; elsewhere it changes nothing."""
    model = small_model(kind, **FAMILIES[kind])
    instrumented = observe(model, kind)
    token_ids = prompt_ids(21)
    try:
        for layer in range(4):
            results = []
            for touch in (None, "referenced", "free"):
                run = PagedRun(instrumented, EngineConfig(block_size=4, num_blocks=12, prefill_chunk=64))
                run.engine.add_request(token_ids, max_new_tokens=4)
                request = run.engine.scheduler.waiting[0]
                run.engine.step()
                if touch == "referenced":
                    block_id, offset = divmod(request.slots(20, 21)[0], 4)
                    run.runner.cache.keys[layer][block_id, 0, offset, 0] += 3.0
                elif touch == "free":
                    fill_block(run.runner.cache, next(iter(run.engine.pool.free)))
                run.engine.step()
                assert run.runner.logits is not None
                results.append(run.runner.logits.clone())
            assert torch.equal(results[0], results[2])
            assert not torch.equal(results[0], results[1])
    finally:
        instrumented.close()


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2", "deepseek_v2"])
def test_a_prefix_hit_and_an_eviction_change_no_token(kind: str) -> None:
    model = small_model(kind, **FAMILIES[kind])
    first, second = prompt_ids(30), prompt_ids(30)[:25] + prompt_ids(9, seed=7)
    other = prompt_ids(33, seed=9)
    want = [greedy_ids(model, ids, 8) for ids in (first, second, other, first)]
    instrumented = observe(model, kind)
    try:
        run = PagedRun(instrumented, EngineConfig(block_size=4, num_blocks=12, prefill_chunk=8))
        got = [run(ids, 8) for ids in (first, second, other, first)]
        kinds = [record[2]["type"] for record in run.log.records()]
        assert got == want
        assert "block_evicted" in kinds
        if kind != "mistral":  # every layer of it has a window, so the first blocks are gone when the second comes
            assert "block_shared" in kinds
    finally:
        instrumented.close()


def test_blocks_out_of_every_window_are_released() -> None:
    model = small_model("mistral", **FAMILIES["mistral"])
    instrumented = observe(model, "mistral")
    try:
        run = PagedRun(instrumented, EngineConfig(block_size=4, num_blocks=7, prefill_chunk=8))
        token_ids = prompt_ids(60)
        assert run(token_ids, 30) == greedy_of_closed(model, instrumented, token_ids, 30)
        released = [r[2] for r in run.log.records() if r[2]["type"] == "blocks_released"]
        windows = [event for event in released if event["reason"]["code"] == "window"]
        assert windows
        for event in windows:
            assert all(4 * (index + 1) <= event["reason"]["window_start"] for index in event["logical_indices"])
    finally:
        instrumented.close()


def greedy_of_closed(model, instrumented: InstrumentedModel, token_ids: list[int], count: int) -> list[int]:
    """`generate()` with the model's own attention, then observed again."""
    instrumented.close()
    want = greedy_ids(model, token_ids, count)
    instrumented.door.open()
    return want


def test_bytes_come_from_the_tensors_and_equal_the_formula() -> None:
    model = small_model("llama")
    instrumented = observe(model, "llama")
    try:
        run = PagedRun(instrumented, EngineConfig(block_size=4, num_blocks=9))
        assert (
            instrumented.geometry.bytes_per_token == 2 * 4 * 2 * 16 * 4
        )  # K and V, layers, KV heads, dimension, bytes
        assert run.runner.cache.num_bytes == 9 * 4 * instrumented.geometry.bytes_per_token
        tensors = [*run.runner.cache.keys.values(), *run.runner.cache.values.values()]
        assert run.runner.cache.num_bytes == sum(tensor.nbytes for tensor in tensors)
    finally:
        instrumented.close()


def test_latent_attention_caches_the_latent() -> None:
    instrumented = observe(small_model("deepseek_v2", **FAMILIES["deepseek_v2"]), "deepseek_v2")
    instrumented.close()
    layer = instrumented.geometry.layers[0]
    assert (layer.cache, layer.key_shape, layer.value_shape) == ("latent", (1, 16), (1, 8))
    assert instrumented.geometry.bytes_per_token == 4 * (16 + 8) * 4


@pytest.mark.parametrize("kind", ["bert", "bloom", "mamba", "xlm-roberta"])
def test_models_that_cannot_be_shown_are_refused_in_one_sentence(kind: str) -> None:
    model = small_model(kind)
    own = model.config._attn_implementation
    with pytest.raises(ModelError, match=r"choose (another|a causal)") as caught:
        observe(model, kind)
    assert "\n" not in caught.value.message
    assert model.config._attn_implementation == own


def test_closing_gives_the_model_its_own_attention_back() -> None:
    model = small_model("llama")
    token_ids = prompt_ids(12)
    before = plain_logits(model, token_ids)
    observe(model, "llama").close()
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(plain_logits(model, token_ids), before)
