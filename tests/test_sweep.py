"""Every causal class of transformers that builds small: logits, tokens and bytes of its cache are its own.

A class runs with its own logits and tokens, or is refused in one sentence; and the calculator predicts the bytes of its
cache. `pytest` takes one class of each kind of cache and every class that was once wrong, `make prove` all of them.
"""

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
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from kvviz.calculator import Geometry, cache_bytes, geometry_of_config
from kvviz.calculator.fields import KNOWN_TYPES
from kvviz.config import EngineConfig
from kvviz.errors import ModelError
from kvviz.model.instrumented import InstrumentedModel
from tests.support.sample import sampled
from tests.support.small_models import LATENT, OLD_SIZES, SIZES, WINDOW, PagedRun, plain_logits, prompt_ids

#: For each class small settings with which transformers 5.24 runs it, or why it does not; and those kvviz runs.
CLASSES = json.loads((Path(__file__).parent / "cases" / "causal_models.json").read_text(encoding="utf-8"))
pytestmark = pytest.mark.slow

RUNS: dict[str, dict[str, Any]] = CLASSES["runs"]
#: More tokens than any window of the settings; a model adds its own learned ones.
CONTEXT = 24
LEARNED_TOKENS = {"cpmant": 32}
#: States of these are kept elsewhere than in the layers of the cache, or in a form that their config does not tell.
OTHER_STATES = ("minimax", "inkling_text", "inkling2_text", "inkling2_loop_text", "zaya", "bailing_hybrid")
RUNNING = set(CLASSES["kvviz"])
#: Classes that were once wrong: tokens, a missed window, a false refusal, or predicted bytes.
ONCE_WRONG = (
    "afmoe",
    "bloom",
    "deepseek_v2",
    "doge",
    "falcon",
    "jetmoe",
    "llama",
    "llama4_text",
    "longcat_flash",
    "minicpm3",
    "phi3",
    "phimoe",
    "recurrent_gemma",
)
#: These take ten seconds or more each; others have the same kind of cache.
SLOW = ("granitemoehybrid", "kimi_linear")
#: Settings by which caches differ.
STRATA = ("sliding_window", "kv_lora_rank", "layer_types", "num_local_experts", "ssm_state_size")
KINDS = set(RUNS) | set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
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


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


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
            instrumented = InstrumentedModel(model, name=kind, fingerprint="test")
        except ModelError as error:
            if "\n" in error.message:
                return f"unreadable refusal: {error.message}"
            result = "refused"
            continue
        try:
            return compare(instrumented)
        finally:
            instrumented.close()
    return result


def compare(instrumented: InstrumentedModel) -> str:
    """A prompt longer than the self-check's and than any window here, decoded on, against the plain forward."""
    run = PagedRun(instrumented, EngineConfig(block_size=4, num_blocks=20, prefill_chunk=16))
    token_ids = run(prompt_ids(45), 6)
    got = run.logits
    instrumented.close()
    want = plain_logits(instrumented.model, token_ids[:-1])
    difference = relative_difference(got, want)
    if difference > 1e-4:  # where float32 itself is that coarse, float64 is the judge
        want = plain_logits(instrumented.model.double(), token_ids[:-1])
        difference = relative_difference(got, want)
    if not difference <= 1e-4:
        return f"wrong: logits differ by {difference:.2g} of their range"
    if token_ids[45:] != want[44:].argmax(-1).tolist():
        return "wrong: other tokens"
    return "runs"


def relative_difference(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got - want).abs().max() / (want.max() - want.min()))


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


def check_bytes(kind: str) -> None:
    """Predicted bytes are those of the real cache."""
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


def kind_of_cache(kind: str) -> tuple[object, ...]:
    """What the sample has one of each of."""
    run = RUNS.get(kind, {"settings": {}})
    return kind in RUNNING, run.get("device"), run.get("dtype"), *(name in run["settings"] for name in STRATA)


@pytest.mark.parametrize("kind", sampled(sorted(KINDS), group=kind_of_cache, always=ONCE_WRONG, never=SLOW))
def test_a_class_has_its_own_logits_tokens_and_bytes(kind: str) -> None:
    result = outcome(kind)
    assert result in ("runs", "refused", "not built")
    assert result == "runs" or kind not in RUNNING, "it ran before"
    if kind in RUNS:
        check_bytes(kind)


def test_every_causal_class_is_run_or_has_a_reason() -> None:
    classes = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert set(RUNS) | set(CLASSES["reasons"]) >= classes
    assert not set(RUNS) & set(CLASSES["reasons"])
    assert len(RUNS) >= 150
    assert len(RUNNING) >= 90


def test_what_runs_is_known() -> None:
    assert {run.get("model_type", kind) for kind, run in RUNS.items()} <= KNOWN_TYPES
