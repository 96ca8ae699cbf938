"""Every causal class of transformers that builds small: it runs with its own tokens, or is refused in one sentence."""

from __future__ import annotations

import logging
import warnings
from collections import Counter

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from kvviz.config import EngineConfig
from kvviz.errors import ModelError
from kvviz.model.instrumented import InstrumentedModel
from tests.support.small_models import LATENT, OLD_SIZES, SIZES, WINDOW, PagedRun, plain_logits, prompt_ids

#: How many run with transformers 5.24; may only grow.
MIN_RUNNING = 90
MAX_PARAMETERS = 30_000_000
WINDOWED = {**SIZES, "head_dim": 16, "sliding_window": WINDOW, "attention_chunk_size": 16}
MIXED = {
    **WINDOWED,
    **OLD_SIZES,
    **LATENT,
    "d_model": 64,
    "ffn_dim": 128,
    "word_embed_proj_dim": 64,
    "rotary_dim": 8,
    "num_local_experts": 2,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 32,
    "n_routed_experts": 2,
    "q_lora_rank": 16,
}
SETTINGS = (
    WINDOWED,
    SIZES,
    {**SIZES, **OLD_SIZES, "rotary_dim": 8},
    {**MIXED, "num_key_value_heads": 2},
    {**MIXED, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 32},
    {**SIZES, "num_key_value_heads": 4},
)


def build(kind: str, settings: dict[str, object]) -> PreTrainedModel | None:
    """A random model, or None when transformers itself cannot build one of that kind and size."""
    try:
        config = AutoConfig.for_model(kind, **settings)
        with torch.device("meta"):
            size = sum(parameter.numel() for parameter in AutoModelForCausalLM.from_config(config).parameters())
        if size > MAX_PARAMETERS:
            return None
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval()
    except Exception:
        return None


def outcome(kind: str) -> str:
    """`runs`, `refused`, `not built`, or what went wrong."""
    result = "not built"
    for settings in SETTINGS:
        model = build(kind, settings)
        if model is None:
            continue
        try:
            observed = InstrumentedModel(model, name=kind, fingerprint="test")
        except ModelError as error:
            if "\n" in error.message:
                return f"unreadable refusal: {error.message}"
            result = "refused"
            continue
        try:
            return compare(observed)
        finally:
            observed.close()
    return result


def compare(observed: InstrumentedModel) -> str:
    """A prompt longer than the self-check's and than any window here, decoded on, against the plain forward."""
    run = PagedRun(observed, EngineConfig(block_size=4, num_blocks=20, prefill_chunk=16))
    token_ids = run(prompt_ids(45), 6)
    got = run.logits
    observed.close()
    want = plain_logits(observed.model, token_ids[:-1])
    difference = (got - want).abs().max() / (want.max() - want.min())
    if not difference <= 1e-4:
        return f"wrong: logits differ by {difference:.2g} of their range"
    if token_ids[45:] != want[44:].argmax(-1).tolist():
        return "wrong: other tokens"
    return "runs"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {kind: outcome(kind) for kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    finally:
        logging.disable(logging.NOTSET)


def test_no_model_passes_with_wrong_logits(outcomes: dict[str, str]) -> None:
    odd = {kind: result for kind, result in outcomes.items() if result not in ("runs", "refused", "not built")}
    assert not odd


def test_the_number_of_models_that_run_only_grows(outcomes: dict[str, str]) -> None:
    counts = Counter(outcomes.values())
    assert counts["runs"] >= MIN_RUNNING, counts
