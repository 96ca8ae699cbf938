"""Attention kernels against PyTorch's own `scaled_dot_product_attention`, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from kvviz.engine.runner import Segment
from kvviz.model import attention_kernels
from kvviz.model.attention_kernels import batched_attention, grouped_attention
from kvviz.model.paged_cache import EvenReads, StepPlan

NUM_HEADS, NUM_KV_HEADS, DIM, SCALING = 6, 2, 8, 0.3


def _entries(num_tokens: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (2, 1, NUM_KV_HEADS, num_tokens, DIM)
    key, value = torch.randn(shape, generator=generator, dtype=torch.float64)
    return key, value


def _queries(num_new: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1_000 + seed)
    return torch.randn(1, NUM_HEADS, num_new, DIM, generator=generator, dtype=torch.float64)


def _want(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [1, n, H, d] and the last query's weights [H, T]: those are the output over one-hot values."""
    num_new, num_tokens = query.shape[2], key.shape[2]
    behind = torch.arange(num_tokens - num_new, num_tokens)[:, None] - torch.arange(num_tokens)[None]
    seen = (behind >= 0) & (behind < (window or num_tokens))

    def attend(values: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, values, attn_mask=seen, scale=SCALING, enable_gqa=True
        )

    one_hot = torch.eye(num_tokens, dtype=torch.float64).expand(1, NUM_KV_HEADS, -1, -1)
    return attend(value).transpose(1, 2), attend(one_hot)[0, :, -1]


@pytest.mark.parametrize("window", [None, 3, 40])
@pytest.mark.parametrize(("num_new", "num_tokens"), [(1, 1), (1, 19), (7, 7), (7, 19), (19, 19)])
@pytest.mark.parametrize("queries_at_a_time", [1, 4, 1_000])
def test_grouped_attention_in_tiles(
    monkeypatch: pytest.MonkeyPatch, queries_at_a_time: int, num_new: int, num_tokens: int, window: int | None
) -> None:
    monkeypatch.setattr(attention_kernels, "TILE_VALUES", queries_at_a_time * NUM_HEADS * num_tokens)
    key, value = _entries(num_tokens, num_new)
    query = _queries(num_new, num_tokens)
    output, row = grouped_attention(query, key, value, window, SCALING)
    want_output, want_row = _want(query, key, value, window)
    torch.testing.assert_close(output, want_output, rtol=0, atol=1e-12)
    torch.testing.assert_close(row, want_row, rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [None, 3, 40])
@pytest.mark.parametrize("lengths", [(12, 12), (12, 9, 1), (5, 16, 11, 3)])
def test_single_queries_of_several_sequences(lengths: Sequence[int], window: int | None) -> None:
    num_slots = 16
    even = EvenReads.of(lengths, num_slots)
    parts = [_entries(length, seed) for seed, length in enumerate(lengths)]
    queries = [_queries(1, seed) for seed in range(len(lengths))]
    keys = torch.cat([torch.nn.functional.pad(key, (0, 0, 0, num_slots - key.shape[2])) for key, _ in parts], 2)
    values = torch.cat([torch.nn.functional.pad(value, (0, 0, 0, num_slots - value.shape[2])) for _, value in parts], 2)
    output, weights = batched_attention(torch.cat(queries, 2), keys, values, even, window, SCALING)
    for index, (query, (key, value), length) in enumerate(zip(queries, parts, lengths, strict=True)):
        want_output, want_row = _want(query, key, value, window)
        torch.testing.assert_close(output[:, index], want_output[:, 0], rtol=0, atol=1e-12)
        torch.testing.assert_close(weights[index, :, :length], want_row, rtol=0, atol=1e-12)
        assert not weights[index, :, length:].any()


def _segment(start: int, num_new: int, table: list[int]) -> Segment:
    length = start + num_new
    slots = [table[position // 4] * 4 + position % 4 for position in range(start, length)]
    return Segment(
        request_id=0,
        token_ids=list(range(num_new)),
        start=start,
        slots=slots,
        block_table=table,
        length=length,
        sampling=None,
    )


def test_tables_are_read_evenly_when_that_costs_little() -> None:
    plan = StepPlan.of([_segment(5, 1, [7, 3]), _segment(10, 1, [1, 2, 4])], 4)
    assert plan.read_blocks.tolist() == [7, 3, 3, 1, 2, 4]
    assert [segment.read_at for segment in plan.segments] == [0, 12]
    assert plan.even is not None
    assert plan.even.num_slots == 12
    assert plan.even.unread.tolist() == [6, 7, 8, 9, 10, 11, 23]


@pytest.mark.parametrize(
    "segments",
    [
        [_segment(5, 1, [7, 3])],
        [_segment(4, 2, [7, 3]), _segment(5, 1, [1, 2])],
        [_segment(0, 1, [7]), _segment(15, 1, [1, 2, 4, 5])],
    ],
    ids=["one alone", "a chunk", "one much longer"],
)
def test_tables_are_not_read_evenly(segments: list[Segment]) -> None:
    assert StepPlan.of(segments, 4).even is None
