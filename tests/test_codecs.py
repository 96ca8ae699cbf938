"""Codecs against their definitions: what they keep exactly, how far off they may be, and what it takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.engine.runner import Segment
from kvviz.errors import ConfigError
from kvviz.model.codecs import CODECS, Codec
from kvviz.model.codecs.integers import pack, quantize, unpack
from kvviz.model.encoded_cache import EncodedCache
from kvviz.model.geometry import LayerGeometry, ModelGeometry
from kvviz.model.paged_cache import StepPlan

BLOCK = 16
CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "cases" / "engine.json").read_text(encoding="utf-8"))
    if case["id"].startswith("ev-")
}


def _layer(
    heads: int = 2, dim: int = 8, query_heads: int = 6, *, index: int = 0, cache: Literal["kv", "latent"] = "kv"
) -> LayerGeometry:
    return LayerGeometry(
        index=index,
        kind="full",
        window=None,
        chunk=None,
        cache=cache,
        key_shape=(heads, dim),
        value_shape=(heads, dim),
        query_heads=query_heads,
        kv_heads=heads,
        scaling=None,
        softcap=None,
        sinks=False,
    )


class Rotary:
    """Rotary positions by their definition: channels i and i + d/2 are a complex number, turned by position × speed."""

    def rotate(self, keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        half = keys.shape[-1] // 2
        speeds = 100.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = positions[..., None].double() * speeds
        turned = torch.complex(keys[..., :half].double(), keys[..., half:].double()) * torch.exp(1j * angles)
        return torch.cat((turned.real, turned.imag), -1).to(keys.dtype)


@dataclass
class Model:
    """A model of which nothing is known but one layer, and its entries for a text."""

    layers: Sequence[LayerGeometry]
    entries: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
    dtype: torch.dtype = torch.float32

    @property
    def geometry(self) -> ModelGeometry:
        return ModelGeometry(layers=tuple(self.layers), element_bytes=self.dtype.itemsize)

    def rotation(self) -> Rotary:
        return Rotary()

    def sample_entries(self) -> dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        assert self.entries is not None
        return {layer.index: self.entries for layer in self.layers}


def _prepared(name: str, layer: LayerGeometry, *, dtype: torch.dtype = torch.float32, **options: int) -> Codec:
    codec = CODECS.make(name, options)
    codec.prepare(Model([layer], dtype=dtype), BLOCK)
    return codec


def _there_and_back(codec: Codec, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Decoded entries; what is stored between must be what `parts` says."""
    positions = torch.arange(keys.shape[0] * keys.shape[2]).view(keys.shape[0], keys.shape[2])
    stored = codec.encode(0, keys, values, positions)
    announced = codec.parts(codec.layers[0], keys.shape[2])
    assert [(tuple(part.shape[1:]), part.dtype) for part in stored] == [(p.shape, p.dtype) for p in announced]
    return codec.decode(0, stored, positions)


