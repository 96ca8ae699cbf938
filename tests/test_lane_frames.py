"""What is captured of a lane whose blocks were freed in the middle."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.comparison.comparison import Comparison
from kvviz.comparison.lane import parse_lanes
from kvviz.config import EngineConfig
from kvviz.model.instrumented import InstrumentedModel
from tests.support.small_models import prompt_ids, small_model

BLOCK_SIZE = 4


@pytest.mark.parametrize("spec", ["sinks=6,start=2", "latent=128+sinks=6,start=2"])
def test_a_branch_has_no_norms_of_blocks_that_were_freed_before_it_began(spec: str) -> None:
    instrumented = InstrumentedModel(small_model("llama"), name="small", fingerprint="0" * 16)
    try:
        config = EngineConfig(block_size=BLOCK_SIZE, num_blocks=32, prefill_chunk=64)
        comparison = Comparison(instrumented, None, config, parse_lanes([spec]))
        comparison.add_tokens(prompt_ids(29, seed=3), max_new_tokens=12)
        comparison.run()
    finally:
        instrumented.close()
    session = comparison.runs[1]
    events = [event for _, _, event in session.log.records()]
    forked = next(index for index, event in enumerate(events) if event["type"] == "request_forked")
    branch_id = events[forked]["request_id"]
    freed = {
        index * BLOCK_SIZE + offset
        for event in events[:forked]
        if event["type"] == "blocks_released" and event["reason"]["code"] == "forgotten"
        for index in event["logical_indices"]
        for offset in range(BLOCK_SIZE)
    }
    assert freed
    assert 0 not in freed, "the hole must lie in the middle"
    first = session.frames.norms(branch_id)[0]
    parent = np.full((4, first.start + first.key.shape[1]), np.nan, np.float16)
    for norms in session.frames.norms(0):
        parent[:, norms.start : norms.start + norms.key.shape[1]] = norms.key
    for column in range(first.key.shape[1] - 1):  # the last is the token in which they part
        position = first.start + column
        wanted = np.full(4, np.nan, np.float16) if position in freed else parent[:, position]
        np.testing.assert_allclose(first.key[:, column], wanted, rtol=1e-2, err_msg=str(position))