@st.composite
def _blocks(draw: st.DrawFn, heads: int = 2, dim: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [n, h, t, d]: noise of any size, with channels and tokens that are constant, zero or far out."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    shape = (2, draw(st.integers(1, 2)), heads, BLOCK, dim)
    entries = torch.randn(shape, generator=generator) * draw(st.sampled_from([1e-6, 1e-2, 1.0, 50.0]))
    entries += draw(st.sampled_from([0.0, 0.1, -7.3, 1000.0]))
    level = st.sampled_from([0.0, -0.0, 0.3, -2.7, 1e4, -1e4, 1e-7])
    for _ in range(draw(st.integers(0, 3))):
        entries[..., draw(st.integers(0, dim - 1))] = draw(level)
    for _ in range(draw(st.integers(0, 3))):
        entries[..., draw(st.integers(0, BLOCK - 1)), :] = draw(level)
    for _ in range(draw(st.integers(0, 3))):
        entries[..., draw(st.integers(0, BLOCK - 1)), draw(st.integers(0, dim - 1))] = draw(level)
    return entries[0], entries[1]


def test_every_codec_describes_itself() -> None:
    assert set(CODECS) == {"fp32", "bf16", "fp16", "fp8", "int8", "int4", "gqa", "mha", "mqa", "latent"}
    assert {name for name, codec in CODECS.items() if codec.exact} == {"fp32", "gqa", "mha"}
    for name, codec in CODECS.items():
        told = codec.describe()
        assert told["name"] == name
        assert told["about"].endswith(".")
        assert told["title"]
        assert told["family"] == {"gqa": "heads", "mha": "heads", "mqa": "heads", "latent": "latent"}.get(name, "bits")


@pytest.mark.parametrize("name", ["fp32", "gqa"])
@settings(deadline=None)
@given(blocks=_blocks())
def test_exact_codecs_change_nothing(name: str, blocks: tuple[torch.Tensor, torch.Tensor]) -> None:
    for want, got in zip(blocks, _there_and_back(_prepared(name, _layer()), *blocks), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    ("name", "digits", "least"), [("bf16", 8, 2.0**-133), ("fp16", 11, 2.0**-24), ("fp8", 4, 2.0**-9)]
)
@settings(deadline=None)
@given(blocks=_blocks())
def test_floats_are_off_by_half_of_their_last_bit(
    name: str, digits: int, least: float, blocks: tuple[torch.Tensor, torch.Tensor]
) -> None:
    for want, got in zip(blocks, _there_and_back(_prepared(name, _layer()), *blocks), strict=True):
        want = want.clamp(-448, 448) if name == "fp8" else want
        error = (got.double() - want.double()).abs()
        assert (error <= torch.maximum(want.double().abs() * 2.0**-digits, torch.tensor(least / 2))).all()


def test_fp8_decodes_to_each_of_its_numbers() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    every = every[(every & 127) != 127].view(torch.float8_e4m3fn)  # 127 and 255 are NaN
    sign, exponent, fraction = (
        torch.tensor([code >> shift & mask for code in every.view(torch.uint8).tolist()])
        for shift, mask in ((7, 1), (3, 15), (0, 7))
    )
    normal = torch.where(exponent > 0, 1 + fraction / 8, fraction / 8) * 2.0 ** (exponent.clamp(min=1) - 7)
    stored = every.view(1, 1, 1, -1)
    keys, values = _prepared("fp8", _layer()).decode(0, (stored, stored), torch.zeros(1, 1))
    assert torch.equal(keys.flatten(), torch.where(sign == 1, -normal, normal))
    assert torch.equal(values, keys)


@pytest.mark.parametrize(("name", "limit"), [("fp16", 65504.0), ("fp8", 448.0), ("int8", 65504.0), ("int4", 65504.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_out_of_range_become_the_largest(name: str, limit: float, dtype: torch.dtype) -> None:
    entries = torch.full((1, 2, BLOCK, 8), 1e30, dtype=dtype)
    entries[:, 1] = -1e30
    for got in _there_and_back(_prepared(name, _layer(), dtype=dtype), entries, entries):
        assert torch.equal(got, entries.float().clamp(-limit, limit).to(dtype))


def _group_error(groups: torch.Tensor, dim: int, bits: int) -> torch.Tensor:
    """Half a step of the ideal grid, and what a 16-bit low end and step may add to it."""
    groups = groups.double()
    low, high = groups.amin(dim, keepdim=True), groups.amax(dim, keepdim=True)
    levels = 2**bits - 1
    ideal = (high - low) / levels
    added = (low.abs() * 2.0**-10 + 2.0**-24) / levels + ideal * 2.0**-10 + 2.0**-24
    return (ideal + added) / 2 + groups.abs() * 2.0**-22  # the last: of computing in 32 bits


@pytest.mark.parametrize(("name", "bits"), [("int8", 8), ("int4", 4)])
@settings(deadline=None)
@given(blocks=_blocks(), group=st.sampled_from([4, 8, 16, 32]))
def test_integers_are_off_by_half_a_step_of_their_group(
    name: str, bits: int, blocks: tuple[torch.Tensor, torch.Tensor], group: int
) -> None:
    keys, values = blocks
    codec = _prepared(name, _layer(), group=group)
    assert codec.grain == min(group, BLOCK)
    got_keys, got_values = _there_and_back(codec, keys, values)
    by_channel = keys.unflatten(2, (-1, min(group, BLOCK)))
    by_token = values.unflatten(3, (-1, min(group, 8)))
    assert ((got_keys - keys).abs().view_as(by_channel) <= _group_error(by_channel, 3, bits)).all()
    assert ((got_values - values).abs().view_as(by_token) <= _group_error(by_token, 4, bits)).all()


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_an_outlying_channel_of_keys_or_token_of_values_harms_no_other(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    plain, other = torch.rand(2, 1, 2, BLOCK, 8, generator=generator)
    keys, values = plain.clone(), other.clone()
    keys[..., 3] *= 1e4
    values[:, :, 5] *= 1e4
    codec = _prepared(name, _layer())
    want_keys, want_values = _there_and_back(codec, plain, other)
    got_keys, got_values = _there_and_back(codec, keys, values)
    assert torch.equal(got_keys[..., [0, 1, 2, 4, 5, 6, 7]], want_keys[..., [0, 1, 2, 4, 5, 6, 7]])
    others = [token for token in range(BLOCK) if token != 5]
    assert torch.equal(got_values[:, :, others], want_values[:, :, others])


def test_a_copied_block_is_its_source_even_where_another_was_in_full_precision() -> None:
    """An encoded block is copied over one that was recent: the recent entries were once read instead of the copy."""
    layer, size, recent = _layer(), 4, 8
    codec = CODECS.make("int8", {"recent": recent, "group": 4})
    codec.prepare(Model([layer]), size)
    cache = EncodedCache(
        ModelGeometry(layers=(layer,), element_bytes=4), codec, 8, size, torch.float32, torch.device("cpu")
    )
    num_tokens = 24
    entries = torch.randn(1, 2, num_tokens, 8, generator=torch.Generator().manual_seed(1))
    for start, stop in ((0, 20), (20, num_tokens)):
        segment = Segment(
            request_id=0,
            token_ids=range(start, stop),
            start=start,
            slots=range(start, stop),
            block_table=range(6),
            length=stop,
            sampling=None,
        )
        cache.begin(StepPlan.of([segment], size))
        cache.update(entries[:, :, start:stop], entries[:, :, start:stop], 0)
    source, target = torch.arange(size), torch.arange(5 * size, 6 * size)
    assert torch.equal(cache.entries("keys", 0, target), entries[0, :, target].transpose(0, 1)), "in full precision"
    encoded = cache.entries("keys", 0, source)
    assert not torch.equal(encoded, entries[0, :, source].transpose(0, 1)), "encoded"
    cache.copy_block(0, 5)
    for name in ("keys", "values"):
        assert torch.equal(cache.entries(name, 0, target), cache.entries(name, 0, source))
    assert torch.equal(cache.entries("keys", 0, source), encoded)


def test_integers_of_a_grid_are_exact() -> None:
    codes = torch.randint(0, 16, (3, 2, BLOCK, 8), generator=torch.Generator().manual_seed(1)).float()
    codes[:, :, 0], codes[:, :, 1] = 0, 15
    codes[..., 0], codes[..., 1] = 0, 15
    entries = codes * 0.25 - 2
    entries[:, :, :, 0], entries[:, :, :, 1] = -2, 1.75  # of keys: constant channels
    got_keys, got_values = _there_and_back(_prepared("int4", _layer()), entries, entries)
    assert torch.equal(got_keys, entries)
    assert torch.equal(got_values, entries)


@given(st.lists(st.integers(0, 15), min_size=2, max_size=64).filter(lambda codes: len(codes) % 2 == 0))
def test_packing_is_exact_and_halves_the_bytes(codes: list[int]) -> None:
    tensor = torch.tensor([codes, codes[::-1]], dtype=torch.uint8)
    packed = pack(tensor)
    assert packed.shape == (2, len(codes) // 2)
    assert packed.dtype == torch.uint8
    assert torch.equal(unpack(packed), tensor)


def test_case_of_integer_quantization() -> None:
    case = CASES["ev-int-quant"]
    for step, want in zip(case["steps"], case["expect"], strict=True):
        codes, scale, low = quantize(torch.tensor(step["x"]), 0, case["setup"]["bits"])
        assert codes.tolist() == want["q"]
        assert (scale.item(), low.item()) == (want["scale"], want["zero"])
        if "dequant" in want:
            assert (codes * scale.float() + low.float()).tolist() == want["dequant"]


def test_case_of_memory() -> None:
    case = CASES["ev-mem"]
    num_checked = 0
    for step, want in zip(case["steps"], case["expect"], strict=True):
        if step["op"] == "bytes_per_token":
            layer = _layer(step["kv_heads"], step["head_dim"], 32)
            codec = _prepared("fp16" if step["bytes"] == 2 else "fp32", layer)
            block_bytes = sum(part.num_bytes for part in codec.parts(layer, BLOCK))
        elif step["op"] == "bits_per_elem" and step["bits"] in (4, 8):
            layer = _layer(2, 64)
            codec = CODECS.make(f"int{step['bits']}", {"group": step["group"]})
            codec.prepare(Model([layer]), step["group"])
            parts = codec.parts(layer, step["group"])
            for part in (parts[:2], parts[2:]):
                assert 8 * sum(p.num_bytes for p in part) == want * 2 * 64 * step["group"]
            num_checked += 1
            continue
        else:
            continue
        assert block_bytes * step["layers"] == want * BLOCK
        num_checked += 1
    assert num_checked == 4


@pytest.mark.parametrize(("name", "bits"), [("int8", 8), ("int4", 4)])
@pytest.mark.parametrize("group", [4, 8, 16, 32, 64])
def test_bits_of_an_integer_are_its_own_and_its_share_of_the_group(name: str, bits: int, group: int) -> None:
    layer = _layer(3, 64)
    parts = _prepared(name, layer, group=group).parts(layer, BLOCK)
    for part, size in ((parts[:2], min(group, BLOCK)), (parts[2:], group)):
        assert 8 * sum(p.num_bytes for p in part) == (bits + 32 / size) * 3 * BLOCK * 64


@pytest.mark.parametrize(
    ("options", "dim", "said"),
    [({"group": 12}, 24, "block size 16"), ({"group": 16}, 24, "24 channels"), ({"group": 4}, 6, "6 channels")],
)
def test_groups_must_divide(options: dict[str, int], dim: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _prepared("int8", _layer(2, dim), **options)


def test_an_odd_number_of_channels_cannot_be_packed() -> None:
    with pytest.raises(ConfigError, match="even number of channels"):
        _prepared("int4", _layer(2, 7))
    _prepared("int8", _layer(2, 7))


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_options_of_integers_have_limits(name: str) -> None:
    assert CODECS.make(name, {}).chosen == {"group": 32, "recent": 16}
    assert CODECS.make(name, {"recent": 0}).recent == 0
    for options in ({"group": 3}, {"group": 257}, {"recent": -1}, {"recent": 4097}, {"rank": 4}):
        with pytest.raises(ConfigError):
            CODECS.make(name, options)


@settings(deadline=None)
@given(blocks=_blocks(heads=2))
def test_mha_repeats_each_head_for_its_query_heads(blocks: tuple[torch.Tensor, torch.Tensor]) -> None:
    codec = _prepared("mha", _layer(2, 8, query_heads=6))
    for want, got in zip(blocks, _there_and_back(codec, *blocks), strict=True):
        assert got.shape[1] == 6
        for query_head in range(6):
            assert torch.equal(got[:, query_head], want[:, query_head // 3])


@pytest.mark.slow
@settings(deadline=None)
@given(blocks=_blocks(heads=3))
def test_mqa_is_the_mean(blocks: tuple[torch.Tensor, torch.Tensor]) -> None:
    codec = _prepared("mqa", _layer(3, 8, query_heads=6))
    for want, got in zip(blocks, _there_and_back(codec, *blocks), strict=True):
        assert got.shape[1] == 1
        mean = (want[:, 0].double() + want[:, 1].double() + want[:, 2].double()) / 3
        torch.testing.assert_close(got[:, 0].double(), mean, rtol=1e-6, atol=1e-6 * want.abs().max().item() + 1e-12)


@pytest.mark.parametrize("name", ["gqa", "mha", "mqa", "latent"])
def test_native_latents_are_left_alone(name: str) -> None:
    with pytest.raises(ConfigError, match="latent"):
        _prepared(name, _layer(cache="latent"))


@pytest.mark.parametrize("name", [name for name in CODECS if name != "latent"])
def test_entries_come_back_in_the_dtype_of_the_model(name: str) -> None:
    entries = torch.randn(1, 2, BLOCK, 8, generator=torch.Generator().manual_seed(2)).bfloat16()
    for got in _there_and_back(_prepared(name, _layer(), dtype=torch.bfloat16), entries, entries):
        assert got.dtype == torch.bfloat16
        if CODECS[name].exact and name != "mha":
            assert torch.equal(got, entries)


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16", "fp8", "gqa", "mha", "mqa", "latent"])
def test_a_token_alone_is_encoded_as_in_its_block(name: str) -> None:
    layer, keys, values = _layer(), *_correlated(BLOCK, 0)
    codec = _latent(layer, 3) if name == "latent" else _prepared(name, layer)
    assert codec.grain == 1
    assert codec.recent == 0
    positions = torch.arange(BLOCK)[None] + 40
    whole = codec.encode(0, keys[None], values[None], positions)
    for token in range(BLOCK):
        at = slice(token, token + 1)
        alone = codec.encode(0, keys[None, :, at], values[None, :, at], positions[:, at])
        for part, one in zip(whole, alone, strict=True):
            torch.testing.assert_close(one.float(), part[:, :, at].float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", list(CODECS))
def test_no_block_is_no_entries(name: str) -> None:
    layer = _layer()
    codec = _latent(layer, 3) if name == "latent" else _prepared(name, layer)
    keys = torch.zeros(0, 2, BLOCK, 8)
    for got in _there_and_back(codec, keys, keys):
        assert got.shape[0] == 0
        assert got.shape[2:] == keys.shape[2:]


def _correlated(num_tokens: int, seed: int, first: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotated keys, and values, [2, t, 8] each, whose 32 columns follow 5 hidden numbers and a little noise."""
    hidden = torch.Generator().manual_seed(99)
    mixing = torch.randn(5, 32, generator=hidden) * torch.tensor([3, 2, 1, 0.5, 0.25])[:, None]
    offset = torch.randn(32, generator=hidden)
    mixing[:, 16:] *= 0.01  # values are much smaller than keys
    offset[16:] *= 0.01
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(num_tokens, 5, generator=generator) @ mixing + offset
    rows += torch.randn(num_tokens, 32, generator=generator) * torch.tensor([1e-2] * 16 + [1e-4] * 16)
    keys, values = rows.view(num_tokens, 2, 2, 8).permute(1, 2, 0, 3)
    return Rotary().rotate(keys, torch.arange(first, first + num_tokens)), values


def _latent(layer: LayerGeometry, rank: int, num_tokens: int = 200) -> Codec:
    codec = CODECS.make("latent", {"rank": rank})
    codec.prepare(Model([layer], (*_correlated(num_tokens, 1), torch.arange(num_tokens))), BLOCK)
    return codec


def _latent_errors(codec: Codec, num_blocks: int = 4) -> tuple[float, float]:
    """Relative errors of keys and values, of a text that the codec was not calibrated with, further on in it."""
    keys, values = _correlated(num_blocks * BLOCK, 7, first=1000)
    positions = torch.arange(1000, 1000 + num_blocks * BLOCK).view(num_blocks, BLOCK)
    blocks = [entries.unflatten(1, (num_blocks, BLOCK)).transpose(0, 1) for entries in (keys, values)]
    got = codec.decode(0, codec.encode(0, blocks[0], blocks[1], positions), positions)
    key_error, value_error = ((a - b).norm().item() / b.norm().item() for a, b in zip(got, blocks, strict=True))
    return key_error, value_error


@pytest.mark.parametrize("num_tokens", [200, 33, 20, 3])
@pytest.mark.parametrize("rank", [32, 8192])
def test_latent_of_full_rank_loses_nothing(num_tokens: int, rank: int) -> None:
    codec = _latent(_layer(), rank, num_tokens)
    assert codec.parts(_layer(), BLOCK)[0].shape == (1, BLOCK, 32)
    assert max(_latent_errors(codec)) < 1e-4


def test_latent_gets_better_with_its_rank() -> None:
    errors = [_latent_errors(_latent(_layer(), rank)) for rank in range(1, 33)]
    for better, worse in zip(errors[1:], errors, strict=False):
        # Each direction more takes something from the sum over both parts, each relative to its own size.
        assert sum(error**2 for error in better) <= sum(error**2 for error in worse) * 1.05
    assert min(errors[0]) > 0.1
    assert max(errors[4]) < 0.05  # the five hidden numbers, of keys and of the much smaller values
    assert max(errors[-1]) < 1e-4


def test_latent_of_calibrated_entries_is_the_best_of_its_rank() -> None:
    """Against the singular values that are left out (Eckart–Young), in the metric that weighs both parts alike."""
    keys, values = _correlated(200, 1)
    positions = torch.arange(200)
    plain = Rotary().rotate(keys, -positions)
    rows = torch.cat([plain.transpose(0, 1).flatten(1), values.transpose(0, 1).flatten(1)], 1).double()
    centered = rows - rows.mean(0)
    scales = [part.pow(2).mean().sqrt() for part in centered.split(16, 1)]  # type: ignore[no-untyped-call]
    singular = torch.linalg.svdvals(torch.cat([centered[:, :16] / scales[0], centered[:, 16:] / scales[1]], 1))
    for rank in (1, 3, 5, 20):
        codec = _latent(_layer(), rank)
        got_keys, got_values = codec.decode(
            0, codec.encode(0, keys[None], values[None], positions[None]), positions[None]
        )
        error = sum(
            ((got[0] - want).double() / scale).pow(2).sum()
            for got, want, scale in ((got_keys, keys, scales[0]), (got_values, values, scales[1]))
        )
        torch.testing.assert_close(error, singular[rank:].pow(2).sum(), rtol=1e-3, atol=1e-5)


def test_latent_of_entries_that_do_not_vary() -> None:
    constant = torch.full((2, 20, 8), 3.0)
    positions = torch.zeros(20, dtype=torch.long)
    codec = CODECS.make("latent", {"rank": 4})
    codec.prepare(Model([_layer()], (constant, constant, positions)), BLOCK)
    blocks = constant[None, :, :BLOCK]
    for got in _there_and_back_at(codec, blocks, torch.zeros(1, BLOCK, dtype=torch.long)):
        torch.testing.assert_close(got, blocks)


def _there_and_back_at(
    codec: Codec, entries: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return codec.decode(0, codec.encode(0, entries, entries, positions), positions)


def test_latents_are_stored_in_the_dtype_of_the_model() -> None:
    entries = tuple(part.bfloat16() for part in _correlated(200, 1))
    codec = CODECS.make("latent", {"rank": 32})
    codec.prepare(Model([_layer()], (entries[0], entries[1], torch.arange(200)), torch.bfloat16), BLOCK)
    part = codec.parts(_layer(), BLOCK)[0]
    assert part.dtype == torch.bfloat16
    blocks = entries[0][None, :, :BLOCK]
    for got in _there_and_back_at(codec, blocks, torch.arange(BLOCK)[None]):
        assert got.dtype == torch.bfloat16


@pytest.mark.parametrize("options", [{"rank": 0}, {"rank": 8193}, {"group": 32}])
def test_options_of_the_latent_have_limits(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        CODECS.make("latent", options)
